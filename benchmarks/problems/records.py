"""Tables of records, integer codes in columns: the four of McKenna et al. (2019), Table 1, a coarser Adult, and two of
flags, the visits of MSNBC and of Kosarak's 32 most visited pages.

The files have numeric attributes in about 100 bins; `adult` is the version in 32 bins. A file that is missing is
replaced by records of the same shape: dependent, skewed attributes of the same sizes, and a name that says so.
"""

import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.data_folder import find_data

ADULT_FINE = {
    "age": 85, "workclass": 9, "fnlwgt": 100, "education-num": 16, "marital-status": 7, "occupation": 15,
    "relationship": 6, "race": 5, "sex": 2, "capital-gain": 100, "capital-loss": 100, "hours-per-week": 99,
    "native-country": 42, "income>50K": 2,
}  # fmt: skip
"""The columns of the finer Adult, which the triples of the paper name, and how many values each has."""

SHAPES: dict[str, tuple[int, tuple[int, ...]]] = {
    "titanic": (1_304, (3, 2, 91, 9, 7, 100, 9, 3, 3)),
    "adult": (48_842, (32, 9, 32, 16, 16, 7, 15, 6, 5, 2, 32, 32, 32, 42, 2)),
    "adult-fine": (48_842, tuple(ADULT_FINE.values())),
    "stroke": (
        19_434,
        (
            100, 48, 3, 2, 84, 2, 3, 2, 2, 3, 3, 100, 3, 3, 3, 3, 3, 3, 3, 3, 5, 65, 100, 100, 7, 2, 4, 6, 4, 4, 4, 3,
            101, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 101, 118, 4, 101, 516, 5, 4, 4, 4, 252, 4, 101, 4, 101, 4, 101, 4,
            101, 4, 101, 7, 4, 101, 101, 139, 4, 101, 101, 101, 381, 4, 4, 7, 5, 4, 36, 44, 101, 26, 3, 3, 2, 101, 100,
            100, 100, 2, 2, 10, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
        ),
    ),
    "loans": (
        42_535,
        (
            101, 101, 101, 3, 101, 101, 8, 36, 12, 6, 101, 4, 61, 5, 15, 1001, 51, 101, 17, 72, 27, 122, 122, 62, 7,
            101, 122, 101, 101, 101, 101, 101, 101, 101, 101, 61, 101, 121, 145, 101, 4, 3, 145, 4, 145, 101, 101, 26,
        ),
    ),
    "msnbc": (989_818, (2,) * 17),
    "kosarak": (36_682, (2,) * 32),
}  # fmt: skip
"""For each table how many records it has, and how many values each column, in the order of its file."""


FILES = {"msnbc": "msnbc.npz", "kosarak": "kosarak-prefix.dat.gz"}
"""Where the file of a table is not called like it."""


@dataclass(frozen=True, eq=False)
class NamedRecords:
    """Records as integer codes, a column for each attribute, and how many values each attribute has."""

    name: str
    sizes: tuple[int, ...]
    codes: NDArray[np.int64]

    def counts(self, scope: tuple[int, ...]) -> NDArray[np.float64]:
        """The exact marginal of some attributes, an axis for each."""
        shape = tuple(self.sizes[attribute] for attribute in scope)
        cells = np.ravel_multi_index(tuple(self.codes[:, attribute] for attribute in scope), shape)
        return np.bincount(cells, minlength=int(np.prod(shape))).astype(np.float64).reshape(shape)


def named_records(name: str) -> NamedRecords:
    """A table of SHAPES, or a stand-in of its shape if its file is missing."""
    rows, sizes = SHAPES[name]
    path = find_data("records", FILES.get(name, f"{name}.csv.gz"))
    if path is None:
        return stand_in(f"{name} (stand-in)", rows=rows, sizes=sizes, seed=list(SHAPES).index(name))
    if name == "msnbc":
        with np.load(path) as file:
            codes = np.unpackbits(file["X"], axis=1)[:, : len(sizes)].astype(np.int64)
    elif name == "kosarak":
        codes = most_visited(path, len(sizes))
    else:
        codes = np.loadtxt(path, delimiter=",", dtype=np.int64, skiprows=1)
    return NamedRecords(name, sizes, codes)


def most_visited(path: Path, pages: int) -> NDArray[np.int64]:
    """For each transaction of a file, one a line, whether it holds each of the most visited pages.

    The last line is cut and left out.
    """
    with gzip.open(path, "rt") as file:
        visits = [{int(page) for page in line.split()} for line in file.readlines()[:-1]]
    often = Counter(page for visit in visits for page in visit)
    chosen = [page for page, _ in often.most_common(pages)]
    return np.array([[page in visit for page in chosen] for visit in visits], dtype=np.int64)


def hundred_attributes(rows: int = 100_000) -> NamedRecords:
    """Records of four hidden groups: 100 attributes with 10 values, skewed, alike within a group."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, rows)
    shares = rng.dirichlet(np.full(10, 0.5), (100, 4))
    return NamedRecords("100 attributes", (10,) * 100, np.stack([drawn(each[group], rng) for each in shares], axis=1))


def stand_in(name: str, *, rows: int, sizes: tuple[int, ...], seed: int, groups: int = 8) -> NamedRecords:
    """Records of hidden groups: within a group the attributes are independent, each with its own skewed shares."""
    rng = np.random.default_rng(seed)
    group = rng.choice(groups, size=rows, p=rng.dirichlet(np.ones(groups)))
    codes = np.empty((rows, len(sizes)), dtype=np.int64)
    for column, size in enumerate(sizes):
        shares = rng.dirichlet(np.full(size, 0.3), groups)
        codes[:, column] = drawn(shares[group], rng)
    return NamedRecords(name, sizes, codes)


def drawn(shares: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """One value for each row, by the row's shares."""
    values = (rng.random(len(shares))[:, None] > shares.cumsum(axis=1)).sum(axis=1)
    return np.minimum(values, shares.shape[1] - 1)
