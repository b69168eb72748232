"""Whether public records help: the error with and without them, where they are of the same people and where not.

A table is cut into two halves, of which one is public and the other is measured: at random ("same"), or by an attribute
that is then left out, so that the halves are of different people: older and younger, other countries, earlier and
later years. All pairs are measured with Laplace noise and equal shares of ε. Errors are total variation, on average
over the measured pairs and over every third triple, which nobody measured.

*Ways*: `Graphical` without public records; `Reweighted`; `Graphical` with the records as its prior; and the public
table as it is, scaled, which needs no budget. "check" is what `public_check` says, which sees the noisy answers alone,
of each draw: + for "helps", - for "leave it out", ? where it cannot tell; with a ! where the true error of the measured
pairs says otherwise.

Adult is the table on which choices were made; Loans and Stroke judge them.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.declared_records import column_names
from benchmarks.problems.records import named_records
from consilience.domain import Domain, Query
from consilience.estimators import Estimate, Graphical
from consilience.estimators.reweighted import PublicRecords, Reweighted, public_check
from consilience.kernels.rng import generator
from consilience.measurements import Laplace, Measurement, MeasurementSet, PrivacyStatement

Row = dict[str, Any]
Array = NDArray[np.float64]
Codes = NDArray[np.int64]

EPSILONS = (0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Halves:
    """A table, its attributes by place, and where it is cut: at the median of an attribute, or at random."""

    table: str
    attributes: tuple[int, ...]
    cuts: tuple[tuple[str, int | None], ...]
    """A name, and the place of the attribute whose lower half is public; None for halves at random."""
    part: str


PROBLEMS = (
    Halves("adult", (1, 4, 5, 7, 8, 9, 14), (("same", None), ("younger", 0), ("fewer hours", 12)), "tuned on"),
    Halves("loans", (3, 6, 8, 9, 11, 13), (("same", None), ("earlier year", 12), ("other states", 16)), "judged on"),
    Halves(
        "stroke", (2, 3, 6, 9, 10, 20, 26, 27), (("same", None), ("other hospitals", 0), ("younger", 4)), "judged on"
    ),
)

WAYS: dict[str, Callable[[PublicRecords], Any]] = {
    "without": lambda _: Graphical(),
    "reweighted": Reweighted,
    "prior": lambda public: Graphical(prior=public),
}


def run(quick: bool, only: str | None = None) -> list[Row]:
    """A row for each table, cut and ε: three draws, or one if quick."""
    rows = []
    for problem in PROBLEMS[: 1 if quick else None]:
        if only in (None, problem.table):
            print(f"  {problem.table}", flush=True)
            rows += [row for name, place in problem.cuts for row in _rows(problem, name, place, 1 if quick else 3)]
    return rows


def _rows(problem: Halves, cut: str, place: int | None, draws: int) -> Iterator[Row]:
    records, names = named_records(problem.table), column_names(problem.table)
    along = np.random.default_rng(5).random(len(records.codes)) if place is None else records.codes[:, place]
    is_public = along < np.median(along)
    sizes = {names[each]: records.sizes[each] for each in problem.attributes}
    domain = Domain.from_sizes(sizes, name=problem.table)
    codes = records.codes[:, problem.attributes]
    public, truth = (PublicRecords.of(domain, codes[half], name="the other half") for half in (is_public, ~is_public))
    pairs = list(itertools.combinations(domain.names, 2))
    triples = list(itertools.combinations(domain.names, 3))[::3]
    scaled = public.counts * (truth.counts.sum() / public.counts.sum())
    alone = {"seen": _apart(public, truth, pairs, scaled), "unseen": _apart(public, truth, triples, scaled)}
    for epsilon in EPSILONS:
        found: dict[str, list[float]] = {}
        said: dict[str, str] = {}
        for seed in range(draws):
            measured = _measured(domain, truth, pairs, epsilon, seed)
            for way, estimator in WAYS.items():
                fitted = estimator(public).fit(measured)
                for what, sets in (("seen", pairs), ("unseen", triples)):
                    found.setdefault(f"{way}, {what}", []).append(_error(fitted, truth, sets))
                if way != "without":
                    smaller = found[f"{way}, seen"][-1] < found["without, seen"][-1]
                    said[way] = said.get(way, "") + _verdict(str(public_check(fitted)["public_check"]), smaller)
        row: Row = {"problem": problem.table, "cut": cut, "part": problem.part, "epsilon": epsilon}
        row |= {"public records": int(public.counts.sum()), "measured records": int(truth.counts.sum())}
        row |= {f"public alone, {what}": round(error, 4) for what, error in alone.items()}
        row |= {name: round(float(np.mean(errors)), 4) for name, errors in found.items()}
        yield row | {f"{way}, check": verdicts for way, verdicts in said.items()}


def _verdict(sentence: str, smaller: bool) -> str:
    """What the check says, in a sign, and whether it is wrong."""
    if "leave it out" in sentence:
        return "-!" if smaller else "-"
    if "not known" in sentence or "cannot be told" in sentence:
        return "?"
    return "+" if smaller else "+!"


def _measured(
    domain: Domain, truth: PublicRecords, sets: list[tuple[str, ...]], epsilon: float, seed: int
) -> MeasurementSet:
    rng, law, made = generator(seed, round(1000 * epsilon)), Laplace(len(sets) / epsilon), []
    for names in sets:
        exact = truth.table(names).ravel()
        made.append(Measurement(Query.marginal(*names), exact + law.simulate(exact.size, rng), law))
    return MeasurementSet(domain, tuple(made), PrivacyStatement(), {}, private=False)


def _error(fitted: Estimate, truth: PublicRecords, sets: list[tuple[str, ...]]) -> float:
    return float(np.mean([_distance(fitted.marginal(*names), truth.table(names)) for names in sets]))


def _apart(public: PublicRecords, truth: PublicRecords, sets: list[tuple[str, ...]], scaled: Array) -> float:
    return float(np.mean([_distance(public.table(names, scaled), truth.table(names)) for names in sets]))


def _distance(found: Array, true: Array) -> float:
    """Total variation."""
    return float(np.abs(found - true).sum() / (2.0 * true.sum()))
