"""Constraints: sentences about a record's values that are always true, made into cells that cannot occur.

    constraint  =  ["if" either "then"] either
    either      =  both {"or" both}
    both        =  test {"and" test}
    test        =  "not" test  |  "(" either ")"  |  attribute comparison attribute  |  attribute comparison value
                |  attribute "=" range  |  attribute "=" value {"|" value}  |  attribute "in" "(" value {"," value} ")"
    comparison  =  "="  |  "=="  |  "!="  |  "<="  |  "<"  |  ">="  |  ">"

A cell may hold records for which a test is true and others for which it is false: bins of numbers and periods of dates
are compared as intervals, the first and the last without an end where the attribute clips. So each test has two
tables, whether it *can be true* and whether it *can be false*; a cell cannot occur where the sentence cannot be true.
What is only a label of a rule, such as Unknown, makes both possible wherever the test does not name it.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Numeric
from consilience.domain.dates import Date, first_day
from consilience.domain.declarations import Declaration, quoted, suggestion
from consilience.domain.language import TextParser
from consilience.errors import DeclarationError

MOST_CELLS = 4_000_000
"""Combinations of values of the attributes of one constraint."""
MOST_RULES = 1_000
"""Products of values into which the impossible combinations of one constraint may fall."""

MOST_SETS = 2_000
"""Sets of constraints that are tried to find the smallest that contradicts itself."""

Table = NDArray[np.bool_]
Product = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class ImpossibleCells:
    """Cells that cannot occur: those whose value is among `codes` for every attribute named."""

    codes: Product
    because: str = ""
    """The constraint that says so."""

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.codes)

    def check(self, where: str, attributes: Mapping[str, Attribute]) -> None:
        """Refuse a rule about nothing, and codes that an attribute does not have."""
        if not self.codes:
            raise DeclarationError(f"{where}: an impossible rule names no attribute; name at least one")
        for name, codes in self.codes:
            if not codes or not all(0 <= code < attributes[name].size for code in codes):
                raise DeclarationError(
                    f"{where}: an impossible rule gives {name!r} the codes {list(codes)}; "
                    f"its codes are 0 to {attributes[name].size - 1}"
                )

    @staticmethod
    def read(declared: Declaration, attributes: Mapping[str, Attribute]) -> "ImpossibleCells":
        """One `[[impossible]]` table: values, or for a numeric attribute two edges [low, high)."""
        codes: list[tuple[str, tuple[int, ...]]] = []
        for name in declared.keys():
            if name not in attributes:
                declared.refuse(f"there is no attribute {name!r}; {suggestion(name, attributes)}")
            attribute, raw = attributes[name], declared.raw(name)
            if isinstance(attribute, Numeric) and isinstance(raw, list) and raw and not isinstance(raw[0], str):
                codes.append((name, _codes_between_edges(attribute, declared.numbers(name), declared)))
            else:
                found = [code for label in declared.labels(name) for code in attribute.codes(attribute.value_of(label))]
                codes.append((name, tuple(dict.fromkeys(found))))
            if not codes[-1][1]:
                declared.refuse(f"{name!r} lists no values")
        return ImpossibleCells(tuple(codes))


def _codes_between_edges(attribute: Numeric, ends: tuple[float, ...], declared: Declaration) -> tuple[int, ...]:
    if len(ends) != 2 or any(end not in attribute.edges for end in ends) or ends[0] >= ends[1]:
        declared.refuse(f"{attribute.name!r} is numeric: give two of its bin edges [low, high), found {list(ends)}")
    return tuple(range(attribute.edges.index(ends[0]), attribute.edges.index(ends[1])))


@dataclass(frozen=True)
class Test:
    """Tables over some attributes, in the order of their names: where the test can be true, and where false."""

    names: tuple[str, ...]
    true: Table
    false: Table

    def over(self, names: Sequence[str]) -> tuple[Table, Table]:
        """The tables with an axis for each of these names, of length one where the test does not look."""
        shape = iter(self.true.shape)
        wide = [next(shape) if name in self.names else 1 for name in names]
        return self.true.reshape(wide), self.false.reshape(wide)


def impossible_cells(text: str, attributes: Mapping[str, Attribute]) -> tuple[ImpossibleCells, ...]:
    """The cells in which the constraint cannot be true, as rules of which no two share a cell."""
    test = ConstraintParser(text, attributes).constraint()
    found = list(_products(~test.true, test.names))
    if len(found) > MOST_RULES:
        raise DeclarationError(
            f"the constraint {text!r} forbids {len(found):,} separate sets of cells, and at most {MOST_RULES:,} are "
            "possible; declare its attributes in coarser bins"
        )
    return tuple(ImpossibleCells(codes, text) for codes in found)


def _products(cells: Table, names: tuple[str, ...]) -> Iterator[Product]:
    """The cells that are marked, as products: codes of the first attribute whose marks are alike go together."""
    if not cells.any():
        return
    if cells.ndim == 1:
        yield ((names[0], tuple(np.flatnonzero(cells).tolist())),)
        return
    alike: dict[bytes, list[int]] = {}
    for code, marks in enumerate(cells):
        alike.setdefault(marks.tobytes(), []).append(code)
    for codes in alike.values():
        for rest in _products(cells[codes[0]], names[1:]):
            yield ((names[0], tuple(codes)), *rest)


class ConstraintParser(TextParser):
    keywords = ("and", "or", "not", "if", "then", "in")
    example = "if age=..15 then employment=Child"
    what = "constraint"

    def __init__(self, text: str, attributes: Mapping[str, Attribute]) -> None:
        self.attributes = attributes
        super().__init__(text)

    def constraint(self) -> Test:
        if not self.tokens:
            self.refuse("it is empty")
        given = None
        if self.take("if"):
            given = self.either()
            self.expect("then")
        test = self.either()
        if self.at < len(self.tokens):
            self.refuse(f"{self.found()} was not expected there")
        return test if given is None else self.joined(_not(given), test, np.logical_or, np.logical_and)

    def either(self) -> Test:
        test = self.both()
        while self.take("or"):
            test = self.joined(test, self.both(), np.logical_or, np.logical_and)
        return test

    def both(self) -> Test:
        test = self.test()
        while self.take("and"):
            test = self.joined(test, self.test(), np.logical_and, np.logical_or)
        return test

    def joined(self, one: Test, other: Test, true: Callable[..., Table], false: Callable[..., Table]) -> Test:
        """Two tests as one, over the attributes of both."""
        names = tuple(name for name in self.attributes if name in (*one.names, *other.names))
        self.check_size(names)
        (true_one, false_one), (true_other, false_other) = one.over(names), other.over(names)
        return Test(names, true(true_one, true_other), false(false_one, false_other))

    def check_size(self, names: Sequence[str]) -> None:
        cells = math.prod(self.attributes[name].size for name in names)
        if cells > MOST_CELLS:
            self.refuse(
                f"it compares {cells:,} combinations of {', '.join(names)}, and at most {MOST_CELLS:,} are possible; "
                "declare coarser bins, or split it into constraints of fewer attributes"
            )

    def test(self) -> Test:
        if self.take("not"):
            return _not(self.test())
        if self.take("("):
            test = self.either()
            self.expect(")")
            return test
        attribute = self.attribute(self.words("an attribute"))
        for sign in ("<=", "<", ">=", ">", "==", "!="):
            if self.take(sign):
                return self.compared(attribute, sign)
        return self.picks(attribute)

    def attribute(self, name: str) -> Attribute:
        if name not in self.attributes:
            self.refuse(f"there is no attribute {name!r}; {suggestion(name, self.attributes)}")
        return self.attributes[name]

    def picks(self, attribute: Attribute) -> Test:
        """A condition as queries write it."""
        factor = self.picked()
        if factor is None:
            self.refuse(f"{attribute.name!r} has no condition; write {attribute.name}=value")
        matrix = factor.in_values(attribute).bind(attribute).dense()
        return _of_codes(attribute, matrix[0] > 0)

    def compared(self, attribute: Attribute, sign: str) -> Test:
        """One attribute beside another, or beside a value."""
        tokens = self.run("a value or an attribute")
        text = " ".join(token.text for token in tokens)
        if text in self.attributes and all(token.kind == "word" for token in tokens):
            return self.beside(attribute, sign, self.attributes[text])
        value = attribute.value_of(text)
        chosen = np.zeros(attribute.size, dtype=np.bool_)
        if sign in ("==", "!="):
            chosen[list(attribute.codes(value))] = True
        elif sign in ("<=", ">"):
            chosen[list(attribute.codes_between(None, value))] = True
        else:
            chosen[list(attribute.codes_between(value, None))] = True
        test = _of_codes(attribute, chosen)
        return _not(test) if sign in ("!=", "<", ">") else test

    def beside(self, left: Attribute, sign: str, right: Attribute) -> Test:
        """Two attributes: numbers or dates by their intervals, others by their labels."""
        if left.name == right.name:
            self.refuse(f"{left.name!r} is compared with itself")
        self.check_size((left.name, right.name))
        both_numbers = isinstance(left, Numeric) and isinstance(right, Numeric)
        if both_numbers or (isinstance(left, Date) and isinstance(right, Date)):
            (low, high), (low_right, high_right) = _intervals(left), _intervals(right)
            low, high = low[:, None], high[:, None]
            below = low <= high_right, high > low_right  # can be true, can be false of left <= right
            before = low < high_right, high >= low_right
            equal = (low <= high_right) & (low_right <= high), (high > low_right) | (low < high_right)
        elif sign in ("==", "!="):
            same = np.array(left.labels)[:, None] == np.array(right.labels)
            below = before = equal = same, ~same
        else:
            self.refuse(
                f"{left.name!r} is {left.kind} and {right.name!r} is {right.kind}: only two numbers or two dates are "
                "smaller or larger; compare others by == and !="
            )
        true, false = {"<=": below, ">": below, "<": before, ">=": before, "==": equal, "!=": equal}[sign]
        added = added_labels(left)[:, None] | added_labels(right)
        names = tuple(name for name in self.attributes if name in (left.name, right.name))
        true, false = (table | added for table in (true, false))
        test = Test(names, *((true, false) if names[0] == left.name else (true.T, false.T)))
        return _not(test) if sign in (">", ">=", "!=") else test


def _not(test: Test) -> Test:
    return Test(test.names, test.false, test.true)


def _of_codes(attribute: Attribute, chosen: Table) -> Test:
    """True of the chosen codes, false of others; both may be of a rule's label that is not among them."""
    return Test((attribute.name,), chosen | added_labels(attribute), ~chosen)


