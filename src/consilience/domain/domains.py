"""Domains: the public description of a table. Declared, reviewed like code, never read off the data."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attribute_tables import attributes_from_declarations
from consilience.domain.attributes import Attribute, Continuous, Hierarchy, Numeric
from consilience.domain.constraints import ImpossibleCells, determined, impossible_cells, refuse_contradiction
from consilience.domain.declarations import WORDS, Declaration, format_number, is_number, suggestion, visible
from consilience.domain.descriptions import Described, Description, some_of
from consilience.domain.files import read_toml, write_atomically
from consilience.domain.language import FUNCTIONS
from consilience.domain.public_facts import PublicFacts
from consilience.domain.source_format import Notation, SourceFormat, Summand, read_weight
from consilience.errors import DeclarationError

QUOTES_DATA = "# NOT PRIVATE:"
"""How comments of a domain file begin that tell of confidential data: a draft has them, a reviewed file has none."""


@dataclass(frozen=True)
class Domain(Described):
    """Ordered attributes, impossible cells and public facts.

    >>> domain = Domain.from_sizes({"age": 6, "sex": 2})
    >>> domain.shape, domain.cells
    ((6, 2), 12)
    """

    name: str
    attributes: tuple[Attribute, ...]
    impossible: tuple[ImpossibleCells, ...] = ()
    public: PublicFacts = field(default_factory=PublicFacts)
    draft: bool = False
    """It was read off the data, and no person has said yet that it is public knowledge."""
    unreviewed: tuple[str, ...] = ()
    """The attributes of a draft that nobody has gone through yet."""
    source_format: SourceFormat = field(default_factory=SourceFormat)
    """How the source writes its values: encoding, delimiter, marks of numbers, texts for missing values."""
    constraints: tuple[str, ...] = ()
    """Sentences that are true of every record; what they forbid is among `impossible`."""
    quotes_data: bool = False
    """Its file has comments that tell of the data."""
    weight: Summand | None = None
    """The column by which records are weighted; every count of the domain is then a sum of weights."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise DeclarationError('a domain needs a name: the ledger is bound to it; add name = "..."')
        if not self.attributes:
            raise DeclarationError(f"domain {self.name!r} declares no attributes; it needs at least one")
        seen: set[str] = set()
        for name in self.names:
            if name in seen:
                raise DeclarationError(f"domain {self.name!r} declares the attribute {name!r} twice; keep one")
            seen.add(name)
        for attribute in self.attributes:
            if isinstance(attribute, Hierarchy):
                self._check_levels(attribute)
        places = [each.name for each in self.attributes if isinstance(each, Hierarchy) and each.geography]
        if len(places) > 1:
            raise DeclarationError(
                f"domain {self.name!r}: {' and '.join(places)} are each marked with geography = true; mark one"
            )
        self._add_constraints()
        for rule in self.impossible:
            self.ordered(rule.attributes)
            rule.check(f"domain {self.name!r}", self._by_name)
        self._check_public_facts()
        self._check_open()
        object.__setattr__(self, "unreviewed", self.ordered(self.unreviewed))
        self._check_tokens()
        self._check_weight()

    def described(self) -> Description:
        """The attributes, their values, and what becomes of other ones."""
        rows = [
            (each.name, each.kind, self._values_of(each), each.missing or "–", each.unlisted)
            for each in self.attributes
        ]
        known = not self.to_find and bool(self.counted)
        cells = [f"{self.cells:,} cells"] if known else []
        count = f"{len(rows)} attribute{'s' * (len(rows) != 1)}"
        lines = ["some cells are impossible"] if self.impossible else []
        lines += [f"public: {fact}" for fact in self.public.describe()]
        lines += ["a draft: nothing can be measured with it until a person has gone through it"] if self.draft else []
        header = ("attribute", "kind", "values", "missing", "unlisted")
        return Description(f"Domain {self.name!r}: {', '.join([count, *cells])}", tuple(lines), header, tuple(rows))

    def _values_of(self, attribute: Attribute) -> str:
        if attribute.name in self.to_find:
            return "to be found"
        if isinstance(attribute, Continuous):
            return " to ".join(map(format_number, attribute.bounds))
        return f"{attribute.size:,}: {some_of(attribute.labels)}"

    def _check_levels(self, attribute: Hierarchy) -> None:
        """Refuse a level that is called as an attribute is; the values themselves may be called as their own is."""
        for level in attribute.level_names:
            if level.lower() in FUNCTIONS:
                raise DeclarationError(
                    f"domain {self.name!r}: the level {level!r} of {attribute.name!r} is a function of the query "
                    "language; call it by another name"
                )
            if level in self and (level, level) != (attribute.name, attribute.level_names[-1]):
                raise DeclarationError(
                    f"domain {self.name!r}: {level!r} is an attribute, and a level of {attribute.name!r}; call one of "
                    "them by another name"
                )

    def _check_tokens(self) -> None:
        """Refuse texts that mean both a value and no value, and a notation of no attribute."""
        self.ordered(name for name, _ in self.source_format.by_attribute)
        for attribute in self.counted:
            tokens = self.source_format.notation_of(attribute.name).missing_tokens
            both = [token for token in tokens if token in attribute.codes_by_label and token != attribute.missing]
            if both:
                raise DeclarationError(
                    f"attribute {attribute.name!r}: {both[0]!r} is one of its values, and missing_tokens says that it "
                    "stands for a missing one; take it out of one of them, or give the attribute its own missing_tokens"
                )

    def _check_weight(self) -> None:
        column = "" if self.weight is None else self.weight.column
        if column in self and not isinstance(self[column], Numeric | Continuous):
            raise DeclarationError(
                f"domain {self.name!r}: records are weighted by {column!r}, which is declared as a {self[column].kind} "
                "attribute too; declare it as a numeric one, or leave that attribute out"
            )

    def _add_constraints(self) -> None:
        """Add the cells that the constraints forbid, where they are not there already, and refuse a contradiction."""
        known = {rule.because for rule in self.impossible}
        new = [text for text in dict.fromkeys(self.constraints) if text not in known]
        cells = {each.name: each for each in self.attributes if not isinstance(each, Continuous)}
        found = [rule for text in new for rule in impossible_cells(text, cells)]
        object.__setattr__(self, "constraints", tuple(dict.fromkeys(self.constraints)))
        object.__setattr__(self, "impossible", (*self.impossible, *found))
        if found:
            refuse_contradiction(self.name, {name: each.size for name, each in cells.items()}, self.impossible)

    def _check_open(self) -> None:
        """Refuse what is said of cells that nobody knows yet."""
        for named in (
            *(rule.attributes for rule in self.impossible),
            *(each.attributes for each in self.public.margins),
        ):
            for name in named:
                if name in self.to_find:
                    raise DeclarationError(
                        f"domain {self.name!r}: a constraint, impossible cells or a public margin name {name!r}, whose "
                        f"{self[name].to_find} are yet to be found; find them first, and add this to the file that "
                        "they are written to"
                    )

    def _check_public_facts(self) -> None:
        """Refuse facts that do not fit the domain, or contradict each other or the impossible cells."""
        facts, where = self.public, f"domain {self.name!r}"
        if facts.total is not None and not (is_number(facts.total) and facts.total >= 0):
            raise DeclarationError(f"{where}: the public total {facts.total} must be a finite number from 0 up")
        for place in facts.places:
            place.check(where, {each.name: each for each in self.counted})
        for margin in facts.margins:
            self.ordered(margin.attributes)
            self.refuse_unreleased(margin.attributes, f"the public margin by {', '.join(margin.attributes)}")
            margin.check(where, self.sizes(margin.attributes), facts.total)
            margin.refuse_impossible(where, self.allowed_cells(margin.attributes))
        facts.refuse_disagreement(where, {name: self[name].size for each in facts.margins for name in each.attributes})

    @staticmethod
    def from_sizes(sizes: Mapping[str, int], *, name: str = "unnamed") -> "Domain":
        """A domain of categorical attributes whose values are "0", "1", …, for people who bring codes."""
        for attribute, size in sizes.items():
            if not isinstance(size, int | np.integer) or size < 1:
                raise DeclarationError(f"attribute {attribute!r} has size {size!r}; a size is a whole number from 1 up")
        attributes = (Attribute.categorical(key, [str(i) for i in range(size)]) for key, size in sizes.items())
        return Domain(name, tuple(attributes))

    @cached_property
    def _by_name(self) -> dict[str, Attribute]:
        return {attribute.name: attribute for attribute in self.attributes}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.attributes)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> Attribute:
        found = self._by_name.get(name)
        if found is None:
            known = (*self.names, *(level for each in self.attributes for level in each.levels))
            raise DeclarationError(f"domain {self.name!r} has no attribute {name!r}; {suggestion(str(name), known)}")
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @cached_property
    def counted(self) -> tuple[Attribute, ...]:
        """The attributes whose cells are counted: all but the continuous ones and those not to be released."""
        return tuple(each for each in self.attributes if each.release and not isinstance(each, Continuous))

    @cached_property
    def counted_names(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.counted)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(attribute.size for attribute in self.counted)

    @property
    def cells(self) -> int:
        """The number of cells of the full table; an exact integer however large."""
        return math.prod(self.shape)

    def sizes(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(self[name].size for name in names)

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """These attributes in the domain's order; unknown and repeated ones are refused."""
        wanted: set[str] = set()
        for name in names:
            self[name]
            if name in wanted:
                raise DeclarationError(f"the attribute {name!r} is named twice; name it once")
            wanted.add(name)
        return tuple(sorted(wanted, key=self._places.__getitem__))

    def allowed_cells(self, names: Sequence[str] | None = None) -> NDArray[np.bool_] | None:
        """Which cells over these attributes can occur, or None when all can.

        A rule applies where all its attributes are among those named: over fewer, the cell may still occur.
        """
        names = self.counted_names if names is None else names
        rules = [rule for rule in self.impossible if set(rule.attributes) <= set(names)]
        if not rules:
            return None
        allowed = np.ones(self.sizes(names), dtype=np.bool_)
        for rule in rules:
            codes = dict(rule.codes)
            index = [np.array(codes.get(name, range(self[name].size))) for name in names]
            allowed[np.ix_(*index)] = False
        return allowed

    @property
    def left_to_review(self) -> str:
        """What still marks the domain as a draft, in the words of its file; empty for one that people have reviewed.

        >>> Domain("d", (Attribute.categorical("sex", ["F", "M"]),), draft=True, unreviewed=("sex",)).left_to_review
        "draft = true, and reviewed = false in 'sex'"
        """
        marks = ["draft = true"] if self.draft else []
        if self.unreviewed:
            marks.append(f"reviewed = false in {', '.join(map(repr, self.unreviewed))}")
        if self.quotes_data:
            marks.append(f"{QUOTES_DATA!r} in its comments")
        return ", and ".join(marks)

    def refuse_unreleased(self, names: Iterable[str], asked: str) -> None:
        """Raise where one of these attributes is not to be released; `asked` says what names it."""
        for name in names:
            if not self[name].release:
                raise DeclarationError(
                    f"{asked} names {name!r}, and domain {self.name!r} says release = false for it; leave {name!r} "
                    "out, or remove that line from the domain before anything is measured"
                )

    def refuse_weight(self, what: str) -> None:
        """Raise where records are weighted; `what` counts or chooses among records as they are."""
        if self.weight is not None:
            raise DeclarationError(
                f"{what} has no weighted form here, and domain {self.name!r} weights its records by "
                f"{self.weight.column!r}; use a plan that measures counts, or a domain file without [weight]"
            )

    @property
    def most_counted(self) -> float:
        """How much one record adds to a count at most: 1, or the largest weight."""
        return 1.0 if self.weight is None else self.weight.largest

    @cached_property
    def amounts(self) -> tuple[str, ...]:
        """The attributes whose numbers may be added up."""
        return tuple(each.name for each in self.attributes if isinstance(each, Numeric) and each.amount is not None)

    def amount(self, name: str) -> tuple[Summand, Numeric]:
        """What a record adds to sums of this attribute, before it is weighted: nothing where it lies in no bin."""
        attribute = self[name]
        if not isinstance(attribute, Numeric) or attribute.amount is None:
            declared = f"; these do: {', '.join(self.amounts)}" if self.amounts else ""
            raise DeclarationError(
                f"sums of {name!r} need the bounds to which each record's number is clipped; declare amount = "
                f"[least, largest] for it, or amount = true for its outermost edges{declared}"
            )
        return Summand(name, attribute.amount, missing=0.0), attribute

    def summand(self, amount: str | None = None) -> Summand | None:
        """What a record adds to a count, or to sums of an amount; None where it adds 1.

        A weight times an amount lies within the products of their bounds, is clipped to these, and has a lattice of
        its own.
        """
        if amount is None or self.weight is None:
            return self.weight if amount is None else self.amount(amount)[0]
        ends = [weight * end for weight in self.weight.range for end in self.amount(amount)[0].range]
        return Summand(amount, (min(ends), max(ends)), missing=0.0)

    @cached_property
    def to_find(self) -> tuple[str, ...]:
        """The attributes whose values, edges or bounds are yet to be found in the data, with privacy."""
        return tuple(attribute.name for attribute in self.attributes if attribute.to_find)

    def refuse_open(self) -> None:
        """Raise where something is yet to be found."""
        if self.to_find:
            listed = ", ".join(f"the {self[name].to_find} of {name!r}" for name in self.to_find)
            raise DeclarationError(
                f"domain {self.name!r} leaves {listed} to be found; release and measure find them first where they get "
                "the domain's file, and `consilience domain discover` (discover_domain) finds them and nothing else"
            )

    def refuse_draft(self) -> None:
        """Raise for a draft: what was read off confidential data must be neither used nor published.

        Likewise for a domain of which something is yet to be found.
        """
        self.refuse_marks()
        self.refuse_open()

    def refuse_marks(self) -> None:
        """Raise for what marks a file as a draft."""
        if self.left_to_review:
            raise DeclarationError(
                f"domain {self.name!r} is a draft that was read off the data, and its values may be confidential: its "
                f"file still says {self.left_to_review}. Replace what the data happened to hold by what is publicly "
                "known, then remove these lines; `consilience domain review` goes through them with you"
            )

    def project(self, names: Iterable[str]) -> "Domain":
        """The domain of some of the attributes, in this domain's order, with the rules and facts that still apply."""
        kept = self.ordered(names)
        attributes = tuple(self[name] for name in kept)
        rules = tuple(rule for rule in self.impossible if set(rule.attributes) <= set(kept))
        unreviewed = tuple(name for name in self.unreviewed if name in kept)
        own = tuple((name, notation) for name, notation in self.source_format.by_attribute if name in kept)
        how = replace(self.source_format, by_attribute=own)
        said = {rule.because for rule in rules}
        return replace(
            self,
            attributes=attributes,
            impossible=rules,
            public=self.public.about(attributes),
            unreviewed=unreviewed,
            source_format=how,
            constraints=tuple(text for text in self.constraints if text in said),
        )

    def read_as(
        self,
        *,
        encoding: str | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        missing_tokens: Sequence[str] | None = None,
    ) -> "Domain":
        """The domain of a source that writes its values so; what is None stays as it is.

        It replaces what is declared for all columns. What a single attribute declares otherwise stays.

        >>> Domain.from_sizes({"age": 6}).read_as(encoding="latin1", decimal=",").source_format.to_declaration()
        {'encoding': 'latin-1', 'decimal': ','}
        """
        now = self.source_format
        notation = Notation(
            now.notation.decimal if decimal is None else decimal,
            now.notation.thousands if thousands is None else thousands or None,
            now.notation.missing_tokens if missing_tokens is None else tuple(missing_tokens),
        )
        how = replace(now, encoding=encoding or now.encoding, delimiter=delimiter or now.delimiter)
        return replace(self, source_format=how.with_notation(notation))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the whole declaration: equal for equal domains. The order of attributes and values counts.

        Titles, units and labels are for people and are no part of it.
        """
        declared = self.to_declaration()
        for table in declared["attributes"].values():
            for key in WORDS:
                table.pop(key, None)
        text = json.dumps(declared, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_declaration(self) -> dict[str, Any]:
        """The domain as plain data: what a domain file and a measurement file hold."""
        declared: dict[str, Any] = {"draft": True} if self.draft else {}
        declared["name"] = self.name
        declared["attributes"] = {
            attribute.name: ({"reviewed": False} if attribute.name in self.unreviewed else {})
            | attribute.to_declaration()
            | self.source_format.attribute_declaration(attribute.name)
            for attribute in self.attributes
        }
        how = self.source_format.to_declaration()
        if how:
            declared["source"] = how
        if self.constraints:
            declared["constraints"] = list(self.constraints)
        rules = [self._declare_rule(rule) for rule in self.impossible if not rule.because]
        if rules:
            declared["impossible"] = rules
        if self.public:
            declared["public"] = self.public.to_declaration()
        if self.weight is not None:
            declared["weight"] = self.weight.to_declaration()
        return declared

    def _declare_rule(self, rule: ImpossibleCells) -> dict[str, Any]:
        return {name: [self[name].labels[code] for code in codes] for name, codes in rule.codes}

    @staticmethod
    def from_declaration(mapping: object, *, where: str = "domain", folder: Path | None = None) -> "Domain":
        """The domain that plain data declares; the inverse of `to_declaration`. Files named there lie in `folder`."""
        declared = Declaration(mapping, where)
        name = declared.text("name")
        draft = "draft" in declared and declared.flag("draft")
        named = declared.table("attributes")
        tables = {key: named.table(key) for key in named.keys()}
        unreviewed = tuple(key for key, table in tables.items() if "reviewed" in table and not table.flag("reviewed"))
        how = SourceFormat.from_declarations(declared.table("source") if "source" in declared else None, tables)
        attributes = attributes_from_declarations(tables, folder)
        bare = Domain(name, attributes)
        rules = declared.tables("impossible") if "impossible" in declared else ()
        impossible = tuple(ImpossibleCells.read(rule, bare._by_name) for rule in rules)
        known = declared.table("public") if "public" in declared else None
        public = PublicFacts() if known is None else PublicFacts.read(known, attributes, folder)
        constraints = list(declared.texts("constraints")) if "constraints" in declared else []
        for table in declared.tables("determined") if "determined" in declared else ():
            constraints += determined(table)
        weight = read_weight(declared)
        declared.close()
        return Domain(name, attributes, impossible, public, draft, unreviewed, how, tuple(constraints), weight=weight)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Domain":
        """The domain that a TOML file declares; a draft is read, and stays one until its file was reviewed."""
        mapping = read_toml(path, what="domain file", hint="draft one with `consilience domain draft`")
        domain = Domain.from_declaration(mapping, where=Path(path).name, folder=Path(path).parent)
        _refuse_invisible(domain, Path(path).name)
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        return replace(domain, quotes_data=any(line.lstrip().startswith(QUOTES_DATA) for line in lines))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the domain as a TOML file."""
        write_atomically(Path(path), self.to_toml().encode())

    def to_toml(self) -> str:
        """The domain as the text of a TOML file."""
        import tomli_w

        return tomli_w.dumps(self.to_declaration())


def _refuse_invisible(domain: Domain, where: str) -> None:
    """Refuse names and labels that a terminal or a page would not show as they are.

    They are refused where a person declares them. Measurement files are read whatever their labels; what shows them
    makes such signs visible.
    """
    for attribute in domain.attributes:
        shown = [] if isinstance(attribute, Continuous) else attribute.labels
        parents = [parent for _, parent in attribute.parents] if isinstance(attribute, Hierarchy) else []
        words = attribute.wording.title, attribute.wording.unit, *attribute.wording.by_value.values()
        for text in (domain.name, attribute.name, *shown, *parents, *words):
            if visible(text) != text:
                raise DeclarationError(
                    f"{where}: {text!r} holds a control character; write names and labels with letters, digits, signs "
                    "and spaces"
                )
