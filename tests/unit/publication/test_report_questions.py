"""Twenty questions that a manager asks of a release: each is answered by the page alone, whatever table it is of."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from benchmarks.problems.data_folder import find_data
from consilience.demo.town import write_table
from consilience.domain import Query
from consilience.publication import Release, open_release
from consilience.publication.about import Publication
from consilience.publication.report import Report, make_report

TOLD = Publication.from_declaration(
    {
        "publisher": "Office of Statistics",
        "contact": {"email": "desk@example.org"},
        "population": "people who were asked",
        "region": "Springfield",
        "period": {"start": "2024-01", "end": "2024-06"},
        "licence": "CC-BY-4.0",
        "intended_use": "Planning of schools.",
        "unsuitable_use": "Decisions about single persons.",
        "assessment": {"custodian": "Two people of the office."},
    }
)


class Tables(HTMLParser):
    """The text of a page, and its tables by their captions: rows of cells, headers first."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.words: list[str] = []
        self._inside: list[str] = []
        self.feed(re.sub(r'src="data:[^"]*"', "", text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "br"):
            self._inside.append(tag)
        if tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][1][-1].append("")
        elif tag == "span" and self.tables and "td" in self._inside:
            self.tables[-1][1][-1][-1] += " | "

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._inside:
            return
        self.words.append(data)
        if "caption" in self._inside:
            caption, rows = self.tables[-1]
            self.tables[-1] = (caption + data, rows)
        elif "th" in self._inside or "td" in self._inside:
            self.tables[-1][1][-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def cell(self, caption: str, row: Sequence[str], column: str) -> str:
        """The cell of the row that begins so, in the column of that name, in any table with such a caption."""
        for name, rows in self.tables:
            if not name.startswith(caption):
                continue
            header = rows[1] if len(rows[0]) < len(rows[1]) else rows[0]
            for each in rows:
                if each[: len(row)] == list(row) and column in header:
                    return each[header.index(column)]
        raise AssertionError(f"no cell {row} × {column} in a table {caption!r}: {[name for name, _ in self.tables]}")


@dataclass
class Page:
    made: Report
    release: Release
    read: Tables = field(init=False)

    def __post_init__(self) -> None:
        self.read = Tables(self.made.html)

    def says(self, *words: str) -> None:
        for each in words:
            assert each in self.read.text, each

    def largest_count(self, shown) -> tuple[str, tuple[float, float, float]]:
        """The page's cell of the largest count of a table, and what the library answers, with its interval."""
        at = np.unravel_index(int(np.nanargmax(shown.estimates)), shown.estimates.shape)
        labels = [axis[place] for axis, place in zip(shown.axes, at, strict=True)]
        say = self.made.facts.say
        column = labels[-1] if shown.cross.across else say(f"tables.{shown.what}_column")
        row = labels[:-1] if shown.cross.across else labels
        cell = self.read.cell(shown.title(say), row, column)
        bars = cs.interval(self.release.estimate, shown.answers.question, refits=20)
        place = int(np.nanargmax(np.where(np.isfinite(bars.estimates), bars.estimates, -np.inf)))
        return cell, (float(bars.estimates[place]), float(bars.low[place]), float(bars.high[place]))


def numbers(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)]


def how_many_are_there(page: Page) -> None:
    total = page.made.facts.total
    page.says(f"about {round(float(total.estimates[0])):,}")
    assert re.search(r"between [\d,]+ and [\d,]+", page.read.text)


def how_many_of_each_value(page: Page) -> None:
    for margin in page.made.facts.margins:
        if margin.basis.measured.all():
            first = page.read.cell(margin.heading, [margin.labels[0]], "estimate")
            assert numbers(first) == [round(float(margin.estimates[0])) + 0.0]


def how_many_in_a_cell_of_a_measured_table(page: Page) -> None:
    counts = [each for each in page.made.facts.tables if each.what == "records"]
    assert counts
    for shown in counts:
        cell, (estimate, low, high) = page.largest_count(shown)
        found = numbers(cell)
        assert found[0] == round(estimate)
        assert found[1:] == [math.floor(low), math.ceil(high)]


def how_sure_is_that(page: Page) -> None:
    page.says(
        "with a probability of 95 % the true number lies in the interval", "half of the intervals reach no farther"
    )


def which_numbers_must_not_be_quoted(page: Page) -> None:
    page.says("†", "too uncertain to be quoted alone", "The three most important caveats")
    caveats = re.search(r"<h3>The three most important caveats</h3><ol>(.*?)</ol>", page.made.html)
    assert caveats is not None
    assert caveats[1].count("<li>") == 3


def what_was_measured(page: Page) -> None:
    page.says("What was measured, and what it cost")
    assert re.search(r"(counted once|counted together|were counted|was counted)", page.read.text)
    assert re.search(r"[Ee]ach count carries noise of about ±[\d.,]+", page.read.text)


