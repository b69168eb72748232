"""What decides a draw is proven: bounds hold the law's numbers, and a word decides what all that begin so agree on."""

from bisect import bisect_right
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.privacy import exact_draws
from consilience.privacy.exact_draws import LARGEST_SCALE, LEAST_SCALE, DiscreteLaw, exp_bounds

# Decimal exponentials are rounded correctly; 90 digits are far more than 64 bits.
DIGITS = Context(prec=90)
LAWS = [DiscreteLaw(name, scale) for name in ("laplace", "gaussian") for scale in (0.25, 0.7, 3.0, 40.1, 65536.0)]
laws = pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.name}-{law.scale}")


def _exp(x: Fraction) -> Decimal:
    """exp(−x)."""
    return (Decimal(-x.numerator) / Decimal(x.denominator)).exp()


@cache
def _ends(law: DiscreteLaw) -> list[Decimal]:
    """The chances of all blocks up to each, by the definition."""
    weights = []
    while not weights or weights[-1] > Decimal(10) ** -45:
        weights.append(_exp(law.exponent(law.width * len(weights))))
    total, so_far, ends = sum(weights), Decimal(0), []
    for weight in weights:
        so_far += weight
        ends.append(so_far / total)
    return ends


@given(
    st.fractions(min_value=0, max_value=60) | st.fractions(min_value=0, max_value=10**7), st.sampled_from([1, 64, 200])
)
def test_bounds_of_exponentials_hold_them_and_are_next_to_each_other(x: Fraction, bits: int):
    low, high = exp_bounds(x, bits)
    with localcontext(Context(prec=120)):
        true = _exp(x) * 2**bits
        assert low <= true <= high
    assert high - low <= 1


@laws
@pytest.mark.parametrize("bits", [7, 64, 128])
def test_bounds_of_blocks_hold_their_chances(law: DiscreteLaw, bits: int):
    with localcontext(DIGITS):
        found, ends = exact_draws._bounds(law, bits), _ends(law)
        for low, high, end in zip(found.low, found.high, ends, strict=False):
            assert low <= end * 2**bits <= high <= low + 1
        for block, least in enumerate(found.kept):
            step = law.exponent(law.width * (block + 1)) - law.exponent(law.width * block)
            assert least <= _exp(step) * 2**bits <= least + 2
        assert len(found.low) <= len(ends)
        left_out = ends[len(found.low) :][:1]
        assert all(1 - end < Decimal(2) ** (1 - bits) for end in left_out)


@laws
def test_a_word_decides_on_a_block_only_if_all_numbers_that_begin_with_it_lie_there(
    law: DiscreteLaw, monkeypatch: pytest.MonkeyPatch
):
    bits = 9
    monkeypatch.setattr(exact_draws, "_block_of", lambda *_: -1)
    blocks = exact_draws._Table(law, bits).blocks(np.arange(2**bits, dtype=np.uint64))
    with localcontext(DIGITS):
        ends = _ends(law)
        for word, block in enumerate(blocks.tolist()):
            first, last = (bisect_right(ends, Decimal(each) / 2**bits) for each in (word, word + 1))
            if block != -1:
                assert block == first == last


@laws
def test_a_word_keeps_a_draw_only_if_all_numbers_that_begin_with_it_do(
    law: DiscreteLaw, monkeypatch: pytest.MonkeyPatch
):
    bits, block = 9, 3
    monkeypatch.setattr(exact_draws, "_is_below", lambda *_: False)
    words = np.arange(2**bits, dtype=np.uint64)
    table, here = exact_draws._Table(law, bits), np.full(words.size, block)
    assert table.keeps(here, np.zeros(words.size, dtype=np.int64), words).all()
    start = block * law.width
    with localcontext(DIGITS):
        for inside in range(1, law.width, max(1, law.width // 5)):
            chance = _exp(law.exponent(start + inside) - law.exponent(start))
            kept = table.keeps(here, np.full(words.size, inside), words)
            assert all(Decimal(word + 1) / 2**bits <= chance for word in np.flatnonzero(kept).tolist())


@given(st.fractions(min_value=0, max_value=5), st.integers(1, 4), st.data())
def test_digits_that_follow_decide_as_the_whole_number_does(x: Fraction, bits: int, data: st.DataObject):
    word, more = data.draw(st.integers(0, 2**bits - 1)), data.draw(st.integers(0, 2**64 - 1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exact_draws.secrets, "randbits", lambda _: more)
        found = exact_draws._is_below(x, word, bits)
    with localcontext(DIGITS):
        number = (Decimal(word) + Decimal(more) / 2**64) / 2**bits
        chance = _exp(x)
        assert found == (number < chance) or abs(number - chance) < Decimal(2) ** -60


@laws
def test_digits_that_follow_find_the_block_of_the_whole_number(law: DiscreteLaw, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(4)
    with localcontext(DIGITS):
        ends = _ends(law)
        for word in range(8):
            more = int(rng.integers(2**63))
            monkeypatch.setattr(exact_draws.secrets, "randbits", lambda _, more=more: more)
            number = (Decimal(word) + Decimal(more) / 2**64) / 8
            assert exact_draws._block_of(law, word, 3) == bisect_right(ends, number)


def test_a_word_on_an_end_is_settled_by_later_digits(monkeypatch: pytest.MonkeyPatch):
    """The word of 64 bits that an end begins with: smaller digits lie before the end, greater ones behind it."""
    law = DiscreteLaw("laplace", 40.1)
    on_the_end = exact_draws._bounds(law, 64).low[5]
    for more, block in ((0, 5), (2**64 - 1, 6)):
        monkeypatch.setattr(exact_draws.secrets, "randbits", lambda _, more=more: more)
        assert exact_draws._Table(law, 64).blocks(np.array([on_the_end], dtype=np.uint64)).tolist() == [block]


@given(st.floats(LEAST_SCALE, LARGEST_SCALE))
def test_blocks_are_powers_of_two_and_a_small_part_of_the_scale(scale: float):
    width = DiscreteLaw("gaussian", scale).width
    assert width == 1 or width <= scale / 256 < 2 * width + 1
    assert width & (width - 1) == 0


def test_nothing_is_drawn_where_nothing_is_asked_for():
    assert DiscreteLaw("laplace", 3.0).draw(0).shape == (0,)
