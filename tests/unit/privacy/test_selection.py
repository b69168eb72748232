"""Selectors are private at their epsilon and no less, follow their reference laws, and round outwards."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.problems.selection_laws import selection_probabilities
from consilience.domain import Domain
from consilience.errors import DeclarationError, TooLarge
from consilience.privacy import gate
from consilience.privacy.budgets import budget
from consilience.privacy.noise import SecureNoise, SimulatedNoise, _noisy_max_measurement
from consilience.privacy.scores import (
    NOISE_OF_SELECTOR,
    JoinedTable,
    JoinedValues,
    MarginalError,
    MarginalGain,
    Selector,
    epsilon_for_rho,
    select,
    selection_scale,
)

SELECTORS: tuple[Selector, ...] = get_args(Selector)
selectors = pytest.mark.parametrize("selector", SELECTORS)
few_scores = st.lists(st.integers(-6, 6), min_size=1, max_size=5)


def _probabilities(scores: list[int], selector: Selector, *, scale: float) -> np.ndarray:
    """The law at a noise scale, through epsilon = 2/scale at sensitivity 1."""
    return selection_probabilities(np.array(scores), sensitivity=1, epsilon=2 / scale, selector=selector)


def _softmax(scores: list[int], scale: float) -> np.ndarray:
    weights = np.array([math.exp(score / scale) for score in scores])
    return weights / weights.sum()


def _permute_and_flip_by_permutations(scores: list[int], scale: float) -> np.ndarray:
    """Visit the candidates in every order; keep each with probability exp((score − greatest)/scale)."""
    heads = [math.exp((score - max(scores)) / scale) for score in scores]
    chances = np.zeros(len(scores))
    for order in itertools.permutations(range(len(scores))):
        still_looking = 1.0
        for candidate in order:
            chances[candidate] += still_looking * heads[candidate]
            still_looking *= 1.0 - heads[candidate]
    return chances / math.factorial(len(scores))


def _noisy_max_by_enumeration(scores: list[int], scale: float) -> np.ndarray:
    """Every combination of noises up to 25 scales, ties shared equally."""
    reach = math.ceil(25 * scale)
    weights = {z: math.exp(-abs(z) / scale) for z in range(-reach, reach + 1)}
    total = sum(weights.values())
    chances = np.zeros(len(scores))
    for noises in itertools.product(weights, repeat=len(scores)):
        noisy = [score + z for score, z in zip(scores, noises, strict=True)]
        winners = [i for i, value in enumerate(noisy) if value == max(noisy)]
        chances[winners] += math.prod(weights[z] / total for z in noises) / len(winners)
    return chances


@given(few_scores, st.floats(0.2, 20.0))
def test_the_exponential_law_is_a_softmax(scores: list[int], scale: float):
    np.testing.assert_allclose(_probabilities(scores, "exponential", scale=scale), _softmax(scores, scale), rtol=1e-12)


@settings(deadline=None)
@given(few_scores, st.floats(0.2, 20.0))
def test_the_permute_and_flip_law_is_that_of_flipping_in_every_order(scores: list[int], scale: float):
    by_orders = _permute_and_flip_by_permutations(scores, scale)
    np.testing.assert_allclose(_probabilities(scores, "permute-and-flip", scale=scale), by_orders, rtol=1e-10)


@pytest.mark.parametrize("scores", [[0], [3, 3], [0, 2], [1, 0, 1], [0, -1, 2]])
@pytest.mark.parametrize("scale", [0.1, 0.4, 0.7])
def test_the_noisy_max_law_is_that_of_all_noises(scores: list[int], scale: float):
    by_noises = _noisy_max_by_enumeration(scores, scale)
    np.testing.assert_allclose(_probabilities(scores, "report-noisy-max", scale=scale), by_noises, atol=1e-9)


@selectors
@settings(deadline=None)
@given(scores=st.lists(st.integers(-50, 50), min_size=1, max_size=40), scale=st.floats(1e-4, 30.0), data=st.data())
def test_laws_sum_to_one_and_ignore_order_and_origin(
    selector: Selector, scores: list[int], scale: float, data: st.DataObject
):
    law = _probabilities(scores, selector, scale=scale)
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    assert (law >= 0).all()
    order = data.draw(st.permutations(range(len(scores))))
    moved = [scores[i] + 10**12 for i in order]
    np.testing.assert_allclose(_probabilities(moved, selector, scale=scale), law[list(order)], rtol=1e-9, atol=1e-12)


@given(few_scores, st.floats(0.2, 20.0))
def test_permute_and_flip_expects_no_less_than_the_exponential_mechanism(scores: list[int], scale: float):
    flip = _probabilities(scores, "permute-and-flip", scale=scale) @ scores
    assert flip >= _probabilities(scores, "exponential", scale=scale) @ scores - 1e-9


def _largest_loss(
    selector: Selector, scores: np.ndarray, neighbour: np.ndarray, *, sensitivity: int, epsilon: float
) -> float:
    def law(values: np.ndarray) -> np.ndarray:
        return selection_probabilities(values, sensitivity=sensitivity, epsilon=epsilon, selector=selector)

    return float(np.abs(np.log(law(scores) / law(neighbour))).max())


@selectors
@settings(deadline=None)
@given(
    moves=st.lists(st.tuples(st.integers(-6, 6), st.integers(-2, 2)), min_size=1, max_size=6),
    epsilon=st.floats(0.1, 3.0),
)
def test_neighbouring_scores_have_laws_within_epsilon(selector: Selector, moves: list[tuple[int, int]], epsilon: float):
    scores, shifts = (np.array(column) for column in zip(*moves, strict=True))
    assume(shifts.any())
    loss = _largest_loss(selector, scores, scores + shifts, sensitivity=2, epsilon=epsilon)
    assert loss <= epsilon * (1 + 1e-6)


@selectors
def test_the_noise_is_not_larger_than_epsilon_needs(selector: Selector):
    # A candidate far behind fifty rivals loses all of epsilon when it falls and the rivals rise by the sensitivity.
    scores = np.array([0] + [25] * 50)
    neighbour = scores + np.array([-1] + [1] * 50)
    loss = _largest_loss(selector, scores, neighbour, sensitivity=1, epsilon=1.0)
    assert 0.9 < loss <= 1.0 + 1e-9


@pytest.mark.parametrize("law", ["exponential", "gumbel"])
@given(sensitivity=st.integers(1, 2**40), epsilon=st.floats(1e-6, 100.0))
@settings(max_examples=30, deadline=None)
def test_opendp_agrees_with_the_scale(law: str, sensitivity: int, epsilon: float):
    scale = selection_scale(sensitivity=sensitivity, epsilon=epsilon)
    loss = _noisy_max_measurement(scale, law).map(sensitivity)  # pyright: ignore[reportArgumentType]
    if law == "exponential":
        assert loss <= epsilon
    else:
        assert loss <= epsilon**2 / 8 * (1 + 2e-15)
    assert loss == pytest.approx(epsilon if law == "exponential" else epsilon**2 / 8, rel=1e-14)


@given(sensitivity=st.floats(1e-9, 1e9), epsilon=st.floats(1e-9, 1e9))
def test_the_scale_is_the_least_float_that_is_large_enough(sensitivity: float, epsilon: float):
    scale = selection_scale(sensitivity=sensitivity, epsilon=epsilon)
    needed = 2 * Fraction(sensitivity) / Fraction(epsilon)
    assert Fraction(math.nextafter(scale, 0.0)) < needed <= Fraction(scale)


def test_numpy_numbers_are_taken_exactly():
    sensitivity, epsilon = np.int64(2**62 + 1), np.float32(1.0)
    whole = selection_scale(sensitivity=sensitivity, epsilon=epsilon)  # pyright: ignore[reportArgumentType]
    assert whole == math.nextafter(2.0**63, math.inf)


class _Recorder:
    """A noise source that remembers what it was asked for and chooses the last candidate."""

    private = False

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], float, str]] = []

    def laplace(self, exact, scale):
        raise AssertionError("selection draws through noisy_argmax")

    def gaussian(self, exact, stddev):
        raise AssertionError("selection draws through noisy_argmax")

    def noisy_argmax(self, scores, scale, *, law) -> int:
        self.asked.append((scores.tolist(), scale, law))
        return len(scores) - 1


@selectors
def test_a_selector_draws_its_own_law_at_its_own_scale(selector: Selector):
    recorder = _Recorder()
    chosen = select(np.array([1, 2, 3]), sensitivity=3, epsilon=0.5, selector=selector, noise=recorder)
    assert chosen == 2
    assert recorder.asked == [([1, 2, 3], 12.0, NOISE_OF_SELECTOR[selector])]


def test_permute_and_flip_is_the_default():
    recorder = _Recorder()
    select(np.array([1, 2]), sensitivity=1, epsilon=1.0, noise=recorder)
    assert recorder.asked[0][2] == "exponential"


@selectors
@pytest.mark.parametrize("noise", [SecureNoise(), SimulatedNoise(0)], ids=["secure", "simulated"])
def test_a_candidate_far_ahead_is_selected(selector: Selector, noise):
    assert select(np.array([0, 500, 3]), sensitivity=1, epsilon=1.0, selector=selector, noise=noise) == 1


@selectors
@given(rho=st.floats(1e-12, 1e12))
def test_epsilon_for_rho_is_the_greatest_within_the_budget(selector: Selector, rho: float):
    divisor = 8 if selector == "exponential" else 2
    epsilon = epsilon_for_rho(rho, selector)
    assert Fraction(epsilon) ** 2 / divisor <= Fraction(rho)
    assert Fraction(math.nextafter(epsilon, math.inf)) ** 2 / divisor > Fraction(rho)


def test_epsilon_for_rho_holds_at_the_ends_of_the_floats():
    assert epsilon_for_rho(1.7e308, "exponential") == pytest.approx(math.sqrt(8) * math.sqrt(1.7e308))
    assert epsilon_for_rho(5e-324, "report-noisy-max") == pytest.approx(math.sqrt(2) * math.sqrt(5e-324))


def _attempts(**changes) -> list[Callable[[], object]]:
    options = {"scores": np.array([1, 2]), "sensitivity": 1.0, "epsilon": 1.0, "selector": "exponential"} | changes
    scores = options.pop("scores")
    return [
        lambda: select(scores, **options, noise=SecureNoise()),
        lambda: selection_probabilities(scores, **options),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"selector": "best"}, r"'best'.*permute-and-flip"),
        ({"scores": np.array([0.5, 1.0])}, r"float64.*lattice"),
        ({"scores": np.array([0.5, math.nan])}, r"float64.*lattice"),
        ({"scores": np.zeros(0, dtype=np.int64)}, "at least one candidate"),
        ({"scores": np.zeros((2, 2), dtype=np.int64)}, r"\(2, 2\)"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"sensitivity": 0}, "sensitivity is 0"),
        ({"sensitivity": math.inf}, "sensitivity is inf"),
        ({"sensitivity": 1e300, "epsilon": 1e-300}, "no finite noise"),
    ],
)
def test_contradictory_requests_are_refused(changes: dict[str, object], message: str):
    for attempt in _attempts(**changes):
        with pytest.raises(DeclarationError, match=message):
            attempt()


def test_rho_conversions_refuse_what_is_no_budget():
    with pytest.raises(DeclarationError, match="rho is nan"):
        epsilon_for_rho(math.nan, "exponential")
    with pytest.raises(DeclarationError, match="'best'"):
        epsilon_for_rho(1.0, "best")  # pyright: ignore[reportArgumentType]


def test_a_reference_law_with_too_many_terms_is_refused():
    with pytest.raises(TooLarge, match="coarser lattice"):
        selection_probabilities(np.array([1, 2]), sensitivity=2.0**40, epsilon=1.0, selector="report-noisy-max")


def test_places_besides_are_left_out_and_told_apart_however_many_they_are():
    domain = Domain.from_sizes({"a": 3})
    score = MarginalGain({("a",): JoinedTable(JoinedValues.separate((3,)), np.zeros(3))}, 0.0)
    score.check(domain)
    assert gate.places_left(score, [0]).tolist() == [1]
    with pytest.raises(DeclarationError, match="no candidate is left"):
        gate.places_left(score, [0, 1])
    many = list(range(gate.MOST_PLACES_LISTED + 1))
    assert gate._described(many[:5]) == many[:5]
    assert gate._described(many) != gate._described([*many[1:], len(many)])
    assert len(gate._described(many)) == 64


@given(
    st.floats(1e-30, 1e6) | st.integers(1, 10**6) | st.decimals("1e-30", "1e6", places=32), st.sampled_from(SELECTORS)
)
def test_a_selection_is_no_less_private_than_the_decimal_that_is_charged(amount: object, selector: Selector) -> None:
    charged = budget(epsilon=amount)
    epsilon = gate.epsilon_of(charged, selector)
    assert Fraction(epsilon) <= Fraction(charged.amount) < Fraction(math.nextafter(math.nextafter(epsilon, 9e99), 9e99))
    exact = Fraction(budget(rho=amount).amount)
    divisor = 8 if selector == "exponential" else 2
    assert Fraction(gate.epsilon_of(budget(rho=amount), selector)) ** 2 <= exact * divisor


def test_the_error_of_a_marginal_never_wraps_around() -> None:
    domain = Domain.from_sizes({"a": 2})
    for estimate, weight, penalty in ((1e30, 1.0, 0.0), (0.0, math.inf, 0.0), (0.0, 1.0, math.nan)):
        names = {("a",): np.array([estimate, 0.0])}
        score = MarginalError(names, {("a",): weight}, {("a",): penalty})
        with pytest.raises(DeclarationError, match="use coarser units"):
            score.check(domain)
    wide = MarginalError({("a",): np.array([0.0, 2.0**39])}, {("a",): 1e9})
    wide.check(domain)
    least, most = (int(wide.values([np.array([n, 0])])[0]) for n in (0, 1))
    assert 0 <= most - least <= wide.sensitivity("add-remove")
    assert int(MarginalError({("a",): np.zeros(2)}, {("a",): 1e9}).values([np.array([2**33, 0])])[0]) == 2**62
