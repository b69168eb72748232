"""Errors against the truth are those of the papers, and every result says that it is not private."""

import importlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from consilience.cli import after_release as verb
from consilience.domain import Attribute, Domain, Query, Workload
from consilience.domain.factors import Identity, Prefix
from consilience.errors import DeclarationError
from consilience.estimators import Table
from consilience.evaluation import Evaluation, QueryError, evaluate
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import open_release, write_bundle
from consilience.source import open_table

evaluating = importlib.import_module("consilience.evaluation")

DOMAIN = Domain("people", (Attribute.numeric("age", [0, 1, 2, 3]), Attribute.categorical("sex", ["F", "M"])))
RECORDS = [(0, "F"), (0, "F"), (1, "M"), (2, "M"), (2, "F")]
TRUTH = np.array([[2, 0], [0, 1], [1, 1]])
PREFIXES = Query((("age", Prefix()), ("sex", Identity())))


def table() -> pa.Table:
    return pa.table({"age": [age for age, _ in RECORDS], "sex": [sex for _, sex in RECORDS]})


def estimate_of(counts: np.ndarray, domain: Domain = DOMAIN):
    """An estimate whose full table is these counts, but for rounding."""
    measured = MeasurementSet.from_marginals(domain, {("age", "sex"): counts}, noise=Laplace(1.0))
    return Table(loss="l2").fit(measured)


WRONG = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 2.0]])


def test_errors_are_those_of_the_papers() -> None:
    workload = Workload.of([PREFIXES, Query.marginal("sex")], weights=[1.0, 3.0])
    found = evaluate(estimate_of(WRONG), open_table(table(), DOMAIN), workload)
    prefixes, sexes = found.rows
    # Prefixes: truth 2 0 / 2 1 / 3 2, estimate 1 1 / 1 2 / 2 4: off by 1 1, 1 1, 1 2.
    assert prefixes.answers == 6
    assert prefixes.workload_error == pytest.approx(7 / 2 / 10, abs=1e-6)
    assert prefixes.max_error == pytest.approx(2.0, abs=1e-5)
    assert prefixes.total_variation == pytest.approx(3 / 2 / 5, abs=1e-6)
    # By sex: truth 3 2, estimate 2 4.
    assert sexes.workload_error == pytest.approx(3 / 2 / 5, abs=1e-6)
    assert sexes.total_variation == pytest.approx(3 / 2 / 5, abs=1e-6)
    assert found.workload_error == pytest.approx((0.35 + 3 * 0.3) / 4, abs=1e-6)
    assert found.total_variation == pytest.approx(0.3, abs=1e-6)
    assert found.l1_error == pytest.approx((1 * 0.6 + 3 * 0.6) / 2, abs=1e-6)
    assert found.max_error == pytest.approx(2.0, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=6, max_size=6).filter(any))
def test_on_marginals_the_workload_error_is_the_total_variation_distance(counts: list[int]) -> None:
    guess = np.array(counts, dtype=np.float64).reshape(3, 2)
    found = evaluate(estimate_of(guess), open_table(table(), DOMAIN), Workload.marginals(DOMAIN, ways=2))
    by_hand = np.abs(guess - TRUTH).sum() / (2 * TRUTH.sum())
    assert found.total_variation == pytest.approx(by_hand, abs=1e-4)
    assert found.workload_error == pytest.approx(found.total_variation)


def test_a_workload_in_parts_gives_the_same_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload.of(["age by sex", "age", "sex", "total"])
    whole = evaluate(estimate_of(WRONG), open_table(table(), DOMAIN), workload)
    monkeypatch.setattr(evaluating, "CELLS_AT_ONCE", 4)
    parts = evaluate(estimate_of(WRONG), open_table(table(), DOMAIN), workload)
    assert parts == whole
    assert len(parts.rows) == 4


def test_answers_that_are_all_zero_and_tables_without_records_have_finite_errors() -> None:
    query = Workload.of(["age=0 by sex", "sex"])
    empty = evaluate(estimate_of(WRONG), open_table(table().slice(0, 0), DOMAIN), query)
    assert empty.rows[0].workload_error == pytest.approx(1.0, abs=1e-6)
    assert empty.rows[1].total_variation == pytest.approx(3.0, abs=1e-6)


def test_an_estimate_of_another_table_is_refused() -> None:
    other = Domain("others", (Attribute.numeric("age", [0, 1, 2, 3]), Attribute.categorical("sex", ["M", "F"])))
    with pytest.raises(DeclarationError, match=r"'people'.*'others'.*'sex'"):
        evaluate(estimate_of(WRONG), open_table(table(), other), Workload.of(["sex"]))
    fewer = Domain("others", DOMAIN.attributes[:1])
    with pytest.raises(DeclarationError, match=r"with 2 attributes.*with 1"):
        evaluate(estimate_of(WRONG), open_table(table(), fewer), Workload.of(["age"]))


def test_an_empty_workload_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no queries"):
        evaluate(estimate_of(WRONG), open_table(table(), DOMAIN), Workload.of([]))


def sample() -> Evaluation:
    rows = (QueryError(Query.marginal("sex"), 1.0, 2, 0.25, 0.125, 3.0, "measured"),)
    return Evaluation("people", "table", rows)


def test_every_face_of_a_result_says_that_it_is_not_private() -> None:
    found = sample()
    assert found.private is False
    assert "NOT PRIVATE" in repr(found)
    assert all(line.startswith("NOT PRIVATE") for line in str(found).splitlines())
    assert len(str(found).splitlines()) == 1 + 2 + 4
    document = json.loads(found.to_json())
    assert document["private"] is False
    assert document["notice"].startswith("NOT PRIVATE")
    assert [row["private"] for row in document["queries"]] == [False]
    assert (document["total_variation"], document["l1_error"], document["max_error"]) == (0.125, 0.25, 3.0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    DOMAIN.save("people.domain.toml")
    lines = ["age,sex", *(f"{age},{sex}" for age, sex in RECORDS)]
    Path("people.csv").write_text("\n".join(lines) + "\n")
    Path("wanted.toml").write_text('[[queries]]\nask = "age by sex"\n[[queries]]\nask = "sex"\nweight = 2.0\n')
    write_bundle(estimate_of(WRONG), "release")
    return tmp_path


def call(*words: str):
    app = typer.Typer()
    app.command("evaluate", epilog=verb.EVALUATE_EXAMPLE)(verb.evaluate_command)
    return CliRunner().invoke(app, list(words))


WORDS = ("release", "people.csv", "--workload", "wanted.toml")


@pytest.mark.usefixtures("place")
def test_the_command_prints_a_marked_table() -> None:
    outcome = call(*WORDS, "--domain", "people.domain.toml")
    assert outcome.exit_code == 0, outcome.output
    assert all(line.startswith("NOT PRIVATE") for line in outcome.stdout.splitlines())
    assert "age, sex" in outcome.stdout
    assert "do not publish" in outcome.stderr


@pytest.mark.usefixtures("place")
def test_the_command_prints_json_and_takes_the_domain_of_the_release() -> None:
    outcome = call(*WORDS, "--json")
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(outcome.stdout)
    assert document["private"] is False
    assert [row["weight"] for row in document["queries"]] == [1.0, 2.0]
    from_library = evaluate(open_release("release"), open_table(table(), DOMAIN), Workload.load("wanted.toml"))
    assert document["workload_error"] == pytest.approx(from_library.workload_error)


@pytest.mark.usefixtures("place")
def test_the_command_leaves_no_ledger_behind(place: Path) -> None:
    before = sorted(place.rglob("*"))
    call(*WORDS)
    assert sorted(place.rglob("*")) == before
