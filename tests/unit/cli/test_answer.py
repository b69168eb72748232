"""`consilience answer` with error bars, whole numbers and cross-tables: only tables are on standard output."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from consilience.cli.answer import parts
from consilience.cli.main import app
from consilience.domain import Attribute, Domain
from consilience.errors import ConsilienceError, DeclarationError, MeasurementError, TooLarge
from consilience.estimators import estimate
from consilience.estimators.graphical_model import GraphicalEstimate
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import write_bundle

DOMAIN = Domain(
    "people",
    (
        Attribute.numeric("age", [0, 18, 65, 100]),
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.categorical("town", ["Aton", "Beton"]),
    ),
)
FEW = ["--interval", "--refits", "20"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = {("age", "sex"): [[40.2, 35.1], [3.4, 90.7], [20.5, 22.2]], "town": [100.6, 111.1]}
    measured = MeasurementSet.from_marginals(DOMAIN, tables, noise=Laplace(3.0), private=False)
    return write_bundle(estimate(measured), tmp_path_factory.mktemp("answers") / "release")


def ask(bundle: Path, *words: str) -> Result:
    outcome = CliRunner().invoke(app, ["answer", str(bundle), *words])
    if isinstance(outcome.exception, ConsilienceError):
        return outcome
    assert outcome.exit_code in (0, 2), outcome.exception
    return outcome


def test_one_query_that_is_too_large_leaves_the_others_their_answers(bundle: Path, monkeypatch) -> None:
    marginal = GraphicalEstimate.answer

    def refusing(self, query):
        if query.attributes == ("town",):
            raise TooLarge("a query over 1 attributes needs 5 GB; the limit is 4 GB")
        return marginal(self, query)

    monkeypatch.setattr(GraphicalEstimate, "answer", refusing)
    outcome = CliRunner().invoke(app, ["answer", str(bundle), "by town", "by sex", "--json"])
    assert outcome.exit_code == 1
    answered, refused = json.loads(outcome.stdout)
    assert [row["sex"] for row in answered["answers"]] == ["F", "M"]
    assert refused["answers"] is None
    assert "5 GB" in refused["reason"]
    assert "no answer to" in outcome.stderr
    assert isinstance(ask(bundle, "by town").exception, TooLarge)


def test_error_bars_are_in_every_form_and_cost_nothing(bundle: Path) -> None:
    shown = ask(bundle, "by age, sex", *FEW)
    assert "low" in shown.stdout
    assert "spend no budget" in shown.stderr
    assert "budget" not in shown.stdout
    rows = list(csv.DictReader(io.StringIO(ask(bundle, "by age, sex", *FEW, "--csv").stdout)))
    for row in rows:
        assert float(row["low"]) <= float(row["estimate"]) <= float(row["high"])
    document = json.loads(ask(bundle, "by age, sex", *FEW, "--level", "0.5", "--json").stdout)
    assert (document["level"], document["refits"], document["private"]) == (0.5, 20, False)
    narrower = [answer["high"] - answer["low"] for answer in document["answers"]]
    assert np.all(np.array(narrower) <= [float(row["high"]) - float(row["low"]) for row in rows])


def test_a_seed_repeats_the_bars(bundle: Path) -> None:
    one, again, other = (ask(bundle, "by sex", *FEW, "--csv", "--seed", seed).stdout for seed in "778")
    assert one == again != other


def test_wide_intervals_and_what_was_not_measured_have_a_legend(bundle: Path) -> None:
    shown = ask(bundle, "by age, sex", "by town, sex", "total", *FEW).stdout
    assert "* the interval is wider than the answer" in shown
    assert shown.count("– not measured: no measurement links 'town' with 'sex'; next time, measure") == 1
    assert "--guess" not in ask(bundle, "by sex", *FEW).stdout
    assert "*" not in ask(bundle, "by age, sex").stdout


def test_all_queries_share_one_run_of_refits(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from consilience.publication import release as module

    calls = []
    kept = module.intervals
    monkeypatch.setattr(module, "intervals", lambda *given, **more: calls.append(given) or kept(*given, **more))
    ask(bundle, "by age, sex", "by town", "total", *FEW, "--cross")
    assert len(calls) == 1


def test_an_estimate_without_error_bars_is_answered_without(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise MeasurementError("it cannot be refitted, because of that")

    monkeypatch.setattr("consilience.publication.release.intervals", never)
    shown = ask(bundle, "by sex", "--interval", "--csv")
    assert shown.exit_code == 0
    assert "no error bars: it cannot be refitted, because of that" in shown.stderr
    assert shown.stdout.startswith("NOT PRIVATE,sex,estimate,basis\n")


def test_cross_tables_add_up_in_whole_numbers(bundle: Path) -> None:
    shown = ask(bundle, "by age, sex", "by sex, town", "--cross", "--integers", "--csv").stdout
    first, second = (list(csv.reader(io.StringIO(text))) for text in shown.split("\n\n"))
    assert first[0] == ["NOT PRIVATE", "age", "F", "M", "Total"]
    cells = np.array([[int(cell) for cell in row[2:]] for row in first[1:]])
    assert np.array_equal(cells[:-1].sum(axis=0), cells[-1])
    assert np.array_equal(cells[:, :-1].sum(axis=1), cells[:, -1])
    assert [int(row[-1]) for row in second[1:3]] == cells[-1, :2].tolist()  # sex has the same totals in both


def test_cross_tables_of_people_have_bars_totals_and_marks(bundle: Path) -> None:
    shown = ask(bundle, "by age, sex", "--cross", *FEW).stdout
    assert "(sex across)" in shown
    assert "Total" in shown
    assert "(" in shown.splitlines()[-6] or "±" in shown.splitlines()[-6]
    document = json.loads(ask(bundle, "by age, sex, town", "--cross", "--columns", "age", "--json").stdout)
    assert (document["down"], document["across"]) == (["sex", "town"], ["age"])


def test_shares_are_per_another_query(bundle: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(ask(bundle, "by age", "--per", "total", *FEW, "--csv").stdout)))
    assert sum(float(row["estimate"]) for row in rows) == pytest.approx(1.0)
    assert all(0 <= float(row["low"]) <= float(row["high"]) < 2 for row in rows)


def test_a_file_is_written_instead_and_never_over_another(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "ages.csv"
    shown = ask(bundle, "by age", "--out", str(path))
    assert shown.stdout == ""
    assert path.read_text() == ask(bundle, "by age", "--csv").stdout
    ask(bundle, "by age", "--json", "--out", str(tmp_path / "ages.txt"))
    assert json.loads((tmp_path / "ages.txt").read_text())["query"] == "age"
    again = ask(bundle, "by age", "--out", str(path))
    assert isinstance(again.exception, DeclarationError)
    assert "exists already" in str(again.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["by age", "--csv", "--json"], "choose one of --csv and --json"),
        (["by age", "--per", "total", "--integers"], "ratios are no whole numbers"),
        (["by age", "--columns", "age"], "add --cross"),
        (["by age", "--out", "x.txt"], "neither .csv, .json nor .xlsx"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(bundle: Path, words: list[str], message: str) -> None:
    outcome = ask(bundle, *words)
    assert outcome.exit_code == 2
    assert message in " ".join(outcome.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["by age, sex", "--cross", "--columns", "town"], "'town' cannot go across"),
        (["by age", "--per", "by sex"], "3 answers and 'sex' has 2"),
        (["by age", "--interval", "--level", "1.5"], "level"),
        (["by age", "--interval", "--refits", "1"], "refits"),
        (["mean(age) by sex", "--integers"], "is no count"),
        (["mean(age) by sex", "--per", "by sex"], "leave that away, or ask for 'sum(age), sex'"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_reason(bundle: Path, words: list[str], message: str) -> None:
    outcome = ask(bundle, *words)
    assert isinstance(outcome.exception, ConsilienceError)
    assert message in str(outcome.exception)
    assert outcome.stdout == ""


def test_wide_tables_are_cut_into_parts_that_fit() -> None:
    assert parts([10] * 5, 25) == [[0, 1], [2, 3], [4]]
    assert parts([50, 50], 10) == [[0], [1]]
    assert parts([], 10) == []
    assert parts([9, 9], float("inf")) == [[0, 1]]


def test_means_are_means_in_every_form_and_say_how_far_bins_put_them_off(bundle: Path) -> None:
    shown = ask(bundle, "mean(age) by sex", "by sex", *FEW).stdout
    assert "mean(age) by sex" in shown
    assert "middle of its bin" in shown
    (row, _) = csv.DictReader(io.StringIO(ask(bundle, "mean(age) by sex", "--csv").stdout))
    assert 8.5 < float(row["estimate"]) < 82.0
    assert "bins: ±" in row["note"]
    document = json.loads(ask(bundle, "mean(age) by sex", "--cross", *FEW, "--json").stdout)
    assert document["title"] == "mean(age) by sex"
    assert "middle of its bin" in document["notes"][0]
    assert (document["total_row"], document["total_column"]) == (False, False)


def test_a_file_of_queries_is_asked_at_once_and_written_as_a_workbook(bundle: Path, tmp_path: Path) -> None:
    asked, out = tmp_path / "queries.txt", tmp_path / "answers.xlsx"
    asked.write_text("# what we publish\nby sex\n\nmedian(age) by sex\n", encoding="utf-8")
    documents = json.loads(ask(bundle, "total", "--queries", str(asked), "--json").stdout)
    assert [each["query"] for each in documents] == ["total", "sex", "median(age) by sex"]
    assert ask(bundle, "--queries", str(asked), "--out", str(out)).exit_code == 0
    assert out.read_bytes().startswith(b"PK")
    assert ask(bundle).exit_code == 2
    asked.write_text("# nothing\n", encoding="utf-8")
    assert "holds no query" in str(ask(bundle, "--queries", str(asked)).exception)


def test_shares_are_printed_as_percentages(bundle: Path) -> None:
    assert " %" in ask(bundle, "by age, sex", "--percent", "row", "--cross").stdout
    assert ask(bundle, "by age", "--percent", "rows").exit_code == 2
    assert ask(bundle, "by age", "--percent", "total", "--per", "total").exit_code == 2


def test_what_changed_is_told_for_two_bundles(bundle: Path, tmp_path: Path) -> None:
    tables = {("age", "sex"): [[40.9, 35.5], [3.1, 20.2], [20.1, 22.9]], "town": [70.6, 71.1]}
    measured = MeasurementSet.from_marginals(DOMAIN, tables, noise=Laplace(3.0), private=False)
    later = write_bundle(estimate(measured), tmp_path / "later")
    words = ["compare", str(bundle), str(later), "by sex", "--refits", "20", "--csv"]
    first, second = csv.DictReader(io.StringIO(CliRunner().invoke(app, words).stdout))
    assert (first["note"], second["note"]) != ("fell", "fell")
    assert second["note"] == "fell"
    assert first["NOT PRIVATE"] == "simulated noise"
