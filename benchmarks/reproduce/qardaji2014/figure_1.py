"""Qardaji, Yang and Li (2014), Figure 1: PriView against everything else, on the nine flags of MSNBC.

All methods but the matrix mechanism and Uniform go through the project's own plans and estimators, with simulated
noise, and answer all marginals of k = 2 and k = 4 flags in five runs. The matrix mechanism is judged by its strategy,
the eigen-design for all marginals of k flags, and has an expected error only. Learning 1, 2 and 3 have γ = 1/2, 1/4 and
1/8, with the published coefficients (literals missed) and the polynomial of least degree. Stars are the error without
noise: what the polynomial, or PriView's views, leave out. Nothing is done to negative counts of Flat, Direct, Fourier
and Learning.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.counted import CountedTable
from benchmarks.problems.flags import msnbc
from benchmarks.reproduce.candlesticks import BLUE, GREY, Candlesticks
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.per_run import Values, least, ratio
from benchmarks.reproduce.qardaji2014.asked import OTHERS, PRIVIEW, Asked, Setting, medians, ordered, ratios, told
from benchmarks.reproduce.qardaji2014.differs import CANDLES
from benchmarks.reproduce.qardaji2014.errors import distances
from benchmarks.reproduce.qardaji2014.expected_errors import normalised_error
from benchmarks.reproduce.qardaji2014.priview import PriView
from benchmarks.reproduce.verdicts import AS_WELL, BETTER, MUCH, SAME, SIMILAR, Claim, Threshold
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

ABOUT = About(
    "Qardaji, Yang and Li (2014), Figure 1: all approaches on nine flags of MSNBC",
    (
        "Data: the paper does not say which nine of MSNBC's 17 attributes it kept; here they are the first nine.",
        "Method: the matrix mechanism is the eigen-design and has an expected error only, as in the paper; MWEM "
        "selects whole marginals in T = 15 rounds, as there. All go through this library's plans.",
        CANDLES,
    ),
    runs="Five runs of all marginals, as in the paper.",
)
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


def run(extent: Extent) -> Rows:
    """Five runs, as in the paper; two if quick."""
    records = msnbc()
    rows: Rows = []
    for epsilon in EPSILONS:
        for k in WAYS:
            asked = Asked.at_random(records, k, math.comb(records.flags, k))
            rows += compare(Setting(f"{records.name}, ε = {epsilon:g}", asked, epsilon), extent.seeds(5))
            print(f"  ε = {epsilon:g}, k = {k}: done", flush=True)
    return ordered(rows)


def compare(setting: Setting, seeds: range) -> Rows:
    """All methods for one ε and k."""
    asked, epsilon = setting.asked, setting.epsilon
    views = PriView.by_design(asked.records, min(6, asked.records.flags), 2)
    answers = (views.marginals(asked.sets, views.published(epsilon, setting.noise(views.name, seed))) for seed in seeds)
    uncovered = distances(views.marginals(asked.sets, views.exact), asked.exact, asked.records.total)
    rows = setting.rows(f"PriView, {views.name}", PRIVIEW, answers, star=float(np.median(uncovered)))
    for name, answer in methods(asked).items():
        star = error_without_noise(answer, asked) if name in GAMMAS else ""
        rows += setting.rows(name, OTHERS, (answer(epsilon, seed) for seed in seeds), star=star)
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

    def worse(words: str, method: str, other: str, threshold: Threshold = BETTER) -> Claim:
        return Claim(words, f"error of {method} in units of that of {other}", threshold, ratios(found, method, other))

    best_gamma = {
        told(place): ratio(least(each[name] for name in GAMMAS), each[views]) for place, each in found.items()
    }
    return [
        worse("PriView performs as well as Flat", views, FLAT, AS_WELL),
        worse("the results for both [Fourier and FourierLP] are comparable", FOURIER_LP, FOURIER, SIMILAR),
        worse("… and are essentially the same as that of the Direct method", FOURIER, DIRECT, SAME),
        worse("the DataCube method would choose Flat", CUBE, FLAT, SAME),
        worse("the result [of the matrix mechanism] is better than direct", DIRECT, MATRIX),
        worse("… and worse than flat", MATRIX, FLAT),
        worse("… and [worse than] PriView", MATRIX, views),
        worse("the results [of MWEM] are worse than Flat", MWEM, FLAT),
        worse("… and Direct", MWEM, DIRECT),
        _wide_and_narrow(rows),
        Claim(
            "the learning-based approach performs very poorly",
            "error of the best γ in units of that of PriView",
            MUCH,
            best_gamma,
        ),
        *_learning(rows, views),
    ]


def _wide_and_narrow(rows: Rows) -> Claim:
    """The 95th percentile in units of the 25th, for k = 2 in units of that for k = 4."""
    low, high = (medians(rows, values=values) for values in ("low_values", "high_values"))
    spread = {place: ratio(high[place][MWEM], low[place][MWEM]) for place in low}
    return Claim(
        "the error range [of MWEM] is wide for k = 2, but narrower for k = 4",
        "95th percentile over the 25th for k = 2, in units of that for k = 4",
        BETTER,
        {
            f"ε = {epsilon:g}": ratio(values, spread[panel, epsilon, 4])
            for (panel, epsilon, k), values in spread.items()
            if k == 2
        },
    )


def _learning(rows: Rows, views: str) -> list[Claim]:
    """What is said of the polynomials alone."""
    found = medians(rows)
    stars: dict[str, Values] = {}
    shares: dict[str, Values] = {}
    for row in rows:
        if row["method"] not in GAMMAS:
            continue
        place = (str(row["panel"]), float(row["epsilon"]), int(row["k"]))
        numbers = found[place]
        alone = [float(row["star"])] * len(numbers[views])
        if row["epsilon"] == 1.0:
            stars[f"{row['method']}, {told(place)}"] = ratio(alone, numbers[views])
        if row["method"] == "Learning 3":
            shares[told(place)] = ratio(numbers["Learning 3"], alone)
    return [
        Claim(
            "even without noises, the results are much worse than other methods",
            "error without noise in units of that of PriView with noise, ε = 1",
            MUCH,
            stars,
            more="A polynomial of degree k is exact, and the least degree is k where γ is small.",
        ),
        Claim(
            "when γ = 1/8, noise error starts to dominate the approximation error",
            "error with noise in units of that without",
            Threshold(low=math.sqrt(2.0)),
            shares,
            more="Where both are alike, an error is √2 times either.",
        ),
    ]
