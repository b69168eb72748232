"""Results of OpenDP and mbi become measurements with the law, the scale and the promise that they were made with."""

import math
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError, MeasurementError
from consilience.estimators import estimate
from consilience.measurements import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    from_mbi,
    from_opendp,
)

DOMAIN = Domain("town", (Attribute.categorical("sex", ["F", "M"]), Attribute.categorical("age", ["young", "old"])))


def summary(distribution: str = "Integer Laplace", scale: float = 2.0, **more: Any) -> pa.Table:
    """What OpenDP's `query.summarize()` returns."""
    row = {"column": "len", "aggregate": "Frame Length", "distribution": distribution, "scale": scale} | more
    return pa.Table.from_pylist([row])


def table(kind: pa.DataType | None = None) -> pa.Table:
    counts = pa.array([201, 400], kind or pa.int64())
    return pa.table({"sex": ["M", "F"], "len": counts})


@pytest.mark.parametrize(
    ("distribution", "law"),
    [
        ("Integer Laplace", DiscreteLaplace(2.0)),
        ("Float Laplace", Laplace(2.0)),
        ("Integer Gaussian", DiscreteGaussian(2.0)),
        ("Float Gaussian", Gaussian(2.0)),
    ],
)
def test_a_table_of_opendp_has_the_law_of_its_summary(distribution: str, law: Any) -> None:
    made = from_opendp(table(), DOMAIN, keys=["sex"], described=summary(distribution), neighbours="add-remove")
    (measurement,) = made
    assert measurement.noise == law
    assert measurement.values.tolist() == [400.0, 201.0]
    assert (measurement.clipped, measurement.censored, made.provenance["tool"]) == (False, None, "opendp")


def test_unsigned_counts_of_opendp_were_clipped() -> None:
    made = from_opendp(table(pa.uint32()), DOMAIN, keys=["sex"], described=summary(), neighbours="add-remove")
    assert made.measurements[0].clipped
    said = {"described": summary(), "neighbours": "add-remove", "clipped": False}
    assert not from_opendp(table(pa.uint32()), DOMAIN, keys=["sex"], **said).measurements[0].clipped


def test_keys_below_opendps_threshold_are_censored() -> None:
    few = pa.table({"sex": ["F"], "len": [400]})
    made = from_opendp(few, DOMAIN, keys=["sex"], described=summary(threshold=16), neighbours="add-remove")
    (measurement,) = made
    assert measurement.censored is not None
    assert measurement.censored.tolist() == [False, True]
    assert measurement.threshold == 16


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"neighbours": None}, "give neighbours='add-remove' where the privacy unit was dp.unit_of(contributions=...)"),
        ({"keys": "sex"}, "write keys=['sex']"),
        ({"described": 2.0}, "give what query.summarize() returns"),
        ({"described": summary("Exponential")}, "which is no noise added to counts"),
        ({"described": summary(), "value": "sum"}, "name one of them: value="),
        ({"released": SimpleNamespace(collect=None)}, "write released.collect()"),
        ({"released": [1.0, 2.0]}, "give the Measurement that made it as described="),
    ],
)
def test_what_opendp_does_not_say_is_asked_for(change: dict[str, Any], error: str) -> None:
    given: dict[str, Any] = {"released": table(), "keys": ["sex"], "described": summary(), "neighbours": "add-remove"}
    given |= change
    with pytest.raises((DeclarationError, MeasurementError), match=re.escape(error)):
        from_opendp(given.pop("released"), DOMAIN, **given)


def mechanisms() -> list[tuple[Any, Any]]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    whole, real = dp.vector_domain(dp.atom_domain(T=int)), dp.vector_domain(dp.atom_domain(T=float, nan=False))
    return [
        ((whole, dp.l1_distance(T=int)) >> dp.m.then_laplace(3.0), DiscreteLaplace(3.0)),
        ((real, dp.l1_distance(T=float)) >> dp.m.then_laplace(0.7), Laplace(0.7)),
        ((whole, dp.l2_distance(T=float)) >> dp.m.then_gaussian(5.0), DiscreteGaussian(5.0)),
        ((real, dp.l2_distance(T=float)) >> dp.m.then_gaussian(0.3), Gaussian(0.3)),
    ]


@pytest.mark.parametrize("place", range(4))
def test_a_mechanism_of_opendp_tells_its_law_and_scale(place: int) -> None:
    mechanism, law = mechanisms()[place]
    exact = [40, 60, 10, 20] if "Discrete" in type(law).__name__ else [40.0, 60.0, 10.0, 20.0]
    noisy = mechanism(exact)
    made = from_opendp(noisy, DOMAIN, keys=["sex", "age"], described=mechanism, neighbours="add-remove")
    (measurement,) = made
    assert type(measurement.noise) is type(law)
    assert measurement.noise.stddev_of_noise == pytest.approx(law.stddev_of_noise, rel=1e-9)
    assert measurement.values.tolist() == list(map(float, noisy))
    assert estimate(made).marginal("sex").shape == (2,)


