"""Histograms for benchmarks: the 18 of DPBench, and the three of Lee, Wang and Kifer (2015), Table 3.

DPBench (Hay et al. 2016) has Search Logs and Nettrace in 4,096 bins only, and Social Network not at all. At the
paper's length they are replaced by stand-ins with the figures that the paper prints: bins, largest count, share of
empty bins, and the total where it is known. A stand-in says so in its name.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.data_folder import find_data


@dataclass(frozen=True, eq=False)
class NamedHistogram:
    """Counts in order, and what they are called."""

    name: str
    counts: NDArray[np.int64]

    @property
    def empty_share(self) -> float:
        return float(np.mean(self.counts == 0))

    def coarsened(self, bins: int) -> "NamedHistogram":
        """The same histogram in fewer bins of neighbours, the last ones padded with zeros where it does not divide."""
        width = -(-self.counts.size // bins)
        padded = np.zeros(width * bins, dtype=np.int64)
        padded[: self.counts.size] = self.counts
        return NamedHistogram(self.name, padded.reshape(bins, width).sum(axis=1))


DPBENCH: tuple[str, ...] = (
    "ADULTFRANK.n4096", "GrossCompenMDSalary1", "GrossCompenMDSalary2_filtered", "HEPTH.n4096", "INCOME.n4096",
    "MEDCOST.n4096", "NETTRACE.n4096", "PATENT.n4096", "RejectStats_0_4096_no_outliers",
    "RejectStats_0_4096_no_outliers_filter_7_1", "RejectStats_0_4096_no_outliers_filter_7_2",
    "RejectStats_4_4096_no_outliers", "RejectStats_4_4096_no_outliers_filter_7_1",
    "RejectStats_4_4096_no_outliers_filter_7_2", "SEARCHLOGS.n4096", "bids", "bids_j", "bids_m",
)  # fmt: skip
"""The 1-D histograms of DPBench, by the names of their files."""

# Total and share of empty bins of each, for stand-ins.
DPBENCH_FIGURES: dict[str, tuple[int, float]] = dict(
    zip(
        DPBENCH,
        (
            (17_665, 0.98), (135_727, 0.83), (100_534, 0.83), (347_414, 0.21), (20_787_122, 0.45), (9_415, 0.75),
            (25_714, 0.97), (27_948_226, 0.06), (3_999_425, 0.60), (3_737_472, 0.62), (198_045, 0.68),
            (3_589_119, 0.0), (3_336_740, 0.0), (189_827, 0.12), (335_889, 0.51), (7_655_502, 0.0), (1_901_799, 0.0),
            (2_126_344, 0.0),
        ),
        strict=True,
    )
)  # fmt: skip


def dpbench_histograms() -> list[NamedHistogram]:
    """The 18 histograms, or stand-ins of the same size, total and sparsity for those that are missing."""
    return [_dpbench(name, seed) for seed, name in enumerate(DPBENCH)]


def _dpbench(name: str, seed: int) -> NamedHistogram:
    path = find_data("histograms", f"{name}.npy")
    if path is not None:
        return NamedHistogram(name.removesuffix(".n4096"), np.load(path).ravel().astype(np.int64))
    total, empty = DPBENCH_FIGURES[name]
    return stand_in(name.removesuffix(".n4096"), bins=4096, total=total, empty=empty, smoothness=16, seed=seed)


def search_logs() -> NamedHistogram:
    """32,768 bins, 52.1 % of them empty, the largest 496: a term's searches over time, in bursts."""
    return stand_in("Search Logs", bins=32_768, total=335_889, empty=0.521, largest=496, smoothness=64, seed=1)


def nettrace() -> NamedHistogram:
    """65,536 bins, 96.6 % of them empty, the largest 1,423: connections by address."""
    return stand_in("Nettrace", bins=65_536, total=25_714, empty=0.966, largest=1_423, smoothness=2, seed=2)


def social_network() -> NamedHistogram:
    """11,342 bins, none of them empty, from 1 to 1,678 in ascending order: the degrees of a network."""
    drawn = stand_in("Social Network", bins=11_342, total=674_708, empty=0.0, largest=1_678, smoothness=1, seed=3)
    return NamedHistogram(drawn.name, np.sort(drawn.counts))


def stand_in(
    name: str, *, bins: int, total: int, empty: float, smoothness: int, seed: int, largest: int | None = None
) -> NamedHistogram:
    """A histogram with exactly these figures: power-law counts, given out in the order of a smooth random field.

    `smoothness` is the width, in bins, over which the field is averaged: neighbouring bins are then alike.
    """
    filled = bins - round(empty * bins)
    counts = np.zeros(bins, dtype=np.int64)
    field = np.random.default_rng(seed).normal(size=bins + smoothness - 1)
    smooth = np.convolve(field, np.ones(smoothness), mode="valid")
    order = np.argsort(-smooth, kind="stable")
    counts[order[:filled]] = power_law(filled, total=total, largest=largest)
    return NamedHistogram(f"{name} (stand-in)", counts)


def power_law(size: int, *, total: int, largest: int | None = None) -> NDArray[np.int64]:
    """Descending counts of at least 1 with this total, c_r ≈ 1 + (m − 1)·r^−a; m is the largest if it is given."""
    top = min(largest or max(2 * total // size, total // 50), total - size + 1)
    ranks = np.arange(1, size + 1, dtype=np.float64)

    def counts(exponent: float) -> NDArray[np.int64]:
        return np.rint(1.0 + (top - 1) * ranks**-exponent).astype(np.int64)

    low, high = 0.0, 60.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if counts(middle).sum() > total else (low, middle)
    found = counts(high)
    short = total - int(found.sum())
    # What rounding left goes to the counts after the first, one each, as often as needed.
    rest = found[1:] if size > 1 else found
    each, some = divmod(short, rest.size)
    rest += each
    rest[:some] += 1
    return -np.sort(-found)
