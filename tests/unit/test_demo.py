"""The demo shows what it promises, and the town is what it claims to be."""

import csv
import io
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from consilience.cli.main import run
from consilience.demo import DOMAIN_FILE, show, town
from consilience.domain import Domain
from consilience.domain.attributes import Hierarchy, Numeric

SMALL = "2000"
DEMO = [sys.executable, "-m", "consilience.cli.main", "demo", "--people", SMALL, "--refits", "20"]


@pytest.fixture(scope="module")
def columns() -> dict[str, list[str]]:
    return town.make_town()


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.load(DOMAIN_FILE)


class TestTheTown:
    def test_has_fifty_thousand_people_in_every_column(self, columns: dict[str, list[str]]) -> None:
        assert {len(column) for column in columns.values()} == {50_000}
        assert len(set(columns["person"])) == 50_000

    def test_is_the_same_bytes_twice_and_other_bytes_for_another_seed(self, tmp_path: Path) -> None:
        first = town.write_town(tmp_path / "a.csv", people=3000).read_bytes()
        assert town.write_town(tmp_path / "b.csv", people=3000).read_bytes() == first
        assert town.write_town(tmp_path / "c.csv", people=3000, seed=1).read_bytes() != first

    def test_file_reads_back_as_the_columns(self, tmp_path: Path) -> None:
        expected = town.make_town(500)
        with town.write_town(tmp_path / "town.csv", people=500).open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert {name: [row[name] for row in rows] for name in rows[0]} == expected

    def test_every_declared_label_occurs(self, columns: dict[str, list[str]], domain: Domain) -> None:
        for attribute in domain.attributes:
            found = labels_of(columns[attribute.name], domain, attribute.name)
            assert found == set(attribute.labels), attribute.name

    def test_some_answers_are_missing_and_a_few_are_odd(self, columns: dict[str, list[str]], domain: Domain) -> None:
        for name in ("income", "education"):
            assert 0.01 < columns[name].count("") / 50_000 < 0.15
        assert max(int(age) for age in columns["age"]) == 999
        assert min(int(income) for income in columns["income"] if income) < 0
        districts = domain["district"]
        assert isinstance(districts, Hierarchy)
        assert 0 < sum(value not in districts.values for value in columns["district"]) < 500
        assert {"Scooter", "Kayak"} <= set(columns["commute"])

    def test_nobody_lives_in_an_impossible_cell(self, columns: dict[str, list[str]]) -> None:
        children = [job for age, job in zip(columns["age"], columns["employment"], strict=True) if int(age) < 16]
        assert set(children) == {"Student", "At home"}

    def test_attributes_depend_on_each_other(self, columns: dict[str, list[str]]) -> None:
        pairs = [("age", "employment"), ("education", "employment"), ("district", "commute"), ("employment", "income")]
        for one, other in pairs:
            assert dependence(columns[one], columns[other]) > 0.05, (one, other)
        assert dependence(columns["person"][::-1], columns["sex"]) > 0.5  # the measure itself can tell
        rng = np.random.default_rng(0)
        shuffled = [columns["commute"][i] for i in rng.permutation(50_000)]
        assert dependence(columns["district"], shuffled) < 0.01

    def test_incomes_have_a_heavy_tail_and_follow_education(self, columns: dict[str, list[str]]) -> None:
        stated = [(int(i), e) for i, e in zip(columns["income"], columns["education"], strict=True) if i]
        incomes = np.array([income for income, _ in stated])
        assert incomes.max() > 20 * np.median(incomes)
        medians = {level: np.median([i for i, e in stated if e == level]) for level in town.EDUCATIONS}
        assert medians["University"] > medians["Secondary"] > medians["Basic"]

    def test_domain_is_small_enough_to_fit_and_matches_the_generator(self, domain: Domain) -> None:
        assert domain.name == "town"
        assert domain.cells <= 2_000_000
        assert not domain.public
        assert len(domain.impossible) == 1
        districts = domain["district"]
        assert isinstance(districts, Hierarchy)
        assert dict(districts.parents) == town.DISTRICTS
        assert len(set(town.DISTRICTS.values())) == 3