def what_was_not_measured(page: Page) -> None:
    page.says("What was not measured")
    for name in page.release.estimate.columns_basis.not_measured:
        page.says(page.release.estimate.domain[name].heading)


def what_does_each_number_stand_on(page: Page) -> None:
    page.says("basis", "measured, modelled, not measured")


def what_could_somebody_learn_about_me(page: Page) -> None:
    page.says("What somebody could learn about one person", "before and after", "What is no leak")
    epsilon = float(str(page.release.estimate.measurements.privacy.spent["epsilon"]))
    highest = math.exp(epsilon) * 0.5 / (math.exp(epsilon) * 0.5 + 0.5)
    page.says(f"{100 * highest:.3g} %")


def what_does_the_budget_mean(page: Page) -> None:
    page.says("ε = ", "change the odds of a guess")


def who_or_what_is_protected(page: Page) -> None:
    page.says("What is the unit of privacy?", "is protected: nearly the same publication would come out")


def which_attributes_go_together(page: Page) -> None:
    if page.made.facts.associations is not None and page.made.facts.associations.strongest():
        page.says("Which attributes go together", "Cramér's V")


def can_i_check_and_repeat_it(page: Page) -> None:
    page.says("consilience check", "consilience report", page.made.facts.checksum)


STATED: dict[str, tuple[str, ...]] = {
    "who made this": ("Office of Statistics publishes", "Publisher"),
    "for what": ("Planning of schools.",),
    "for what not": ("Decisions about single persons.",),
    "whom do I ask": ("desk@example.org",),
    "about whom, where and when": ("about people who were asked, Springfield, 2024-01 to 2024-06",),
    "may I give it on": ("You may pass this page on and use its numbers under this licence: CC-BY-4.0",),
    "who has seen the data": ("Two people of the office.",),
}

QUESTIONS: dict[str, Callable[[Page], None]] = {
    "how many are there": how_many_are_there,
    "how many of each value": how_many_of_each_value,
    "how many unemployed in Station": how_many_in_a_cell_of_a_measured_table,
    "how sure is that": how_sure_is_that,
    "which numbers must not be quoted": which_numbers_must_not_be_quoted,
    "what was measured": what_was_measured,
    "what was not measured": what_was_not_measured,
    "what does each number stand on": what_does_each_number_stand_on,
    "what could somebody learn about me": what_could_somebody_learn_about_me,
    "what does the budget mean": what_does_the_budget_mean,
    "who is protected": who_or_what_is_protected,
    "which attributes go together": which_attributes_go_together,
    "can I check and repeat it": can_i_check_and_repeat_it,
} | {name: lambda page, words=words: page.says(*words) for name, words in STATED.items()}


def test_there_are_twenty_questions() -> None:
    assert len(QUESTIONS) == 20


def survey(folder: Path) -> Release:
    """Dates, a hierarchy, labels, weights and an amount that is added up."""
    rng = np.random.default_rng(0)
    lines = ["month,place,sex,income,w"]
    for _ in range(3000):
        day = f"2024-{rng.integers(1, 7):02d}-{rng.integers(1, 29):02d}"
        place = rng.choice(["N1", "N2", "S1"])
        lines.append(f"{day},{place},{rng.choice(['f', 'm'])},{rng.lognormal(10, 0.5):.2f},{rng.choice([0.5, 1, 2])}")
    (folder / "survey.csv").write_text("\n".join(lines))
    (folder / "survey.domain.toml").write_text("""
name = "survey"
weight = { column = "w", bounds = [0, 2] }
[attributes.month]
kind = "date"
by = "month"
from = "2024-01"
to = "2024-06"
[attributes.place]
kind = "hierarchy"
title = "District"
levels = ["Province", "District"]
parents = { N1 = "North", N2 = "North", S1 = "South" }
labels = { N1 = "Harbour" }
[attributes.sex]
kind = "categorical"
values = ["f", "m"]
labels = { f = "Female", m = "Male" }
[attributes.income]
kind = "numeric"
title = "Income"
unit = "crowns"
edges = [0, 15000, 30000, 60000, 300000]
amount = [0, 150000]
""")
    plan = "marginals month,place; income,sex with sums income by sex"
    return cs.release(
        folder / "survey.csv", folder / "survey.domain.toml", epsilon=2, plan=plan, out=folder / "release"
    )


def town(folder: Path) -> Release:
    data, domain = write_table(folder / "town.csv", people=4000)
    plan = "marginals employment,district; age,sex; education"
    return cs.release(data, domain, epsilon=2, plan=plan, out=folder / "release")


