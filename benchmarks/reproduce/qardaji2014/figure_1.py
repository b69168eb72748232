"""Qardaji, Yang and Li (2014), Figure 1: PriView against everything else, on the nine flags of MSNBC.

All methods but the matrix mechanism and Uniform go through the project's own plans and estimators, with simulated
noise, and answer all marginals of k = 2 and k = 4 flags in five runs. The matrix mechanism is judged by its strategy,
the eigen-design for all marginals of k flags, and has an expected error only. Learning 1, 2 and 3 have γ = 1/2, 1/4 and
1/8, with the published coefficients (literals missed) and the polynomial of least degree. Stars are the error without
noise: what the polynomial, or PriView's views, leave out. Nothing is done to negative counts of Flat, Direct, Fourier
and Learning.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.flags import msnbc
from benchmarks.reproduce.candlesticks import BLUE, GREY, Candlesticks
from benchmarks.reproduce.figures import Claim, brief, publish
from benchmarks.reproduce.qardaji2014.asked import (
    OTHERS,
    PRIVIEW,
    Asked,
    Medians,
    Place,
    Rows,
    Setting,
    medians,
    ordered,
)
from benchmarks.reproduce.qardaji2014.errors import distances
from benchmarks.reproduce.qardaji2014.expected_errors import normalised_error
from benchmarks.reproduce.qardaji2014.priview import PriView
from benchmarks.strategy_errors import strategy_error
from consilience import plans
from consilience.domain import Domain, Workload
from consilience.estimators import Estimator, Residual
from consilience.estimators.published.fourier import Fourier
from consilience.measuring import measure
from consilience.plans.published.marginals import DataCube, Learning
from consilience.plans.published.marginals import Fourier as FourierPlan
from consilience.privacy.measure import Plan
from consilience.strategies.attribute_strategies import eigen_design

NAME = "qardaji2014-figure-1"
PICTURE = Candlesticks(
    "All approaches on nine flags of MSNBC (Qardaji et al. 2014, Figure 1)",
    note="Matrix mechanism: expected error. Learning 1, 2, 3: γ = 1/2, 1/4, 1/8.",
    star="without noise",
    height=190,
    step=26,
    palette=(BLUE, GREY),
)
EPSILONS = (1.0, 0.1)
WAYS = (2, 4)
GAMMAS = {"Learning 1": 1 / 2, "Learning 2": 1 / 4, "Learning 3": 1 / 8}
FLAT, DIRECT, FOURIER, FOURIER_LP, CUBE = "Flat", "Direct", "Fourier", "Fourier LP", "DataCube"
MATRIX, MWEM, UNIFORM = "Matrix mechanism", "MWEM", "Uniform"
ROUNDS = 15
NO_NOISE = 1e9
"""An ε at which noise is nothing."""

Array = NDArray[np.float64]
Answer = Callable[[float, int], Array]
"""The asked marginals, one in each row, for an ε and a seed."""


def run(quick: bool) -> bool:
    """Five runs, as in the paper; two if quick."""
    records = msnbc()
    rows: Rows = []
    for epsilon in EPSILONS:
        for k in WAYS:
            asked = Asked.at_random(records, k, math.comb(records.flags, k))
            rows += compare(Setting(f"{records.name}, ε = {epsilon:g}", asked, epsilon), 2 if quick else 5)
            print(f"  ε = {epsilon:g}, k = {k}: done", flush=True)
    rows = ordered(rows)
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def compare(setting: Setting, runs: int) -> Rows:
    """All methods for one ε and k."""
    asked, epsilon = setting.asked, setting.epsilon
    views = PriView.by_design(asked.records, min(6, asked.records.flags), 2)
    answers = (
        views.marginals(asked.sets, views.published(epsilon, setting.noise(views.name, run))) for run in range(runs)
    )
    uncovered = distances(views.marginals(asked.sets, views.exact), asked.exact, asked.records.total)
    rows = setting.rows(f"PriView, {views.name}", PRIVIEW, answers, star=float(np.median(uncovered)))
    for name, answer in methods(asked).items():
        star = error_without_noise(answer, asked) if name in GAMMAS else ""
        rows += setting.rows(name, OTHERS, (answer(epsilon, seed) for seed in range(runs)), star=star)
    rows += setting.expected(MATRIX, OTHERS, matrix_mechanism_error(asked) / epsilon)
    return rows + setting.rows(UNIFORM, OTHERS, [asked.uniform])


def methods(asked: Asked) -> dict[str, Answer]:
    """How each method answers: its plan, and the estimator for what it measures."""
    records, k = asked.records, asked.k
    domain = Domain.from_sizes({f"a{flag}": 2 for flag in range(records.flags)}, name="flags")
    source = CountedTable(domain, records.counts(range(records.flags)).astype(np.int64))
    names = [tuple(domain.names[flag] for flag in scope) for scope in asked.sets]

    def by(plan: Plan, estimator: Estimator) -> Answer:
        def answer(epsilon: float, seed: int) -> Array:
            fitted = estimator.fit(measure(source, plan, epsilon=epsilon, simulate=seed))
            return np.array([fitted.marginal(*each).ravel() for each in names])

        return answer

    def direct(epsilon: float, seed: int) -> Array:
        measured = measure(source, plans.Direct(k), epsilon=epsilon, simulate=seed)
        tables = {each.query.attributes: each.values for each in measured}
        return np.array([tables[each] for each in names])

    least_squares = Residual(nonnegative=False)
    mwem = plans.Mwem(Workload.marginals(domain, ways=k), rounds=ROUNDS, candidates="marginals")
    learning = {name: Learning(k, gamma=gamma, literals="missed") for name, gamma in GAMMAS.items()}
    return {
        FLAT: by(plans.Flat(total_share=0), least_squares),
        DIRECT: direct,
        FOURIER: by(FourierPlan(k), Fourier()),
        FOURIER_LP: by(FourierPlan(k), Fourier(linear_programme=True)),
        CUBE: by(DataCube(ways=k), least_squares),
        MWEM: by(mwem, mwem.estimator()),
        **{name: by(plan, plan.estimator()) for name, plan in learning.items()},
    }


def error_without_noise(answer: Answer, asked: Asked) -> float:
    """The median error of approximation alone."""
    return float(np.median(distances(answer(NO_NOISE, 0), asked.exact, asked.records.total)))


def matrix_mechanism_error(asked: Asked) -> float:
    """The expected normalised error of a marginal at ε = 1, by the eigen-design for all marginals of k flags.

    In the Gram matrix of that workload two cells of the full table that differ in h flags meet in C(d − h, k)
    marginals. The strategy's expected squared error is that of all marginals together, which are alike.
    """
    flags = asked.records.flags
    cells = np.arange(2**flags)
    differing = np.bitwise_count(cells[:, None] ^ cells)
    gram = np.array([math.comb(flags - h, asked.k) for h in range(flags + 1)], dtype=np.float64)[differing]
    error = strategy_error(gram, eigen_design(gram), norm=1) / math.comb(flags, asked.k)
    return normalised_error(error, asked.records.total)


def claims(rows: Rows) -> list[Claim]:
    """What §5.1 says of the figure."""
    found = medians(rows)
    views = next(row["method"] for row in rows if row["family"] == PRIVIEW)
    learning = {place: {name: each[name] for name in GAMMAS} for place, each in found.items()}
    return [
        _at_most("PriView performs as well as Flat", found, views, FLAT, 1.25),
        _alike(
            "Fourier is comparable with and without the linear programme, and essentially the same as Direct", found
        ),
        _at_most("DataCube chooses Flat", found, CUBE, FLAT, 1.1),
        _at_most("the matrix mechanism is better than Direct", found, MATRIX, DIRECT, 1.0),
        _at_most("the matrix mechanism is worse than Flat", found, FLAT, MATRIX, 1.0),
        _at_most("the matrix mechanism is worse than PriView", found, views, MATRIX, 1.0),
        _at_most("MWEM is worse than Flat", found, FLAT, MWEM, 1.0),
        _at_most("MWEM is worse than Direct", found, DIRECT, MWEM, 1.0),
        _wide_and_narrow(rows),
        _poor(found, views),
        _poor_without_noise(rows, found, views),
        _last_gamma(rows, learning),
    ]


def _told(ratios: Mapping[Place, float]) -> str:
    return ", ".join(f"{brief(ratio)} for ε = {epsilon:g} and k = {k}" for (_, epsilon, k), ratio in ratios.items())


def _at_most(text: str, found: Medians, method: str, other: str, most: float) -> Claim:
    """Whether one method has at most so many times the error of another, everywhere."""
    ratios = {place: each[method] / each[other] for place, each in found.items()}
    return Claim(text, max(ratios.values()) <= most, f"the error of {method} is {_told(ratios)} times that of {other}")


def _alike(text: str, found: Medians) -> Claim:
    plain = {place: each[FOURIER] / each[DIRECT] for place, each in found.items()}
    programme = {place: each[FOURIER_LP] / each[DIRECT] for place, each in found.items()}
    both = [*plain.values(), *programme.values()]
    told = f"the error of Fourier is {_told(plain)} times that of Direct; that of Fourier LP {_told(programme)}"
    return Claim(text, min(both) > 0.5 and max(both) < 2.0, told)


def _wide_and_narrow(rows: Rows) -> Claim:
    spread = {
        (row["panel"], float(row["epsilon"]), int(row["k"])): row["p95"] / row["p25"]
        for row in rows
        if row["method"] == MWEM
    }
    pairs = [(spread[panel, epsilon, 2], spread[panel, epsilon, 4]) for panel, epsilon, k in spread if k == 2]
    return Claim(
        "MWEM's errors are spread widely for k = 2, and less so for k = 4",
        all(wide > narrow for wide, narrow in pairs),
        f"the 95th percentile is {_told(spread)} times the 25th",
    )


def _poor(found: Medians, views: str) -> Claim:
    ratios = {place: min(each[name] for name in GAMMAS) / each[views] for place, each in found.items()}
    return Claim(
        "the learning-based approach performs very poorly",
        min(ratios.values()) > 2,
        f"the best γ has {_told(ratios)} times the error of PriView",
    )


def _poor_without_noise(rows: Rows, found: Medians, views: str) -> Claim:
    ratios = {
        (row["method"], float(row["epsilon"]), int(row["k"])): row["star"]
        / found[row["panel"], float(row["epsilon"]), int(row["k"])][views]
        for row in rows
        if row["method"] in GAMMAS and row["epsilon"] == 1.0
    }
    told = ", ".join(f"{brief(ratio)} for {name} and k = {k}" for (name, _, k), ratio in ratios.items())
    return Claim(
        "even without noise it is much worse than the other methods",
        min(ratios.values()) > 2,
        f"without noise it has so many times the error of PriView with noise, at ε = 1: {told}; a polynomial of "
        "degree k is exact, and the least degree is k where γ is small",
    )


def _last_gamma(rows: Rows, learning: Medians) -> Claim:
    stars = {
        (row["panel"], float(row["epsilon"]), int(row["k"])): row["star"]
        for row in rows
        if row["method"] == "Learning 3"
    }
    shares = {place: min(learning[place]["Learning 3"] / max(star, 1e-12), 1000.0) for place, star in stars.items()}
    return Claim(
        "with γ = 1/8 noise outweighs the error of approximation",
        min(shares.values()) > 1.4,
        f"with noise the error is {_told(shares)} times that without, where 1,000 stands for more",
    )
