"""The results of other tools as they hand them out: noisy tables of OpenDP, and linear measurements of mbi.

Neither library is imported here: their objects say themselves what is needed. What they do not say is asked for.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from consilience.domain.attributes import Attribute
from consilience.domain.declarations import label_text
from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError, MeasurementError
from consilience.measurements.further_laws import Gaussian, Laplace
from consilience.measurements.importers import from_long_table
from consilience.measurements.measurement import Measurement
from consilience.measurements.measurement_set import MeasurementSet
from consilience.measurements.noise_laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from consilience.measurements.privacy_statement import PrivacyStatement

DISTRIBUTIONS: Mapping[str, Callable[[float], NoiseLaw]] = {
    "Integer Laplace": DiscreteLaplace,
    "Float Laplace": Laplace,
    "Integer Gaussian": DiscreteGaussian,
    "Float Gaussian": Gaussian,
}
"""The laws by the names that OpenDP's `summarize` gives them; its scale of a Gaussian is the standard deviation."""

LAWS_OF_MBI: Mapping[str, Callable[[float], NoiseLaw]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "discrete-gaussian": DiscreteGaussian,
    "discrete-laplace": DiscreteLaplace,
}


def from_opendp(
    released: Any,
    domain: Domain,
    *,
    keys: Sequence[str],
    described: Any,
    neighbours: Neighbours | None = None,
    value: str | None = None,
    clipped: bool | None = None,
    spent: Mapping[str, Any] | None = None,
    unit: str = "row",
    column_of: Mapping[str, str] | None = None,
    ledger: str | None = None,
) -> MeasurementSet:
    """The set with what OpenDP released: a table of counts by `keys`, or the vector of a noise mechanism.

    A table is what `query.release().collect()` gives, and `described` then what `query.summarize()` says of it: the
    distribution, its scale and the threshold below which keys were left out. A vector, with the last of `keys`
    varying fastest, is what an OpenDP `Measurement` made that adds noise to vectors, and `described` is that
    measurement: law and scale follow from its map. `neighbours` is "add-remove" for a unit of so many contributions,
    and "replace-one" for one of so many changes. `value` is the column of noisy numbers, `clipped` says whether
    negative ones became 0: of tables, those of unsigned whole numbers are.
    """
    if neighbours is None:
        raise DeclarationError(
            "what OpenDP released does not say for whom it holds; give neighbours='add-remove' where the privacy unit "
            "was dp.unit_of(contributions=...), or 'replace-one' where it was dp.unit_of(changes=...)"
        )
    if isinstance(keys, str):
        raise DeclarationError(f"keys is a list of attributes; write keys=[{keys!r}]")
    if hasattr(described, "output_measure") and hasattr(described, "input_metric"):
        law = _law_of(described)
        noisy = np.asarray(released, dtype=np.float64)
        measured = MeasurementSet.from_marginals(
            domain,
            {tuple(keys): noisy},
            noise=law,
            neighbours=neighbours,
            unit=unit,
            clipped=bool(clipped),
            spent=spent,
            ledger=ledger,
        )
        return _made_by("opendp", measured)
    if hasattr(released, "collect"):
        raise DeclarationError(
            "a release of OpenDP is collected once, and its numbers are then yours; write released.collect()"
        )
    row = _summary_row(described, value)
    frame = _plain_table(released)
    column = str(row["column"])
    if column not in frame.column_names:
        raise MeasurementError(
            f"the release has no column {column!r}, which its summary describes; give release and summary of one query"
        )
    threshold = row.get("threshold")
    measured = from_long_table(
        frame,
        domain,
        keys=keys,
        value=column,
        noise=DISTRIBUTIONS[row["distribution"]](float(row["scale"])),
        neighbours=neighbours,
        clipped=_is_unsigned(frame, column) if clipped is None else clipped,
        released="all" if threshold is None else "above-threshold",
        threshold=None if threshold is None else float(threshold),
        spent=spent,
        unit=unit,
        column_of=column_of,
        ledger=ledger,
    )
    return _made_by("opendp", measured)


def _made_by(tool: str, measured: MeasurementSet) -> MeasurementSet:
    told = dict(measured.provenance) | {"tool": tool}
    return MeasurementSet(measured.domain, measured.measurements, measured.privacy, told, measured.private)