def test_a_measurement_of_opendp_that_begins_with_the_data_is_refused() -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    count = space >> dp.t.then_count() >> dp.m.then_laplace(1.0)
    with pytest.raises(DeclarationError, match="its noise cannot be told from that"):
        from_opendp([3], DOMAIN, keys=[], described=count, neighbours="add-remove")


class DatavectorQuery:
    """Stands for mbi's query of a whole marginal."""


WHOLE = DatavectorQuery()


class SlicedQuery:
    """Stands for a query of mbi's that asks for something else."""


@dataclass(frozen=True)
class LinearMeasurement:
    """As mbi 2 has it."""

    noisy_measurement: Any
    clique: tuple[str, ...]
    stddev: float = 1.0
    query: Any = WHOLE


def mbi_domain(labels: Any = None) -> Any:
    return SimpleNamespace(attributes=("sex", "age"), shape=(2, 3), labels=labels)


TWO = [LinearMeasurement(np.arange(6.0), ("sex", "age"), 4.0), LinearMeasurement(np.array([1.0, 2, 3]), ("age",), 2.0)]


@pytest.mark.parametrize("law", ["gaussian", "laplace", "discrete-gaussian", "discrete-laplace"])
def test_measurements_of_mbi_keep_values_and_standard_deviation(law: str) -> None:
    made = from_mbi(TWO, mbi_domain(), law=law, neighbours="add-remove", spent={"rho": "0.1"})
    assert [each.query.attributes for each in made] == [("sex", "age"), ("age",)]
    assert [each.values.tolist() for each in made] == [list(range(6)), [1, 2, 3]]
    for each, stddev in zip(made, (4.0, 2.0), strict=True):
        assert each.noise.stddev_of_noise == pytest.approx(stddev, rel=1e-6)
    assert made.domain["age"].labels == ("0", "1", "2")


def test_labels_and_a_domain_of_ours_are_taken() -> None:
    labelled = from_mbi(TWO, mbi_domain([["F", "M"], [1, 2, 3]]), law="gaussian", neighbours="add-remove")
    assert labelled.domain["sex"].labels == ("F", "M")
    ours = Domain.from_sizes({"sex": 2, "age": 3})
    assert from_mbi(TWO, ours, law="gaussian", neighbours="replace-one").domain is ours


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"law": None}, "give law = one of 'gaussian'"),
        ({"neighbours": None}, "neighbours = 'add-remove' or 'replace-one'"),
        ({"law": "normal"}, "law='normal' is none of gaussian"),
        ({"domain": {"sex": 2}}, "a domain of mbi has attributes and a shape, found dict"),
        ({"measurements": [3.0]}, "expected LinearMeasurements of mbi, found float"),
        ({"measurements": [LinearMeasurement([1.0], ("age",), 1.0, SlicedQuery())]}, "has a query of its own"),
    ],
)
def test_what_mbi_does_not_say_is_asked_for(change: dict[str, Any], error: str) -> None:
    given = {"measurements": TWO, "domain": mbi_domain(), "law": "gaussian", "neighbours": "add-remove"} | change
    with pytest.raises((DeclarationError, MeasurementError), match=re.escape(error)):
        from_mbi(given.pop("measurements"), given.pop("domain"), **given)


def test_the_objects_of_mbi_itself_are_taken() -> None:
    mbi = pytest.importorskip("mbi")
    domain = mbi.Domain(["sex", "age"], [2, 3])
    rows = [mbi.LinearMeasurement(np.arange(6.0), ("sex", "age"), 4.0), mbi.LinearMeasurement(np.ones(3), ("age",))]
    made = from_mbi(rows, domain, law="gaussian", neighbours="add-remove")
    assert [each.noise for each in made] == [Gaussian(4.0), Gaussian(1.0)]
    assert made.measurements[0].values.tolist() == list(range(6))
    sliced = mbi.LinearMeasurement(np.ones(3), ("age",), 1.0, lambda factor: factor.datavector()[:3])
    with pytest.raises(MeasurementError, match="has a query of its own"):
        from_mbi([sliced], domain, law="gaussian", neighbours="add-remove")


def test_a_release_of_opendps_own_frames_is_taken() -> None:
    """With the polars that OpenDP was built for; others it refuses by itself."""
    dp, pl = pytest.importorskip("opendp.prelude"), pytest.importorskip("polars")
    dp.enable_features("contrib")
    people = pl.LazyFrame({"sex": ["F", "M", "F"] * 200})
    try:
        context = dp.Context.compositor(
            data=people,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(epsilon=1.0),
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=["sex"], invariant="keys")],
        )
        query = context.query().group_by("sex").agg(dp.len())
        described, released = query.summarize(), query.release().collect()
    except dp.OpenDPException as error:
        pytest.skip(f"OpenDP and this polars do not fit together: {str(error)[:60]}")
    said = {"described": described, "neighbours": "add-remove", "spent": {"epsilon": "1"}}
    (measurement,) = from_opendp(released, DOMAIN, keys=["sex"], **said)
    assert measurement.noise == DiscreteLaplace(1.0)
    assert measurement.clipped
    assert math.isclose(measurement.values.sum(), 600, abs_tol=100)
