"""Variants of PriView on the same noisy views: other ways to make them non-negative and to reconstruct marginals."""

from dataclasses import dataclass

import numpy as np

from benchmarks.problems.flags import FlagRecords
from benchmarks.reproduce.figures import Rows
from benchmarks.reproduce.qardaji2014.asked import PRIVIEW, WITHOUT_NOISE, Asked, Setting
from benchmarks.reproduce.qardaji2014.priview import Array, Nonnegativity, PriView, Reconstruction


@dataclass(frozen=True)
class Variant:
    """How the noisy views are treated, and what makes marginals of them."""

    name: str
    reconstruction: Reconstruction = "entropy"
    nonnegativity: Nonnegativity = "ripple"
    rounds: int = 1
    raw: bool = False
    """The noisy views as they are, without consistency."""
    noise: bool = True

    def views(self, each: PriView, epsilon: float, rng: np.random.Generator) -> Array:
        """The views from which marginals are reconstructed."""
        if not self.noise:
            return each.exact
        noisy = each.noisy(epsilon, rng)
        if self.raw:
            return noisy
        return each.synopsis(noisy, epsilon, nonnegativity=self.nonnegativity, rounds=self.rounds)


def compare(
    records: FlagRecords,
    each: PriView,
    variants: tuple[Variant, ...],
    epsilon: float,
    questions: list[Asked],
    seeds: range,
) -> Rows:
    """The errors of each variant on the same noise."""
    panel = f"{records.name}, {each.name}, ε = {epsilon:g}"
    rows: Rows = []
    for variant in variants:
        for asked in questions:
            setting = Setting(panel, asked, epsilon)
            answers = (
                each.marginals(
                    asked.sets,
                    variant.views(each, epsilon, setting.noise(each.name, seed)),
                    method=variant.reconstruction,
                )
                for seed in (seeds if variant.noise else seeds[:1])
            )
            rows += setting.rows(variant.name, PRIVIEW if variant.noise else WITHOUT_NOISE, answers)
        print(f"  {panel}, {variant.name}: done", flush=True)
    return rows
