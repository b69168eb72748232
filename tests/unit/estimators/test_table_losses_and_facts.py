"""`Table` with every loss, exact facts of every kind, whole counts, and counts of either sign."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from consilience.domain import Domain, Query, factors
from consilience.errors import ConsilienceError, DeclarationError, MeasurementError, TooLarge
from consilience.estimators import Table
from consilience.measurements import Exact, Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.solvers.fit import Infeasible, Status

DOMAIN = Domain.from_sizes({"a": 3, "b": 2, "c": 4}, name="tiny")
TRUTH = np.random.default_rng(1).poisson(6, DOMAIN.shape).astype(float)
LOSSES = ["l2", "l1", "elastic", "likelihood"]
PAIRS = [("a", "b"), ("b", "c"), ("c", "a")]
CELLS = [("a", "b", "c")]


def measured(cliques=PAIRS, *, law: Any = Laplace, scale: float = 3.0, domain: Domain = DOMAIN, seed: int = 2):
    rng = np.random.default_rng(seed)
    found = []
    for names in cliques:
        query = Query.marginal(*names)
        exact = query.bind(DOMAIN).answer_full(TRUTH).ravel()
        found.append(Measurement(query, exact + rng.laplace(0, scale, exact.size), law(scale)))
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def knowing(base: MeasurementSet, query: Query, values) -> MeasurementSet:
    """The set with one more exact answer."""
    return replace(base, measurements=(*base, Measurement(query, np.asarray(values, dtype=float), Exact(), id="fact")))


def written_out(which: MeasurementSet) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and values in units of b, and the exact ones."""
    units = np.eye(DOMAIN.cells).reshape(-1, *DOMAIN.shape)
    rows, values, exact, facts = [], [], [], []
    for each in which:
        matrix = np.array([each.query.bind(DOMAIN).answer_full(unit).ravel() for unit in units]).T
        if isinstance(each.noise, Exact):
            exact.append(matrix)
            facts.append(each.values)
        else:
            b = np.sqrt(each.noise.variance / 2)
            rows.append(matrix / b)
            values.append(each.values / b)
    nothing = np.zeros((0, DOMAIN.cells))
    return np.vstack(rows), np.concatenate(values), np.vstack([nothing, *exact]), np.concatenate([[], *facts])


