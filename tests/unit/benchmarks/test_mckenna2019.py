"""The reproductions of McKenna et al. (2019): what is too large is not tried, and claims follow from the rows."""

import math

import numpy as np
import pytest

from benchmarks.reproduce.mckenna2019 import figure_2b, figure_3


def test_a_full_table_that_does_not_fit_is_said_and_not_tried(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figure_2b, "TIMINGS", 1)
    rows = {row["method"]: row for row in figure_2b.compare(5, limit=8 * 3 * 1e5)}
    assert rows[figure_2b.MODEL]["seconds"] > 0
    assert rows[figure_2b.WEIGHTS]["seconds"] > 0
    assert math.isnan(rows[figure_2b.SQUARES]["seconds"])
    assert rows[figure_2b.SQUARES]["note"] == "not tried: it would take 0.0056 GB"


def test_memory_is_written_for_people():
    assert figure_2b.in_words(10.0) == "10 GB"
    assert figure_2b.in_words(1001.4) == "10^992 GB"


def rows_2b(model_exponent: float) -> list[dict]:
    rows = []
    for count in figure_2b.ATTRIBUTES:
        seconds = {
            figure_2b.MODEL: 1e-5 * count**model_exponent,
            figure_2b.WEIGHTS: 1e-8 * 10.0**count if count <= 8 else math.nan,
            figure_2b.SQUARES: 1e-8 * 10.0**count if count <= 8 else math.nan,
        }
        for method, value in seconds.items():
            values = [value] * 3 if math.isfinite(value) else []
            row = {"attributes": count, "method": method, "seconds": value, "values": values}
            rows.append(row | {"log10_bytes": count + 1.5})
    return rows


@pytest.mark.parametrize(("exponent", "held"), [(1.0, True), (2.0, False)])
def test_claims_about_scale_follow_from_the_seconds(exponent: float, held: bool):
    claims = figure_2b.claims(rows_2b(exponent))
    assert claims[0].judged().outcome == "held"
    assert claims[0].more == "The next table would take 31.6 GB."
    assert (claims[2].judged().outcome == "held") is held


def rows_3(errors: dict[str, list[float]]) -> list[dict]:
    losses = {
        (figure_3.LOSS_1, figure_3.L1): [2.0, 1.0, 0.97],
        (figure_3.LOSS_1, figure_3.L2): [2.0, 1.0, 0.98],
        (figure_3.LOSS_2, figure_3.L1): [2.0, 1.0, 0.99],
        (figure_3.LOSS_2, figure_3.L2): [2.0, 1.0, 0.95],
        **{(figure_3.ERROR, method): values for method, values in errors.items()},
    }
    return [
        {"quantity": quantity, "method": method, "iteration": step, "value": value, "values": [value] * 3}
        for (quantity, method), values in losses.items()
        for step, value in zip((1, 200, 3000), values, strict=True)
    ]


def outcomes(rows: list[dict]) -> list[str]:
    return [str(claim.judged().outcome) for claim in figure_3.claims(rows)]


def test_claims_about_losses_and_error_follow_from_the_curves():
    rising = outcomes(rows_3({figure_3.L1: [0.5, 0.2, 0.1], figure_3.L2: [0.5, 0.05, 0.06]}))
    assert rising == ["held"] * 7
    falling = outcomes(rows_3({figure_3.L1: [0.5, 0.2, 0.1], figure_3.L2: [0.5, 0.3, 0.2]}))
    assert falling == ["held"] * 4 + ["did not hold"] * 3


def test_strategies_have_sensitivity_one_and_workloads_are_prefixes():
    strategy = figure_3._strategy("age", 8)
    np.testing.assert_allclose(strategy.column_norms(1), 1.0)
    np.testing.assert_array_equal(figure_3._workload("age", 3).dense(), np.tril(np.ones((3, 3))))
    np.testing.assert_array_equal(figure_3._workload("sex", 2).dense(), np.eye(2))
