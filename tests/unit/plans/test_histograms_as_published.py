"""EFPA, P-HP and DAWA as published: what each does otherwise than the plan of ours that goes by its name."""

import math

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain
from consilience.domain.factors import Fourier, Intervals
from consilience.errors import DeclarationError
from consilience.kernels.transforms import FourierMap, most_frequencies, rows_of
from consilience.measuring import PricingGate, measure
from consilience.plans.published.histograms import DawaAsPublished, Efpa, EfpaAsPublished, PhpAsPublished
from consilience.privacy.budgets import budget
from consilience.source import open_table

SIZE = 64
DOMAIN = Domain("d", (Attribute.numeric("a", [*range(SIZE + 1)]),))
STEPS = np.repeat([20, 400, 90, 250], [16, 16, 24, 8])
SMOOTH = np.round(2000 + 1200 * np.cos(2 * np.pi * np.arange(SIZE) / SIZE)).astype(int)


def source_of(counts: np.ndarray):
    return open_table(pa.table({"a": np.repeat(np.arange(counts.size), counts)}), DOMAIN)


def starts_of(each) -> list[int]:
    ((_, factor),) = each.query.factors
    assert isinstance(factor, Intervals)
    return [DOMAIN["a"].code(label) for label in factor.starts]


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_efpa_has_the_noise_of_the_published_bound(unit: str) -> None:
    (each,) = measure(source_of(SMOOTH), EfpaAsPublished("a"), **{unit: 1.0}, simulate=0)
    ((_, factor),) = each.query.factors
    assert isinstance(factor, Fourier)
    rows = rows_of(SIZE, factor.frequencies)
    assert rows < SIZE / 2
    scale = each.noise.scale_parameter / math.sqrt(SIZE)  # in an orthonormal basis
    assert scale == pytest.approx(math.sqrt(rows) / 0.5 if unit == "epsilon" else 1.0, rel=1e-9)
    kept = FourierMap.on_lattice(SIZE, factor.frequencies, 20).dense() / math.sqrt(SIZE)
    needed = np.linalg.norm(kept, 1 if unit == "epsilon" else 2, axis=0).max()
    assert scale > 1.3 * (needed / 0.5 if unit == "epsilon" else needed)


class Asked(PricingGate):
    """A gate without data that keeps the score and the selector it was asked with."""

    def select(self, score, budget, *, selector="permute-and-flip"):
        self.score, self.selector = score, selector
        return super().select(score, budget, selector=selector)


def asked_by(plan) -> Asked:
    gate = Asked(DOMAIN, budget(epsilon=1), neighbours="add-remove", rows_per_unit=1)
    plan.run(gate)
    return gate


def test_efpa_weighs_every_number_of_frequencies_by_the_published_utility() -> None:
    published, ours = asked_by(EfpaAsPublished("a")), asked_by(Efpa("a", largest=8))
    assert (published.selector, ours.selector) == ("exponential", "permute-and-flip")
    assert list(published.score.candidates) == [*range(1, most_frequencies(SIZE) + 1)]
    assert list(ours.score.candidates) == [*range(2, 9)]
    rows = [rows_of(SIZE, frequencies) for frequencies in published.score.candidates]
    assert published.score.penalties == pytest.approx([math.sqrt(2) * each / 0.5 for each in rows])


def test_php_may_measure_the_total_alone() -> None:
    flat = np.full(SIZE, 3)
    seen = set()
    for seed in range(12):
        (each,) = measure(source_of(flat), PhpAsPublished("a"), epsilon=0.02, simulate=seed)
        seen.add(each.values.size)
    assert 1 in seen


@pytest.mark.parametrize("plan", [PhpAsPublished("a"), DawaAsPublished("a")], ids=["php", "dawa"])
def test_every_step_is_cut(plan) -> None:
    measured = measure(source_of(STEPS), plan, epsilon=60.0, simulate=3)
    assert {16, 32, 56} <= set(starts_of(measured.measurements[-1]))


def test_dawa_weighs_its_binary_tree_by_prefixes_unless_told_otherwise() -> None:
    counts = np.arange(SIZE) ** 2 * 50
    plans = (
        DawaAsPublished("a"),
        DawaAsPublished("a", ranges=[("0", str(last)) for last in range(SIZE)]),
        DawaAsPublished("a", ranges=[(str(code), str(code)) for code in range(SIZE)]),
    )
    default, prefixes, single = (measure(source_of(counts), plan, epsilon=9.0, simulate=1) for plan in plans)
    levels = [starts_of(each) for each in default]
    assert levels[-2] == levels[-1][::2]
    assert [each.noise for each in default] == [each.noise for each in prefixes]
    assert single.measurements[-1].noise.variance < default.measurements[-1].noise.variance


def test_arguments_that_make_no_sense_are_refused() -> None:
    for make in (
        lambda: EfpaAsPublished("a", selection_share=1.0),
        lambda: PhpAsPublished("a", partition_share=0.0),
        lambda: PhpAsPublished("a", levels=0),
        lambda: DawaAsPublished("a", ranges=[]),
    ):
        with pytest.raises(DeclarationError):
            make()
