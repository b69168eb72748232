"""Constraints on records whose numbers are known: within its bins `worked <= paid` may still be true or false.

Of a record, unlike of a cell, a sentence that compares two numbers is either true or false. Synthetic records are kept
by it; nothing that reads the data looks at it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Numeric
from consilience.domain.constraints import ConstraintParser, Table, Test, added_labels

RECORDS = ("",)
"""The names of a test whose tables have an entry for each record."""
COMPARISONS = {
    "<=": np.less_equal,
    "<": np.less,
    ">=": np.greater_equal,
    ">": np.greater,
    "==": np.equal,
    "!=": np.not_equal,
}


class _OfRecords(ConstraintParser):
    def __init__(
        self,
        text: str,
        attributes: Mapping[str, Attribute],
        codes: Mapping[str, NDArray[np.int64]],
        numbers: Mapping[str, NDArray[np.float64]],
    ) -> None:
        self.codes, self.numbers = codes, numbers
        self.compares: tuple[str, ...] = ()
        super().__init__(text, attributes)

    def joined(self, one: Test, other: Test, true: Callable[..., Table], false: Callable[..., Table]) -> Test:
        return Test(RECORDS, true(one.true, other.true), false(one.false, other.false))

    def check_size(self, names: Sequence[str]) -> None:
        """That was checked when the domain was declared."""

    def picks(self, attribute: Attribute) -> Test:
        return self.in_records(super().picks(attribute))

    def compared(self, attribute: Attribute, sign: str) -> Test:
        return self.in_records(super().compared(attribute, sign))

    def beside(self, left: Attribute, sign: str, right: Attribute) -> Test:
        if left.name not in self.numbers or right.name not in self.numbers:
            return super().beside(left, sign, right)
        self.compares = tuple(dict.fromkeys((*self.compares, left.name, right.name)))
        true = COMPARISONS[sign](self.numbers[left.name], self.numbers[right.name])
        added = np.logical_or(*(added_labels(each)[self.codes[each.name]] for each in (left, right)))
        return Test(RECORDS, true | added, ~true | added)

    def in_records(self, test: Test) -> Test:
        """What a test over cells says of the cells of the records."""
        if test.names == RECORDS:
            return test
        places = tuple(self.codes[name] for name in test.names)
        return Test(RECORDS, test.true[places], test.false[places])


def numbers_compared(text: str, attributes: Mapping[str, Attribute]) -> tuple[str, ...]:
    """The attributes whose numbers a constraint compares with each other's; cells alone do not tell whether it holds.

    >>> hours = {name: Attribute.numeric(name, [0, 20, 80]) for name in ("worked", "paid")}
    >>> numbers_compared("worked <= paid", hours), numbers_compared("worked >= 20", hours)
    (('worked', 'paid'), ())
    """
    codes = dict.fromkeys(attributes, np.zeros(0, dtype=np.int64))
    numbers = {name: np.zeros(0) for name, each in attributes.items() if isinstance(each, Numeric)}
    parser = _OfRecords(text, attributes, codes, numbers)
    parser.constraint()
    return parser.compares


def holds(
    text: str,
    attributes: Mapping[str, Attribute],
    codes: Mapping[str, NDArray[np.int64]],
    numbers: Mapping[str, NDArray[np.float64]],
) -> Table:
    """Of which records a constraint is true, by their codes and the numbers that are known."""
    return _OfRecords(text, attributes, codes, numbers).constraint().true
