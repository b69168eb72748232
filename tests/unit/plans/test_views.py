"""Views as a plan: the paper's examples of the choice, prices, what the dry run tells, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.reproduce.qardaji2014.expected_errors import view_noise_error
from consilience.coverings.designs import covering_size
from consilience.domain import Attribute, Domain
from consilience.domain.public_facts import PublicFacts
from consilience.errors import DeclarationError, TooLarge
from consilience.measuring import measure, price
from consilience.plans import Views
from consilience.plans.texts import plan_from_text
from consilience.plans.views import Bounds, Extent, cell_variance, choose_design
from consilience.privacy.budgets import budget
from consilience.source import open_table

KOSARAK = (2,) * 32
EPSILON = budget(epsilon=1)


def flags(count: int, **options) -> Domain:
    domain = Domain.from_sizes({f"f{place}": 2 for place in range(count)})
    return replace(domain, public=PublicFacts(**options))


@pytest.mark.parametrize(("ways", "views", "printed"), [(2, 20, 0.00047), (3, 106, 0.0011), (4, 620, 0.0026)])
def test_noise_errors_are_those_the_paper_prints(ways: int, views: int, printed: float) -> None:
    extent = Extent(32, ((8, 256, views),))
    error = extent.noise_error(2, variance=cell_variance(EPSILON, views), records=900_000)
    assert error == pytest.approx(printed, rel=0.05)
    assert error == pytest.approx(view_noise_error(32, 8, views, 900_000, 1.0))


@pytest.mark.parametrize(
    ("attributes", "records", "epsilon", "ways"),
    [(32, 912_627, 1.2, 3), (32, 912_627, 0.1, 2), (45, 647_377, 1.0, 2), (45, 647_377, 0.1, 2)],
)
def test_larger_sets_are_covered_where_noise_allows(attributes: int, records: int, epsilon: float, ways: int) -> None:
    design = choose_design((2,) * attributes, budget(epsilon=epsilon), records, Bounds(attributes_per_view=8))
    assert design.ways == ways
    assert design.covered(ways) == 1.0


def test_views_of_about_eight_flags_are_chosen() -> None:
    design = choose_design(KOSARAK, budget(epsilon=0.1), 912_627)
    assert {len(view) for view in design.views} == {8}
    assert len(design.views) == covering_size(32, 8, 2) == 20


def test_less_noise_never_covers_less() -> None:
    ways = [choose_design(KOSARAK, EPSILON, records).ways or 0 for records in (10, 10**4, 10**6, 10**7, 10**9)]
    assert ways == sorted(ways)
    assert (ways[0], ways[-1]) == (2, 4)


def test_few_flags_are_one_view() -> None:
    assert choose_design((2,) * 9, EPSILON, 1000).views == (tuple(range(9)),)
    assert len(choose_design((2,) * 9, EPSILON, 1000, Bounds(attributes_per_view=6)).views) == 3


def test_views_of_many_valued_attributes_are_bounded_by_cells() -> None:
    sizes = (32, 9, 16, 7, 15, 6, 5, 2, 42, 2)
    design = choose_design(sizes, EPSILON, 48_842, Bounds(most_cells=5000))
    assert max(design.cells) <= 5000
    assert design.covered(2) == 1.0
    assert choose_design(sizes, EPSILON, 48_842).covered(2) == 1.0
    assert len(choose_design(sizes[5:], EPSILON, 48_842, Bounds(most_cells=math.prod(sizes[5:]))).views) == 1


def test_gaussian_noise_pays_by_the_root_of_the_number_of_views() -> None:
    assert cell_variance(budget(rho=0.5), 20) == 20.0
    design = choose_design(KOSARAK, budget(rho=0.5), 912_627)
    assert design.ways == 4


@pytest.mark.parametrize("amounts", [{"epsilon": 0.5}, {"rho": 0.1}])
@pytest.mark.parametrize("plan", [Views(), Views(ways=2, attributes_per_view=6), Views(views=[("f0", "f3"), ("f1",)])])
def test_the_price_is_the_budget(plan: Views, amounts: dict) -> None:
    found = price(flags(14), plan, **amounts)
    paid = sum(float(each.budget.amount) for each in found.prices)
    assert paid == pytest.approx(next(iter(amounts.values())))
    assert found.notes


def test_the_noise_in_the_dry_run_is_that_of_the_formula() -> None:
    found = price(flags(32, total=900_000), Views(ways=2, attributes_per_view=8), epsilon=1)
    assert len(found.rows()) == 20
    assert found.rows()[0]["scale"] == pytest.approx(20.0)
    assert any("0.00047" in line for line in found.notes)
    assert any("1 of the sets of 2" in line for line in found.notes)


def test_an_unknown_number_of_records_is_measured_first() -> None:
    found = price(flags(20), Views(), epsilon=1)
    assert found.rows()[0]["answers"] == 1
    assert any("measured first, with 0.5 %" in line for line in found.notes)
    known = price(flags(20, total=1000), Views(), epsilon=1)
    assert known.rows()[0]["answers"] > 1
    assert price(flags(20), Views(records=1000), epsilon=1).rows() == known.rows()
    assert price(flags(9), Views(), epsilon=1).rows()[0]["answers"] == 512


def test_replacing_records_takes_twice_the_noise() -> None:
    added = price(flags(20), Views(), epsilon=1)
    replaced = price(flags(20), Views(), epsilon=1, neighbours="replace-one")
    assert replaced.rows()[0]["scale"] == pytest.approx(added.rows()[0]["scale"])
    assert replaced.rows()[1]["scale"] == pytest.approx(2 * added.rows()[1]["scale"])


def test_measured_views_are_those_of_the_design(tmp_path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (200, 12))
    names = [f"f{place}" for place in range(12)]
    path = tmp_path / "flags.csv"
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    source = open_table(path, flags(12))
    measured = measure(source, Views(ways=2, attributes_per_view=6), epsilon=1000.0, simulate=1)
    assert len(measured) == covering_size(12, 6, 2)
    for each in measured:
        places = [names.index(name) for name in each.query.attributes]
        counts = np.zeros((2,) * len(places))
        np.add.at(counts, tuple(rows[:, place] for place in places), 1)
        assert each.values == pytest.approx(counts.ravel(), abs=2.0)


def test_attributes_in_no_view_are_named() -> None:
    notes = price(flags(4), Views(views=[("f0", "f2")]), epsilon=1).notes
    assert any("in no view" in line and "f1, f3" in line for line in notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 5}, "ask for 1 to 4"),
        ({"attributes_per_view": 6, "most_cells": 100}, "give the one that should bound"),
        ({"most_cells": 1}, "from 2 up"),
        ({"views": []}, "no views were named"),
        ({"views": [("f0",)], "ways": 2}, "leave out ways"),
        ({"records": -3.0}, "above 0"),
        ({"records": math.nan}, "above 0"),
        ({"total_share": 1.0}, "between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Views(**options)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Views(ways=3, attributes_per_view=2), "cannot cover all sets of 3"),
        (Views(views=[("f0", "nobody")]), "nobody"),
        (Views(views=[("f0", "f0")]), "f0"),
    ],
)
def test_what_no_design_can_do_is_refused_before_anything_is_spent(plan: Views, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        price(flags(12), plan, epsilon=1)


def test_views_too_large_to_count_are_refused() -> None:
    domain = Domain("wide", tuple(Attribute.categorical(f"a{i}", [str(v) for v in range(400)]) for i in range(6)))
    with pytest.raises((TooLarge, DeclarationError)):
        price(domain, Views(ways=2, attributes_per_view=4), epsilon=1)


def test_texts_name_views() -> None:
    assert plan_from_text("views") == Views()
    assert plan_from_text("views 3") == Views(ways=3)
    assert plan_from_text("views 2 8") == Views(ways=2, attributes_per_view=8)
    for text in ("views two", "views 2 8 3"):
        with pytest.raises(DeclarationError, match="views WAYS"):
            plan_from_text(text)


def test_equal_plans_have_equal_json() -> None:
    assert Views(views=[["a", "b"]]).to_json() == Views(views=(("a", "b"),)).to_json()
    assert Views(ways=2).to_json() != Views(ways=3).to_json()
