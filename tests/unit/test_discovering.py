"""A domain found with privacy: paid once, recorded, used again, written down; bins at round numbers near quantiles."""

import json
import math
import tomllib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import consilience as cs
from consilience.cli.main import app
from consilience.curation.cells import roundest
from consilience.discovering import FAILURE_SHARE, Discovery, FindEdges, cut_histogram
from consilience.domain import Domain
from consilience.domain.undiscovered import grid
from consilience.errors import BudgetExceeded, ConsilienceError, DeclarationError
from consilience.measuring import price
from consilience.privacy.budgets import Budget, budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

OPEN = """
name = "town"
[attributes.sex]
kind = "categorical"
values = ["F", "M"]
[attributes.job]
kind = "categorical"
values = "discover"
[attributes.income]
kind = "numeric"
edges = "discover"
within = [0, 1000000]
"""
HOSTILE = ['=1+2; <script>alert(1)</script>"]', "by '..'", 'drop", x = 1', "[attributes.sex]", "\u202eevil", "a\nb"]
EPSILON = {"epsilon": 1, "delta": 1e-9}
NAMES = ["--epsilon", "1", "--delta", "1e-9"]


def people(rows: int = 6000) -> pa.Table:
    rng = np.random.default_rng(3)
    jobs = [f"job {number}" for number in rng.zipf(1.5, rows)]
    jobs[: 300 * len(HOSTILE)] = HOSTILE * 300
    income = np.exp(rng.normal(10, 1, rows)).astype(int)
    sex = rng.choice(["F", "M"], rows)
    return pa.table({"sex": sex, "job": jobs, "income": income, "person": np.arange(rows) // 3})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open.toml").write_text(OPEN)
    pa.parquet.write_table(people(), tmp_path / "town.parquet")
    return tmp_path


def run(*words: str, code: int = 0) -> str:
    """What a command prints, or says when it refuses."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else f"{done.output}{done.exception}"


# --- from the command line to a bundle ---------------------------------------------------------------------------


def test_a_release_finds_its_domain_pays_once_and_writes_it_down(place: Path) -> None:
    release = ["release", "town.parquet", "--domain", "open.toml", *NAMES, "--plan", "marginals job; income; sex"]
    assert "wrote the domain that was found to release.domain.toml" in run(*release, "--out", "release")
    ledger = Ledger.open("town.parquet.ledger")
    assert [json.loads(each.description)["plan"] for each in ledger.entries()] == [
        "find-values",
        "find-edges",
        "marginals",
    ]
    whole = budget(**EPSILON).failing("1e-10")
    assert whole.amount * Decimal("0.9999999") < ledger.spent <= whole.amount
    assert ledger.to_json()["failure_delta"] == "1e-10"
    assert "failure deltas add up to 1e-10" in run("ledger", "show", "town.parquet")

    text = Path("release.domain.toml").read_text(encoding="utf-8")
    found = Domain.load("release.domain.toml")
    found.refuse_draft()
    assert "'job':" in text
    assert "rho 0.0007442, failure delta 1e-10" in text
    assert ledger.uid in text
    assert found == cs.open_release("release").estimate.domain
    privacy = cs.open_release("release").estimate.measurements.privacy
    assert privacy.spent == {"epsilon": "1", "delta": "1e-9"}
    assert any("'income': 8 bins near the quantiles" in note and ledger.uid in note for note in privacy.notes)

    run(*release, "--out", "again")
    assert Path("again.domain.toml").read_text(encoding="utf-8") == text
    assert ledger.spent <= whole.amount
    assert len(ledger.entries()) == 3


def test_a_second_request_finds_what_was_found_and_spends_nothing_on_it(place: Path) -> None:
    Ledger.create("l", dataset="town", total=budget(epsilon=4, delta=1e-8))
    first = cs.discover_domain("town.parquet", "open.toml", epsilon=0.4, delta=1e-9, ledger="l")
    spent = Ledger("l").spent
    second = cs.discover_domain("town.parquet", "open.toml", epsilon=1, delta=1e-9, ledger="l")
    assert (second.domain, second.cost) == (first.domain, first.cost)
    assert Ledger("l").spent == spent
    Path("more.toml").write_text(
        OPEN.replace("within", "bins = 4\nwithin") + '[attributes.age]\nkind="numeric"\nedges=[0,99]\n'
    )
    wider = people().append_column("age", pa.array([30] * 6000))
    pa.parquet.write_table(wider, "town.parquet")
    more = cs.discover_domain("town.parquet", "more.toml", epsilon=1, delta=1e-9, ledger="l")
    assert Ledger("l").spent == spent  # other bins, and other attributes: the same histogram, the same values
    assert more.domain["job"] == first.domain["job"]
    assert more.domain["income"].size < first.domain["income"].size

    run(
        "measure",
        "town.parquet",
        "--domain",
        "open.toml",
        *NAMES,
        "--ledger",
        "l",
        "--plan",
        "marginals job",
        "--out",
        "m.parquet",
    )
    measured = cs.MeasurementSet.load("m.parquet")
    rest = Discovery(Domain.load("open.toml"), budget(**EPSILON), 0.1, "add-remove", 1).rest
    assert Ledger("l").spent == spent + rest.amount
    assert Decimal(measured.privacy.spent["rho"]) == first.cost.amount + rest.amount
    assert measured.privacy.spent["failure_delta"] == "1e-10"
    assert any("some of it by earlier requests" in note for note in measured.privacy.notes)
    assert "failure of probability 1e-10" in run("check", "m.parquet")
    assert Domain.load("m.domain.toml") == first.domain


def test_a_dry_run_tells_what_would_be_found_and_touches_nothing(place: Path) -> None:
    before = sorted(place.iterdir())
    for verb in ("release", "measure"):
        told = run(verb, "town.parquet", "--domain", "open.toml", *NAMES, "--dry-run")
        assert "a share of 0.1 would find" in told
        assert "'job': the values that about 167 units or more have, for rho 0.0007442, failure delta 1e-10" in told
        assert "would spend rho 0.0134" in told
    told = run("domain", "discover", "town.parquet", "--domain", "open.toml", *NAMES, "--dry-run")
    assert "'income': about 8 bins near its quantiles, between 0 and 1000000, for rho 0.007442" in told
    assert sorted(place.iterdir()) == before
    half = json.loads(
        run(
            "release", "town.parquet", "--domain", "open.toml", *NAMES, "--discover-share", "0.5", "--dry-run", "--json"
        )
    )
    assert float(half["budget"]["rho"]) == pytest.approx(float(budget(**EPSILON).failing("1e-10").amount) / 2)


def test_what_was_found_is_inert_wherever_it_is_shown(place: Path) -> None:
    run("release", "town.parquet", "--domain", "open.toml", *NAMES, "--out", "release", "--plan", "marginals job; sex")
    release = cs.open_release("release")
    labels = release.estimate.domain["job"].labels
    assert set(HOSTILE[:4]) <= set(labels)
    assert not set(HOSTILE[4:]) & set(labels)  # what a terminal would obey can be no value
    assert tomllib.loads(Path("release.domain.toml").read_text(encoding="utf-8"))["attributes"]["job"]["values"]
    for path in Path("release").rglob("*.csv"):
        assert not any(line.startswith(("=", '"=')) for line in path.read_text(encoding="utf-8").splitlines())
    release.report(out=place / "report.html", refits=20)
    assert "<script>alert(1)" not in (place / "report.html").read_text(encoding="utf-8")
    for value in HOSTILE[:4]:
        spelled = '"' + value.replace('"', '""') + '"'
        assert release.answer(f"job={spelled}").numbers.size == 1


# --- what is refused, and what is not ------------------------------------------------------------------------------


def test_pure_epsilon_finds_bins_and_no_values(place: Path) -> None:
    for verb in (["release", "--out", "r"], ["domain", "discover", "--out", "d.toml"]):
        told = run(*verb, "town.parquet", "--domain", "open.toml", "--epsilon", "1", code=1)
        assert "values cannot be discovered with a pure epsilon 1" in told
    told = run("release", "town.parquet", "--domain", "open.toml", "--rho", "0.01", "--out", "r", code=1)
    assert "add a failure delta" in told
    assert not list(place.glob("*.ledger"))

    Path("bins.toml").write_text(OPEN.replace('values = "discover"', 'values = ["job 1", "job 2"]'))
    run(
        "release", "town.parquet", "--domain", "bins.toml", "--epsilon", "1", "--out", "r", "--plan", "marginals income"
    )
    assert Ledger.open("town.parquet.ledger").spent == 1
    assert cs.open_release("r").estimate.measurements.privacy.spent == {"epsilon": "1"}
    told = run("release", "town.parquet", "--domain", "open.toml", *NAMES, "--out", "s", code=1)
    assert "pure epsilon" in told


def test_rho_needs_a_failure_delta_that_the_ledger_has_room_for(place: Path) -> None:
    Ledger.create("none", dataset="town", total=budget(rho=1))
    asked = {"rho": 0.1, "failure_delta": 1e-9}
    with pytest.raises(BudgetExceeded, match="allows none"):
        cs.discover_domain("town.parquet", "open.toml", ledger="none", **asked)
    run("ledger", "create", "some", "--dataset", "town", "--rho", "1", "--failure-delta", "1.5e-9")
    cs.discover_domain("town.parquet", "open.toml", ledger="some", **asked)
    assert Ledger("some").to_json()["failure_delta"] == "1e-9"
    Path("bins.toml").write_text(OPEN.replace('values = "discover"', 'values = ["job 1", "job 2"]'))
    with pytest.raises(DeclarationError, match="none are; leave it out"):
        cs.discover_domain("town.parquet", "bins.toml", ledger="some", **asked)


def test_options_for_what_is_not_there_are_refused(place: Path) -> None:
    Path("plain.toml").write_text(
        OPEN.replace('"discover"\nwithin = [0, 1000000]', "[0, 1]").replace('"discover"', '["a"]')
    )
    told = run(
        "release", "town.parquet", "--domain", "plain.toml", *NAMES, "--discover-share", "0.2", "--out", "r", code=1
    )
    assert "leaves nothing to be found: leave out" in told
    told = run("domain", "discover", "town.parquet", "--domain", "plain.toml", *NAMES, "--out", "d", code=1)
    assert "leaves nothing to be found" in told
    for share in ("0", "1.5"):
        told = run(
            "release", "town.parquet", "--domain", "open.toml", *NAMES, "--discover-share", share, "--out", "r", code=1
        )
        assert "a number between 0 and 1" in told
    with pytest.raises(ConsilienceError, match="to be found"):
        open_table("town.parquet", Domain.load("open.toml"))
    Path("release.domain.toml").write_text(OPEN)
    told = run("release", "town.parquet", "--domain", "open.toml", *NAMES, "--out", "release", "--overwrite", code=1)
    assert "release.domain.toml exists already" in told
    assert Path("release.domain.toml").read_text() == OPEN
    assert not list(place.glob("*.ledger"))


def test_what_does_not_fit_is_refused_before_anything_is_found(place: Path) -> None:
    ledger = Ledger.create("l", dataset="town", total=budget(epsilon=0.5, delta=1e-8))
    with pytest.raises(BudgetExceeded):
        cs.release("town.parquet", "open.toml", **EPSILON, ledger="l", out="r", plan="marginals job")
    assert ledger.entries() == ()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_units_and_replacing_raise_the_threshold_and_the_noise(place: Path, neighbours: str) -> None:
    domain = Domain.load("open.toml")
    one, three = (Discovery(domain, budget(**EPSILON), 1, neighbours, rows) for rows in (1, 3))
    job = one.open[0]
    assert three._selection(job).threshold > 1.5 * one._selection(job).threshold
    found = cs.discover_domain(
        "town.parquet", domain, **EPSILON, unit="person", max_rows_per_unit=3, neighbours=neighbours, ledger="l"
    )
    assert Ledger("l").protection.unit == "person"
    assert "one value of 'person' (at most 3 rows)" in found.to_toml()


def test_a_domain_of_one_repeated_value_or_of_no_records_is_found_too() -> None:
    domain = Domain.from_declaration(tomllib.loads(OPEN))
    for rows in ({"sex": [], "job": [], "income": []}, {"sex": ["F"] * 900, "job": [None] * 900, "income": [7] * 900}):
        table = pa.table(
            {name: pa.array(column, pa.int64() if name == "income" else pa.string()) for name, column in rows.items()}
        )
        found = cs.discover_domain(table, domain, **EPSILON, simulate=1).domain
        assert found["job"].labels == ("Other",)
        assert 1 <= found["income"].size <= 12


def test_weights_are_left_out_of_where_the_bins_lie(place: Path) -> None:
    weighted = OPEN + '[weight]\ncolumn = "person"\nbounds = [0, 5]\n'
    Path("weighted.toml").write_text(weighted)
    plain, heavy = (
        cs.discover_domain("town.parquet", name, **EPSILON, simulate=2) for name in ("open.toml", "weighted.toml")
    )
    assert heavy.domain["income"] == plain.domain["income"]
    assert heavy.domain.weight is not None


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (pa.array([1, 2, 10] * 400), ("1", "2", "10")),
        (pa.array([1.0, 2.5, None] * 400), ("1", "2.5")),
        (pa.array([True, False] * 400), ("false", "true")),
        (pa.array(["a", "b "] * 400).dictionary_encode(), ("a", "b ")),
    ],
)
def test_values_of_any_type_are_found_by_the_text_that_counts_them(column: pa.Array, labels: tuple[str, ...]) -> None:
    domain = Domain.from_declaration({"name": "d", "attributes": {"a": {"kind": "categorical", "values": "discover"}}})
    table = pa.table({"a": column})
    found = cs.discover_domain(table, domain, epsilon=4, delta=1e-6, simulate=0).domain
    assert found["a"].labels == (*labels, "Other")
    (counts,) = open_table(table, found).exact_counts([("a",)])
    assert counts.tolist() == [*[400] * len(labels), column.null_count]


# --- the price of the histogram --------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [budget(epsilon="0.3"), budget(rho="0.02")])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_record_moves_the_histogram_by_no_more_than_its_price(cost: Budget, rows: int) -> None:
    """Brute force: the privacy loss of all noisy numbers together, for a record in each cell."""
    edges = grid(0, 300, integer=True)
    domain = Domain("d", (cs.Attribute.numeric("x", edges, integer=True),))
    priced = price(domain, FindEdges("x"), **cost.to_json(), rows_per_unit=rows)
    parts = [each for group in priced.prices for each in group.parts]
    for cell in range(domain["x"].size):
        exact = np.zeros(domain["x"].size)
        exact[cell] = 1.0
        loss = Fraction(0)
        for part in parts:
            (linear,) = part.bound.maps
            moved = int(np.abs(linear.apply(exact, 0)).sum()) * rows
            scale = Fraction(part.unit_scale)
            assert np.abs(linear.apply(exact, 0)).max() == 1
            loss += moved / scale if cost.unit == "epsilon" else Fraction(rows) ** 2 / (2 * scale**2)
        assert loss <= cost.amount
        assert loss >= cost.amount * Decimal("0.999999")


def test_parts_of_the_budget_never_add_up_to_more() -> None:
    domain = Domain.from_declaration(tomllib.loads(OPEN))
    for asked in (budget(**EPSILON), budget(rho="0.1", failure_delta="1e-9"), budget(epsilon="0.7", delta="1e-6")):
        for share in (0.1, 0.37, 0.999):
            found = Discovery(domain, asked, share, "add-remove", 1)
            costs = [found.cost_of(each) for each in found.open]
            assert sum(cost.amount for cost in costs) + found.rest.amount <= asked.room(found.whole.failure)
            failures = sum(cost.failure for cost in costs)
            assert failures <= found.whole.failure
            if asked.delta is not None:
                assert failures == asked.delta * FAILURE_SHARE


# --- bins of a histogram -----------------------------------------------------------------------------------------


def shares(edges: list[float], numbers: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(numbers, edges[0], math.nextafter(edges[-1], 0)), edges)[0] / len(numbers)


@given(st.integers(0, 10**6), st.integers(2, 20), st.sampled_from(["lognormal", "exponential", "normal", "uniform"]))
def test_bins_without_noise_hold_about_equally_many_and_have_round_edges(seed: int, wanted: int, shape: str) -> None:
    rng = np.random.default_rng(seed)
    numbers = {
        "lognormal": lambda: np.exp(rng.normal(10, 1, 20_000)),
        "exponential": lambda: rng.exponential(3e4, 20_000),
        "normal": lambda: rng.normal(5e5, 1e5, 20_000),
        "uniform": lambda: rng.uniform(2e5, 7e5, 20_000),
    }[shape]()
    cells = np.array(grid(0, 1e6, integer=False))
    found = cut_histogram(cells, np.histogram(numbers, cells)[0].astype(float), wanted, integer=False)
    assert len(found.edges) == wanted + 1
    parts = shares(list(found.edges), numbers)
    assert np.abs(parts - 1 / wanted).max() <= 0.4 / wanted
    for edge in found.edges[1:-1]:
        assert len(f"{edge:g}".replace(".", "").strip("0")) <= 4
        assert roundest(edge, edge) == edge


def test_a_value_that_many_have_gets_a_bin_of_its_own() -> None:
    cells = np.array(grid(0, 168, integer=True))
    hours = np.concatenate([np.full(5000, 40), np.arange(1, 81).repeat(60)])
    edges = cut_histogram(cells, np.histogram(hours, cells)[0].astype(float), 8, integer=True).edges
    assert {40.0, 41.0} <= set(edges)
    cells = np.array(grid(0, 1e6, integer=False))
    gifts = np.concatenate([np.zeros(4000), np.exp(np.random.default_rng(0).normal(6, 1, 6000))])
    edges = cut_histogram(cells, np.histogram(gifts, cells)[0].astype(float), 8, integer=False).edges
    assert edges[0] == 0
    assert edges[1] <= 1.0  # the least number of the grid


def test_ends_that_are_open_say_so_and_those_that_drop_keep_the_declared_range(place: Path) -> None:
    found = cs.discover_domain("town.parquet", "open.toml", **EPSILON, simulate=3).domain["income"]
    assert found.say(found.bins[-1]).endswith(" or more")
    assert found.say(found.bins[0]).startswith("below ")
    Path("drop.toml").write_text(OPEN + 'unlisted = "drop"\n')
    kept = cs.discover_domain("town.parquet", "drop.toml", **EPSILON, simulate=3).domain["income"]
    assert (kept.edges[0], kept.edges[-1]) == (0.0, 1_000_001.0)
    assert kept.say(kept.bins[-1]) == kept.bins[-1]
    Path("bounds.toml").write_text(
        'name = "town"\n[attributes.income]\nkind = "continuous"\nbounds = "discover"\nwithin = [0, 1e6]'
    )
    low, high = cs.discover_domain("town.parquet", "bounds.toml", epsilon=1, simulate=3).domain["income"].bounds
    numbers = people()["income"].to_numpy()
    assert 0.97 <= ((numbers >= low) & (numbers <= high)).mean() < 1
