"""Domains: shapes, impossible cells, public facts, files and fingerprints."""

import hashlib
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.errors import DeclarationError

TEXT = """
name = "town"

[attributes.age]
kind = "numeric"
edges = [0, 18, 65, 120]
missing = "Unknown"

[attributes.marital]
kind = "categorical"
values = ["Single", "Married", "Widowed"]
unlisted = "Other"

[attributes.place]
kind = "hierarchy"
parents = { Bern = "CH", Basel = "CH", Lyon = "FR" }

[attributes.height]
kind = "continuous"
bounds = [0, 2.5]

[[impossible]]
age = [0, 18]
marital = ["Married", "Widowed"]

[[impossible]]
age = ["65..119"]
place = ["CH"]

[public]
total = 100

[[public.margins]]
attributes = ["place"]
counts = [50, 30, 20]
"""


@pytest.fixture
def town(tmp_path: Path) -> Domain:
    path = tmp_path / "town.toml"
    path.write_text(TEXT, encoding="utf-8")
    return Domain.load(path)


def test_a_domain_file_declares_every_kind(town: Domain) -> None:
    assert town.name == "town"
    assert town.names == ("age", "marital", "place", "height")
    assert town.counted_names == ("age", "marital", "place")
    assert town.shape == (4, 4, 3)
    assert town.cells == 48
    assert town["age"].labels == ("0..17", "18..64", "65..119", "Unknown")
    assert town["marital"].labels == ("Single", "Married", "Widowed", "Other")
    assert town.public == PublicFacts(100, (PublicMargin(("place",), (50, 30, 20)),))
    assert town.public.describe() == ("the exact total", "the exact counts by place")
    assert "age" in town
    assert "town" not in town


def test_impossible_cells_equal_brute_force(town: Domain) -> None:
    allowed = town.allowed_cells()
    assert allowed is not None
    for cell in itertools.product(*(enumerate(attribute.labels) for attribute in town.counted)):
        (_, age), (_, marital), (_, place) = cell
        child = age == "0..17" and marital in ("Married", "Widowed")
        old_swiss = age == "65..119" and place in ("Bern", "Basel")
        assert allowed[tuple(code for code, _ in cell)] == (not child and not old_swiss)


def test_impossible_cells_apply_where_all_their_attributes_are_named(town: Domain) -> None:
    whole = town.allowed_cells()
    assert whole is not None
    names = town.counted_names
    for size in (1, 2):
        for kept in itertools.permutations(names, size):
            away = tuple(names.index(name) for name in names if name not in kept)
            left = [name for name in names if name in kept]
            possible = np.asarray(whole.any(axis=away)).transpose([left.index(name) for name in kept])
            allowed = town.allowed_cells(kept)
            if allowed is None:
                assert possible.all()
            else:
                np.testing.assert_array_equal(allowed, possible)


def test_without_rules_every_cell_can_occur(town: Domain) -> None:
    assert Domain.from_sizes({"a": 3}).allowed_cells() is None
    assert town.allowed_cells(["marital", "place"]) is None


def test_random_rules_equal_brute_force() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        sizes = {name: int(rng.integers(1, 5)) for name in "abc"}
        rules = []
        for _ in range(rng.integers(1, 4)):
            names = [name for name in sizes if rng.random() < 0.6] or ["a"]
            rules.append({n: tuple(np.flatnonzero(rng.random(sizes[n]) < 0.5).tolist()) or (0,) for n in names})
        bare = Domain.from_sizes(sizes)
        domain = Domain("d", bare.attributes, tuple(ImpossibleCells(tuple(rule.items())) for rule in rules))
        allowed = domain.allowed_cells()
        assert allowed is not None
        for cell in np.ndindex(*domain.shape):
            at = dict(zip("abc", cell, strict=True))
            assert allowed[cell] == (not any(all(at[n] in codes for n, codes in rule.items()) for rule in rules))


