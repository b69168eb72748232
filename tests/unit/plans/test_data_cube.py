"""DataCube chooses the marginals from which a workload follows with little noise, and says what they cost."""

import itertools
import math

import numpy as np
import pytest

from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.residual import Residual
from consilience.measurements import Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.measuring import PricingGate, measure
from consilience.plans.published.marginals import DataCube
from consilience.privacy.budgets import budget


def flags(count: int) -> Domain:
    return Domain.from_sizes({f"a{i:02}": 2 for i in range(count)}, name="flags")


def largest_variance(domain: Domain, chosen, wanted, *, power: int = 2) -> float:
    """s^power times the worst over the wanted of the least number of cells to add up."""
    worst = 0.0
    for names in wanted:
        holding = [each for each in chosen if set(names) <= set(each)]
        worst = max(worst, min(math.prod(domain.sizes(set(each) - set(names))) for each in holding))
    return len(chosen) ** power * worst


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_nine_flags_come_from_the_full_table_as_the_paper_says(ways: int) -> None:
    domain = flags(9)
    assert DataCube(ways=ways).chosen(domain) == (domain.names,)


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize(("count", "ways"), [(4, 1), (6, 2), (7, 3), (12, 2), (13, 2)])
def test_the_choice_is_no_worse_than_flat_and_direct(count: int, ways: int, pure: bool) -> None:
    domain, power = flags(count), 2 if pure else 1
    wanted = list(itertools.combinations(domain.names, ways))
    chosen = DataCube(ways=ways).chosen(domain, pure=pure)
    found = largest_variance(domain, chosen, wanted, power=power)
    assert found <= 2 ** (count - ways)
    assert found <= len(wanted) ** power


def test_many_flags_get_views_in_between() -> None:
    """All pairs of 16 flags: the full table has 16,384, all pairs 14,400, six views of eight flags 2,304."""
    domain = flags(16)
    chosen = DataCube(ways=2).chosen(domain)
    found = largest_variance(domain, chosen, list(itertools.combinations(domain.names, 2)))
    assert found <= 2304
    assert 1 < len(chosen) < 120


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 3, 4), (5, 2, 2)])
@pytest.mark.parametrize("ways", [1, 2])
def test_it_is_near_the_best_choice_of_all(sizes, ways, power) -> None:
    """Brute force over all sets of marginals; the guarantee is (ln |workload| + 1)² of the best."""
    domain = Domain.from_sizes(dict(zip("abc", sizes, strict=True)))
    wanted = list(itertools.combinations("abc", ways))
    lattice = [each for size in range(1, 4) for each in itertools.combinations("abc", size)]
    best = math.inf
    for count in range(1, 4):
        for chosen in itertools.combinations(lattice, count):
            if all(any(set(names) <= set(each) for each in chosen) for names in wanted):
                best = min(best, largest_variance(domain, chosen, wanted, power=power))
    chosen = DataCube(ways=ways).chosen(domain, pure=power == 2)
    assert largest_variance(domain, chosen, wanted, power=power) <= best * (math.log(len(wanted)) + 1) ** power
    assert largest_variance(domain, chosen, wanted, power=power) <= 1.5 * best


def test_attributes_of_many_values_are_left_apart() -> None:
    domain = Domain.from_sizes({"wide": 1000, "long": 800, "a": 2, "b": 2})
    chosen = DataCube(marginals=["wide", "long", ("a", "b")]).chosen(domain)
    assert not any({"wide", "long"} <= set(each) for each in chosen)
    assert {name for each in chosen for name in each} >= set(domain.names)


@pytest.mark.parametrize("amounts", [{"epsilon": 0.6}, {"rho": 0.1}])
def test_the_chosen_marginals_share_the_budget_equally(amounts) -> None:
    domain, whole = flags(12), budget(**amounts)
    gate = PricingGate(domain, whole, neighbours="add-remove", rows_per_unit=1)
    DataCube(ways=2).run(gate)
    (price,) = gate.prices
    assert price.budget == whole
    chosen = DataCube(ways=2).chosen(domain, pure="epsilon" in amounts)
    assert [each.bound.attributes for each in price.queries] == list(chosen)
    scales = [each.noise.scale_parameter for each in price.queries]
    count = len(chosen)
    told = count / 0.6 if "epsilon" in amounts else math.sqrt(count / 0.2)
    assert scales == pytest.approx([told] * count)


def test_least_squares_recover_the_workload_without_noise() -> None:
    domain = flags(6)
    truth = np.random.default_rng(0).poisson(4.0, domain.shape).astype(float)
    chosen = DataCube(ways=2).chosen(domain, pure=False)
    found = []
    for each in (price.queries for price in _priced(domain)):
        for one in each:
            exact = one.bound.answer_full(truth)
            found.append(Measurement(one.bound.query, exact.ravel(), noise=Laplace(1e-6)))
    assert len(chosen) > 1
    fitted = Residual(nonnegative=False).fit(
        MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)
    )
    for pair in itertools.combinations(domain.names, 2):
        axes = [domain.names.index(name) for name in pair]
        assert np.allclose(fitted.marginal(*pair), np.einsum(truth, range(6), axes), atol=1e-4)


def _priced(domain: Domain):
    gate = PricingGate(domain, budget(rho=1.0), neighbours="add-remove", rows_per_unit=1)
    DataCube(ways=2).run(gate)
    return gate.prices


def test_what_makes_no_sense_is_refused() -> None:
    for make in (lambda: DataCube(ways=0), lambda: DataCube(marginals=[]), lambda: DataCube(marginals=[()])):
        with pytest.raises(DeclarationError):
            make()
    with pytest.raises(DeclarationError, match="nobody"):
        measure(flags(3), DataCube(marginals=["nobody"]), epsilon=1.0, dry_run=True)
    for count in (20, 64):
        with pytest.raises(TooLarge, match="Views"):
            measure(flags(count), DataCube(ways=2), epsilon=1.0, dry_run=True)


def test_continuous_attributes_have_no_marginals() -> None:
    domain = Domain("d", (Attribute.categorical("a", ["0", "1"]), Attribute.continuous("x", (0.0, 1.0))))
    with pytest.raises(DeclarationError, match="continuous"):
        DataCube(marginals=["x"]).chosen(domain)
    assert DataCube(ways=3).chosen(domain) == (("a",),)


def test_plans_are_told_apart() -> None:
    assert DataCube(ways=2).to_json() == {"plan": "data-cube", "ways": 2}
    assert DataCube(marginals=["a", ("b", "c")]).to_json() == {"plan": "data-cube", "marginals": [["a"], ["b", "c"]]}
