"""Histograms for benchmarks: the 18 of DPBench, and the three of Lee, Wang and Kifer (2015), Table 3.

DPBench (Hay et al. 2016) has Search Logs and Nettrace in 4,096 bins only, and Social Network not at all. The paper's
figures tell that DPBench's bins are sums of 8 and 16 of the paper's, so that those two are refined from them. Social
Network, and what is missing, is replaced by a stand-in with the figures that the paper prints: bins, largest count,
share of empty bins. A name says which.
"""

import itertools
import math
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
    """32,768 bins, 52.1 % of them empty, the largest 496: a term's searches over time, in bursts.

    DPBench's 4,096 bins are the sums of 8 bins of these: the shares of empty bins and the largest counts agree with an
    even split of each bin at random. Of such splits the first with the printed figures is taken.
    """
    coarse = _coarse("SEARCHLOGS.n4096")
    if coarse is None:
        return stand_in("Search Logs", bins=32_768, total=335_889, empty=0.521, largest=496, smoothness=64, seed=1)
    for seed in itertools.count():
        counts = np.random.default_rng(seed).multinomial(coarse, np.full(8, 1 / 8)).ravel()
        if counts.max() == 496 and f"{np.mean(counts == 0):.3f}" == "0.521":
            return NamedHistogram("Search Logs (refined)", counts)
    raise AssertionError("unreachable")


def nettrace() -> NamedHistogram:
    """65,536 bins in descending order, 96.6 % of them empty, the largest 1,423: connections by address.

    DPBench's 4,096 bins are the sums of 16 bins of these, which are sorted: its last 38 filled bins hold 16 each, ones.
    So each bin is replaced by 16 that descend, with its sum, from 1,423 on.
    """
    coarse = _coarse("NETTRACE.n4096")
    if coarse is None:
        drawn = stand_in("Nettrace", bins=65_536, total=25_714, empty=0.966, largest=1_423, smoothness=2, seed=2)
        return NamedHistogram(drawn.name, -np.sort(-drawn.counts))
    return NamedHistogram("Nettrace (refined)", descending_refined(coarse, 16, largest=1_423))


def _coarse(name: str) -> NDArray[np.int64] | None:
    path = find_data("histograms", f"{name}.npy")
    return None if path is None else np.load(path).ravel().astype(np.int64)


def descending_refined(coarse: NDArray[np.int64], width: int, *, largest: int) -> NDArray[np.int64]:
    """Descending counts from `largest` on whose sums over blocks of a width are these descending ones.

    Between two blocks the counts pass through the geometric mean of theirs. Within a block of n they go from edge a to
    edge b as b + (a − b)·((n − j)/n)^p, with the p that gives the sum, rounded so that the sum stays.
    """
    means = coarse / width
    found = np.zeros((coarse.size, width), dtype=np.int64)
    upper = float(largest)
    for block in np.flatnonzero(coarse):
        lower = math.sqrt(means[block] * means[block + 1]) if block + 1 < coarse.size else 0.0
        lower = min(lower, means[block])
        found[block] = _whole(_falling(upper, lower, width, means[block]), int(coarse[block]))
        upper = lower
    # What stands first is the largest count itself; rounding may have left it off by one.
    found[0, -1] += found[0, 0] - largest
    found[0, 0] = largest
    return np.ascontiguousarray(-np.sort(-found.ravel()))


def _falling(upper: float, lower: float, width: int, mean: float) -> NDArray[np.float64]:
    places = 1.0 - np.arange(width) / width
    low, high = 1e-6, 1e3
    for _ in range(100):
        power = math.sqrt(low * high)
        low, high = (power, high) if lower + (upper - lower) * np.mean(places**power) > mean else (low, power)
    return lower + (upper - lower) * places**high


def _whole(values: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole numbers next to these, with this sum: the largest remainders are rounded up."""
    found = np.floor(values).astype(np.int64)
    short = total - int(found.sum())
    each, some = divmod(short, found.size)
    found += each
    found[np.argsort(-(values - np.floor(values)), kind="stable")[:some]] += 1
    return found


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