def test_projection_keeps_the_rules_and_facts_that_still_apply(town: Domain) -> None:
    small = town.project(["marital", "age"])
    assert small.names == ("age", "marital")
    assert [rule.attributes for rule in small.impossible] == [("age", "marital")]
    assert small.public == PublicFacts(100, ())
    assert town.project(["place"]).public.margins == town.public.margins
    assert town.project(town.names) == town
    with pytest.raises(DeclarationError, match="did you mean 'age'"):
        town.project(["agee"])
    with pytest.raises(DeclarationError, match="'age' is named twice"):
        town.project(["age", "age"])


def test_names_are_put_in_the_order_of_the_domain(town: Domain) -> None:
    assert town.ordered(["place", "age"]) == ("age", "place")
    assert town.sizes(["place", "age"]) == (3, 4)


def test_a_domain_survives_its_file_and_json(town: Domain, tmp_path: Path) -> None:
    town.save(tmp_path / "copy.toml")
    assert Domain.load(tmp_path / "copy.toml") == town
    assert Domain.from_declaration(json.loads(json.dumps(town.to_declaration()))) == town


def test_long_even_edges_are_saved_as_from_to_and_step(tmp_path: Path) -> None:
    domain = Domain(
        "d", (Attribute.numeric("age", [*range(17, 91, 2), 91]), Attribute.numeric("x", [*range(0, 100, 7)]))
    )
    assert domain.to_declaration()["attributes"]["x"] == {
        "kind": "numeric",
        "from": 0,
        "to": 98,
        "step": 7,
        "unlisted": "clip",
    }
    assert Domain.from_declaration(domain.to_declaration()) == domain


def test_even_edges_in_decimal_steps_are_the_decimals_that_were_written() -> None:
    declared = {"kind": "numeric", "from": 0.0, "to": 1.0, "step": 0.1}
    domain = Domain.from_declaration({"name": "d", "attributes": {"x": declared}})
    assert domain["x"].labels == tuple(
        f"[{low}, {high}"
        for low, high in itertools.pairwise(["0", *(f"0.{i}" for i in range(1, 10)), "1"])
        for high in [high + ("]" if high == "1" else ")")]
    )
    assert domain["x"].codes("0.3..0.7") == (3, 4, 5, 6)


