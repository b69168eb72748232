"""Bad domain files: each mistake is named with both sides, and nothing but our own errors is raised."""

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consilience.domain import Attribute, Domain, Query, Workload
from consilience.domain.attribute_tables import MOST_BINS
from consilience.domain.workloads import is_workload_file
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError

AGE = "[attributes.age]\nkind = 'numeric'\nedges = [0, 18, 65, 120]\n"
SEX = "[attributes.sex]\nkind = 'categorical'\nvalues = ['F', 'M']\n"
NAME = "name = 'd'\n"


def numeric(lines: str) -> str:
    return NAME + "[attributes.age]\nkind = 'numeric'\n" + lines


BAD: dict[str, tuple[str, list[str]]] = {
    "empty file": ("", ["d.toml", "'name' is missing", "a text"]),
    "name is a number": ("name = 3\n" + SEX, ["'name' must be a text", "found 3"]),
    "name is blank": ("name = ' '\n" + SEX, ["needs a name"]),
    "no attributes": (NAME, ["'attributes' is missing"]),
    "empty attributes": (NAME + "[attributes]\n", ["declares no attributes"]),
    "attributes are a list": ("name = 'd'\nattributes = []\n", ["d.toml.attributes", "found a list"]),
    "attribute is a number": (NAME + "[attributes]\nage = 3\n", ["d.toml.attributes.age", "found 3"]),
    "unknown top-level key": ("nmae = 'x'\n" + NAME + SEX, ["'nmae' is not known here", "did you mean 'name'?"]),
    "misspelt impossible": (NAME + SEX + "[[imposible]]\nsex = ['F']\n", ["'imposible'", "did you mean 'impossible'?"]),
    "no kind": (NAME + "[attributes.age]\nedges = [0, 1]\n", ["attributes.age", "'kind' is missing"]),
    "unknown kind": (NAME + "[attributes.age]\nkind = 'numerical'\n", ["'numerical'", "did you mean 'numeric'?"]),
    "kind is a list": (NAME + "[attributes.age]\nkind = []\n", ["'kind' must be a text", "found a list"]),
    "unknown key": (NAME + SEX + "unlistd = 'drop'\n", ["attributes.sex", "'unlistd'", "did you mean 'unlisted'?"]),
    "misspelt missing": (NAME + SEX + "mising = 'x'\n", ["'mising'", "did you mean 'missing'?"]),
    "key of another kind": (NAME + SEX + "edges = [0, 1]\n", ["'edges' is not known here"]),
    "duplicate edges": (numeric("edges = [0, 18, 18]\n"), ["'age'", "bin edge 18.0 twice"]),
    "decreasing edges": (numeric("edges = [0, 65, 18]\n"), ["18 follows 65", "must increase"]),
    "edge is NaN": (numeric("edges = [0, nan]\n"), ["'edges' must be a list of finite numbers", "found nan"]),
    "edge is infinite": (numeric("edges = [0, inf]\n"), ["finite numbers", "found inf"]),
    "edge is text": (numeric("edges = [0, '18']\n"), ["finite numbers", "found '18'"]),
    "edge is a truth value": (numeric("edges = [0, true]\n"), ["finite numbers", "found True"]),
    "edge beyond floats": (numeric(f"edges = [0, 1{'0' * 400}]\n"), ["finite numbers", "beyond the range"]),
    "edges are text": (numeric("edges = '0, 18'\n"), ["list of finite numbers", "found '0, 18'"]),
    "one edge": (numeric("edges = [0]\n"), ["at least two bin edges", "found 1"]),
    "no edges": (numeric("edges = []\n"), ["at least two bin edges", "found 0"]),
    "neither edges nor from": (numeric(""), ["'edges', or 'from', 'to' and 'step'"]),
    "from without to": (numeric("from = 0\nstep = 1\n"), ["'to' is missing"]),
    "from without step": (numeric("from = 0\nto = 9\n"), ["'step' is missing"]),
    "edges and from": (numeric("edges = [0, 1]\nfrom = 0\n"), ["'from' is not known here"]),
    "step of zero": (numeric("from = 0\nto = 9\nstep = 0\n"), ["from 0 to 9 by 0 makes no bins"]),
    "to before from": (numeric("from = 9\nto = 0\nstep = 1\n"), ["from 9 to 0", "must exceed"]),
    "step does not divide": (numeric("from = 0\nto = 9\nstep = 2\n"), ["steps of 2 from 0 do not end at 9"]),
    "far step does not divide": (numeric("from = 0\nto = 100000000001\nstep = 200000\n"), ["do not end at"]),
    "step beyond to": (numeric("from = 0\nto = 1\nstep = 5\n"), ["steps of 5 from 0 do not end at 1"]),
    "huge count": (numeric("from = 0\nto = 1000000000000\nstep = 1\n"), ["1e+12 bins", f"at most {MOST_BINS}"]),
    "infinite count": (numeric("from = -1e308\nto = 1e308\nstep = 1e-300\n"), ["inf bins", f"at most {MOST_BINS}"]),
    "huge whole numbers": (numeric(f"from = 0\nto = 1{'0' * 300}\nstep = 1\n"), ["bins"]),
    "integer is text": (numeric("edges = [0, 1]\ninteger = 'yes'\n"), ["'integer' must be true or false", "'yes'"]),
    "fractional integer": (numeric("edges = [0, 1.5]\ninteger = true\n"), ["integer", "fractional"]),
    "numeric missing clips": (numeric("edges = [0, 1]\nmissing = 'clip'\n"), ["missing value cannot be clipped"]),
    "no values": (NAME + "[attributes.sex]\nkind = 'categorical'\nvalues = []\n", ["'sex' lists no values"]),
    "duplicate values": (
        NAME + "[attributes.sex]\nkind = 'categorical'\nvalues = ['F', 'M', 'F']\n",
        ["'sex'", "'F' twice"],
    ),
    "duplicates as texts": (NAME + "[attributes.sex]\nkind = 'categorical'\nvalues = [1, '1']\n", ["'1' twice"]),
    "values are text": (NAME + "[attributes.sex]\nkind = 'categorical'\nvalues = 'FM'\n", ["a list", "found 'FM'"]),
    "value is a list": (
        NAME + "[attributes.sex]\nkind = 'categorical'\nvalues = ['F', []]\n",
        ["texts, numbers or truth values", "found a list in it"],
    ),
    "value is a date": (
        NAME + "[attributes.day]\nkind = 'categorical'\nvalues = [2020-01-01]\n",
        ["texts, numbers or truth values", "datetime.date(2020, 1, 1)"],
    ),
    "category clips": (NAME + SEX + "unlisted = 'clip'\n", ["'clip' is for numbers"]),
    "unlisted is a list": (NAME + SEX + "unlisted = ['x']\n", ["'unlisted' must be", "found a list"]),
    "no parents": (NAME + "[attributes.geo]\nkind = 'hierarchy'\n", ["'parents' is missing"]),
    "empty parents": (NAME + "[attributes.geo]\nkind = 'hierarchy'\nparents = {}\n", ["declares no parents"]),
    "parents are a list": (
        NAME + "[attributes.geo]\nkind = 'hierarchy'\nparents = ['x']\n",
        ["geo.parents", "expected a table", "found a list"],
    ),
    "a parent is a list": (
        NAME + "[attributes.geo]\nkind = 'hierarchy'\nparents = { x = [] }\n",
        ["geo.parents", "'x' must be", "found a list"],
    ),
    "a cycle": (
        NAME + "[attributes.geo]\nkind = 'hierarchy'\nparents = { a = 'b', b = 'c', c = 'a' }\n",
        ["'geo'", "its own ancestor"],
    ),
    "three bounds": (NAME + "[attributes.x]\nkind = 'continuous'\nbounds = [0, 1, 2]\n", ["two numbers, found 3"]),
    "bounds backwards": (NAME + "[attributes.x]\nkind = 'continuous'\nbounds = [1, 0]\n", ["[1.0, 0.0]"]),
    "continuous missing": (
        NAME + "[attributes.x]\nkind = 'continuous'\nbounds = [0, 1]\nmissing = '?'\n",
        ["'missing' is not known here"],
    ),
    "impossible on unknown attribute": (NAME + AGE + "[[impossible]]\nagee = [0, 18]\n", ["'agee'", "mean 'age'?"]),
    "impossible on unknown value": (NAME + SEX + "[[impossible]]\nsex = ['X']\n", ["'sex' has no value 'X'", "F, M"]),
    "impossible without values": (NAME + SEX + "[[impossible]]\nsex = []\n", ["'sex' lists no values"]),
    "impossible without attributes": (NAME + SEX + "[[impossible]]\n", ["names no attribute"]),
    "impossible is a table": (NAME + SEX + "[impossible]\nsex = ['F']\n", ["'impossible' must be a list of tables"]),
    "impossible value is text": (NAME + SEX + "[[impossible]]\nsex = 'F'\n", ["impossible[0]", "a list", "found 'F'"]),
    "impossible edges not edges": (NAME + AGE + "[[impossible]]\nage = [0, 17]\n", ["two of its bin edges", "[0, 17]"]),
    "impossible edges backwards": (NAME + AGE + "[[impossible]]\nage = [18, 0]\n", ["[low, high)", "[18, 0]"]),
    "impossible three edges": (NAME + AGE + "[[impossible]]\nage = [0, 18, 65]\n", ["two of its bin edges"]),
    "impossible on continuous": (
        NAME + SEX + "[attributes.x]\nkind = 'continuous'\nbounds = [0, 1]\n[[impossible]]\nx = ['0']\n",
        ["'x' is continuous"],
    ),
    "negative total": (NAME + SEX + "[public]\ntotal = -5\n", ["public total -5", "from 0 up"]),
    "total is NaN": (NAME + SEX + "[public]\ntotal = nan\n", ["'total' must be a finite number", "found nan"]),
    "total is text": (NAME + SEX + "[public]\ntotal = '5'\n", ["'total'", "found '5'"]),
    "public is a list": (NAME.replace("\n", "\npublic = []\n") + SEX, ["d.toml.public", "found a list"]),
    "unknown public fact": (NAME + SEX + "[public]\ntotla = 5\n", ["'totla'", "did you mean 'total'?"]),
    "margin too short": (
        NAME + SEX + "[[public.margins]]\nattributes = ['sex']\ncounts = [1]\n",
        ["by sex", "lists 1 counts for 2 cells"],
    ),
    "margin negative": (
        NAME + SEX + "[[public.margins]]\nattributes = ['sex']\ncounts = [1, -2]\n",
        ["by sex", "below 0"],
    ),
    "margin against total": (
        NAME + SEX + "[public]\ntotal = 5\n[[public.margins]]\nattributes = ['sex']\ncounts = [1, 2]\n",
        ["sums to 3", "total is 5"],
    ),
    "margin on unknown": (
        NAME + SEX + "[[public.margins]]\nattributes = ['sx']\ncounts = [1, 2]\n",
        ["no attribute 'sx'", "did you mean 'sex'?"],
    ),
    "margin without counts": (NAME + SEX + "[[public.margins]]\nattributes = ['sex']\n", ["'counts' is missing"]),
    "margin with more": (
        NAME + SEX + "[[public.margins]]\nattributes = ['sex']\ncounts = [1, 2]\ncout = 1\n",
        ["margins[0]", "'cout'"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_each_mistake_is_named_with_both_sides(case: str, tmp_path: Path) -> None:
    text, fragments = BAD[case]
    path = tmp_path / "d.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DeclarationError) as caught:
        Domain.load(path)
    for fragment in fragments:
        assert fragment in str(caught.value)


NOT_TOML: dict[str, tuple[bytes, list[str]]] = {
    "not UTF-8": (b"name = '\xff'", ["d.toml", "cannot be read as a text file"]),
    "not TOML": (b"name: d", ["d.toml", "not valid TOML", "line 1"]),
    "a CSV file": (b"age,sex\n1,F\n", ["not valid TOML"]),
    "key twice": (b"name = 'a'\nname = 'b'\n", ["not valid TOML"]),
    "number too long": (b"name = " + b"9" * 5000, ["not valid TOML"]),
    "nested too deep": (b"name = " + b"[" * 10_000, ["nested too deeply"]),
}


@pytest.mark.parametrize("case", NOT_TOML)
def test_files_that_are_no_toml_are_refused(case: str, tmp_path: Path) -> None:
    content, fragments = NOT_TOML[case]
    path = tmp_path / "d.toml"
    path.write_bytes(content)
    with pytest.raises(FileFormatError) as caught:
        Domain.load(path)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"no domain file .*absent\.toml; draft one"):
        Domain.load(tmp_path / "absent.toml")
    with pytest.raises(FileFormatError, match="cannot be read"):
        Domain.load(tmp_path)


def test_a_huge_number_in_hexadecimal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(numeric(f"edges = [0, 0x{'f' * 6000}]\n"), encoding="utf-8")
    with pytest.raises(DeclarationError, match="beyond the range of numbers"):
        Domain.load(path)


# Wrong types everywhere: any place of a good declaration is overwritten with anything.

GOOD_DOMAIN: dict[str, Any] = {
    "name": "town",
    "attributes": {
        "age": {"kind": "numeric", "edges": [0, 18, 65], "missing": "?", "unlisted": "drop"},
        "year": {"kind": "numeric", "from": 0, "to": 10, "step": 2, "integer": True},
        "sex": {"kind": "categorical", "values": ["F", "M"], "unlisted": "M"},
        "place": {"kind": "hierarchy", "parents": {"a": "t", "b": "t"}},
        "x": {"kind": "continuous", "bounds": [0, 1.5]},
    },
    "impossible": [{"age": [0, 18], "sex": ["F"]}],
    "public": {"total": 5, "margins": [{"attributes": ["sex"], "counts": [2, 3]}]},
}
GOOD_WORKLOAD: dict[str, Any] = {
    "queries": [
        {"ask": "age=0..17 by sex", "weight": 2},
        {
            "factors": [
                {"kind": "value", "attribute": "sex", "label": "F"},
                {"kind": "subset", "attribute": "place", "labels": ["a", "b"]},
                {"kind": "range", "attribute": "age", "low": "0", "high": "17"},
            ]
        },
        {
            "factors": [
                {"kind": "buckets", "attribute": "sex", "groups": [{"name": "g", "labels": ["F"]}]},
                {"kind": "moments", "attribute": "age", "order": 2},
                {"kind": "tree", "attribute": "year", "branching": 2, "level": 1},
                {"kind": "matrix", "attribute": "place", "rows": 1, "entries": [[0, 1, 0.5]], "names": ["n"]},
            ]
        },
    ]
}
JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    7,
    2.5,
    math.nan,
    math.inf,
    10**15,
    10**400,
    "",
    "x",
    "drop",
    [],
    [[]],
    [None],
    {},
    {"x": 1},
    b"x",
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = junk
    return changed


def removed(value: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return changed


@pytest.mark.parametrize(
    "path", list(places(GOOD_DOMAIN)), ids=lambda path: ".".join(str(key) for key in path) or "all"
)
def test_anything_anywhere_in_a_domain_is_accepted_or_refused_in_our_words(path: tuple[Any, ...]) -> None:
    Domain.from_declaration(GOOD_DOMAIN)
    variants = [replaced(GOOD_DOMAIN, path, junk) for junk in JUNK] + ([removed(GOOD_DOMAIN, path)] if path else [])
    for variant in variants:
        try:
            domain = Domain.from_declaration(variant)
        except ConsilienceError:
            continue
        assert Domain.from_declaration(domain.to_declaration()) == domain


@pytest.mark.parametrize("path", list(places(GOOD_WORKLOAD)), ids=lambda path: ".".join(str(k) for k in path) or "all")
def test_anything_anywhere_in_a_workload_is_accepted_or_refused_in_our_words(path: tuple[Any, ...]) -> None:
    domain = Domain.from_declaration(GOOD_DOMAIN)
    Workload.from_json(GOOD_WORKLOAD).check(domain)
    variants = [replaced(GOOD_WORKLOAD, path, junk) for junk in JUNK]
    for variant in variants + ([removed(GOOD_WORKLOAD, path)] if path else []):
        try:
            workload = Workload.from_json(variant)
            assert Workload.from_json(workload.to_json()) == workload
            workload.check(domain)
        except ConsilienceError:
            continue


def test_a_query_names_the_place_of_its_mistake() -> None:
    with pytest.raises(DeclarationError, match=r"^measurement 3\.factors\[0\]: 'label' must be a text, found 3$"):
        Query.from_json({"factors": [{"kind": "value", "attribute": "a", "label": 3}]}, where="measurement 3")


def test_a_few_letters_that_declare_many_millions_of_bins_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.domain.attribute_tables.MOST_BINS_TOGETHER", 20_000)
    stepped = {"kind": "numeric", "from": 0, "to": 9_000, "step": 1}
    declared = {"name": "d", "attributes": {f"a{i}": stepped for i in range(500)}}
    with pytest.raises(DeclarationError, match="more than 20,000 bins"):
        Domain.from_declaration(declared)


@pytest.mark.parametrize("sign", ["\x00", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u202e", "\u2066", "\n", "\t"])
@pytest.mark.parametrize("place", ["name", "attribute", "value", "missing", "parent"])
def test_control_characters_are_refused_in_domain_files_and_read_in_measurements(sign, place, tmp_path: Path) -> None:
    import tomli_w

    texts = dict.fromkeys(["name", "attribute", "value", "missing", "parent"], "fine") | {place: f"a{sign}b"}
    declared = {
        "name": texts["name"],
        "attributes": {
            texts["attribute"]: {"kind": "categorical", "values": [texts["value"]], "missing": texts["missing"]},
            "h": {"kind": "hierarchy", "parents": {"x": texts["parent"]}},
        },
    }
    path = tmp_path / "d.toml"
    path.write_text(tomli_w.dumps(declared), encoding="utf-8")
    with pytest.raises(DeclarationError, match="control character") as caught:
        Domain.load(path)
    assert sign not in str(caught.value)
    assert Domain.from_declaration(declared).name == texts["name"]


@pytest.mark.parametrize("kind", [Domain, Workload])
@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "{a=" * 100_000, ".".join("a" * 20_000) + " = 1", '"a" . ' * 20_000 + "b = 1"],
)
def test_deeply_nested_files_are_refused_at_once(kind, text, tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(text)
    with pytest.raises(FileFormatError, match="nested too deeply"):
        kind.load(path)
    with pytest.raises(FileFormatError, match="nested too deeply"):
        is_workload_file(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no endless file")
def test_an_endless_file_is_refused() -> None:
    with pytest.raises(FileFormatError, match="larger than 67 MB"):
        Domain.load("/dev/zero")


def test_a_hierarchy_of_very_many_levels_is_refused_at_once() -> None:
    with pytest.raises(DeclarationError, match="at most 100 levels"):
        Attribute.hierarchy("h", {str(i): str(i + 1) for i in range(50_000)})
    assert len(Attribute.hierarchy("h", {str(i): str(i + 1) for i in range(99)}).nodes) == 100


def test_a_query_of_very_many_attributes_is_refused_at_once_in_few_words() -> None:
    with pytest.raises(DeclarationError) as caught:
        Query.parse("by " + ", ".join(f"x{i}" for i in range(20_000))).bind(Domain.from_sizes({"a": 2}))
    assert len(str(caught.value)) < 500
    with pytest.raises(DeclarationError) as caught:
        Query.parse("(" * 100_000)
    assert len(str(caught.value)) < 500