def labels_of(column: Iterable[str], domain: Domain, name: str) -> set[str]:
    """The labels that a column's values have by the domain's rules, computed the slow way."""
    attribute = domain[name]
    found = set()
    for value in set(column):
        if value == "":
            found.add(attribute.missing)
        elif isinstance(attribute, Numeric):
            number = min(max(float(value), attribute.edges[0]), attribute.edges[-1] - 1)
            position = int(np.searchsorted(attribute.edges, number, side="right")) - 1
            found.add(attribute.labels[position])
        elif value in attribute.ordinary_labels:
            found.add(value)
        elif attribute.unlisted != "drop":
            found.add(attribute.unlisted)
    return found


def dependence(one: list[str], other: list[str]) -> float:
    """The mutual information of two columns in nats: 0 when they are independent."""
    people = len(one)
    joint, left, right = Counter(zip(one, other, strict=True)), Counter(one), Counter(other)
    return sum(count / people * np.log(count * people / (left[a] * right[b])) for (a, b), count in joint.items())


class TestTheDemo:
    def test_shows_what_it_promises_in_words_and_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One run is looked at from all sides, because it takes long."""
        done = subprocess.run(DEMO, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        printed = done.stdout
        self.check_words(printed)
        self.check_that_consistent_numbers_do_not_contradict_each_other(printed)
        self.check_files(printed, tmp_path)
        self.check_that_its_commands_work_and_the_last_is_refused(printed, tmp_path, monkeypatch)

    def check_words(self, printed: str) -> None:
        assert printed.index("The first numbers") < printed.index("consilience release")
        for word in ("noisy", "consistent", "truth *", "NON-PRIVATE", "mean absolute error"):
            assert word in printed
        assert all(word in printed for word in ("low", "high", "they spend no budget"))
        unbroken = ("consilience", "file://")
        prose = [line for line in printed.splitlines() if not any(word in line for word in unbroken)]
        assert max(len(line) for line in prose) <= 100
        assert "\x1b" not in printed

    def check_that_consistent_numbers_do_not_contradict_each_other(self, printed: str) -> None:
        lines = [line.split() for line in printed.splitlines()]
        held = [words for words in lines if words[1:2] == ["by"] and "age" in (words[0], words[2])]
        assert len(held) == 6
        assert len({words[-1] for words in held}) == 1
        assert len({words[-2] for words in held}) > 1
        negative = next(words for words in lines if words[:2] == ["negative", "counts"])
        assert int(negative[-2].replace(",", "")) > 0
        assert negative[-1] == "0"

    def check_files(self, printed: str, folder: Path) -> None:
        page = folder / "demo" / "release" / "report.html"
        assert f"Open this in a browser: {page.resolve().as_uri()}" in printed
        assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        files = ("town.csv", "town.csv.ledger", "release", "release/tables/age-employment.csv", "release/report.html")
        for name in files:
            assert str(Path("demo") / name) in printed
            assert (folder / "demo" / name).exists()

    def check_that_its_commands_work_and_the_last_is_refused(
        self, printed: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder)
        _, _, last_section = printed.partition("Try:")
        commands = [line.strip() for line in last_section.splitlines() if line.startswith("  ")]
        assert len(commands) == 6
        for command in commands:
            monkeypatch.setattr(sys, "argv", shlex.split(command))
            with pytest.raises(SystemExit) as ended:
                run()
            assert ended.value.code == (1 if command == commands[-1] else 0), command

    def test_a_second_demo_removes_the_first_and_says_so(self, tmp_path: Path) -> None:
        said = io.StringIO()
        show.prepare(Console(file=said), tmp_path / "demo")
        assert "Removed" not in said.getvalue()
        (tmp_path / "demo" / "town.csv.ledger").touch()
        show.prepare(Console(file=said), tmp_path / "demo")
        assert "Removed" in said.getvalue()
        assert not (tmp_path / "demo" / "town.csv.ledger").exists()

    def test_removes_nothing_that_no_demo_made(self, tmp_path: Path) -> None:
        (tmp_path / "demo").mkdir()
        (tmp_path / "demo" / "thesis.txt").write_text("years of work", encoding="utf-8")
        done = subprocess.run(DEMO, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 1
        assert (tmp_path / "demo" / "thesis.txt").read_text(encoding="utf-8") == "years of work"
