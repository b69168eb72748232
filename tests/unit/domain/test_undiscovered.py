"""What a domain leaves to be found: read, written, refused where it makes no sense, over a grid that is public."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.domain.undiscovered import OpenBins, OpenBounds, OpenList, grid
from consilience.errors import DeclarationError

OPEN = """
name = "town"
[attributes.sex]
kind = "categorical"
values = ["F", "M"]
[attributes.job]
kind = "categorical"
values = "discover"
missing = "Unknown"
[attributes.income]
kind = "numeric"
edges = "discover"
bins = 5
within = [0, 1000000]
amount = true
[attributes.wait]
kind = "numeric"
edges = "discover"
within = [0.0, 24.0]
unlisted = "drop"
[attributes.x]
kind = "continuous"
bounds = "discover"
within = [-10, 10]
"""


def loaded(folder: Path, text: str) -> Domain:
    path = folder / "town.toml"
    path.write_text(text)
    return Domain.load(path)


def test_what_is_to_be_found_is_read_and_written_back(tmp_path: Path) -> None:
    domain = loaded(tmp_path, OPEN)
    assert domain.to_find == ("job", "income", "wait", "x")
    job, income, wait, x = (domain[name] for name in domain.to_find)
    assert isinstance(job, OpenList)
    assert (job.unlisted, job.missing) == ("Other", "Unknown")
    assert isinstance(income, OpenBins)
    assert (income.wanted, income.integer, income.edges[-1]) == (5, True, 1_000_001.0)
    assert isinstance(wait, OpenBins)
    assert (wait.wanted, wait.integer, wait.clips) == (8, False, False)
    assert isinstance(x, OpenBounds)
    assert x.kind == "continuous"
    again = Domain.from_declaration(domain.to_declaration())
    assert again == domain
    assert again.fingerprint == domain.fingerprint


@pytest.mark.parametrize(
    ("line", "instead", "reason"),
    [
        ("within = [0, 1000000]", "", "within = [lowest, highest]"),
        ("within = [0, 1000000]", "within = [5, 5]", "two increasing numbers"),
        ("within = [0, 1000000]", "within = [0, 1, 2]", "must be two numbers"),
        ("within = [0, 1000000]", "within = [0, 0.5]\ninteger = true", "declared integer"),
        ("bins = 5", "bins = 1", "from 2 to 100"),
        ("bins = 5", "bins = 1000", "from 2 to 100"),
        ("within = [-10, 10]", 'within = [-10, 10]\nunlisted = "Other"', "must be 'clip' or 'drop'"),
        ("within = [-10, 10]", "within = [-10, 10]\nbins = 3", "'bins' is not known here"),
        ('missing = "Unknown"', 'unlisted = "clip"', "'clip' is for numbers"),
        ('missing = "Unknown"', "within = [0, 1]", "'within' is not known here"),
        ('values = "discover"', 'values = "discovr"', "must be a list"),
        ('name = "town"', 'name = "town"\nconstraints = ["sex = F or income >= 1000"]', "'income', whose edges"),
        ('name = "town"', 'name = "town"\nconstraints = ["sex = F or job = Nurse"]', "values are yet to be found"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(tmp_path: Path, line: str, instead: str, reason: str) -> None:
    assert OPEN.count(line) == 1
    with pytest.raises(DeclarationError) as refused:
        loaded(tmp_path, OPEN.replace(line, instead))
    assert reason in str(refused.value)


def test_nothing_is_counted_by_a_domain_that_is_not_found_yet(tmp_path: Path) -> None:
    domain = loaded(tmp_path, OPEN)
    for use in (domain.refuse_draft, domain.refuse_open):
        with pytest.raises(DeclarationError, match=r"the values of 'job', the edges of 'income'.*discover_domain"):
            use()
    domain.project(["sex"]).refuse_draft()


def test_a_list_of_which_nothing_was_found_is_what_others_become() -> None:
    assert OpenList("job", None, "Other").listing([]).labels == ("Other",)
    assert OpenList("job", None, "Other").listing(["Other", "nurse"]).labels == ("Other", "nurse")
    assert OpenList("job", "Unknown", "drop").listing([]).labels == ("Unknown",)
    with pytest.raises(DeclarationError, match="no value was found that enough units have"):
        OpenList("job", None, "drop").listing([])


def test_bins_take_the_rules_that_were_declared(tmp_path: Path) -> None:
    income = loaded(tmp_path, OPEN)["income"]
    assert isinstance(income, OpenBins)
    assert income.cut_at([0, 10, 50]) == Attribute.numeric("income", [0, 10, 50], amount=True)


ENDS = (
    st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=2).map(sorted).filter(lambda ends: ends[1] - ends[0] > 1e-6)
)


@given(ENDS)
def test_a_grid_increases_from_end_to_end_and_is_never_large(ends: list[float]) -> None:
    low, high = ends
    edges = grid(low, high, integer=False)
    assert (edges[0], edges[-1]) == (low, high)
    assert all(left < right for left, right in itertools.pairwise(edges))
    assert len(edges) <= 4097  # three levels of a tree of sixteen branches
    assert np.diff(edges).max() <= (high - low) / 400


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9))
def test_a_grid_of_whole_numbers_holds_whole_numbers_and_the_last_one(low: int, span: int) -> None:
    edges = grid(low, low + span, integer=True)
    assert (edges[0], edges[-1]) == (low, low + span + 1)
    assert all(edge == int(edge) for edge in edges)
    assert all(left < right for left, right in itertools.pairwise(edges))
    if span < 400:
        assert len(edges) == span + 2
