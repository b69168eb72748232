"""PrivBayes: what it spends, which families it finds, and that its tables are as large as the noise allows."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Query
from consilience.domain.public_facts import PublicFacts
from consilience.errors import DeclarationError
from consilience.estimators.graphical import Graphical
from consilience.measurements import DiscreteGaussian, DiscreteLaplace, Measurement, MeasurementSet
from consilience.measuring import PricingGate, measure
from consilience.plans.published.privbayes import PrivBayes, Usefulness
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.privacy.network_scores import FamilyDependence
from consilience.source import Source, open_table

RNG = np.random.default_rng(0)
ROWS = 4000
SIZES = {"a": 2, "b": 3, "c": 4, "d": 3, "e": 60}


def problem(sizes: dict[str, int], codes: np.ndarray, *, public: bool = True) -> Source:
    facts = PublicFacts(total=len(codes)) if public else PublicFacts()
    domain = Domain("records", Domain.from_sizes(sizes).attributes, public=facts)
    return open_table(pa.table({name: codes[:, i].astype(str) for i, name in enumerate(sizes)}), domain)


def general_codes() -> np.ndarray:
    a = RNG.integers(0, 2, ROWS)
    b = np.where(RNG.random(ROWS) < 0.9, a, 2)
    c = RNG.integers(0, 4, ROWS)
    d = np.where(RNG.random(ROWS) < 0.9, c % 3, RNG.integers(0, 3, ROWS))
    return np.stack([a, b, c, d, RNG.integers(0, 60, ROWS)], axis=1)


GENERAL = problem(SIZES, general_codes())
UNKNOWN = problem(SIZES, general_codes(), public=False)
FLAG_CODES = RNG.integers(0, 2, (ROWS, 7))
FLAG_CODES[:, 4] = FLAG_CODES[:, 1] ^ (RNG.random(ROWS) < 0.02)
FLAG_CODES[:, 5] = FLAG_CODES[:, 2] ^ (RNG.random(ROWS) < 0.02)
FLAGS = problem(dict.fromkeys("abcdefg", 2), FLAG_CODES)


def families(measured: MeasurementSet) -> list[tuple[str, ...]]:
    return [each.query.attributes for each in measured]


def pairs_of(measured: MeasurementSet) -> set[frozenset[str]]:
    found = [names for names in families(measured) if len(names) > 1]
    return {frozenset((parent, names[-1])) for names in found for parent in names[:-1]}


@pytest.mark.parametrize("source", [GENERAL, UNKNOWN, FLAGS], ids=["general", "unknown total", "flags"])
@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.1}, {"epsilon": 1.0, "delta": 1e-6}])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_what_is_spent_sums_to_the_budget(source, amounts, relation, tmp_path) -> None:
    whole = budget(**amounts)
    gate = PricingGate(source.domain, whole, neighbours=relation, rows_per_unit=1)
    PrivBayes().run(gate)
    parts = [*gate.selections, *(price.budget for price in gate.prices)]
    spent = sum(Fraction(part.amount) for part in parts)
    assert spent <= Fraction(whole.amount)
    assert float(spent) == pytest.approx(float(whole.amount), rel=1e-9)
    ledger = Ledger.create(tmp_path / "l", dataset="records", total=whole)
    measured = measure(source, PrivBayes(), ledger=ledger, neighbours=relation, **amounts)
    assert ledger.spent == whole.amount
    assert set(SIZES if source is not FLAGS else "abcdefg") == {name for names in families(measured) for name in names}


@pytest.mark.parametrize("score", ["R", "I"])
def test_attributes_that_go_together_become_families(score) -> None:
    for seed in range(5):
        measured = measure(GENERAL, PrivBayes(seed=seed, score=score, degree=1), epsilon=20.0, simulate=seed)
        assert {frozenset("ab"), frozenset("cd")} <= pairs_of(measured)


@pytest.mark.parametrize("score", ["F", "R", "I"])
def test_flags_that_go_together_become_families(score) -> None:
    for seed in range(5):
        measured = measure(FLAGS, PrivBayes(seed=seed, score=score, degree=1), epsilon=20.0, simulate=seed)
        assert {frozenset("be"), frozenset("cf")} <= pairs_of(measured)


def test_hardly_any_budget_chooses_at_random() -> None:
    chosen = {
        str(sorted(map(sorted, pairs_of(measure(FLAGS, PrivBayes(degree=1), epsilon=1e-4, simulate=seed)))))
        for seed in range(10)
    }
    assert len(chosen) > 5


def test_every_family_follows_its_parents_and_brings_its_child() -> None:
    measured = measure(GENERAL, PrivBayes(), epsilon=3.0, simulate=1)
    seen: set[str] = set()
    for names in families(measured):
        assert names[-1] not in seen
        assert set(names[:-1]) <= seen
        seen.add(names[-1])
    assert seen == set(SIZES)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_tables_with_parents_are_useful_at_the_noise_they_get(relation) -> None:
    for epsilon in (0.3, 1.0, 10.0):
        measured = measure(GENERAL, PrivBayes(), epsilon=epsilon, neighbours=relation, simulate=0)
        scales = {round(each.noise.scale_parameter, 6) for each in measured}
        assert len(scales) == 1
        for each in measured:
            if len(each.query.attributes) > 1:
                assert ROWS / each.values.size >= 4 * np.sqrt(each.noise.variance / 2) * (1 - 1e-9)
    little, much = (families(measure(GENERAL, PrivBayes(), epsilon=each, simulate=0)) for each in (0.1, 10.0))
    assert max(map(len, little)) < max(map(len, much))


def test_flags_get_the_largest_useful_degree_and_one_table_for_the_first() -> None:
    """n ε₂ / ((d − k) 2^(k+2)) ≥ θ under replace-one, but for the small share of the first attribute."""
    for epsilon in (0.2, 1.0, 4.0):
        measured = measure(FLAGS, PrivBayes(), epsilon=epsilon, neighbours="replace-one", simulate=0)
        degree = max(len(names) for names in families(measured)) - 1
        useful = [k for k in range(7) if ROWS * 0.7 * epsilon * (6 / 7) / ((7 - k) * 2 ** (k + 2)) >= 4]
        assert degree == max(useful)
        tables = families(measured)[1:]
        assert len(tables) == 7 - degree
        assert {len(names) for names in tables} == {degree + 1}


def test_no_useful_pair_means_no_selection_and_all_the_budget_for_margins() -> None:
    for source, epsilon in ((GENERAL, 0.01), (FLAGS, 0.005)):
        gate = PricingGate(source.domain, budget(epsilon=epsilon), neighbours="replace-one", rows_per_unit=1)
        PrivBayes().run(gate)
        assert not gate.selections
        assert {len(each.bound.attributes) for price in gate.prices for each in price.queries} == {1}
        assert float(sum(price.budget.amount for price in gate.prices)) == pytest.approx(epsilon)


def test_attributes_too_large_for_any_family_stand_alone() -> None:
    measured = measure(GENERAL, PrivBayes(root="e"), epsilon=1.0, neighbours="replace-one", simulate=0)
    assert families(measured)[0] == ("e",)
    assert all("e" not in names for names in families(measured)[1:])
    assert any(len(names) > 1 for names in families(measured))
    gate = PricingGate(GENERAL.domain, budget(epsilon=1.0), neighbours="replace-one", rows_per_unit=1)
    PrivBayes(root="e").run(gate)
    assert len(gate.selections) == 3  # of four attributes, the first is not selected


def test_candidates_are_limited_and_drawn_by_the_seed() -> None:
    plans = [PrivBayes(max_candidates=3, seed=seed) for seed in (0, 0, 1)]
    runs = [families(measure(FLAGS, plan, epsilon=1.0, simulate=7)) for plan in plans]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_the_real_path_replays_what_the_ledger_holds(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="records", total=budget(epsilon=1))
    first = measure(GENERAL, PrivBayes(), ledger=ledger, epsilon=0.5)
    again = measure(GENERAL, PrivBayes(), ledger=ledger, epsilon=0.5)
    assert families(first) == families(again)
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert str(ledger.spent) == "0.5"


def test_precise_measurements_give_the_pairs_of_the_network_back() -> None:
    measured = measure(GENERAL, PrivBayes(degree=2), epsilon=200.0, simulate=0)
    exact = GENERAL.exact_counts([("a", "b"), ("c", "d")])
    for estimate in (PrivBayes().estimator().fit(measured), Graphical().fit(measured)):
        for names, table in zip([("a", "b"), ("c", "d")], exact, strict=True):
            assert np.abs(estimate.marginal(*names) - table).sum() < 0.02 * ROWS


def test_a_dry_run_tells_how_large_tables_may_be() -> None:
    known = measure(GENERAL.domain, PrivBayes(), epsilon=1.0, neighbours="replace-one", dry_run=True)
    assert any("70 cells" in note for note in known.notes)  # 4000 · 0.7 / (2 · 5 · 4)
    unknown = measure(UNKNOWN.domain, PrivBayes(), epsilon=1.0, dry_run=True)
    assert any("measured first" in note for note in unknown.notes)


def test_usefulness_follows_the_law_of_the_noise() -> None:
    def useful(noise, unit) -> Usefulness:
        found = Measurement(query=Query.marginal("a"), values=[30.0, 70.0], noise=noise)
        return Usefulness.of(found, Domain.from_sizes({"a": 2}), unit, 4.0)

    assert useful(DiscreteLaplace(5.0, 1.0), "epsilon").noise == pytest.approx(5.0, rel=0.01)
    assert useful(DiscreteGaussian(5.0, 1.0), "rho").noise == pytest.approx(5.0 * np.sqrt(2 / np.pi), rel=0.01)
    assert useful(DiscreteLaplace(5.0, 1.0), "epsilon").records == 100


def test_one_attribute_gets_everything() -> None:
    single = problem({"a": 3}, RNG.integers(0, 3, (50, 1)))
    measured = measure(single, PrivBayes(), epsilon=1.0, simulate=0)
    assert families(measured) == [("a",)]
    assert measured.measurements[0].noise.scale_parameter == pytest.approx(1.0)


def test_bad_declarations_are_refused_before_anything_is_spent(tmp_path) -> None:
    for settings, words in [
        ({"structure_share": 1.0}, "between 0 and 1"),
        ({"usefulness": 0.0}, "above 0"),
        ({"score": "Q"}, "auto, R, F, I"),
        ({"degree": -1}, "from 0 up"),
        ({"max_candidates": 0}, "1 to 1,000,000"),
        ({"seed": -1}, "seed"),
    ]:
        with pytest.raises(DeclarationError, match=words):
            PrivBayes(**settings)
    ledger = Ledger.create(tmp_path / "l", dataset="records", total=budget(epsilon=1))
    for plan, words in [(PrivBayes(score="F"), "two values"), (PrivBayes(root="z"), "name one of")]:
        with pytest.raises(DeclarationError, match=words):
            measure(GENERAL, plan, ledger=ledger, epsilon=0.5)
    continuous = Domain("points", (Attribute.continuous("x", (0.0, 1.0)),))
    with pytest.raises(DeclarationError, match="continuous"):
        measure(continuous, PrivBayes(), epsilon=1.0, dry_run=True)
    assert ledger.spent == 0


def test_plans_are_told_apart_by_every_setting() -> None:
    others = [
        PrivBayes(structure_share=0.5),
        PrivBayes(usefulness=5.0),
        PrivBayes(score="R"),
        PrivBayes(degree=2),
        PrivBayes(root="a"),
        PrivBayes(max_candidates=10),
        PrivBayes(seed=1),
        PrivBayes(selector="permute-and-flip"),
    ]
    assert len({str(plan.to_json()) for plan in [PrivBayes(), *others]}) == 9


class Watched(PricingGate):
    """A dry run that remembers what was to be selected from."""

    scores: list[FamilyDependence]

    def select(self, score, budget, *, selector="permute-and-flip"):
        self.scores = [*getattr(self, "scores", []), score]
        return super().select(score, budget, selector=selector)


def watched(plan: PrivBayes, records: int) -> Watched:
    flags = Domain.from_sizes({f"a{i}": 2 for i in range(17)})
    domain = Domain("many", flags.attributes, public=PublicFacts(total=records))
    gate = Watched(domain, budget(epsilon=1), neighbours="replace-one", rows_per_unit=1)
    plan.run(gate)
    return gate


def test_the_slow_score_is_for_numbers_of_records_that_it_has_time_for() -> None:
    few, many, asked = watched(PrivBayes(), 10_000), watched(PrivBayes(), 10**6), watched(PrivBayes(score="F"), 10**6)
    assert {score.dependence for score in few.scores} == {"F"}
    assert {score.dependence for score in many.scores} == {"R"}
    assert {score.dependence for score in asked.scores} == {"F"}
    parents = [max(len(family.parents) for score in gate.scores for family in score.families) for gate in (asked, many)]
    assert 1 <= parents[0] < parents[1]
    assert all(len(score.families) <= 5000 for score in (*few.scores, *many.scores, *asked.scores))