RAW = {
    "titanic": (
        "titanic.csv",
        "Survived,Sex,Pclass; Pclass,Embarked",
        """
name = "titanic"
[attributes.Survived]
kind = "categorical"
values = [0, 1]
labels = { 0 = "Died", 1 = "Survived" }
[attributes.Sex]
kind = "categorical"
values = ["female", "male"]
[attributes.Pclass]
kind = "categorical"
title = "Class"
values = [1, 2, 3]
[attributes.Embarked]
kind = "categorical"
title = "Port"
values = ["C", "Q", "S"]
missing = "Not known"
""",
    ),
    "penguins": (
        "penguins_raw.csv",
        "Island,Sex; Island,Culmen Length (mm)",
        """
name = "penguins"
[attributes.Island]
kind = "categorical"
values = ["Biscoe", "Dream", "Torgersen"]
[attributes.Sex]
kind = "categorical"
values = ["FEMALE", "MALE"]
missing = "Not known"
unlisted = "Not known"
[attributes."Culmen Length (mm)"]
kind = "numeric"
title = "Bill"
unit = "mm"
edges = [30, 40, 50, 60]
missing = "Not known"
""",
    ),
    "arrests": (
        "nypd_arrests_part.csv.gz",
        "AGE_GROUP,PERP_SEX,LAW_CAT_CD; ARREST_DATE,LAW_CAT_CD",
        """
name = "arrests"
[attributes.AGE_GROUP]
kind = "categorical"
title = "Age"
values = ["<18", "18-24", "25-44", "45-64", "65+"]
[attributes.PERP_SEX]
kind = "categorical"
title = "Sex"
values = ["F", "M"]
[attributes.LAW_CAT_CD]
kind = "categorical"
title = "Severity"
values = ["F", "M", "V"]
missing = "Other"
unlisted = "Other"
[attributes.ARREST_DATE]
kind = "date"
title = "Month"
format = "%m/%d/%Y"
by = "month"
from = "2021-05"
to = "2021-09"
[attributes.JURISDICTION_CODE]
kind = "categorical"
title = "Jurisdiction"
values = ["0", "1"]
unlisted = "Other"
""",
    ),
}


def raw(name: str) -> Callable[[Path], Release]:
    def made(folder: Path) -> Release:
        import gzip

        file, plan, declared = RAW[name]
        found = find_data("raw", file)
        if found is None:
            pytest.skip(f"needs raw/{file} of the folder that CONSILIENCE_DATA names")
        content = gzip.decompress(found.read_bytes()) if file.endswith(".gz") else found.read_bytes()
        (folder / "data.csv").write_bytes(content)
        (folder / "domain.toml").write_text(declared)
        return cs.release(
            folder / "data.csv", folder / "domain.toml", epsilon=2, plan=f"marginals {plan}", out=folder / "release"
        )

    return made


TABLES: dict[str, Callable[[Path], Release]] = {"survey": survey, "town": town} | {name: raw(name) for name in RAW}


@pytest.fixture(scope="module", params=TABLES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp(request.param)
    release = TABLES[request.param](folder)
    return Page(make_report(release, publication=TOLD, refits=20), open_release(release.path))


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_page_answers(page: Page, question: str) -> None:
    QUESTIONS[question](page)


def test_sums_and_means_are_there_with_intervals(tmp_path: Path) -> None:
    page = Page(make_report(survey(tmp_path), refits=20), open_release(tmp_path / "release"))
    whats = {each.what: each for each in page.made.facts.tables}
    assert set(whats) == {"records", "sums", "means"}
    for what in ("sums", "means"):
        cell, (estimate, low, high) = page.largest_count(whats[what])
        assert numbers(cell) == pytest.approx([estimate, low, high], abs=0.51)
    page.says("Sum of Income (crowns) by sex", "Mean of Income (crowns) by sex", "Female", "Harbour", "clipped")
    assert not re.search(r">f</th>", page.made.html)


def test_totals_stand_under_what_they_sum(page: Page) -> None:
    for shown in page.made.facts.tables:
        if shown.cross.total_row and shown.cross.total_column:
            last = shown.cross.cells[-1][-1].estimate
            assert last == pytest.approx(np.nansum(shown.estimates), rel=1e-9)
        names = [name for name, _ in shown.answers.query.factors]
        if shown.what == "records" and all(name in page.release.estimate.domain for name in names):
            asked = page.release.estimate.answer(Query.marginal(*names)).reshape([len(a) for a in shown.answers.axes])
            kept = [shown.answers.shown_columns.index(heading) for heading in shown.headings]
            assert np.allclose(asked.transpose(kept), shown.estimates)


def test_what_is_not_stated_is_said_not_to_be(tmp_path: Path) -> None:
    page = Page(make_report(town(tmp_path), refits=20), open_release(tmp_path / "release"))
    page.says("not stated", "the publisher states no licence", "Not stated by the publisher", "This release publishes")
    page.says("Never measured together", "What was not measured")
    missing = [page.release.estimate.domain[n].heading for n in page.release.estimate.columns_basis.not_measured]
    assert missing == ["income", "commute"]
    page.says(*itertools.chain(missing, ["Never measured: income, commute."]))
