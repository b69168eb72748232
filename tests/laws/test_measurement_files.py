"""The laws of measurement files: what was saved is what is loaded, and odd bytes never surprise."""

import math
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.attributes import Numeric
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.errors import ConsilienceError
from consilience.measurements import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    Measurement,
    MeasurementSet,
    NoiseLaw,
    PrivacyStatement,
)

text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).filter(lambda found: bool(found.strip()))
finite = st.floats(allow_nan=False, allow_infinity=False)
scales = st.floats(min_value=1e-30, max_value=1e30)
laws: st.SearchStrategy[NoiseLaw] = st.one_of(
    st.builds(Laplace, scales),
    st.builds(Gaussian, scales),
    st.builds(DiscreteLaplace, scales, scales),
    st.builds(DiscreteGaussian, scales, scales),
    st.just(Exact()),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**18), 10**18), finite, text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)),
    max_leaves=5,
)
reserved = ("step", "censored", "threshold")
extras = st.dictionaries(text.filter(lambda key: key not in reserved), json_values, max_size=3)


@st.composite
def attributes(draw: st.DrawFn, name: str) -> Attribute:
    kind = draw(st.sampled_from(["categorical", "numeric", "real", "hierarchy"]))
    missing = draw(st.sampled_from([None, "unknown"]))
    if kind == "categorical":
        values = draw(st.lists(text, min_size=1, max_size=4, unique=True))
        return Attribute.categorical(name, [f"v{value}" for value in values], missing=missing)
    if kind == "numeric":
        edges = draw(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=6, unique=True))
        return Attribute.numeric(name, sorted(edges), missing=missing)
    if kind == "real":
        edges = draw(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=6, unique=True))
        return Attribute.numeric(name, sorted(edges), integer=False, unlisted="drop", missing=missing)
    return Attribute.hierarchy(name, {"x": "left", "y": "left", "z": "right", "left": "top", "right": "top"})


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    names = draw(st.lists(text, min_size=1, max_size=3, unique=True))
    found = tuple(draw(attributes(name)) for name in names)
    rules = [ImpossibleCells(((found[0].name, (0,)),))] if draw(st.booleans()) else []
    public = PublicFacts(total=draw(st.one_of(st.none(), st.integers(0, 10**9))))
    return Domain(draw(text), found, tuple(rules), public)


@st.composite
def factor(draw: st.DrawFn, attribute: Attribute) -> factors.Factor:
    """A factor of any kind that fits the attribute."""
    labels = attribute.labels
    ordinary = attribute.ordinary_labels
    some = draw(st.lists(st.sampled_from(labels), min_size=1, unique=True))
    ends = sorted(draw(st.tuples(*[st.integers(0, len(ordinary) - 1)] * 2)))
    low, high = (ordinary[end] for end in ends)
    entries = st.tuples(st.integers(0, 2), st.integers(0, len(labels) - 1), finite)
    choices: list[st.SearchStrategy[factors.Factor]] = [
        st.sampled_from([factors.Identity(), factors.Total(), factors.Prefix(), factors.AllRanges(), factors.Haar()]),
        st.just(factors.Value(some[0])),
        st.just(factors.Subset(tuple(some))),
        st.just(factors.Range(low, draw(st.sampled_from([high, None])))),
        st.just(factors.Buckets.of({"first": some[:1], "rest": some[1:]})),
        st.builds(factors.Tree, st.integers(2, 4)),
        st.builds(
            factors.Matrix,
            st.just(3),
            st.lists(entries, max_size=4, unique_by=lambda entry: entry[:2]).map(tuple),
            st.sampled_from([(), ("a", "b", "c")]),
        ),
    ]
    if isinstance(attribute, Numeric):
        choices += [st.just(factors.Mean()), st.builds(factors.Moments, st.integers(1, 3))]
    if attribute.kind == "hierarchy":
        choices += [st.just(factors.Tree()), st.builds(factors.Tree, st.none(), st.integers(0, 2))]
    return draw(st.one_of(choices))


@st.composite
def measurements(draw: st.DrawFn, domain: Domain, position: int) -> Measurement:
    chosen = draw(st.lists(st.sampled_from(domain.attributes), max_size=2, unique=True))
    query = Query(tuple((attribute.name, draw(factor(attribute))) for attribute in chosen))
    size = query.bind(domain).size
    values = np.array(draw(st.lists(finite, min_size=size, max_size=size)), dtype=np.float64)
    clipped = draw(st.booleans())
    if clipped:
        values = np.abs(values)
    hidden = draw(st.one_of(st.none(), st.lists(st.booleans(), min_size=size, max_size=size)))
    threshold = None if hidden is None else float(min(values, default=0.0))
    return Measurement(
        query,
        values,
        draw(laws),
        id=draw(st.sampled_from(["", f"m{position}", f"Ж\0{position}"])),
        clipped=clipped,
        censored=None if hidden is None else np.array(hidden, dtype=np.bool_),
        threshold=threshold,
        round=draw(st.one_of(st.none(), st.integers(0, 2**31 - 1))),
        extra=draw(extras),
    )


@st.composite
def sets(draw: st.DrawFn) -> MeasurementSet:
    domain = draw(domains())
    found = [draw(measurements(domain, position)) for position in range(draw(st.integers(0, 3)))]
    statement = PrivacyStatement(
        draw(st.sampled_from(["add-remove", "replace-one"])),
        draw(text),
        draw(st.sampled_from([None, {"epsilon": "0.5"}, {"rho": "1e-3"}, {"epsilon": "1", "delta": "1e-9"}])),
        tuple(draw(st.lists(text, max_size=2))),
        tuple(draw(st.lists(text, max_size=2))),
    )
    return MeasurementSet(
        domain, tuple(found), statement, draw(st.dictionaries(text, json_values)), draw(st.booleans())
    )


@settings(max_examples=45, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(sets())
def test_what_was_saved_is_what_is_loaded(found: MeasurementSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.parquet"
        found.save(path)
        loaded = MeasurementSet.load(path)
        assert loaded == found
        assert loaded.domain.fingerprint == found.domain.fingerprint
        for mine, theirs in zip(loaded, found, strict=True):
            assert mine.values.tobytes() == theirs.values.tobytes()
            assert math.isclose(mine.noise.scale_parameter, theirs.noise.scale_parameter, rel_tol=0)
        first = path.read_bytes()
        loaded.save(path)
        assert path.read_bytes() == first


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(sets(), st.data())
def test_odd_bytes_load_or_are_refused(found: MeasurementSet, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.parquet"
        found.save(path)
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, len(content) - 1]))])
        with suppress(ConsilienceError):
            MeasurementSet.load(path)
