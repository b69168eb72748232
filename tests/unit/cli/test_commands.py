"""The command line end to end: files in, files out, exit codes, and both faces of every result."""

import csv
import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.cli.main import app, run
from consilience.errors import DeclarationError

DOMAIN = """
name = "people"

[attributes.age]
kind = "numeric"
edges = [0, 18, 65, 100]

[attributes.sex]
kind = "categorical"
values = ["F", "M"]
missing = "Unknown"

[attributes.town]
kind = "hierarchy"
parents = { Aton = "North", Beton = "North", Ceton = "South" }
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.domain.toml").write_text(DOMAIN)
    rows = ["age,sex,town"]
    for i in range(300):
        rows.append(f"{(i * 7) % 90},{'FM'[i % 2] if i % 17 else ''},{('Aton', 'Beton', 'Ceton')[i % 3]}")
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def call(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command, run in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["consilience", *words])
        try:
            run()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def succeed(*words: str) -> str:
    code, out, err = call(*words)
    assert code == 0, err
    return out


RELEASE = ["release", "people.csv", "--domain", "people.domain.toml", "--epsilon", "1"]


def test_release_answer_check_and_ledger(place: Path) -> None:
    out = succeed(*RELEASE, "--out", "release")
    assert re.search("status: (least risk|converged)", out)  # as its noise has it
    assert (place / "people.csv.ledger").exists()
    table = succeed("answer", "release", "age=18..64 by sex")
    assert "Unknown" in table
    assert "estimate" in table
    document = json.loads(succeed("answer", "release", "by town", "--json"))
    assert [row["town"] for row in document["answers"]] == ["Aton", "Beton", "Ceton"]
    rows = list(csv.DictReader(io.StringIO(succeed("answer", "release", "town=North by age", "--csv"))))
    assert [row["age"] for row in rows] == ["0..17", "18..64", "65..99"]
    assert "release bundle, valid" in succeed("check", "release")
    for file in ("people.csv.ledger", "people.domain.toml", "release/measurements.parquet", "release/model.parquet"):
        assert "valid" in succeed("check", file)
    shown = json.loads(succeed("ledger", "show", "people.csv", "--json"))
    assert (shown["spent"], shown["remaining"], len(shown["entries"])) == ("1", "0", 1)


def test_a_release_tells_a_plain_line_each_and_its_details_with_verbose(place: Path) -> None:
    code, out, err = call(*RELEASE, "--out", "plain")
    assert code == 0
    told = [line for line in err.splitlines() if not line.startswith(("compiling", "this is the first spend"))]
    assert told == ["plan: best-buy", "spent epsilon 1; epsilon 0 remains in people.csv.ledger"]
    # Which pairs the plan measures depends on its noise, and so does whether some were never measured together.
    words = [line.partition(" ")[0] for line in out.splitlines() if not line.startswith("never measured together")]
    assert words == ["fitted", "wrote", "ask"]
    code, more, err = call(*RELEASE, "--out", "verbose", "--verbose")
    assert code == 0
    assert "  queries are about several attributes" in err
    assert "optimality gap" in more
    assert set(out.replace("plain", "verbose").splitlines()) <= set(more.splitlines())


def test_a_workload_that_the_release_could_not_answer_is_refused_before_anything_is_spent(place: Path) -> None:
    names = ("a", "b", "c", "d")
    attributes = "".join(f'[attributes.{name}]\nkind = "numeric"\nfrom = 0\nto = 200\nstep = 1\n' for name in names)
    (place / "large.domain.toml").write_text(f'name = "large"\n{attributes}')
    (place / "large.csv").write_text("a,b,c,d\n" + "1,2,3,4\n" * 50)
    (place / "wanted.toml").write_text('[[queries]]\nask = "by a, b"\n[[queries]]\nask = "by a, b, c, d"\n')
    asked = ["release", "large.csv", "--domain", "large.domain.toml", "--epsilon", "1", "--out", "release"]
    code, _, err = call(*asked, "--plan", "independent", "--workload", "wanted.toml")
    assert code == 1
    assert "1 of 2 queries of the workload could not be answered" in " ".join(err.split())
    assert not (place / "large.csv.ledger").exists()
    for plan in ("independent", "forest", "mst", "privbayes"):
        measuring = ["measure", *asked[1:-1], "noisy.parquet", "--plan", plan, "--workload", "wanted.toml"]
        code, _, err = call(*measuring, "--budget", "1")
        assert code == 1
        assert "'a, b, c, d' asks for 1,600,000,000 answers" in " ".join(err.split())
        assert not (place / "large.csv.ledger").exists()
    code, _, err = call("ledger", "show", "large.csv")
    assert code == 1
    assert "there is no ledger beside large.csv: nothing was charged" in " ".join(err.split())


def test_two_releases_of_one_table_share_one_budget(place: Path) -> None:
    succeed(*RELEASE, "--out", "one", "--budget", "1.5")
    code, _, err = call(*RELEASE, "--out", "two", "--id", "another")
    assert code == 1
    assert "0.5 of 1.5 remains" in err
    assert not (place / "two").exists()
    succeed("release", "people.csv", "--domain", "people.domain.toml", "--epsilon", "0.5", "--out", "two")
    assert json.loads(succeed("ledger", "show", "people.csv", "--json"))["remaining"] == "0"


def test_repeating_a_release_gives_the_same_values_and_says_so(place: Path) -> None:
    succeed(*RELEASE, "--out", "one")
    code, _, err = call(*RELEASE, "--out", "two")
    assert code == 0
    assert "nothing was spent" in err
    ask = ["total", "by sex", "by age, town"]
    assert succeed("answer", "one", *ask, "--csv") == succeed("answer", "two", *ask, "--csv")
    assert (place / "one/measurements.parquet").exists()


def test_an_account_that_misses_the_measurements_is_written_only_when_asked_for(place: Path) -> None:
    (place / "people.domain.toml").write_text(f"{DOMAIN}\n[public]\ntotal = 90000\n")
    code, _, err = call(*RELEASE, "--out", "release", "--plan", "2-way")
    assert code == 1
    assert "contradicts the measurements" in err
    assert "--allow-misfit" in err
    assert not (place / "release").exists()
    code, out, err = call(*RELEASE, "--out", "release", "--plan", "2-way", "--allow-misfit")
    assert code == 0, err
    assert "nothing was spent" in err
    assert "status: misfit" in out


def test_measure_estimate_and_answer_apart(place: Path) -> None:
    succeed(
        "measure", "people.csv", "--domain", "people.domain.toml", "--rho", "0.5", "--plan", "marginals age,sex; town",
        "--ledger", "my.ledger", "--out", "m.parquet",
    )  # fmt: skip
    succeed("estimate", "m.parquet", "--out", "bundle")
    assert succeed("answer", "bundle", "by town", "--csv") == succeed("answer", "m.parquet", "by town", "--csv")


def test_error_bars_are_written_into_the_tables_and_wrong_wishes_spend_nothing(place: Path) -> None:
    code, _, err = call(*RELEASE, "--out", "release", "--interval", "--level", "95")
    assert code == 1
    assert "the level is 95" in err
    assert not (place / "people.csv.ledger").exists()
    succeed(*RELEASE, "--out", "release", "--interval", "--refits", "20")
    header = (place / "release" / "tables" / "age.csv").read_text().splitlines()[0]
    assert header.split(",")[:4] == ["age", "estimate", "low", "high"]
    succeed("check", "release")
    assert not (place / "bars").exists()
    succeed("estimate", "release/measurements.parquet", "--out", "bars", "--interval", "--refits", "20")
    assert "low" in (place / "bars" / "tables" / "age.csv").read_text()


def test_a_plan_is_told_without_data(place: Path) -> None:
    asked = ("plan", "--domain", "people.domain.toml", "--records", "300")
    (place / "people.csv").unlink()
    out = succeed(*asked, "--epsilon", "0.5", "--epsilon", "5", "--verbose", "--out", "told.png")
    assert "would be measured" in out
    assert "nothing was touched: no data, no ledger" in out
    assert (place / "told.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in place.iterdir()} == {"people.domain.toml", "told.png"}
    told = json.loads(succeed(*asked, "--rho", "0.5", "--plan", "marginals age,sex", "--json"))
    assert [each["how"] for each in told["outcomes"]] == ["least squares"]
    assert told["outcomes"][0]["in_words"].startswith("counts below ")
    code, _, err = call(*asked, "--out", "told.png")
    assert (code, "exists already" in err) == (1, True)
    code, _, err = call("plan", "--domain", "people.domain.toml")
    assert (code, "--records 50000" in err) == (1, True)


def test_a_dry_run_of_a_release_says_in_two_sentences_what_it_would_do(place: Path) -> None:
    out = succeed(*RELEASE, "--dry-run", "--records", "300")
    told = next(line for line in out.splitlines() if line.startswith("With epsilon"))
    assert told.count(". ") == 1
    assert told.endswith("would drown in the noise.")
    shown = json.loads(succeed(*RELEASE, "--dry-run", "--records", "300", "--json"))
    assert shown["tried"]["sentences"] == [told]
    _, _, err = call(*RELEASE, "--dry-run")
    assert "10,000 records are assumed" in err
    code, _, err = call(*RELEASE, "--out", "release", "--records", "300")
    assert (code, "a release learns the number privately" in err) == (2, True)


def test_dry_run_touches_nothing(place: Path) -> None:
    before = sorted(place.iterdir())
    shown = json.loads(succeed(*RELEASE, "--plan", "2-way", "--dry-run", "--json"))
    assert shown["answers"] == 3 * 3 + 3 * 3 + 3 * 3
    assert "stddev" in succeed("measure", "people.csv", "--domain", "people.domain.toml", "--rho", "1", "--dry-run")
    assert sorted(place.iterdir()) == before


WORKLOAD = """
[[queries]]
ask = "by age, sex"
weight = 2

