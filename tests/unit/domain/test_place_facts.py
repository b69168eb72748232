"""Facts about single places: read from files, written back, checked, and named without their numbers."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.domain import Domain
from consilience.errors import DeclarationError

DECLARED = """
name = "places"
[attributes.block]
kind = "hierarchy"
parents = {{ "01001" = "01", "01002" = "01", "02001" = "02" }}
levels = ["State", "Block"]
geography = {geography}
[attributes.sex]
kind = "categorical"
values = ["F", "M"]
[[public.places]]
file = "{file}"
"""


def loaded(folder: Path, text: str, *, file: str = "facts.csv", geography: str = "true") -> Domain:
    (folder / "facts.csv").write_text(text, encoding="utf-8")
    (folder / "places.toml").write_text(DECLARED.format(file=file, geography=geography), encoding="utf-8")
    return Domain.load(folder / "places.toml")


def test_exact_counts_of_any_level_are_read_and_codes_keep_their_zeros(tmp_path: Path) -> None:
    domain = loaded(tmp_path, "place,count\n01,20\n02001,3\n")
    (facts,) = domain.public.places
    assert (facts.by, facts.cells, facts.least, facts.most) == ((), (("01",), ("02001",)), (20.0, 3.0), (20.0, 3.0))
    assert domain.public.describe() == ("the exact number of records of 2 places",)
    assert Domain.from_declaration(domain.to_declaration()) == domain


def test_bounds_are_read_and_empty_fields_are_not_known(tmp_path: Path) -> None:
    domain = loaded(tmp_path, "Block,sex,at_least,at_most\n01001,F,,4\n01001,M,2,\n")
    (facts,) = domain.public.places
    assert (facts.by, facts.least, facts.most) == (("sex",), (0.0, 2.0), (4.0, math.inf))
    assert domain.public.describe() == ("bounds on the counts by sex of 1 place",)
    assert Domain.from_declaration(domain.to_declaration()) == domain
    domain.save(tmp_path / "again.toml")
    assert Domain.load(tmp_path / "again.toml") == domain


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    pq.write_table(pa.table({"State": ["01", "02"], "count": [20, 3]}), tmp_path / "facts.parquet")
    found = loaded(tmp_path, "", file="facts.parquet")
    assert found.public.places == loaded(tmp_path, "State,count\n01,20\n02,3\n").public.places


def test_facts_are_left_out_with_the_attributes_they_are_about(tmp_path: Path) -> None:
    domain = loaded(tmp_path, "place,sex,count\n01,F,20\n")
    assert domain.project(["block", "sex"]).public.places
    assert not domain.project(["block"]).public.places
    assert not domain.project(["sex"]).public.places


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("place,count\n03,1\n", "'03' is not declared"),
        ("place,sex,count\n01,X,1\n", "'X' is not declared"),
        ("place,colour,count\n01,red,1\n", "no other attribute 'colour'"),
        ("place,count\n01,1\n01,2\n", "named twice"),
        ("place,count\n01,-1\n", "at least -1.0"),
        ("place,count\n01,nan\n", "at least nan"),
        ("place,count\n01,many\n", "line 2 .* number that is none"),
        ("place,at_least,at_most\n01,5,4\n", "at least 5.0 and at most 4.0"),
        ("place,count,at_most\n01,5,4\n", "it needs one with places"),
        ("town,count\n01,5\n", "it needs one with places"),
        ("place,count\n01\n", "line 2 .* has 1 fields"),
        ("", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        loaded(tmp_path, text)


def test_facts_about_places_need_a_geography(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="geography = true"):
        loaded(tmp_path, "place,count\n01,1\n", geography="false")