def added_labels(attribute: Attribute) -> Table:
    """Marks the labels that only a rule for records adds."""
    return np.arange(attribute.size) >= len(attribute.ordinary_labels)


def _intervals(attribute: Attribute) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and the largest value of each cell; without an end where values beyond it are clipped into it."""
    if isinstance(attribute, Date):
        days = [first_day(attribute.by, period) for period in range(attribute.first, attribute.last + 2)]
        low, high = np.array(days[:-1], dtype=np.float64), np.array(days[1:], dtype=np.float64) - 1
        clips = attribute.clips
    else:
        assert isinstance(attribute, Numeric)
        clips, edges = attribute.clips, np.array(attribute.edges)
        low, high = edges[:-1].copy(), edges[1:] - 1 if attribute.integer else np.nextafter(edges[1:], -np.inf)
        if not attribute.integer:
            high[-1] = edges[-1]
    if clips:
        low[0], high[-1] = -np.inf, np.inf
    unknown = np.zeros(attribute.size - len(low))
    return np.append(low, unknown), np.append(high, unknown)


def determined(declared: Declaration) -> Iterator[str]:
    """One `[[determined]]` table as constraints: for each value of one attribute the value of another."""
    attribute, by, values = declared.text("attribute"), declared.text("by"), declared.table("values")
    from_value: dict[str, list[str]] = {}
    for value in values.keys():
        from_value.setdefault(values.label(value), []).append(value)
    declared.close()
    for value, given in from_value.items():
        listed = ", ".join(map(quoted, given))
        yield f"if {quoted(by)} in ({listed}) then {quoted(attribute)}={quoted(value)}"


# ----------------------------------------------------------------------------------------------------------------------
# Whether any record is possible at all.


def refuse_contradiction(domain: str, sizes: Mapping[str, int], rules: Sequence[ImpossibleCells]) -> None:
    """Refuse rules that leave no cell, with the smallest set of sentences that leaves none.

    A record is a choice x of one code for each attribute; a rule asks for one attribute that is not among its codes:

        Σ_c x_{a, c} = 1 for each attribute a,    Σ_a Σ_{c among its codes} x_{a, c} ≤ (its attributes) − 1.

    It is found, or proved impossible, by branch and bound. Sets of sentences are tried from the smallest on; where they
    are too many, sentences are left out one by one for as long as the rest leaves no cell.
    """
    by_sentence: dict[str, list[ImpossibleCells]] = {}
    for rule in rules:
        by_sentence.setdefault(rule.because or _said(rule), []).append(rule)
    if _some_record(sizes, rules):
        return

    def leaves_none(sentences: Iterable[str]) -> bool:
        return not _some_record(sizes, [rule for each in sentences for rule in by_sentence[each]])

    needed = list(by_sentence)
    for sentence in by_sentence:
        others = [each for each in needed if each != sentence]
        needed = others if leaves_none(others) else needed
    smaller = itertools.chain.from_iterable(itertools.combinations(by_sentence, r) for r in range(1, len(needed)))
    if sum(math.comb(len(by_sentence), r) for r in range(1, len(needed))) <= MOST_SETS:
        needed = list(next(filter(leaves_none, smaller), needed))
    raise DeclarationError(
        f"domain {domain!r}: no record can be as {'this asks' if len(needed) == 1 else 'these together ask'}: "
        f"{'; '.join(map(repr, needed))}; correct one of them"
    )


def _some_record(sizes: Mapping[str, int], rules: Sequence[ImpossibleCells]) -> bool:
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    named = list(dict.fromkeys(name for rule in rules for name, _ in rule.codes))
    if not named:
        return True
    starts = dict(zip(named, np.cumsum([0, *(sizes[name] for name in named)]).tolist(), strict=False))
    codes = [[starts[name] + code for code in range(sizes[name])] for name in named]
    codes += [[starts[name] + code for name, held in rule.codes for code in held] for rule in rules]
    rows = np.repeat(np.arange(len(codes)), [len(each) for each in codes])
    columns = np.concatenate([np.array(each, dtype=np.intp) for each in codes])
    count = sum(sizes[name] for name in named)
    matrix: Any = sparse.csr_array((np.ones(len(columns)), (rows, columns)), (len(codes), count))
    most: Any = np.array([1.0] * len(named) + [len(rule.codes) - 1.0 for rule in rules])
    least: Any = np.array([1.0] * len(named) + [-np.inf] * len(rules))
    asked = LinearConstraint(matrix, least, most)
    found = milp(np.zeros(count), constraints=asked, integrality=np.ones(count), bounds=Bounds(0.0, 1.0))
    return found.status != INFEASIBLE


INFEASIBLE = 2
"""The status by which SciPy says so."""


def _said(rule: ImpossibleCells) -> str:
    return "impossible cells by " + ", ".join(rule.attributes)
