"""The named problems of the benchmarks have the figures that the papers print."""

import numpy as np
import pytest

from benchmarks.problems.contingency_tables import CZECH, EDWARDS, ROCHDALE
from benchmarks.problems.counted import CountedTable
from benchmarks.problems.histograms import (
    DPBENCH_FIGURES,
    descending_refined,
    dpbench_histograms,
    nettrace,
    power_law,
    search_logs,
    social_network,
)


@pytest.mark.parametrize(
    ("table", "records", "empty"), [(EDWARDS, 70, 0.656), (CZECH, 1841, 0.016), (ROCHDALE, 665, 0.645)]
)
def test_contingency_tables_have_the_published_figures(table, records: int, empty: float) -> None:
    assert table.counts.sum() == records
    assert np.mean(table.counts == 0) == pytest.approx(empty, abs=1e-3)
    assert table.domain.shape == table.counts.shape


def test_stand_ins_have_the_published_figures() -> None:
    logs, net, network = search_logs(), nettrace(), social_network()
    assert (logs.counts.size, logs.counts.sum(), logs.counts.max()) == (32_768, 335_889, 496)
    assert logs.empty_share == pytest.approx(0.521, abs=6e-4)
    assert (net.counts.size, net.counts.sum(), net.counts.max()) == (65_536, 25_714, 1_423)
    assert net.empty_share == pytest.approx(0.966, abs=6e-4)
    assert (network.counts.size, network.counts.sum(), network.counts.max()) == (11_342, 674_708, 1_678)
    assert np.all(np.diff(network.counts) >= 0)
    assert network.counts.min() >= 1
    assert np.all(np.diff(net.counts) <= 0)
    assert network.name.endswith("(stand-in)")


def test_a_descending_refinement_keeps_the_sums_of_its_blocks() -> None:
    coarse = np.array([100, 40, 12, 4, 0])
    fine = descending_refined(coarse, 4, largest=45)
    assert fine[0] == 45
    assert np.all(np.diff(fine) <= 0)
    assert fine.reshape(-1, 4).sum(axis=1).tolist() == coarse.tolist()


def test_missing_data_is_said_and_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    found = dpbench_histograms()
    assert "missing: histograms/ADULTFRANK.n4096.npy" in capsys.readouterr().err
    for histogram, (total, empty) in zip(found, DPBENCH_FIGURES.values(), strict=True):
        assert histogram.counts.size == 4096
        assert histogram.counts.sum() == total
        assert histogram.empty_share == pytest.approx(empty, abs=1e-3)


@pytest.mark.parametrize(("size", "total", "largest"), [(1, 5, None), (10, 10, None), (100, 1000, 500), (7, 100, 20)])
def test_power_laws_have_their_total(size: int, total: int, largest: int | None) -> None:
    counts = power_law(size, total=total, largest=largest)
    assert counts.sum() == total
    assert counts.min() >= 1
    assert np.all(np.diff(counts) <= 0)


def test_a_counted_table_sums_up_its_counts() -> None:
    table = CountedTable(EDWARDS.domain, EDWARDS.counts)
    names = EDWARDS.variables
    both, total = table.exact_counts([(names[2], names[0]), ()])
    assert np.array_equal(both, np.einsum("abcdef->ca", EDWARDS.counts))
    assert total == 70


def test_coarsening_keeps_the_total() -> None:
    coarse = social_network().coarsened(1024)
    assert coarse.counts.shape == (1024,)
    assert coarse.counts.sum() == 674_708