def _plain_table(frame: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(frame, eager_only=True).to_arrow()
    except TypeError:
        raise DeclarationError(
            f"a release of OpenDP is a table, what query.release().collect() gives, found {type(frame).__name__}; "
            "of a vector, give the Measurement that made it as described="
        ) from None


def _is_unsigned(frame: Any, column: str) -> bool:
    import pyarrow as pa

    return pa.types.is_unsigned_integer(frame.schema.field(column).type)


def _summary_row(described: Any, value: str | None) -> dict[str, Any]:
    """The line of a summary that is about the wanted column, checked."""
    import narwhals as nw

    try:
        rows = list(nw.from_native(described, eager_only=True).iter_rows(named=True))
    except TypeError:
        raise DeclarationError(
            f"described={described!r} does not say how the noise was made; give what query.summarize() returns, or "
            "the OpenDP Measurement that added it"
        ) from None
    wanted = [row for row in rows if value in (None, row.get("column"))]
    if len(wanted) != 1:
        columns = ", ".join(str(row.get("column")) for row in rows)
        raise DeclarationError(f"the summary describes the columns {columns}; name one of them: value=")
    (row,) = wanted
    if row.get("distribution") not in DISTRIBUTIONS or not isinstance(row.get("scale"), int | float):
        raise MeasurementError(
            f"the column {row.get('column')!r} has the distribution {row.get('distribution')!r}, which is no noise "
            f"added to counts; there is: {', '.join(DISTRIBUTIONS)}"
        )
    return row


def _law_of(made_by: Any) -> NoiseLaw:
    """The law of a noise mechanism, from its map at distance 1: ε = 1 / scale, or ρ = 1 / (2 stddev²).

    A mechanism on whole numbers draws discrete noise. One that begins with the data, and not with a vector, holds a
    sensitivity too, which cannot be told from the scale.
    """
    metric, measure = str(made_by.input_metric), str(made_by.output_measure)
    of_integers = any(name in str(made_by.input_domain) for name in ("T=i", "T=u"))
    if metric.startswith(("L1Distance", "AbsoluteDistance")) and measure == "MaxDivergence":
        scale = 1.0 / float(made_by.map(_one(made_by)))
        return DiscreteLaplace(scale) if of_integers else Laplace(scale)
    if metric.startswith(("L2Distance", "AbsoluteDistance")) and measure == "ZeroConcentratedDivergence":
        stddev = math.sqrt(0.5 / float(made_by.map(_one(made_by))))
        return DiscreteGaussian(stddev) if of_integers else Gaussian(stddev)
    raise DeclarationError(
        f"the measurement goes from {metric} to {measure}, and its noise cannot be told from that; give the noise "
        "mechanism by itself (dp.m.make_laplace or dp.m.make_gaussian on vectors), or bring the numbers with "
        "MeasurementSet.from_marginals(..., noise=DiscreteLaplace(scale))"
    )


def _one(made_by: Any) -> int | float:
    """1 as the mechanism's metric takes it."""
    return 1.0 if "(f" in str(made_by.input_metric) else 1


def from_mbi(
    measurements: Iterable[Any],
    domain: Any,
    *,
    law: str | None = None,
    neighbours: Neighbours | None = None,
    spent: Mapping[str, Any] | None = None,
    unit: str = "row",
    clipped: bool = False,
    ledger: str | None = None,
) -> MeasurementSet:
    """The set with mbi's `LinearMeasurement`s, each of a whole marginal.

    `domain` is mbi's, whose labels become values and else 0, 1, 2, ..., or a `Domain` of ours with the same attributes
    and sizes. mbi keeps the standard deviation of the noise and not its law: `law` is "gaussian", "laplace",
    "discrete-gaussian" or "discrete-laplace". Measurements with a query of their own are functions, which no file can
    keep, and are refused.
    """
    missing = {
        "law": None if law is not None else "one of " + ", ".join(map(repr, LAWS_OF_MBI)),
        "neighbours": None if neighbours is not None else "'add-remove' or 'replace-one': what the promise is about",
    }
    if asked := "; ".join(f"{name} = {words}" for name, words in missing.items() if words is not None):
        raise DeclarationError(f"mbi's measurements do not say how they were made; give {asked}")
    if law is None or law not in LAWS_OF_MBI:
        raise DeclarationError(f"law={law!r} is none of {', '.join(LAWS_OF_MBI)}; write one of them")
    ours = domain if isinstance(domain, Domain) else _domain_of_mbi(domain)
    found = [_measurement(each, LAWS_OF_MBI[law], clipped=clipped) for each in measurements]
    provenance = {"tool": "mbi"} | ({} if ledger is None else {"ledger": ledger})
    statement = PrivacyStatement(neighbours or "add-remove", unit, spent)
    return MeasurementSet(ours, tuple(found), statement, provenance)


def _domain_of_mbi(domain: Any) -> Domain:
    if not (hasattr(domain, "attributes") and hasattr(domain, "shape")):
        raise DeclarationError(f"a domain of mbi has attributes and a shape, found {type(domain).__name__}")
    labels = getattr(domain, "labels", None) or [range(size) for size in domain.shape]
    attributes = []
    for name, values in zip(domain.attributes, labels, strict=True):
        texts = [label_text(value) or str(value) for value in values]
        attributes.append(Attribute.categorical(str(name), texts))
    return Domain("mbi", tuple(attributes))


def _measurement(given: Any, law: Callable[[float], NoiseLaw], *, clipped: bool) -> Measurement:
    if not all(hasattr(given, name) for name in ("noisy_measurement", "clique", "stddev")):
        raise DeclarationError(f"expected LinearMeasurements of mbi, found {type(given).__name__}")
    clique = tuple(str(name) for name in given.clique)
    query = getattr(given, "query", None)
    name = getattr(query, "__qualname__", type(query).__name__)
    if query is not None and not name.endswith(("DatavectorQuery", "datavector")):
        raise MeasurementError(
            f"the measurement of {', '.join(clique)} has a query of its own, {name}, which is a function; say what it "
            "asks as a Query, and bring it as cs.Measurement(query, values, noise)"
        )
    values = np.asarray(given.noisy_measurement, dtype=np.float64).ravel()
    stddev = float(given.stddev)
    return Measurement(Query.marginal(*clique), values, _of_stddev(law, stddev), clipped=clipped)


def _of_stddev(law: Callable[[float], NoiseLaw], stddev: float) -> NoiseLaw:
    """The law with this standard deviation.

    Of Laplace noise it is √2 scale. Of discrete Laplace noise with a = e^(−1/scale) the variance is 2a / (1 − a)²,
    which is solved for a: with v = variance, a = (1 + v − √(1 + 2v)) / v.
    """
    if law is Laplace:
        return Laplace(stddev / math.sqrt(2.0))
    if law is DiscreteLaplace:
        variance = stddev**2
        a = variance / (1.0 + variance + math.sqrt(1.0 + 2.0 * variance))
        return DiscreteLaplace(-1.0 / math.log(a))
    return law(stddev)
