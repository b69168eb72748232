"""How a source is written is declared in the domain, and is part of it only where it is not the default."""

from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Attribute, Domain
from consilience.domain.source_format import Notation, SourceFormat, Summand
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


def test_what_an_attribute_does_not_declare_otherwise_follows_what_is_given(tmp_path: Path) -> None:
    domain = loaded(tmp_path, PLAIN + "missing_tokens = [-9]\n").read_as(decimal=",", missing_tokens=["NA"])
    assert domain.source_format.notation_of("income") == Notation(decimal=",", missing_tokens=("-9",))
    assert domain.source_format.notation_of("sex") == Notation(decimal=",", missing_tokens=("NA",))


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


WEIGHTED = '[weight]\ncolumn = "pweight"\nbounds = [0, 50]\n'


def test_weights_are_declared_with_bounds_on_a_lattice_and_a_rule_for_missing_ones(tmp_path: Path) -> None:
    domain = loaded(tmp_path, PLAIN + WEIGHTED)
    assert domain.weight == Summand("pweight", (0, 50))
    assert (domain.most_counted, domain.fingerprint != loaded(tmp_path, PLAIN).fingerprint) == (50.0, True)
    assert Domain.from_declaration(domain.to_declaration()) == domain
    lowest = loaded(tmp_path, PLAIN + WEIGHTED + 'missing = "lowest"\nstep = 0.5\n')
    assert lowest.weight == Summand("pweight", (0, 50), missing=0.0, step=0.5)
    assert domain.project(["sex"]).weight == domain.weight


def test_numbers_are_clipped_to_bounds_and_rounded_to_the_lattice() -> None:
    numbers = np.array([-3.0, 0.26, 2.75, 1e300, np.inf, -np.inf, np.nan])
    assert Summand("w", (0.5, 4), missing=1.0, step=0.5).units(numbers).tolist() == [1, 1, 6, 8, 8, 1, 2]
    assert Summand("w", (0.5, 4), step=0.5).units(numbers)[-1] == 0
    awkward = Summand("w", (-0.1, 0.3))
    units = awkward.units(np.linspace(-1, 1, 1001)) * awkward.step
    assert (units.min(), units.max()) == awkward.range
    assert awkward.largest == np.abs(units).max()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('weight = "pweight"\n', "needs bounds"),
        ('[weight]\ncolumn = "pweight"\nbounds = [-1, 5]\n', "two numbers from 0 up"),
        ('[weight]\ncolumn = "pweight"\nbounds = [5, 5]\n', "two increasing numbers"),
        (WEIGHTED + 'missing = "mean"\n', "'drop', 'lowest' or a number"),
        (WEIGHTED + "step = 0.1\n", "powers of two alone, such as 0.0625"),
        (WEIGHTED + "step = 1e-30\n", "powers of two"),
        (WEIGHTED + f"step = {2.0**-40}\n", "declare another step"),
        (WEIGHTED + "step = 128\n", "declare another step"),
        ('[weight]\ncolumn = "sex"\nbounds = [0, 5]\n', "declared as a categorical attribute too"),
        (WEIGHTED + "mising = 1\n", "'mising' is not known here"),
    ],
)
def test_weights_that_cannot_be_added_up_are_refused(tmp_path: Path, table: str, message: str) -> None:
    text = table + PLAIN if table.startswith("weight") else PLAIN + table
    with pytest.raises(DeclarationError, match=message):
        loaded(tmp_path, text)


@pytest.mark.parametrize("amount", ["true", "[-5, 40.5]"])
def test_amounts_are_declared_beside_bins(tmp_path: Path, amount: str) -> None:
    domain = loaded(tmp_path, PLAIN + f"amount = {amount}\n")
    assert domain.amounts == ("income",)
    summand, attribute = domain.amount("income")
    assert summand.bounds == ((0, 20) if amount == "true" else (-5, 40.5))
    assert attribute.ends()[0].tolist() == ([0, 10] if amount == "true" else [-5, 10])
    assert attribute.ends()[1].tolist() == ([10, 20] if amount == "true" else [10, 40.5])
    assert Domain.from_declaration(domain.to_declaration()) == domain
    weighted = loaded(tmp_path, PLAIN + f"amount = {amount}\n" + WEIGHTED)
    product = weighted.summand("income")
    assert product is not None
    assert product.bounds == ((0, 1000) if amount == "true" else (-250, 2025))
    with pytest.raises(DeclarationError, match="declare amount = "):
        domain.amount("sex")


@pytest.mark.parametrize("amount", ["[5, 5]", "[1, 2, 3]", "[9, 1]"])
def test_amounts_without_bounds_are_refused(tmp_path: Path, amount: str) -> None:
    with pytest.raises(DeclarationError, match="must be two increasing numbers"):
        loaded(tmp_path, PLAIN + f"amount = {amount}\n")