@pytest.mark.parametrize("cliques", [PAIRS, CELLS, CELLS * 2], ids=["pairs", "cells", "cells twice"])
@pytest.mark.parametrize("fact", ["nothing", "a margin", "a range", "two margins"])
def test_the_l1_estimate_is_the_linear_programmes(cliques, fact: str) -> None:
    which = measured(cliques)
    if fact == "a margin":
        which = which.with_public(margins={("c", "b"): TRUTH.sum(0).T})
    elif fact == "a range":
        which = knowing(which, Query.parse("c=1..2 by a"), TRUTH[:, :, 1:3].sum((1, 2)))
    elif fact == "two margins":
        which = which.with_public(total=TRUTH.sum(), margins={"a": TRUTH.sum((1, 2)), "b": TRUTH.sum((0, 2))})
    matrix, values, exact, facts = written_out(which)
    rows, known = len(values), len(facts)
    blocks = np.block([[matrix, -np.eye(rows), np.eye(rows)], [exact, np.zeros((known, 2 * rows))]])
    cost = np.concatenate([np.zeros(DOMAIN.cells), np.ones(2 * rows)])
    best = linprog(cost, A_eq=blocks, b_eq=np.concatenate([values, facts]), bounds=(0, None)).fun
    fitted = Table(loss="l1", hold_total=False).fit(which)
    objective = np.abs(matrix @ fitted.marginal("a", "b", "c").ravel() - values).sum()
    assert fitted.status is Status.CONVERGED
    assert objective == pytest.approx(float(fitted.stats["objective"]), rel=1e-6)
    assert best - 1e-6 <= objective <= best + 1.1e-4 * max(best, rows)
    assert objective - float(fitted.stats["gap"]) <= best + 1e-6
    assert exact @ fitted.marginal("a", "b", "c").ravel() == pytest.approx(facts, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cliques", [PAIRS, CELLS], ids=["pairs", "cells"])
def test_facts_of_every_kind_are_kept(loss: str, cliques) -> None:
    rule = [{"a": ["0"], "b": ["1"]}]
    domain = Domain.from_declaration(DOMAIN.to_declaration() | {"impossible": rule, "public": {"total": 60}})
    which = knowing(measured(cliques, domain=domain), Query.parse("c=0|2"), [33.0])
    which = which.with_public(margins={"b": [40.0, 20.0]})
    fitted = Table(loss=loss).fit(which)  # pyright: ignore[reportArgumentType]
    assert fitted.status is Status.CONVERGED
    assert fitted.total == pytest.approx(60, rel=1e-9)
    assert fitted.marginal("b") == pytest.approx([40, 20], rel=1e-9)
    assert fitted.answer("c=0|2").item() == pytest.approx(33, rel=1e-9)
    assert fitted.marginal("a", "b")[0, 1] == 0
    assert fitted.marginal("a", "b", "c").min() >= 0
    assert fitted.stats["exact_answers"] == 4


@pytest.mark.parametrize("loss", LOSSES)
def test_known_zeros_empty_their_cells(loss: str) -> None:
    which = measured().with_public(margins={"c": [40.0, 0.0, 50.0, 30.0]})
    fitted = Table(loss=loss).fit(which)  # pyright: ignore[reportArgumentType]
    assert fitted.marginal("c") == pytest.approx([40, 0, 50, 30], rel=1e-9)
    assert not fitted.marginal("a", "b", "c")[:, :, 1].any()
    empty = Table(loss=loss).fit(measured().with_public(total=0))  # pyright: ignore[reportArgumentType]
    assert empty.total == 0
    assert empty.status is Status.CONVERGED


CONTRADICTIONS = {
    "margins that disagree on b": (
        {("a", "b"): [[9, 1], [9, 1], [9, 1]], ("b", "c"): [[1, 1, 1, 1], [6, 7, 7, 6]]},
        None,
    ),
    "a negative answer": ({}, ("c=0..1", [-4.0])),
    "more in a part than in the whole": ({"a": [10.0, 10.0, 10.0]}, ("a=0", [12.0])),
    "records in impossible cells": ({"c": [10.0, 10.0, 10.0, 10.0]}, ("a=0 by b", [3.0, 5.0])),
}


@pytest.mark.parametrize("cliques", [PAIRS, CELLS], ids=["pairs", "cells"])
@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_facts_that_no_table_has_are_refused_in_words(case: str, cliques) -> None:
    margins, more = CONTRADICTIONS[case]
    rule = [{"a": ["0"], "b": ["1"]}]
    domain = Domain.from_declaration(DOMAIN.to_declaration() | {"impossible": rule}) if "impossible" in case else DOMAIN
    which = measured(cliques, domain=domain)
    for names, values in margins.items():
        query = Query.marginal(*((names,) if isinstance(names, str) else names))
        fact = Measurement(query, np.array(values, dtype=float), Exact(), id=f"fact {names}")
        which = replace(which, measurements=(*which, fact))
    if more is not None:
        which = knowing(which, Query.parse(more[0]), more[1])
    with pytest.raises(Infeasible, match=r"the public .*misses one of them by") as caught:
        Table().fit(which)
    assert caught.value.violation > 0.5
    assert all(name.startswith("the public") for name in caught.value.constraints)


def test_a_margin_that_impossible_cells_block_is_refused() -> None:
    rule = [{"a": ["0"], "b": ["0"]}, {"a": ["0"], "b": ["1"]}]
    domain = Domain.from_declaration(DOMAIN.to_declaration() | {"impossible": rule})
    which = knowing(measured(domain=domain), Query.marginal("a"), [5.0, 10.0, 10.0])
    with pytest.raises(Infeasible) as caught:
        Table().fit(which)
    assert caught.value.violation == pytest.approx(5.0, rel=0.5)
    nothing = [{"a": ["0", "1", "2"]}]
    domain = Domain.from_declaration(DOMAIN.to_declaration() | {"impossible": nothing, "public": {"total": 3}})
    with pytest.raises(Infeasible, match="no cell can hold it"):
        Table().fit(measured(domain=domain))


def test_the_likelihood_takes_each_measurements_own_law() -> None:
    laplace = measured([("a", "b")], law=Laplace)
    gauss = measured([("b", "c")], law=Gaussian, seed=3)
    both = replace(laplace, measurements=(*laplace, *gauss))
    fitted = Table(loss="likelihood", tolerance=1e-6).fit(both)
    cost = sum(-each.noise.log_density(fitted.answer(each.query).ravel() - each.values).sum() for each in both)
    least = sum(-each.noise.log_density(0.0) * each.values.size for each in both)
    assert float(fitted.stats["objective"]) == pytest.approx(float(cost - least), rel=1e-6)
    for loss in ("l1", "l2", "elastic"):
        other = Table(loss=loss, tolerance=1e-6).fit(both)
        worse = sum(-each.noise.log_density(other.answer(each.query).ravel() - each.values).sum() for each in both)
        assert worse >= cost - 1e-4


def test_repeated_tables_count_as_their_weighted_mean() -> None:
    once, again = measured(CELLS, scale=1.0), measured(CELLS, scale=3.0, seed=4)
    both = replace(once, measurements=(*once, *again))
    fitted = Table().fit(both)
    mean = (once.measurements[0].values * 9 + again.measurements[0].values) / 10
    assert fitted.marginal("a", "b", "c").ravel() == pytest.approx(np.maximum(mean, 0.0))
    residuals = [
        (fitted.marginal("a", "b", "c").ravel() - each.values) ** 2 / (2 * each.noise.variance) for each in both
    ]
    assert float(fitted.stats["objective"]) == pytest.approx(float(np.sum(residuals)))


def test_answers_that_were_not_released_only_hold_the_fit_below_their_threshold() -> None:
    values = np.array([30.0, np.nan, 20.0])
    query = Query.marginal("a")
    censored = Measurement(query, values, Laplace(1.0), censored=np.isnan(values), threshold=5.0)
    total = Measurement(Query.marginal(), np.array([70.0]), Laplace(0.2))
    which = MeasurementSet(DOMAIN, (censored, total), PrivacyStatement(), {}, private=False)
    for loss in ("l1", "l2", "likelihood"):
        fitted = Table(loss=loss, tolerance=1e-6, hold_total=False).fit(which)
        if loss == "l2":
            # r₀ = r₁ = r₂ = s and 15 − 3s = r, with s/2 = r/0.08: the surplus of 15 is shared by precision.
            assert fitted.marginal("a") == pytest.approx([30 + 4.93, 5 + 4.93, 20 + 4.93], abs=0.05)
        else:
            assert fitted.total == pytest.approx(70, abs=0.05)
        assert fitted.marginal("a")[1] >= 5 - 0.05
        assert fitted.stats["measured_answers"] == 3
        assert fitted.stats["bounded_answers"] == 1
    below = Measurement(Query.marginal(), np.array([52.0]), Laplace(0.2))
    kept = Table(tolerance=1e-6).fit(replace(which, measurements=(censored, below)))
    assert kept.marginal("a") == pytest.approx([30, 2, 20], abs=0.05)


def test_clipped_zeros_of_differences_are_bounds() -> None:
    haar = Query.of({"b": factors.Haar()})
    clipped = Measurement(haar, np.array([20.0, 0.0]), Laplace(1.0), clipped=True)
    sharp = Measurement(Query.marginal("b"), np.array([6.0, 14.0]), Laplace(0.5))
    which = MeasurementSet(DOMAIN, (clipped, sharp), PrivacyStatement(), {}, private=False)
    fitted = Table(tolerance=1e-8).fit(which)
    assert fitted.marginal("b") == pytest.approx([6, 14], abs=1e-2)
    assert fitted.stats["bounded_answers"] == 1


@pytest.mark.parametrize("cliques", [PAIRS, CELLS], ids=["pairs", "cells"])
@pytest.mark.parametrize("facts", ["none", "total", "margins"])
def test_whole_counts_keep_every_fact(cliques, facts: str) -> None:
    which = measured(cliques)
    if facts == "total":
        which = which.with_public(total=150)
    elif facts == "margins":
        which = which.with_public(margins={"a": TRUTH.sum((1, 2)), ("b", "c"): TRUTH.sum(0)})
    fitted = Table(integers=True).fit(which)
    counts = fitted.marginal("a", "b", "c")
    assert np.array_equal(counts, np.round(counts))
    assert counts.min() >= 0
    for each in which:
        if isinstance(each.noise, Exact):
            assert np.array_equal(fitted.answer(each.query).ravel(), each.values)
    assert np.abs(counts - Table().fit(which).marginal("a", "b", "c")).max() <= 2


def test_whole_counts_are_refused_where_none_exist() -> None:
    with pytest.raises(ConsilienceError, match="no sum of whole counts"):
        Table(integers=True).fit(measured().with_public(margins={"a": [10.5, 10.0, 9.5]}))
    with pytest.raises(DeclarationError, match="all exact facts are marginals"):
        Table(integers=True).fit(knowing(measured(), Query.parse("c=0|2"), [33.0]))


def test_signed_counts_are_unbiased_least_squares() -> None:
    low = measured(CELLS, scale=20.0)
    free = Table(nonnegative=False).fit(low)
    assert free.marginal("a", "b", "c").ravel() == pytest.approx(low.measurements[0].values)
    pairs = knowing(measured(PAIRS, scale=20.0), Query.parse("c=0|2"), [33.0])
    fitted = Table(nonnegative=False).fit(pairs)
    matrix, values, exact, facts = written_out(pairs)
    counts = fitted.marginal("a", "b", "c").ravel()
    gradient = matrix.T @ (matrix @ counts - values)
    shared = exact.T @ np.linalg.lstsq(exact.T, gradient, rcond=None)[0]
    assert gradient == pytest.approx(shared, abs=1e-7)
    assert exact @ counts == pytest.approx(facts)
    assert fitted.status is Status.CONVERGED


@pytest.mark.parametrize("loss", ["l1", "elastic"])
def test_small_signed_tables_take_every_loss(loss: str) -> None:
    which = measured(PAIRS, scale=20.0).with_public(total=100)
    fitted = Table(loss=loss, nonnegative=False).fit(which)  # pyright: ignore[reportArgumentType]
    assert fitted.total == pytest.approx(100)
    assert fitted.status is Status.CONVERGED
    bounded = Table(loss=loss).fit(which)  # pyright: ignore[reportArgumentType]
    assert float(fitted.stats["objective"]) <= float(bounded.stats["objective"]) + 1e-6


def test_what_signed_tables_cannot_do_is_said_first() -> None:
    big = Domain.from_sizes({"a": 60, "b": 60})
    rng = np.random.default_rng(0)
    which = MeasurementSet.from_marginals(
        big, {"a": rng.normal(9, 1, 60), "b": rng.normal(9, 1, 60)}, noise=Laplace(1.0), private=False
    )
    assert not Table(loss="l1", nonnegative=False).suitability(which).possible
    with pytest.raises(TooLarge, match="2,000 cells"):
        Table(loss="l1", nonnegative=False).fit(which)
    assert Table(nonnegative=False).fit(which).status is Status.CONVERGED
    values = np.array([9.0, np.nan, 8.0])
    censored = Measurement(Query.marginal("a"), values, Laplace(1.0), censored=np.isnan(values), threshold=5.0)
    with pytest.raises(MeasurementError, match="only a bound"):
        Table(nonnegative=False).fit(MeasurementSet(DOMAIN, (censored,), PrivacyStatement(), {}, private=False))


@pytest.mark.parametrize("options", [{"loss": "l3"}, {"alpha": 2.0}, {"tolerance": -1.0}])
def test_options_without_meaning_are_refused(options) -> None:
    with pytest.raises(DeclarationError):
        Table(**options).fit(measured())


def test_cells_that_squares_leave_empty_come_back_for_absolute_values() -> None:
    """The fit of squares, from which the search starts, has two empty cells; the best L1 fit needs one of them."""
    domain = Domain.from_sizes({"x": 2, "y": 4})
    haar = [25.68924122, 1.93109003, -1.0716594, 2.61550646]
    cells = [-23.67192039, 3.04764661, 10.30840722, -18.99193478, 1.40849449, 5.31035547, 9.41309015, -17.13196202]
    which = (
        Measurement(Query.of({"y": factors.Haar()}), np.array(haar), Gaussian(2.5)),
        Measurement(Query.marginal("y", "x"), np.array(cells), Laplace(10.0)),
        Measurement(Query.of({"x": factors.Prefix()}), np.array([20.0, 30.0]), Exact()),
    )
    fitted = Table(loss="l1").fit(MeasurementSet(domain, which, PrivacyStatement(), {}, private=False))
    assert fitted.status is Status.CONVERGED
    assert fitted.marginal("x") == pytest.approx([20, 10])


@pytest.mark.parametrize("loss", LOSSES)
def test_estimates_scale_with_counts_and_noise(loss: str) -> None:
    which = measured()
    scaled = replace(
        which, measurements=tuple(replace(each, values=each.values * 1e4, noise=Laplace(3e4)) for each in which)
    )
    one, two = (Table(loss=loss, tolerance=1e-7).fit(each) for each in (which, scaled))  # pyright: ignore[reportArgumentType]
    assert float(two.stats["objective"]) == pytest.approx(float(one.stats["objective"]), rel=1e-5)


def test_progress_is_told() -> None:
    told = []
    Table(loss="l1").fit(measured(), progress=lambda what, done, most: told.append((what, done, most)))
    assert told
    assert all(what == "fitting" and done <= most for what, done, most in told)


def test_where_a_loss_stalls_far_from_its_optimum_least_squares_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    from consilience.estimators import table as module
    from consilience.solvers.fit import Fit

    domain = Domain.from_sizes({"a": 3, "b": 4, "c": 2}, name="stalling")
    rng = np.random.default_rng(2)
    truth = rng.poisson(20, domain.shape).astype(float)
    marginals = {
        ("a", "b"): truth.sum(2) + rng.laplace(0, 2, (3, 4)),
        ("b", "c"): truth.sum(0) + rng.laplace(0, 2, (4, 2)),
    }
    found = MeasurementSet.from_marginals(domain, marginals, noise=Laplace(2.0), private=False)
    optimum = Table(loss="l1").fit(found)
    far = Fit(np.full(domain.shape, 1e4), 1e6, 1e6 - 1.0, Status.STALLED, {})
    monkeypatch.setattr(module, "fit_measured_table", lambda *_, **__: far)
    fitted = Table(loss="l1").fit(found)
    assert fitted.status is Status.STALLED
    assert fitted.stats["fallback"] == "least squares"
    assert np.allclose(fitted.marginal("a", "b"), Table(loss="l2").fit(found).marginal("a", "b"))
    assert float(optimum.stats["objective"]) <= float(fitted.stats["objective"]) + 1e-3 < 1e6
    assert float(fitted.stats["gap"]) == pytest.approx(float(fitted.stats["objective"]) - 1.0)
