"""How a source is written is declared in the domain, and is part of it only where it is not the default."""

from pathlib import Path

import pytest

from consilience.domain import Attribute, Domain
from consilience.domain.source_format import Notation, SourceFormat
from consilience.errors import DeclarationError

PLAIN = """
name = "people"
[attributes.sex]
kind = "categorical"
values = ["F", "M"]
[attributes.income]
kind = "numeric"
edges = [0, 10, 20]
"""


def loaded(tmp_path: Path, text: str) -> Domain:
    path = tmp_path / "people.domain.toml"
    path.write_text(text, encoding="utf-8")
    return Domain.load(path)


def test_a_domain_that_says_nothing_of_its_source_has_the_fingerprint_that_it_always_had(tmp_path: Path) -> None:
    domain = loaded(tmp_path, PLAIN)
    assert domain.fingerprint == "9c3bde48e55c905574b0fcde911a84241b85c943d65118a7a8f04f3adf6c353f"
    defaults = '[source]\nencoding = "utf8"\ndecimal = "."\nthousands = ""\nmissing_tokens = []\n'
    assert loaded(tmp_path, PLAIN + defaults) == domain


@pytest.mark.parametrize(
    "line", ['encoding = "cp1252"', 'delimiter = ";"', 'decimal = ","', 'thousands = ","', 'missing_tokens = ["NA"]']
)
def test_each_key_changes_the_fingerprint_and_is_written_again(tmp_path: Path, line: str) -> None:
    domain = loaded(tmp_path, f"{PLAIN}[source]\n{line}\n")
    assert domain.fingerprint != loaded(tmp_path, PLAIN).fingerprint
    assert line in domain.to_toml().replace("[\n    ", "[").replace(",\n]", "]")
    domain.save(tmp_path / "again.toml")
    assert Domain.load(tmp_path / "again.toml") == domain


def test_other_spellings_are_the_same_domain(tmp_path: Path) -> None:
    one = loaded(tmp_path, PLAIN + '[source]\nencoding = "Latin1"\nmissing_tokens = ["?", "NA", "?", -9]\n')
    other = loaded(tmp_path, PLAIN + '[source]\nencoding = "ISO-8859-1"\nmissing_tokens = ["-9", "NA", "?"]\n')
    assert one == other
    assert one.fingerprint == other.fingerprint


def test_an_attribute_may_be_written_in_another_way(tmp_path: Path) -> None:
    own = PLAIN + 'decimal = ","\nmissing_tokens = []\n[source]\nmissing_tokens = ["NA"]\n'
    domain = loaded(tmp_path, own)
    assert domain.source_format.notation_of("sex") == Notation(missing_tokens=("NA",))
    assert domain.source_format.notation_of("income") == Notation(decimal=",")
    domain.save(tmp_path / "again.toml")
    assert Domain.load(tmp_path / "again.toml") == domain
    assert domain.project(["sex"]).source_format == SourceFormat(notation=Notation(missing_tokens=("NA",)))


def test_what_is_given_replaces_what_is_declared_for_all_columns() -> None:
    domain = Domain("d", (Attribute.numeric("x", [0, 1, 2]),)).read_as(encoding="cp1252", decimal=",", thousands=".")
    assert domain.read_as().source_format == domain.source_format
    again = domain.read_as(encoding="utf-8", decimal=".", thousands="")
    assert again == Domain("d", (Attribute.numeric("x", [0, 1, 2]),))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('encoding = "latin-l"', "did you mean 'latin-1'"),
        ('encoding = "rot13"', "not known"),
        ('encoding = "unicode_escape"', "not known"),
        ('delimiter = ";;"', "one ASCII sign"),
        ('decimal = "5"', "one sign, no digit"),
        ('thousands = "."', "both '.'"),
        ('missing_tokens = "NA"', "must be a list of texts, numbers or truth values"),
        ('missing_tokens = ["F"]', "'F' is one of its values"),
        ('encodings = "latin-1"', "did you mean 'encoding'"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        loaded(tmp_path, f"{PLAIN}[source]\n{line}\n")


def test_the_label_of_missing_values_may_also_be_one_of_their_texts() -> None:
    sex = Attribute.categorical("sex", ["F", "M"], missing="NA")
    assert Domain("d", (sex,)).read_as(missing_tokens=["NA"]).source_format.notation.missing_tokens == ("NA",)
