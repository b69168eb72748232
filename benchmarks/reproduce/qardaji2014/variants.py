"""Variants of PriView on the same noisy views: other ways to make them non-negative and to reconstruct marginals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.problems.flags import FlagRecords
from benchmarks.reproduce.qardaji2014.asked import PRIVIEW, WITHOUT_NOISE, Asked, Rows, Setting, Size
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
    size: Size,
    *,
    slow: Mapping[tuple[str, int], Size] | None = None,
) -> Rows:
    """The errors of each variant on the same noise; those named in `slow`, with a k, on fewer sets and runs."""
    panel = f"{records.name}, {each.name}, ε = {epsilon:g}"
    rows: Rows = []
    for variant in variants:
        for asked in questions:
            less = (slow or {}).get((variant.name, asked.k), size)
            runs = min(less.runs, size.runs) if variant.noise else 1
            setting = Setting(panel, asked.first(less.sets), epsilon)
            answers = (
                each.marginals(
                    setting.asked.sets,
                    variant.views(each, epsilon, setting.noise(each.name, run)),
                    method=variant.reconstruction,
                )
                for run in range(runs)
            )
            rows += setting.rows(variant.name, PRIVIEW if variant.noise else WITHOUT_NOISE, answers)
        print(f"  {panel}, {variant.name}: done", flush=True)
    return rows