def test_a_file_with_a_byte_order_mark_loads(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text("\ufeff" + TEXT, encoding="utf-8")
    assert Domain.load(tmp_path / "d.toml").name == "town"


ODD_NAMES = [
    "ä ö",
    'say "hi"',
    "it's",
    "a.b.c",
    "x=y",
    "[attributes]",
    "#",
    "\\",
    "日本",
    "𝔘",
    "drop",
]


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_odd_names_and_labels_survive_the_file(odd: str, tmp_path: Path) -> None:
    domain = Domain(
        odd,
        (
            Attribute.categorical(odd, [odd, "other"], missing=odd + "?"),
            Attribute.hierarchy("place", {odd: odd + "!", "x": odd + "!"}),
        ),
        (ImpossibleCells(((odd, (0,)), ("place", (0, 1)))),),
    )
    domain.save(tmp_path / "d.toml")
    loaded = Domain.load(tmp_path / "d.toml")
    assert loaded == domain
    assert loaded.fingerprint == domain.fingerprint


def test_fingerprints_are_equal_for_equal_domains(town: Domain, tmp_path: Path) -> None:
    town.save(tmp_path / "copy.toml")
    assert Domain.load(tmp_path / "copy.toml").fingerprint == town.fingerprint
    whole = Domain("d", Domain.from_sizes({"a": 2}).attributes, public=PublicFacts(3, (PublicMargin(("a",), (1, 2)),)))
    real = Domain("d", whole.attributes, public=PublicFacts(3.0, (PublicMargin(("a",), (1.0, 2.0)),)))
    assert whole == real
    assert whole.fingerprint == real.fingerprint


def test_fingerprints_are_the_same_in_every_version() -> None:
    text = (
        '{"name": "codes", "attributes": {"b": {"kind": "categorical", "values": ["0", "1"], "unlisted": "drop"}, '
        '"a": {"kind": "categorical", "values": ["0"], "unlisted": "drop"}}}'
    )
    domain = Domain.from_sizes({"b": 2, "a": 1}, name="codes")
    assert domain.fingerprint == hashlib.sha256(text.encode()).hexdigest()


def test_fingerprints_tell_domains_apart() -> None:
    a, b = Attribute.categorical("a", ["x", "y"]), Attribute.categorical("b", ["x", "y"])
    rule = ImpossibleCells((("a", (0,)), ("b", (1,))))
    domains = [
        Domain("d", (a, b)),
        Domain("e", (a, b)),
        Domain("d", (b, a)),
        Domain("d", (a,)),
        Domain("d", (a, b), (rule,)),
        Domain("d", (a, b), public=PublicFacts(5)),
        Domain("d", (a, b), public=PublicFacts(None, (PublicMargin(("a",), (1, 2)),))),
        Domain("d", (Attribute.categorical("a", ["y", "x"]), b)),
        Domain("d", (Attribute.categorical("a", ["x", "y"], missing="y"), b)),
        Domain("d", (Attribute.categorical("a", ["x", "y"], unlisted="y"), b)),
        Domain("d", (Attribute.hierarchy("a", {"x": "z", "y": "z"}), b)),
        Domain("d", (Attribute.hierarchy("a", {"y": "z", "x": "z"}), b)),
        Domain("d", (Attribute.numeric("a", [0, 1, 2]), b)),
        Domain("d", (Attribute.numeric("a", [0.0, 1.0, 2.0]), b)),
        Domain("d", (Attribute.numeric("a", [0, 1, 3]), b)),
        Domain("d", (Attribute.continuous("a", (0, 1)), b)),
        Domain("d", (Attribute.continuous("a", (0, 1), unlisted="drop"), b)),
    ]
    assert len({domain.fingerprint for domain in domains}) == len(domains)


def test_domains_from_sizes_have_numbers_for_labels() -> None:
    domain = Domain.from_sizes({"a": 3, "b": np.int64(2)}, name="codes")  # type: ignore[dict-item]
    assert domain.shape == (3, 2)
    assert domain["a"].labels == ("0", "1", "2")


@pytest.mark.parametrize("size", [0, -1, 1.5, "3", None])
def test_sizes_that_are_no_sizes_are_refused(size: object) -> None:
    with pytest.raises(DeclarationError, match=r"'a' has size .* whole number from 1 up"):
        Domain.from_sizes({"a": size})  # type: ignore[dict-item]


def test_the_number_of_cells_is_exact_however_large() -> None:
    assert Domain.from_sizes({f"a{i}": 10 for i in range(40)}).cells == 10**40


A = Attribute.categorical("a", ["x", "y"])
B = Attribute.categorical("b", ["x", "y"])
BAD: list[tuple[str, object, list[str]]] = [
    ("no name", lambda: Domain("", (A,)), ["needs a name"]),
    ("name is no text", lambda: Domain(3, (A,)), ["needs a name"]),  # type: ignore[arg-type]
    ("no attributes", lambda: Domain("d", ()), ["declares no attributes"]),
    ("attribute twice", lambda: Domain("d", (A, A)), ["'a' twice"]),
    ("rule without attributes", lambda: Domain("d", (A,), (ImpossibleCells(()),)), ["names no attribute"]),
    ("rule on unknown", lambda: Domain("d", (A,), (ImpossibleCells((("c", (0,)),)),)), ["no attribute 'c'"]),
    ("rule with bad code", lambda: Domain("d", (A,), (ImpossibleCells((("a", (2,)),)),)), ["[2]", "0 to 1"]),
    ("rule without codes", lambda: Domain("d", (A,), (ImpossibleCells((("a", ()),)),)), ["codes []"]),
    ("negative total", lambda: Domain("d", (A,), public=PublicFacts(-1)), ["total -1", "from 0 up"]),
    ("total is NaN", lambda: Domain("d", (A,), public=PublicFacts(float("nan"))), ["total nan"]),
    (
        "margin twice named",
        lambda: Domain("d", (A,), public=PublicFacts(None, (PublicMargin(("a", "a"), (1, 2, 3, 4)),))),
        ["'a' is named twice"],
    ),
    (
        "margin of nothing",
        lambda: Domain("d", (A,), public=PublicFacts(None, (PublicMargin((), (1,)),))),
        ["says nothing about cells", "'total'"],
    ),
    (
        "margins that differ",
        lambda: Domain(
            "d",
            (A, B),
            public=PublicFacts(None, (PublicMargin(("a", "b"), (1, 2, 3, 4)), PublicMargin(("b",), (4, 5)))),
        ),
        ["by a, b and by b", "differ on b"],
    ),
    (
        "margins with other totals",
        lambda: Domain(
            "d", (A, B), public=PublicFacts(None, (PublicMargin(("a",), (1, 2)), PublicMargin(("b",), (4, 5))))
        ),
        ["by a and by b", "differ on the total"],
    ),
    (
        "margin in impossible cells",
        lambda: Domain(
            "d", (A,), (ImpossibleCells((("a", (0,)),)),), PublicFacts(None, (PublicMargin(("a",), (1, 2)),))
        ),
        ["impossible cells"],
    ),
]


@pytest.mark.parametrize(("build", "fragments"), [each[1:] for each in BAD], ids=[each[0] for each in BAD])
def test_domains_that_contradict_themselves_are_refused(build: object, fragments: list[str]) -> None:
    assert callable(build)
    with pytest.raises(DeclarationError) as caught:
        build()
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_margins_that_agree_in_any_order_are_accepted() -> None:
    margins = (
        PublicMargin(("a", "b"), (1, 2, 3, 4)),
        PublicMargin(("b", "a"), (1, 3, 2, 4)),
        PublicMargin(("b",), (4, 6)),
    )
    assert Domain("d", (A, B), public=PublicFacts(10, margins)).public


def test_an_attribute_that_is_not_to_be_released_has_no_cells_and_keeps_its_rules(tmp_path: Path) -> None:
    text = """
name = "d"
[attributes.sex]
kind = "categorical"
values = ["F", "M"]
[attributes.ssn]
kind = "categorical"
values = ["1", "2", "3"]
release = false
"""
    (tmp_path / "d.toml").write_text(text, encoding="utf-8")
    (tmp_path / "all.toml").write_text(text.replace("release = false", "release = true"), encoding="utf-8")
    (tmp_path / "old.toml").write_text(text.replace("release = false", ""), encoding="utf-8")
    domain, everything, old = (Domain.load(tmp_path / f"{name}.toml") for name in ("d", "all", "old"))
    assert (domain.counted_names, domain.cells) == (("sex",), 2)
    assert Domain.from_declaration(domain.to_declaration()) == domain
    assert everything.fingerprint == old.fingerprint  # as before there was such a key
    assert domain.fingerprint != old.fingerprint
    with pytest.raises(DeclarationError, match="the query 'ssn' names 'ssn', and domain 'd' says release = false"):
        Query.marginal("ssn").bind(domain)
    with pytest.raises(DeclarationError, match="public margin by ssn names 'ssn'"):
        replace(domain, public=PublicFacts(margins=(PublicMargin(("ssn",), (1.0, 2.0, 3.0)),)))
    (tmp_path / "bad.toml").write_text(text.replace("release = false", 'release = "no"'), encoding="utf-8")
    with pytest.raises(DeclarationError, match="release"):
        Domain.load(tmp_path / "bad.toml")