[[queries]]
ask = "by town"
"""


def test_a_plan_is_chosen_for_the_workload_and_says_why(place: Path) -> None:
    (place / "wanted.toml").write_text(WORKLOAD)
    code, out, err = call(*RELEASE, "--workload", "wanted.toml", "--dry-run")
    assert code == 0
    assert "plan: best-buy" in err
    assert "a noisy total decides" in err
    assert "would spend epsilon 1" in out
    assert "would take about" in out
    assert "of memory at its peak" in out
    code, _, err = call(*RELEASE, "--workload", "wanted.toml", "--out", "release")
    assert code == 0, err
    spent = json.loads(succeed("ledger", "show", "people.csv", "--json"))
    assert (spent["spent"], len(spent["entries"])) == ("1", 1)
    assert "Unknown" in succeed("answer", "release", "by sex, age")


def test_attributes_that_the_workload_does_not_name_are_measured_unless_told_otherwise(place: Path) -> None:
    (place / "wanted.toml").write_text('[[queries]]\nask = "by age, sex"\n')
    code, out, err = call(*RELEASE, "--workload", "wanted.toml", "--dry-run")
    assert code == 0
    assert "the workload does not name town: 5 % of the budget" in err
    assert "the table of town (" in out + err
    code, _, err = call(*RELEASE, "--workload", "wanted.toml", "--dry-run", "--unnamed-share", "0")
    assert code == 0
    assert "nothing is measured of town" in err
    code, _, err = call(*RELEASE, "--plan", "2-way", "--dry-run", "--unnamed-share", "0.1")
    assert code == 2
    assert "--unnamed-share" in err
    domain = place / "people.domain.toml"
    domain.write_text(domain.read_text().replace("[attributes.town]", "[attributes.town]\nrelease = false"))
    code, _, err = call(*RELEASE, "--workload", "wanted.toml", "--out", "release")
    assert code == 0, err
    assert "town" not in err
    assert not (place / "release" / "tables" / "town.csv").exists()
    succeed("synthesize", "release", "--out", "made.csv", "--rows", "5")
    assert (place / "made.csv").read_text().splitlines()[0] == "age,sex"


def test_the_error_of_a_release_is_told_and_marked(place: Path) -> None:
    (place / "wanted.toml").write_text(WORKLOAD)
    succeed(*RELEASE, "--plan", "hdmm", "--workload", "wanted.toml", "--out", "release")
    evaluate = ("evaluate", "release", "people.csv", "--domain", "people.domain.toml", "--workload", "wanted.toml")
    code, out, err = call(*evaluate)
    assert code == 0
    assert "NOT PRIVATE" in out
    assert "NOT PRIVATE" in err
    found = json.loads(succeed(*evaluate, "--json"))
    assert not found["private"]
    assert len(found["queries"]) == 2


def test_a_plan_that_goes_by_no_workload_refuses_one(place: Path) -> None:
    (place / "wanted.toml").write_text(WORKLOAD)
    code, _, err = call(*RELEASE, "--plan", "flat", "--workload", "wanted.toml", "--out", "release")
    assert code == 1
    assert "does not go by a workload" in err
    assert not (place / "people.csv.ledger").exists()


def test_simulated_noise_is_stamped_everywhere(place: Path) -> None:
    succeed(*RELEASE, "--simulate", "7", "--out", "play")
    assert not (place / "people.csv.ledger").exists()
    assert json.loads((place / "play/release.json").read_text())["private"] is False
    _, _, err = call("answer", "play", "total")
    assert "NOT PRIVATE" in err
    assert json.loads(succeed("answer", "play", "total", "--json"))["private"] is False


def test_domain_commands(place: Path) -> None:
    assert "18..64" in succeed("domain", "show", "people.domain.toml")
    assert json.loads(succeed("domain", "show", "people.domain.toml", "--json"))["cells"] == 27
    assert "valid" in succeed("domain", "check", "people.domain.toml")
    code, out, err = call("domain", "draft", "people.csv")
    assert code == 0
    assert "not private" in err
    assert out.count("reviewed = false") == 3


def test_a_draft_that_nobody_edited_is_neither_measured_nor_released(place: Path) -> None:
    succeed("domain", "draft", "people.csv", "--name", "people", "--out", "drafted.toml")
    before = sorted(each.name for each in place.iterdir())
    amount, unread = (
        ("--domain", "drafted.toml", "--epsilon", "1"),
        "draft = true, and reviewed = false in 'age', 'sex'",
    )
    for words in (
        ("measure", "people.csv", *amount, "--out", "measured.parquet"),
        ("release", "people.csv", *amount, "--out", "release"),
        ("release", "people.csv", *amount, "--plan", "1-way", "--simulate", "1", "--out", "release"),
        ("release", "people.csv", *amount, "--plan", "1-way", "--dry-run"),
        ("domain", "check", "drafted.toml"),
    ):
        outcome = CliRunner().invoke(app, words)
        assert isinstance(outcome.exception, DeclarationError), words
        assert unread in str(outcome.exception), words
    assert sorted(each.name for each in place.iterdir()) == before
    assert unread in CliRunner().invoke(app, ["domain", "show", "drafted.toml"]).output


def test_a_draft_that_a_person_went_through_is_a_domain_like_any_other(place: Path) -> None:
    succeed("domain", "draft", "people.csv", "--name", "people", "--out", "drafted.toml")
    drafted = re.sub(r"# NOT PRIVATE:.*\n", "", (place / "drafted.toml").read_text())
    (place / "halfway.toml").write_text(drafted.replace("draft = true\n", "").replace("reviewed = false\n", "", 1))
    outcome = CliRunner().invoke(app, ["domain", "check", "halfway.toml"])
    assert "still says reviewed = false in 'sex', 'town'" in str(outcome.exception)
    (place / "reviewed.toml").write_text(drafted.replace("draft = true\n", "").replace("reviewed = false\n", ""))
    assert "valid" in CliRunner().invoke(app, ["domain", "check", "reviewed.toml"]).output
    succeed("release", "people.csv", "--domain", "reviewed.toml", "--epsilon", "1", "--plan", "1-way", "--out", "r")


def test_a_bundle_with_a_ledger_in_it_is_refused(place: Path) -> None:
    succeed(*RELEASE, "--out", "release")
    (place / "release/people.csv.ledger").write_bytes((place / "people.csv.ledger").read_bytes())
    code, _, err = call("check", "release")
    assert code == 1
    assert "must not hold a ledger" in err


MISTAKES = {
    "no epsilon": (["release", "people.csv", "--domain", "people.domain.toml", "--out", "r"], "add --epsilon 1, or"),
    "epsilon zero": ([*RELEASE[:-1], "0", "--out", "r"], "epsilon"),
    "no such domain": (["release", "people.csv", "--domain", "none.toml", "--epsilon", "1", "--out", "r"], "none.toml"),
    "no such data": (
        ["release", "none.csv", "--domain", "people.domain.toml", "--epsilon", "1", "--out", "r"],
        "none.csv",
    ),
    "no such plan": ([*RELEASE, "--plan", "everything", "--out", "r"], "everything"),
    "no such method": ([*RELEASE, "--method", "tabel", "--out", "r"], "table"),
    "attribute misspelt in plan": ([*RELEASE, "--plan", "marginals agee", "--out", "r"], "did you mean 'age'"),
    "neighbours misspelt": ([*RELEASE, "--neighbours", "add", "--out", "r"], "replace-one"),
    "out exists": ([*RELEASE, "--out", "people.csv"], "exists already"),
    "unit without a bound": ([*RELEASE, "--unit", "sex", "--out", "r"], "needs --max-rows-per-unit"),
    "no such query": (["answer", "none", "total"], "none"),
    "nothing to check": (["check", "none"], "none"),
    "foreign file": (["check", "people.csv"], "none of our files"),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda name: name.replace(" ", "-"))
def test_mistakes_exit_with_1_say_why_and_spend_nothing(place: Path, mistake: str) -> None:
    words, expected = MISTAKES[mistake]
    code, out, err = call(*words)
    assert (code, out) == (1, "")
    assert expected in err
    assert "Traceback" not in err
    assert not (place / "people.csv.ledger").exists()
    assert not (place / "r").exists()


def test_wrong_usage_exits_with_2(place: Path) -> None:
    assert call("release", "people.csv")[0] == 2
    assert call("nonsense")[0] == 2
    assert call("answer", "release")[0] == 2


def verbs() -> list[list[str]]:
    from typer.main import get_command

    root = get_command(app)
    found: list[list[str]] = [[]]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        found.append([name])
        found += [[name, inner] for inner in getattr(command, "commands", {})]
    return found


@pytest.mark.parametrize("words", verbs(), ids=lambda words: "-".join(words) or "root")
def test_every_verb_has_help_with_an_example(words: list[str]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"])
    assert shown.exit_code == 0
    assert "consilience" in shown.output
    if len(words) == 2 or (words and words[0] not in ("domain", "ledger")):
        assert "Example: consilience " + " ".join(words) in " ".join(shown.output.split())


def test_version_help_and_exit_codes_as_the_shell_sees_them() -> None:
    def call_beside(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "consilience.cli.main", *words]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        return outcome.returncode, outcome.stdout

    assert call_beside("nonsense")[0] == 2
    assert call_beside("check", "nothing.toml")[0] == 1
    code, out = call_beside("--help")
    assert code == 0
    assert "release" in out
    assert call("--version")[1].startswith("consilience ")


def test_an_unexpected_error_does_not_show_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def explode() -> None:
        raise ValueError("a secret value")

    monkeypatch.setattr("consilience.cli.main.app", explode)
    with pytest.raises(SystemExit) as left:
        run()
    shown = capsys.readouterr()
    assert left.value.code == 1
    assert "secret" not in shown.out + shown.err
    assert "ValueError" in shown.err
