"""Workloads: queries that matter, and how much."""

import itertools
import json
from pathlib import Path

import pytest

from consilience.domain import Attribute, Domain, Query, Workload, factors
from consilience.domain.workloads import attribute_sets
from consilience.errors import DeclarationError, FileFormatError

DOMAIN = Domain(
    "people",
    (
        Attribute.numeric("age", [0, 18, 65, 120]),
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.continuous("x", (0, 1)),
        Attribute.categorical("race", ["A", "B"]),
    ),
)


def test_all_marginals_leave_out_what_has_no_cells() -> None:
    for ways in range(4):
        found = [query.attributes for query, _ in Workload.marginals(DOMAIN, ways=ways)]
        assert found == list(itertools.combinations(["age", "sex", "race"], ways))


def test_marginals_can_be_limited_to_some_attributes() -> None:
    assert attribute_sets(DOMAIN, 2, ["race", "age"]) == [("age", "race")]
    with pytest.raises(DeclarationError, match="did you mean 'race'"):
        attribute_sets(DOMAIN, 1, ["rase"])


@pytest.mark.parametrize("ways", [-1, 4])
def test_more_ways_than_attributes_are_refused(ways: int) -> None:
    with pytest.raises(DeclarationError, match=f"{ways}-way marginals were asked for, but there are 3 attributes"):
        Workload.marginals(DOMAIN, ways=ways)


def test_prefixes_cumulate_along_numbers_alone() -> None:
    queries = [query for query, _ in Workload.prefixes(DOMAIN, ways=2)]
    assert queries[0] == Query.of({"age": factors.Prefix(), "sex": factors.Identity()})
    assert queries[2] == Query.marginal("sex", "race")


def test_a_workload_survives_json() -> None:
    workload = Workload.of(
        ["age=18..64 by sex", Query.of({"sex": factors.Matrix.of([[0.1, -2]])}), Query.marginal()], weights=[1, 0.5, 3]
    )
    assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload
    assert len(workload) == 3
    workload.check(DOMAIN)


def test_a_workload_file_asks_in_the_query_language(tmp_path: Path) -> None:
    path = tmp_path / "work.toml"
    path.write_text(
        '\ufeff[[queries]]\nask = "age by sex"\n\n[[queries]]\nask = "mean(age) by race"\nweight = 2.5\n',
        encoding="utf-8",
    )
    workload = Workload.load(path)
    assert workload == Workload.of(["age by sex", "sum(age) by race", "age=.. by race"], weights=[1.0, 2.5, 2.5])
    assert workload == Workload.of(["age by sex", "mean(age) by race"], weights=[1.0, 2.5])
    workload.check(DOMAIN)


def test_a_mean_in_a_workload_says_what_it_stands_for_and_what_it_was_before() -> None:
    (note,) = Workload.of(["age by sex", "mean(age) by race"]).notes
    assert "sum(age), race, and age=.. by race" in note
    assert "earlier versions" in note
    stored = {"queries": [{"factors": [{"kind": "mean", "attribute": "age"}]}]}
    assert Workload.from_json(stored) == Workload.of(["sum(age)"])  # stored queries keep their meaning
    assert Workload.from_json(stored).notes == ()


def test_a_workload_that_does_not_fit_the_domain_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no attribute 'town'"):
        Workload.of(["by age", "by town"]).check(DOMAIN)


BAD_FILES: list[tuple[bytes, type[Exception], list[str]]] = [
    (b"\xff\xfe", FileFormatError, ["work.toml", "text file"]),
    (b"queries = [", FileFormatError, ["work.toml", "not valid TOML"]),
    (b"a = " + b"9" * 5000, FileFormatError, ["work.toml"]),
    (b"a = " + b"[" * 5000, FileFormatError, ["work.toml", "workload file"]),
    (b"", DeclarationError, ["work.toml", "'queries' is missing"]),
    (b"queries = 3", DeclarationError, ["list of tables", "found 3"]),
    (b"[[queries]]\n", DeclarationError, ["queries[0]", "'ask' is missing"]),
    (b"[[queries]]\nask = 3", DeclarationError, ["'ask' must be a text"]),
    (b"[[queries]]\nask = 'by age'\nwieght = 2", DeclarationError, ["'wieght'", "did you mean 'weight'?"]),
    (b"[[queries]]\nask = 'by age'\nweight = 0", DeclarationError, ["'age'", "weight 0", "above 0"]),
    (b"[[queries]]\nask = 'by age'\nweight = nan", DeclarationError, ["'weight' must be a finite number"]),
    (b"[[queries]]\nask = 'age<3'", DeclarationError, ["'<' is not in the language"]),
    (b"more = 1\n[[queries]]\nask = 'by age'", DeclarationError, ["'more' is not known here"]),
]


@pytest.mark.parametrize(("content", "error", "fragments"), BAD_FILES, ids=[str(each[0][:40]) for each in BAD_FILES])
def test_bad_workload_files_are_refused(
    tmp_path: Path, content: bytes, error: type[Exception], fragments: list[str]
) -> None:
    path = tmp_path / "work.toml"
    path.write_bytes(content)
    with pytest.raises(error) as caught:
        Workload.load(path)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_missing_workload_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"absent\.toml"):
        Workload.load(tmp_path / "absent.toml")


def test_each_query_has_one_weight() -> None:
    with pytest.raises(DeclarationError, match="2 queries were given 1 weights"):
        Workload.of(["by age", "by sex"], weights=[1])
    for weight in (0, -1, float("nan"), float("inf")):
        with pytest.raises(DeclarationError, match="weight"):
            Workload.of(["by age"], weights=[weight])
