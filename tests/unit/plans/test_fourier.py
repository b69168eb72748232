"""The plan Fourier measures every coefficient of up to k flags once, at the price of the budget."""

import math

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.published.fourier import Fourier as FourierEstimator
from consilience.measuring import PricingGate, measure
from consilience.plans.published.marginals import Fourier
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

FLAGS = Domain.from_sizes(dict.fromkeys("abcd", 2), name="flags")
CODES = (np.random.default_rng(0).random((400, 4)) < [0.2, 0.5, 0.8, 0.4]).astype(int)
CODES[:, 3] |= CODES[:, 0]
SOURCE = open_table(pa.table({name: CODES[:, i].astype(str) for i, name in enumerate("abcd")}), FLAGS)


def columns(gate: PricingGate) -> tuple[np.ndarray, np.ndarray]:
    """For each cell of the table what a record there adds to the coefficients, and the scales of their noise."""
    rows, scales = [], []
    for each in gate.prices[0].queries:
        row = np.ones(FLAGS.shape)
        for name in each.bound.attributes:
            sign = np.array([1.0, -1.0]).reshape([2 if other == name else 1 for other in FLAGS.names])
            row = row * sign
        rows.append(row.ravel())
        scales.append(each.noise.scale_parameter)
    return np.array(rows).T, np.array(scales)


@pytest.mark.parametrize("ways", [1, 2, 4, 9])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("amounts", [{"epsilon": 0.7}, {"rho": 0.02}])
def test_the_worst_neighbour_costs_the_budget_and_no_more(ways: int, relation, amounts) -> None:
    whole = budget(**amounts)
    gate = PricingGate(FLAGS, whole, neighbours=relation, rows_per_unit=1)
    Fourier(ways).run(gate)
    cells, scales = columns(gate)
    assert len(scales) == sum(math.comb(4, size) for size in range(min(ways, 4) + 1))
    moves = cells if relation == "add-remove" else (cells[:, None] - cells[None, :]).reshape(-1, cells.shape[1])
    losses = (np.abs(moves) / scales).sum(axis=1) if "epsilon" in amounts else (moves**2 / scales**2).sum(axis=1) / 2
    assert losses.max() <= float(whole.amount)
    assert losses.max() >= float(whole.amount) * (1 - 1e-9)


def test_the_noise_is_that_of_the_number_of_coefficients() -> None:
    shown = measure(FLAGS, Fourier(2), epsilon=0.5, dry_run=True)
    assert shown.answers == 11
    assert {round(row["scale"], 6) for row in shown.rows()} == {22.0}


def test_the_answers_are_the_signed_sums_of_the_records() -> None:
    measured = measure(SOURCE, Fourier(3), epsilon=1e7, simulate=0)
    signs = 1 - 2 * CODES
    for each in measured:
        places = ["abcd".index(name) for name in each.query.attributes]
        assert each.values[0] == pytest.approx(signs[:, places].prod(axis=1).sum())


def test_without_noise_all_marginals_of_up_to_k_flags_are_recovered() -> None:
    measured = measure(SOURCE, Fourier(3), epsilon=1e7, simulate=0)
    fitted = FourierEstimator().fit(measured)
    table = np.zeros(FLAGS.shape)
    np.add.at(table, tuple(CODES.T), 1)
    for names in ((), ("c",), ("d", "a"), ("b", "d", "c")):
        exact = np.einsum(table, range(4), ["abcd".index(name) for name in names])
        assert np.allclose(fitted.marginal(*names), exact, atol=1e-6)


def test_the_real_path_charges_the_ledger_once(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="flags", total=budget(epsilon=1))
    first = measure(SOURCE, Fourier(2), ledger=ledger, epsilon=0.5)
    again = measure(SOURCE, Fourier(2), ledger=ledger, epsilon=0.5)
    assert first.private
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert str(ledger.spent) == "0.5"


def test_other_attributes_than_flags_are_refused_before_anything_is_spent() -> None:
    with pytest.raises(DeclarationError, match="'b' has 3 values"):
        measure(Domain.from_sizes({"a": 2, "b": 3}), Fourier(2), epsilon=1.0, dry_run=True)


def test_too_many_coefficients_are_refused_with_the_next_step() -> None:
    many = Domain.from_sizes({f"a{i}": 2 for i in range(45)})
    with pytest.raises(TooLarge, match=r"9,\d{3},\d{3} coefficients.*Views"):
        measure(many, Fourier(6), epsilon=1.0, dry_run=True)


def test_ways_that_are_none_are_refused() -> None:
    for ways in (0, -1, 1.5, True):
        with pytest.raises(DeclarationError):
            Fourier(ways)  # type: ignore[arg-type]


def test_plans_are_told_apart() -> None:
    assert Fourier(2).to_json() == {"plan": "fourier", "ways": 2}
    assert Fourier(3).to_json() != Fourier(2).to_json()
