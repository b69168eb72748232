"""The whole flow in one call: what the command does, by keyword, with everything checked before anything is spent."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import consilience as cs
from consilience.cli.console import in_words_of_the_command_line
from consilience.cli.main import app
from consilience.errors import BudgetExceeded, ConsilienceError, DeclarationError, LedgerError, TooLarge
from consilience.measuring import measure_as_priced, price
from consilience.plans import Direct
from consilience.privacy.gate import Gate
from consilience.request import Request

DOMAIN = cs.Domain(
    "people",
    (cs.Attribute.numeric("age", [0, 18, 65, 100]), cs.Attribute.categorical("sex", ["F", "M"])),
)


@dataclass(frozen=True)
class Counted:
    """All pairs, and how often they were gone through."""

    runs: list[str] = field(default_factory=list)

    def run(self, gate: Gate) -> None:
        self.runs.append(type(gate).__name__)
        Direct(ways=2).run(gate)

    def to_json(self) -> dict[str, Any]:
        return {"plan": "counted"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    DOMAIN.save(tmp_path / "people.domain.toml")
    rows = "".join(f"{(i * 7) % 90},{'FM'[i % 2]}\n" for i in range(300))
    (tmp_path / "people.csv").write_text("age,sex\n" + rows)
    return tmp_path


def test_a_plan_is_run_once_for_its_price_and_once_for_real(place: Path) -> None:
    plan = Counted()
    made = cs.release("people.csv", DOMAIN, epsilon=1, plan=plan, out="release")
    assert plan.runs == ["PricingGate", "DataGate"]
    assert made.estimate.private


def test_one_call_gives_a_release_that_answers(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="consilience"):
        made = cs.release("people.csv", "people.domain.toml", epsilon=1, budget=1.5, out="release")
    assert "spent epsilon 1; epsilon 0.5 remains in people.csv.ledger" in caplog.text
    assert cs.Ledger.open("people.csv.ledger").to_json()["spent"] == "1"
    table = made.answer("by sex", interval=0.9, refits=20)
    assert [row["sex"] for row in table.rows()] == ["F", "M"]
    assert (table.interval.low == made.interval("by sex", 0.9, refits=20).low).all()
    assert made.answer("by age, sex", cross=True).across == ("sex",)
    assert made.answer("by sex", integers=True).whole
    assert made.synthesize(rows=50).num_rows == 50
    assert made.report(refits=20).path == Path("release/report.html")
    assert made.check() == cs.check("release") == cs.check("release", ledger="people.csv.ledger")
    assert (made.check().kind, made.check().private, made.check().notice) == ("release bundle", True, "")
    assert (cs.open_release("release").answer("by sex").numbers == table.numbers).all()
    with caplog.at_level(logging.INFO, logger="consilience"):
        cs.release("people.csv", DOMAIN, epsilon=1, out="again")
    assert "nothing was spent" in caplog.text


def test_a_bundle_that_was_changed_is_noticed_after_it_was_opened(place: Path) -> None:
    made = cs.release("people.csv", DOMAIN, epsilon=1, out="release", simulate=1)
    assert "NOT PRIVATE" in made.check().notice
    (place / "release" / "tables" / "sex.csv").write_text("sex\n")
    with pytest.raises(ConsilienceError, match="differs"):
        made.check()


def test_an_estimate_is_written_by_write_bundle_and_release_says_so(place: Path) -> None:
    noisy = cs.MeasurementSet.from_marginals(DOMAIN, {"sex": [7.5, 5.1]}, noise=cs.Laplace(2.0))
    for options in ({}, {"overwrite": True, "interval": 0.9, "refits": 20, "seed": 1}):
        with pytest.raises(DeclarationError, match=r"write_bundle\(estimate, path\)"):
            cs.release(cs.estimate(noisy), "release", **options)


WRONG: dict[str, tuple[dict[str, Any], type[ConsilienceError], str]] = {
    "no place": ({"out": None}, DeclarationError, "out="),
    "a place that is taken": ({"out": "people.csv"}, DeclarationError, "exists already"),
    "no budget": ({"epsilon": None}, DeclarationError, "epsilon=1"),
    "a level": ({"interval": 95}, DeclarationError, "level"),
    "a method": ({"method": "tabel"}, DeclarationError, "table"),
    "a unit": ({"unit": "sex"}, DeclarationError, "max_rows_per_unit="),
    "two plans": ({"plan": "2-way", "unnamed_share": 0.1}, DeclarationError, "unnamed_share="),
    "a total below the request": ({"budget": 0.5}, BudgetExceeded, "raise budget="),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda name: name.replace(" ", "-"))
def test_what_is_wrong_is_refused_before_anything_is_spent(place: Path, wrong: str) -> None:
    options, kind, words = WRONG[wrong]
    before = sorted(place.iterdir())
    with pytest.raises(kind, match=words):
        cs.release("people.csv", DOMAIN, **{"epsilon": 1, "out": "release"} | options)
    assert sorted(place.iterdir()) == before


def test_what_nobody_could_answer_is_refused_before_anything_is_spent(place: Path) -> None:
    domain = cs.Domain("large", tuple(cs.Attribute.numeric(name, list(range(202))) for name in "abcd"))
    (place / "large.csv").write_text("a,b,c,d\n" + "1,2,3,4\n" * 50)
    wanted = cs.Workload.of([cs.Query.marginal("a", "b", "c", "d")])
    with pytest.raises(TooLarge, match="could not be answered"):
        cs.release("large.csv", domain, epsilon=1, plan="independent", workload=wanted, out="release")
    assert not (place / "large.csv.ledger").exists()


def test_a_total_is_set_once(place: Path) -> None:
    cs.release("people.csv", DOMAIN, epsilon=1, budget=3, out="release")
    with pytest.raises(LedgerError, match="leave budget= out"):
        cs.release("people.csv", DOMAIN, epsilon=1, budget=4, id="more", out="more")
    cs.release("people.csv", DOMAIN, epsilon=1, id="more", ledger=cs.Ledger.open("people.csv.ledger"), out="more")
    assert cs.Ledger.open("people.csv.ledger").remaining == 1


def test_a_release_begins_with_public_records_names_them_and_is_opened_again(place: Path) -> None:
    (place / "older.csv").write_text("age,sex\n" + "".join(f"{(i * 11) % 90},{'FM'[i % 2]}\n" for i in range(500)))
    public = cs.public_records("older.csv", "people.domain.toml", name="Survey 2015")
    made = cs.release("people.csv", DOMAIN, epsilon=1, plan="2-way", method="reweighted", public=public, out="release")
    assert "Survey 2015" in " ".join(made.manifest["privacy"]["public_facts"])
    assert made.manifest["privacy"]["spent"] == {"epsilon": "1"}
    again = cs.open_release("release").estimate
    assert (again.marginal("age", "sex") == made.estimate.marginal("age", "sex")).all()
    assert "Survey 2015 explains the measurements" in str(again.stats["public_check"])


def test_a_confidential_table_is_not_public(place: Path) -> None:
    (place / "copy.csv").write_bytes((place / "people.csv").read_bytes())
    public = cs.public_records("copy.csv", DOMAIN, name="Survey 2015")
    with pytest.raises(DeclarationError, match=r"people.csv is to be measured, and .*copy.csv, the same table"):
        cs.release("people.csv", DOMAIN, epsilon=1, plan="2-way", public=public, out="release")
    assert not (place / "people.csv.ledger").exists()
    cs.release("people.csv", DOMAIN, epsilon=1, plan="2-way", out="release")
    with pytest.raises(DeclarationError, match=r"has a ledger, .*people.csv.ledger: it is a confidential table"):
        cs.public_records("people.csv", DOMAIN, name="Survey 2015")


def test_public_records_on_the_command_line_have_a_file_and_a_name(place: Path) -> None:
    (place / "older.csv").write_text("age,sex\n" + "".join(f"{(i * 11) % 90},{'FM'[i % 2]}\n" for i in range(500)))
    run, given = CliRunner().invoke, ["--public-records", "older.csv", "--public-name", "Survey 2015"]
    asked = ["people.csv", "--domain", "people.domain.toml", "--epsilon", "1", "--plan", "2-way"]
    one = run(app, ["release", *asked, "--method", "reweighted", *given, "--checked", "--out", "one"])
    assert "Survey 2015 explains the measurements" in one.output, one.output
    two = run(app, ["estimate", "one/measurements.parquet", *given, "--out", "two"])
    assert "fitted by graphical" in two.output, two.output
    assert "Survey 2015 is what the fit began with" in two.output
    assert run(app, ["estimate", "one/measurements.parquet", *given[:2], "--out", "three"]).exit_code == 2
    shown = run(app, ["answer", "one", "by age, sex", "--interval"])
    assert shown.exit_code == 0, shown.output


def test_the_ledger_is_told_before_it_is_charged(place: Path) -> None:
    seen = []
    asked = Request(data="people.csv", domain=DOMAIN, plan="2-way", epsilon=1)
    asked.measure(before_charge=lambda ledger: seen.append((ledger.path.name, ledger.spent)))
    assert seen == [("people.csv.ledger", 0)]


def test_a_price_of_something_else_is_refused(place: Path) -> None:
    source = cs.open_table("people.csv", DOMAIN, unit="sex", max_rows_per_unit=3)
    ledger = cs.Ledger.open("a.ledger", epsilon=3)
    for priced in (
        price(DOMAIN, Direct(ways=2), epsilon=1),
        price(cs.Domain("other", DOMAIN.attributes), Direct(ways=2), epsilon=1, rows_per_unit=3),
    ):
        with pytest.raises(DeclarationError, match="price what is measured"):
            measure_as_priced(source, priced, ledger=ledger)
    assert ledger.spent == 0


def test_points_are_clustered_in_one_call(place: Path) -> None:
    domain = cs.Domain("points", tuple(cs.Attribute.continuous(name, (0, 10)) for name in "xy"))
    (place / "points.csv").write_text("x,y\n" + "1,1\n" * 200 + "9,9\n" * 200)
    found = cs.kmeans("points.csv", domain, clusters=2, epsilon=5, out="clusters", steps=600, chains=2, pictures=False)
    assert found.centroids.shape == (2, 2)
    assert cs.Ledger.open("points.csv.ledger").spent == 5
    assert cs.check("clusters").kind == "clusters"


def test_a_ledger_shows_a_line_for_each_request(place: Path) -> None:
    for name in ("one", "two"):
        cs.release("people.csv", DOMAIN, epsilon=0.25, budget=1, plan="2-way", id=name, out=name)
    ledger = cs.Ledger.open("people.csv.ledger")
    about, protects, *requests = ledger.show().splitlines()
    assert about == "dataset 'people': epsilon 1 in all, epsilon 0.5 remains"
    assert protects == "protects one row, add-remove"
    assert [line.split()[-2:] for line in requests] == [["one", "committed"], ["two", "committed"]]
    assert all("epsilon 0.25  direct  people.csv" in line for line in requests)
    assert json.loads(json.dumps(ledger.to_json()))["entries"][1]["id"] == "two"


def test_errors_speak_the_language_of_the_command_line() -> None:
    said = in_words_of_the_command_line
    assert said("unit='sex' needs max_rows_per_unit=, a whole number") == (
        "--unit 'sex' needs --max-rows-per-unit, a whole number"
    )
    assert said("name one with ledger=Ledger.open(path, ...)") == "name one with --ledger PATH"
    assert said("budget=1.5 was given; leave budget= out") == "--budget 1.5 was given; leave --budget out"
    assert said("the ledger's 'a unit=3' is not the table's; add epsilon=1") == (
        "the ledger's 'a unit=3' is not the table's; add --epsilon 1"
    )
    for kept in (
        "no query 'age=1, table=3 by age'",
        "write draft = true",
        "there is no attribute `unit=2`",
        "age=25..34",
    ):
        assert said(kept) == kept


@pytest.mark.parametrize("verb", ["release", "measure"])
@pytest.mark.parametrize("dry", [True, False])
def test_a_workload_that_could_not_be_answered_is_refused_also_by_the_dry_run_and_leaves_no_ledger(
    verb: str, dry: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cs.Domain.from_sizes(dict.fromkeys("abcd", 200), name="large").save("large.domain.toml")
    Path("large.csv").write_text("a,b,c,d\n" + "1,2,1,2\n" * 50)
    Path("wanted.toml").write_text('[[queries]]\nask = "by a, b, c, d"\n[[queries]]\nask = "by a, b"\n')
    command = [verb, "large.csv", "--domain", "large.domain.toml", "--epsilon", "1", "--plan", "independent"]
    command += ["--workload", "wanted.toml", *(["--dry-run"] if dry else ["--out", "out"])]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code != 0
    assert "1 of 2 queries" in str(outcome.exception) + outcome.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["large.csv", "large.domain.toml", "wanted.toml"]


def test_of_very_many_pairs_the_plan_lists_none() -> None:
    domain = cs.Domain.from_sizes({f"a{i}": 2 for i in range(330)})
    chosen = Request(data="people.csv", domain=domain, epsilon=1).chosen
    assert chosen.to_json()["plan"] == "best-buy"
    assert chosen.to_json()["workload"] is None
    assert Request(data="people.csv", domain=domain.project(domain.names[:5]), epsilon=1).chosen.to_json()["workload"]
