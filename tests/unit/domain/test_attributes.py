"""Attributes: labels, codes and the public rule for records."""

import numpy as np
import pytest

from consilience.domain import Attribute
from consilience.domain.attributes import DROP, Continuous, Hierarchy, Numeric
from consilience.errors import DeclarationError


def test_whole_number_bins_are_labelled_by_the_numbers_in_them() -> None:
    assert Attribute.numeric("a", [-5, 0, 1, 10]).labels == ("-5..-1", "0", "1..9")


def test_real_bins_are_labelled_by_their_edges_and_the_last_is_closed() -> None:
    assert Attribute.numeric("a", [0.5, 1.0, 2.25]).labels == ("[0.5, 1)", "[1, 2.25]")


def test_edges_without_fractions_are_real_where_declared_so() -> None:
    assert Attribute.numeric("a", [0, 1, 2], integer=False).labels == ("[0, 1)", "[1, 2]")
    assert Attribute.numeric("a", [0.0, 1.0]).labels == ("[0, 1]",)
    assert Attribute.numeric("a", [0.0, 2.0], integer=True).labels == ("0..1",)


def test_numpy_edges_and_values_are_taken_as_python_ones() -> None:
    edges = np.arange(3)
    assert Attribute.numeric("a", edges) == Attribute.numeric("a", [0, 1, 2])  # type: ignore[arg-type]
    assert Attribute.numeric("a", np.array([0.5, 1])) == Attribute.numeric("a", [0.5, 1.0])  # type: ignore[arg-type]
    assert Attribute.categorical("a", np.array(["x", "y"])).labels == ("x", "y")  # type: ignore[arg-type]
    assert Attribute.categorical("a", [np.int64(3), np.True_]).labels == ("3", "true")  # type: ignore[list-item]


def test_values_that_are_no_texts_are_labelled_as_in_a_domain_file() -> None:
    assert Attribute.categorical("a", [1, 2.0, True, "x"]).labels == ("1", "2", "true", "x")  # type: ignore[list-item]


# The rules: what missing and unlisted values become.

RULES: list[tuple[Attribute, tuple[str, ...], str | None, str | None]] = [
    (Attribute.categorical("a", ["x", "y"]), ("x", "y"), None, None),
    (Attribute.categorical("a", ["x", "y"], missing="y"), ("x", "y"), "y", None),
    (Attribute.categorical("a", ["x", "y"], missing="?"), ("x", "y", "?"), "?", None),
    (Attribute.categorical("a", ["x", "y"], unlisted="other"), ("x", "y", "other"), "other", "other"),
    (Attribute.categorical("a", ["x"], missing="?", unlisted="other"), ("x", "?", "other"), "?", "other"),
    (Attribute.categorical("a", ["x"], missing="?", unlisted="?"), ("x", "?"), "?", "?"),
    (Attribute.categorical("a", ["x"], missing="drop", unlisted="other"), ("x", "other"), None, "other"),
    (Attribute.categorical("a", ["drop", "keep"]), ("drop", "keep"), None, None),
    (Attribute.numeric("a", [0, 5, 9]), ("0..4", "5..8"), None, None),
    (Attribute.numeric("a", [0, 5, 9], missing="?"), ("0..4", "5..8", "?"), "?", None),
    (Attribute.numeric("a", [0, 5, 9], missing="5..8"), ("0..4", "5..8"), "5..8", None),
    (Attribute.numeric("a", [0, 5, 9], unlisted="drop"), ("0..4", "5..8"), None, None),
    (Attribute.numeric("a", [0, 5, 9], unlisted="out"), ("0..4", "5..8", "out"), "out", "out"),
    (Attribute.numeric("a", [0, 5, 9], missing="drop", unlisted="out"), ("0..4", "5..8", "out"), None, "out"),
    (Attribute.hierarchy("a", {"x": "t", "y": "t"}, missing="?"), ("x", "y", "?"), "?", None),
    (Attribute.hierarchy("a", {"x": "t", "y": "t"}, unlisted="y"), ("x", "y"), "y", "y"),
]


@pytest.mark.parametrize(("attribute", "labels", "missing", "unlisted"), RULES)
def test_rules_name_the_label_that_a_record_gets(
    attribute: Attribute, labels: tuple[str, ...], missing: str | None, unlisted: str | None
) -> None:
    assert attribute.labels == labels
    assert attribute.size == len(labels)
    assert attribute.missing_code == (DROP if missing is None else labels.index(missing))
    assert attribute.unlisted_code == (DROP if unlisted is None else labels.index(unlisted))
    assert [attribute.code(label) for label in labels] == list(range(len(labels)))


def test_only_numbers_clip() -> None:
    clipping, dropping = Attribute.numeric("a", [0, 1]), Attribute.numeric("a", [0, 1], unlisted="drop")
    assert isinstance(clipping, Numeric)
    assert clipping.clips
    assert not dropping.clips
    assert Attribute.continuous("x", (0, 1)).unlisted == "clip"


# Hierarchies.

PLACE = Attribute.hierarchy(
    "place", {"Bern": "CH", "Basel": "CH", "Lyon": "FR", "CH": "Europe", "FR": "Europe", "Sea": "Earth"}, missing="?"
)


def test_the_cells_of_a_hierarchy_are_the_values_that_are_nobodys_parent() -> None:
    assert PLACE.labels == ("Bern", "Basel", "Lyon", "Sea", "?")
    assert PLACE.ordinary_labels == ("Bern", "Basel", "Lyon", "Sea")


