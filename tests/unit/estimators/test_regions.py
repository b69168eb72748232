"""Estimates from folders of regions: the numbers of the estimator in memory, and files that are whole or not there."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, MeasurementError
from consilience.estimators import regions
from consilience.estimators.geographic import Geographic
from consilience.estimators.regions import RegionalEstimate, estimate_regions, partition
from consilience.measurements import Exact, Gaussian, Measurement, MeasurementSet, PrivacyStatement
from consilience.measurements.regional import RegionalMeasurements
from consilience.measurements.regions import RegionWriter, rows_of
from consilience.solvers.fit import Infeasible

PARENTS = {f"s{s}": "land" for s in range(3)} | {f"c{s}{c}": f"s{s}" for s in range(3) for c in range(2)}
PARENTS |= {f"b{s}{c}{b}": f"c{s}{c}" for s, c, b in itertools.product(range(3), range(2), range(4)) if s < 2 or c < 1}
PARENTS |= {"alone": "land"}
PLACE = Attribute.hierarchy("place", PARENTS, levels=["Land", "State", "County", "Block"], geography=True)
SEX, AGE = Attribute.categorical("sex", ["F", "M"]), Attribute.categorical("age", ["0", "1", "2"])
DOMAIN = Domain("places", (SEX, PLACE, AGE))
SIZES = np.random.default_rng(1).lognormal(1.5, 1.5, (1, PLACE.size, 1))
TRUTH = np.random.default_rng(2).poisson(np.broadcast_to(SIZES, DOMAIN.shape)).astype(float)
ADULT = factors.Buckets.of({"child": ["0"], "adult": ["1", "2"]})
QUERIES = ["by State, sex, age", "by County, age, sex", "by place, sex, age", "by County", "by place", "by sex"]


def measured(*, grouped: bool = False, exact: tuple[str, ...] = (), untold: bool = False) -> MeasurementSet:
    rng, found = np.random.default_rng(3), []
    queries = [Query.parse(text) for text in (QUERIES[:2] if untold else QUERIES)]
    if grouped:
        queries += [Query.of({"place": factors.Level("County"), "age": ADULT}), Query.of({"age": ADULT})]
    for query in queries:
        answers = query.bind(DOMAIN).answer_full(TRUTH).ravel()
        found.append(Measurement(query.over(DOMAIN), answers + rng.normal(0, 3, answers.size), Gaussian(3.0)))
    for text in exact:
        query = Query.parse(text).over(DOMAIN)
        found.append(Measurement(query, query.bind(DOMAIN).answer_full(TRUTH).ravel(), Exact()))
    return MeasurementSet(DOMAIN, tuple(found), PrivacyStatement(), {}, private=False)


def in_memory(found: MeasurementSet, **settings) -> dict[str, np.ndarray]:
    """The table of every place of the estimator that holds all of it."""
    counts = Geographic(**settings).fit(found).counts
    return {place: counts[:, list(PLACE.codes(place))].sum(axis=1) for place in PLACE.nodes}


@pytest.mark.parametrize("level", ["State", "County"])
@pytest.mark.parametrize("case", [{}, {"grouped": True}, {"exact": ("by State",)}, {"untold": True}])
@pytest.mark.parametrize("settings", [{}, {"nonnegative": False}, {"integers": True}])
def test_regions_one_by_one_give_the_tables_of_all_at_once(tmp_path: Path, level: str, case, settings) -> None:
    found = measured(**case)
    divided = partition(found, tmp_path / "measured", level)
    account = estimate_regions(divided, tmp_path / "account", **settings)
    # Where nothing tells the blocks of a county apart, which of equal fractions goes up is a matter of rounding errors.
    apart = 1.0 if case.get("untold") and settings.get("integers") else 1e-9
    for place, table in in_memory(found, **settings).items():
        assert account.table(place) == pytest.approx(table, abs=apart)


def test_standard_errors_and_answers_are_those_of_the_whole(tmp_path: Path) -> None:
    found = measured(grouped=True)
    account = estimate_regions(partition(found, tmp_path / "measured", "State"), tmp_path / "account")
    whole = Geographic().fit(found)
    for place in ("land", "s1", "c10", "b103", "alone"):
        for text in ("by sex, age", "by age", "age=1..2 by sex", "total"):
            asked = Query.of({"place": factors.Value(place)} | dict(Query.parse(text).factors))
            assert account.answer(place, text).ravel() == pytest.approx(whole.answer(asked).ravel(), abs=1e-9)
            errors = account.standard_errors(place, text)
            assert errors.ravel() == pytest.approx(whole.standard_errors(asked).ravel(), rel=1e-9)
    low, high = account.interval("c10", "by age")
    assert np.all((low >= 0) & (low <= account.answer("c10", "by age")) & (account.answer("c10", "by age") <= high))
    below = account.within("c10")
    assert set(below) == {f"b10{b}" for b in range(4)}
    assert sum(below.values()) == pytest.approx(account.table("c10"), abs=1e-7)


def test_answers_about_a_county_open_one_part(tmp_path: Path) -> None:
    account = estimate_regions(partition(measured(), tmp_path / "measured", "State"), tmp_path / "account")
    expected = account.table("b103")
    for number, region in enumerate(account.folder.regions):
        if region != "s1":
            (tmp_path / "account" / f"region-{number:05d}.parquet").unlink()
    again = RegionalEstimate.open(tmp_path / "account")
    assert np.array_equal(again.table("b103"), expected)
    with pytest.raises(FileFormatError, match="cannot be read"):
        again.table("b000")
    with pytest.raises(MeasurementError, match="no place 'b999'"):
        again.table("b999")


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    divided = partition(measured(), tmp_path / "measured", "State")
    real, calls = regions.divide, []

    def failing(*given, **settings):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given, **settings)

    monkeypatch.setattr(regions, "divide", failing)
    with pytest.raises(KeyboardInterrupt):
        estimate_regions(divided, tmp_path / "account")
    assert [path.name for path in tmp_path.iterdir()] == ["measured"]
    monkeypatch.undo()
    estimate_regions(divided, tmp_path / "account")
    with pytest.raises(FileFormatError, match="already there"):
        estimate_regions(divided, tmp_path / "account")


def test_files_that_were_changed_are_refused(tmp_path: Path) -> None:
    divided = partition(measured(), tmp_path / "measured", "State")
    with (tmp_path / "measured" / "region-00001.parquet").open("r+b") as file:
        file.seek(100)
        file.write(b"x")
    with pytest.raises(FileFormatError, match="SHA-256 differs"):
        estimate_regions(divided, tmp_path / "account")
    manifest = json.loads((tmp_path / "measured" / "manifest.json").read_text())
    (tmp_path / "measured" / "manifest.json").write_text(json.dumps(manifest | {"version": 9}))
    with pytest.raises(FileFormatError, match="of version 9"):
        RegionalMeasurements.open(tmp_path / "measured")


def test_facts_that_contradict_each_other_across_regions_name_the_place(tmp_path: Path) -> None:
    writer = RegionalMeasurements.writer(
        tmp_path / "measured", Domain("places", (SEX,)), "place", {"t": Query(())}, privacy=PrivacyStatement()
    )
    with writer:
        writer.add_region("a", rows_of(["a", "x"], [-1, 0], {"t": ([0], [[7.0]]), "t variance": ([0], [[0.0]])}))
        top = {"t": ([0], [[5.0]]), "t variance": ([0], [[0.0]])}
        writer.finish(rows_of(["land", "a"], [-1, 0], top))
    with pytest.raises(Infeasible, match=r"at land: .*differs by 2 at least"):
        estimate_regions(RegionalMeasurements.open(tmp_path / "measured"), tmp_path / "account")
    assert not (tmp_path / "account").exists()


@pytest.mark.parametrize(
    ("names", "parent", "words"),
    [
        (["a", "x", "x"], [-1, 0, 0], "two places are called 'x'"),
        (["b", "x"], [-1, 0], "the first place of region 'a'"),
        (["a", "x"], [-1, -1], "the first place of region 'a'"),
        (["a", "x"], [-1, 1], "the row of the one above"),
    ],
)
def test_places_that_form_no_tree_are_refused(tmp_path: Path, names, parent, words: str) -> None:
    def write() -> None:
        with RegionWriter(tmp_path / "f", kind="k", about={}) as writer:
            writer.add_region("a", rows_of(names, parent, {}))
            writer.finish(rows_of(["land", "a"], [-1, 0], {}))

    with pytest.raises(ConsilienceError, match=words):
        write()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_divided_is_said(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="Tract"):
        partition(measured(), tmp_path / "m", "Tract")
    divided = partition(measured(), tmp_path / "m", "State")
    with pytest.raises(DeclarationError, match="whole counts"):
        estimate_regions(divided, tmp_path / "a", nonnegative=False, integers=True)
    assert f"{len(PLACE.nodes):,} places in 4 regions" in divided.describe()
