"""Points with a label of two classes, for regressions: Adult's income, the compound classes of Lifesci, and made ones.

Attributes are normalised: declared bounds become −1 and 1. Adult's bounds are those of the published description; its
capital gain and loss are taken as ln(1 + dollars), because nearly all are 0 and some are 99,999. The bounds of Lifesci,
which are declared nowhere, are its smallest and largest values: fit for a benchmark, and not private.
"""

import gzip
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.data_folder import find_data
from consilience.iterates.problems import signed_records
from consilience.kernels.regions import normalised

ADULT_BOUNDS: dict[str, tuple[float, float]] = {
    "age": (17, 90),
    "education": (1, 16),
    "log capital gain": (0, float(np.log1p(99_999))),
    "log capital loss": (0, float(np.log1p(4_356))),
    "hours": (1, 99),
}
ADULT_COLUMNS = (0, 4, 10, 11, 12)
TRAINING_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class LabelledPoints:
    """Normalised points, each with a label of −1 or 1, and how many of them a model may be trained on."""

    name: str
    points: NDArray[np.float64]
    labels: NDArray[np.float64]

    @property
    def training(self) -> int:
        return int(TRAINING_SHARE * len(self.points))

    def training_rows(self) -> NDArray[np.float64]:
        """The first 80 %: a column for each attribute, then the label."""
        return np.column_stack([self.points, self.labels])[: self.training]

    def held_out(self) -> NDArray[np.float64]:
        """The other 20 %, as y·(x, 1)."""
        return signed_records(self.points[self.training :], self.labels[self.training :])


def labelled_points(name: str) -> LabelledPoints:
    """One of PROBLEMS, its records in a random order that is always the same."""
    points, labels, shown = PROBLEMS[name]()
    order = np.random.default_rng(0).permutation(len(points))
    return LabelledPoints(shown, np.clip(points[order], -1, 1), labels[order])


def _adult() -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    path = find_data("records", "adult-raw.data.gz")
    if path is None:
        return _made(
            48_842, [1.6, 2.5, 1.2, 0.7, 2.0], 0.9, "adult income (stand-in)", centres=[-0.4, 0.2, -0.9, -0.9, -0.2]
        )
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.strip().split(", ") for line in file]
    rows = [row for row in rows if len(row) == 15]
    points = np.array([[float(row[column]) for column in ADULT_COLUMNS] for row in rows])
    points[:, 2:4] = np.log1p(points[:, 2:4])
    labels = np.array([1.0 if row[14].startswith(">50K") else -1.0 for row in rows])
    return normalised(points, tuple(ADULT_BOUNDS.values())), labels, "adult income"


def _lifesci() -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    path = find_data("points", "lifesci.csv.gz")
    if path is None:
        return _made(26_733, np.linspace(-2, 2, 10), -3.5, "lifesci (stand-in)", centres=np.zeros(10))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        table = np.loadtxt(file, delimiter=",")
    points = table[:, :10]
    bounds = np.column_stack([points.min(axis=0), points.max(axis=0)])
    return normalised(points, bounds), np.where(table[:, 10] > 0.5, 1.0, -1.0), "lifesci"


def _gaussian() -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    return _made(10_000, [3.0, -2.0, 1.0], 0.5, "generated, 10,000 records", centres=[0.2, -0.3, 0.0])


def _made(
    records: int, coefficients: object, intercept: float, name: str, *, centres: object
) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Gaussian points within bounds, and labels as a logistic model draws them."""
    rng = np.random.default_rng(1)
    slopes = np.asarray(coefficients, dtype=np.float64)
    points = np.clip(np.asarray(centres) + rng.normal(0, 0.35, (records, len(slopes))), -1, 1)
    chances = 1 / (1 + np.exp(-(points @ slopes + intercept)))
    return points, np.where(rng.random(records) < chances, 1.0, -1.0), name


PROBLEMS = {"adult": _adult, "lifesci": _lifesci, "generated": _gaussian}