def test_nodes_stand_for_all_values_below_them() -> None:
    assert PLACE.codes("CH") == (0, 1)
    assert PLACE.codes("Europe") == (0, 1, 2)
    assert PLACE.codes("Lyon") == (2,)
    assert PLACE.codes("?") == (4,)


def test_nodes_come_level_by_level() -> None:
    assert isinstance(PLACE, Hierarchy)
    assert PLACE.nodes == ("Europe", "Earth", "?", "CH", "FR", "Sea", "Bern", "Basel", "Lyon")
    assert PLACE.path("Bern") == ("Bern", "CH", "Europe")
    assert PLACE.depths["Bern"] == 2


def test_continuous_attributes_have_bounds_and_no_cells() -> None:
    length = Attribute.continuous("length", (0, 2.5), unlisted="drop")
    assert isinstance(length, Continuous)
    assert length.bounds == (0.0, 2.5)
    with pytest.raises(DeclarationError, match="'length' is continuous and has no cells; declare bins"):
        _ = length.labels


BAD: list[tuple[str, object, list[str]]] = [
    ("empty name", lambda: Attribute.categorical(" ", ["x"]), ["name that is not empty"]),
    ("name is no text", lambda: Attribute.categorical(3, ["x"]), ["found 3"]),  # type: ignore[arg-type]
    ("no values", lambda: Attribute.categorical("a", []), ["'a' lists no values", "at least one"]),
    ("duplicate values", lambda: Attribute.categorical("a", ["x", "y", "x"]), ["'a'", "value 'x' twice"]),
    ("values equal as texts", lambda: Attribute.categorical("a", [1, "1"]), ["value '1' twice"]),  # type: ignore[list-item]
    ("text for a list", lambda: Attribute.categorical("a", "xyz"), ["list of values", "'xyz'"]),
    ("a value that is none", lambda: Attribute.categorical("a", ["x", None]), ["None"]),  # type: ignore[list-item]
    ("clipped category", lambda: Attribute.categorical("a", ["x"], unlisted="clip"), ["'clip' is for numbers"]),
    ("clipped place", lambda: Attribute.hierarchy("a", {"x": "y"}, unlisted="clip"), ["'clip' is for numbers"]),
    ("clipped missing", lambda: Attribute.numeric("a", [0, 1], missing="clip"), ["missing value cannot be clipped"]),
    ("rule is no text", lambda: Attribute.categorical("a", ["x"], missing=3), ["3 is no label"]),  # type: ignore[arg-type]
    ("one edge", lambda: Attribute.numeric("a", [1]), ["at least two bin edges", "found 1"]),
    ("duplicate edges", lambda: Attribute.numeric("a", [1, 2, 2]), ["bin edge 2.0 twice"]),
    ("decreasing edges", lambda: Attribute.numeric("a", [1, 3, 2]), ["2 follows 3", "must increase"]),
    ("edge that is NaN", lambda: Attribute.numeric("a", [0, float("nan")]), ["bin edge nan", "finite"]),
    ("edge that is infinite", lambda: Attribute.numeric("a", [0, float("inf")]), ["bin edge inf", "finite"]),
    ("edge beyond floats", lambda: Attribute.numeric("a", [0, 10**400]), ["not a finite number"]),
    ("edge that is text", lambda: Attribute.numeric("a", [0, "x"]), ["bin edge 'x'"]),  # type: ignore[list-item]
    ("edges that are none", lambda: Attribute.numeric("a", 5), ["list of numbers, found 5"]),  # type: ignore[arg-type]
    ("fraction in whole", lambda: Attribute.numeric("a", [0, 1.5], integer=True), ["integer", "fractional"]),
    ("no parents", lambda: Attribute.hierarchy("a", {}), ["declares no parents"]),
    ("own parent", lambda: Attribute.hierarchy("a", {"x": "x"}), ["'x' is its own ancestor"]),
    ("cycle", lambda: Attribute.hierarchy("a", {"x": "y", "y": "z", "z": "y"}), ["its own ancestor", "tree"]),
    ("rule names a parent", lambda: Attribute.hierarchy("a", {"x": "t"}, missing="t"), ["'t' is a parent"]),
    ("bounds backwards", lambda: Attribute.continuous("a", (1, 0)), ["[1.0, 0.0]", "increasing"]),
    ("bounds equal", lambda: Attribute.continuous("a", (1, 1)), ["increasing"]),
    ("one bound", lambda: Attribute.continuous("a", (1,)), ["two numbers, found 1"]),  # type: ignore[arg-type]
    ("bound infinite", lambda: Attribute.continuous("a", (0, float("inf"))), ["bound inf"]),
    ("bounds rule", lambda: Attribute.continuous("a", (0, 1), unlisted="x"), ["'clip' or 'drop'", "found 'x'"]),
]


@pytest.mark.parametrize(("build", "fragments"), [each[1:] for each in BAD], ids=[each[0] for each in BAD])
def test_attributes_that_contradict_themselves_are_refused(build: object, fragments: list[str]) -> None:
    assert callable(build)
    with pytest.raises(DeclarationError) as caught:
        build()
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_label_that_is_not_there_is_refused_with_the_nearest() -> None:
    sex = Attribute.categorical("sex", ["Female", "Male"])
    with pytest.raises(DeclarationError, match="'sex' has no value 'female'; did you mean 'Female'"):
        sex.code("female")
    with pytest.raises(DeclarationError, match="there is: Female, Male"):
        sex.code("zzz")


def test_parents_are_suggested_too() -> None:
    place = Attribute.hierarchy("place", {"Quay": "Riverside", "Mill": "Riverside", "Hill": "Uptown"})
    with pytest.raises(DeclarationError, match="did you mean 'Riverside'"):
        place.codes("riverside")
