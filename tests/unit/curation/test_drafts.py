"""A draft is read off confidential data: it stays marked until people went through it, and nothing is made with it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.curation.draft import draft_domain
from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError
from consilience.measurements import Laplace, MeasurementSet
from consilience.measuring import measure
from consilience.plans import Flat
from consilience.source import open_table

ATTRIBUTES = (Attribute.categorical("sex", ["F", "M"]), Attribute.numeric("age", [0, 18, 65]))
DRAFT = Domain("people", ATTRIBUTES, draft=True, unreviewed=("sex", "age"))
HALFWAY = Domain("people", ATTRIBUTES, unreviewed=("age",))
REVIEWED = Domain("people", ATTRIBUTES)
ROWS = pa.table({"sex": ["F", "M"], "age": [1, 20]})


def test_what_is_read_off_data_is_a_draft_in_every_attribute(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("sex,age\nF,1\nM,20\n")
    drafted = draft_domain(str(tmp_path / "people.csv"), name="people").domain
    assert drafted.draft
    assert drafted.unreviewed == drafted.names == ("sex", "age")


@pytest.mark.parametrize("domain", [DRAFT, HALFWAY])
def test_the_marks_of_a_draft_survive_its_file(domain: Domain, tmp_path: Path) -> None:
    domain.save(tmp_path / "one.toml")
    again = Domain.load(tmp_path / "one.toml")
    again.save(tmp_path / "two.toml")
    assert Domain.load(tmp_path / "two.toml") == domain
    assert Domain.from_declaration(domain.to_declaration()) == domain
    assert len({each.fingerprint for each in (domain, again, REVIEWED)}) == 2


def test_the_marks_of_a_draft_survive_projection() -> None:
    assert DRAFT.project(["age"]).left_to_review == "draft = true, and reviewed = false in 'age'"
    assert HALFWAY.project(["sex"]).left_to_review == ""


def test_a_file_says_first_that_it_is_a_draft() -> None:
    lines = DRAFT.to_toml().splitlines()
    assert lines[0] == "draft = true"
    assert lines[lines.index("[attributes.age]") + 1] == "reviewed = false"


def test_marks_that_a_person_turned_or_removed_are_gone() -> None:
    declared = DRAFT.to_declaration() | {"draft": False}
    for attribute in declared["attributes"].values():
        attribute["reviewed"] = True
    assert Domain.from_declaration(declared) == REVIEWED
    assert "reviewed" not in REVIEWED.to_toml()


@pytest.mark.parametrize("mark", ["yes", 1, None])
def test_marks_are_true_or_false(mark: object) -> None:
    with pytest.raises(DeclarationError, match="'draft' must be true or false"):
        Domain.from_declaration(DRAFT.to_declaration() | {"draft": mark})


@pytest.mark.parametrize("domain", [DRAFT, HALFWAY])
def test_no_table_is_opened_priced_or_brought_with_a_draft(domain: Domain) -> None:
    refusal = rf"'people' is a draft .*{domain.left_to_review}"
    with pytest.raises(DeclarationError, match=refusal):
        open_table(ROWS, domain)
    with pytest.raises(DeclarationError, match=refusal):
        measure(domain, Flat(), epsilon=1.0, dry_run=True)
    with pytest.raises(DeclarationError, match=refusal):
        MeasurementSet.from_marginals(domain, {"sex": np.zeros(2)}, noise=Laplace(1.0))
    assert measure(open_table(ROWS, REVIEWED), Flat(), epsilon=1.0, simulate=1).domain == REVIEWED
