"""A first domain read off the data: NOT private, for its owner to review and correct.

    data ──► a pass over texts ──► marks, tokens ──► a pass over numbers ──► recognise ──► the file, with comments

Two passes, because whether `1.234` is a number of thousands is known only when all columns have been seen. What is
remembered is bounded, and the same in whatever order the rows come.
"""

import json
import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from consilience.curation.cells import Numbers
from consilience.curation.code_books import entry_of, read_code_book, refuse_strange
from consilience.curation.columns import Column, Look, Thresholds, notations, read_numbers
from consilience.curation.fit_lines import signs_in, toml_key, toml_value, wide_encoding
from consilience.curation.recognise import Finding, recognise
from consilience.curation.vocabulary import WATCHED
from consilience.domain.attributes import Attribute
from consilience.domain.declarations import visible
from consilience.domain.domains import QUOTES_DATA, Domain
from consilience.domain.files import write_atomically
from consilience.domain.source_format import Notation, SourceFormat
from consilience.errors import DeclarationError, SourceError
from consilience.source.readers import attempt
from consilience.source.records import Writing
from consilience.source.tables import DELIMITED, matching_files, reader_of
from consilience.source.values import decoded, numbers_of

HEADING = f"""\
# DRAFT, read off the data, which is not private. Go through the attributes one by one, with
# `consilience domain review FILE`: put what is publicly known in the place of what the data happened to hold, and
# decide what the comments ask. Until then nothing can be measured or published with this file, nor while a comment is
# left that begins with {QUOTES_DATA!r}: such comments tell of the data.
"""
WIDTH = 118


@dataclass(frozen=True)
class Draft:
    """A drafted domain, marked as such and every attribute of it as unreviewed; and what each column was taken for."""

    domain: Domain
    findings: dict[str, Finding]
    """What was found of each column, in the order of the source, those left out among them."""
    rows: int = 0
    """How many rows were read: an exact number of the data."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """The columns that are no attributes of the draft."""
        return tuple(name for name, found in self.findings.items() if found.attribute is None)

    @property
    def reasons(self) -> dict[str, list[str]]:
        """The columns left out, by the reason."""
        reasons: dict[str, list[str]] = {}
        for name in self.left_out:
            found = self.findings[name]
            told = f"{found.seen}." + (f" To have it, {found.decide}." if found.decide else "")
            reasons.setdefault(told, []).append(name)
        return reasons

    def to_toml(self) -> str:
        """The domain file, with a comment for each column that says what was seen and what is to be decided."""
        declared = self.domain.to_declaration()
        attributes = declared.pop("attributes")
        source = declared.pop("source", {})
        blocks = [HEADING, _lines(declared)]
        blocks += [_comment(f"left out, {', '.join(names)}: {told}") for told, names in self.reasons.items()]
        blocks += ["[source]\n" + _lines(source)] if source else []
        for name, keys in attributes.items():
            found = self.findings[name]
            comment = _comment(f"{found.kind}: {found.seen}.") + _comment(f"decide: {found.decide}.", found.decide)
            blocks.append(comment + attribute_toml(name, keys))
        return "\n".join(blocks)


def _comment(text: str, said: object = True) -> str:
    """A comment that tells of the data, as lines that are known by their beginning; nothing where nothing is said."""
    width = WIDTH - len(QUOTES_DATA) - 1
    return "".join(f"{QUOTES_DATA} {line}\n" for line in textwrap.wrap(visible(text), width)) if said else ""


def attribute_toml(name: str, declared: dict[str, Any]) -> str:
    """The table of an attribute in a domain file, with its lists in lines of their own width."""
    tables = {key: value for key, value in declared.items() if isinstance(value, dict)}
    head = f"[attributes.{toml_key(name)}]\n"
    text = head + _lines({key: value for key, value in declared.items() if key not in tables})
    for key, table in tables.items():
        text += f"\n[attributes.{toml_key(name)}.{key}]\n" + _lines(table)
    return text


def _lines(declared: dict[str, Any]) -> str:
    return "".join(f"{toml_key(key)} = {_wrapped(value, len(key) + 3)}\n" for key, value in declared.items())


def _wrapped(value: object, begun: int) -> str:
    """A value as TOML writes it; a list that is too long for a line in several."""
    text = toml_value(value)
    if not isinstance(value, Sequence) or isinstance(value, str) or begun + len(text) <= WIDTH:
        return text
    lines, line = [], "   "
    for item in map(toml_value, value):
        if len(line) + len(item) + 2 > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join(["[", *lines, line, "]"])


def draft_domain(
    data: object,
    *,
    name: str | None = None,
    how: SourceFormat = SourceFormat(),  # noqa: B008 (frozen)
    table: str | None = None,
    query: str | None = None,
    code_book: str | os.PathLike[str] | None = None,
    thresholds: Thresholds = Thresholds(),  # noqa: B008 (frozen)
) -> Draft:
    """A domain with an attribute for each column that looks like one. Reads the data, and is not private.

    Takes whatever `open_table` takes. Without a `name` the dataset is called as the file is, up to its first dot. A
    `code_book`, which is public, gives titles, labels and values (see `read_code_book`).

    >>> import pyarrow as pa
    >>> people = pa.table({"id": range(60), "sex": ["F", "M"] * 30})
    >>> drafted = draft_domain(people, name="people")
    >>> drafted.domain["sex"].labels, drafted.left_out
    (('F', 'M'), ('id',))
    """
    is_path = isinstance(data, str | os.PathLike)
    if name is None and not is_path:
        raise DeclarationError("a data frame has no name of its own; give the dataset one with name=")
    name = Path(os.fspath(data)).name.partition(".")[0] if name is None else name  # type: ignore[call-overload]
    how = replace(how, encoding=_encoding(data, how.encoding))
    plainly = replace(how, notation=Notation(), by_attribute=())

    def read(columns: Sequence[str]) -> Any:
        return reader_of(data, dict.fromkeys(columns), plainly, table=table, query=query)

    book = {} if code_book is None else read_code_book(code_book)
    there = read(()).columns
    if book:
        refuse_strange(book, there)
    findings, usable = _usable(there, read)
    columns = [Column(each, thresholds.texts, WATCHED) for each in usable]
    for batch in read(usable).batches(usable):
        for column in columns:
            column.add(batch.column(column.name))
    for column in columns:
        if not column.readable:
            raise SourceError(
                f"the column {column.name!r} is no text in UTF-8; say in which encoding it is, such as encoding=latin-1"
            )
    marks = notations(columns) if how.notation.to_declaration() == {} else {}
    tokens = how.notation.missing_tokens
    looks = [
        Look(column, marks.get(column.name, how.notation), thresholds, tokens=tokens, entry=entry_of(book, column.name))
        for column in columns
    ]
    numeric = {look.column.name: (look, Writing(look.notation, numeric=True)) for look in looks if look.is_numeric}
    for look, _ in numeric.values():
        look.numbers = Numbers()
    for batch in read(tuple(numeric)).batches(tuple(numeric)) if numeric else ():
        for each, (look, writing) in numeric.items():
            look.numbers.add(numbers_of(decoded(writing.meant(batch.column(each)))))  # type: ignore[union-attr]
    findings |= {look.column.name: recognise(look) for look in looks}
    findings = {each: findings[each] for each in dict.fromkeys(there)}
    attributes = tuple(found.attribute for found in findings.values() if found.attribute is not None)
    if not attributes:
        raise SourceError("no column looks like an attribute; write the domain file by hand")
    names = tuple(attribute.name for attribute in attributes)
    how = _source_format(how, [look for look in looks if look.column.name in names], attributes)
    return Draft(Domain(name, attributes, draft=True, unreviewed=names, source_format=how), findings, columns[0].rows)


def _usable(there: Sequence[str], read: Any) -> tuple[dict[str, Finding], tuple[str, ...]]:
    """The columns that can be attributes, and what speaks against the others."""
    findings: dict[str, Finding] = {}
    times = Counter(there)
    for name in times:
        if times[name] > 1:
            findings[name] = Finding("repeated", None, f"{times[name]} columns have this name", "rename them")
        elif not name.strip() or visible(name) != name:
            findings[name] = Finding("nameless", None, "its name is empty or cannot be shown", "rename it")
    usable = tuple(name for name in times if name not in findings)
    try:
        read(usable)
        return findings, usable
    except SourceError:
        kept = []
    for name in usable:
        try:
            read((name,))
            kept.append(name)
        except SourceError:
            findings[name] = Finding("nested", None, "it holds lists or structures, which no attribute can match", "")
    if not kept:
        read(usable)
    return findings, tuple(kept)


def _encoding(data: object, given: str) -> str:
    """The encoding of a text file, from its bytes: as given where they are no reason to doubt it."""
    if given != "utf-8" or not isinstance(data, str | os.PathLike):
        return given
    if not os.fsdecode(data).lower().endswith(DELIMITED):
        return given
    refusal = "the source cannot be read; check that every file is whole and that you may read it"
    paths = matching_files(os.fsdecode(data))
    found = attempt(lambda: [wide_encoding(path, given) for path in paths], refusal)
    if found[0] != given:
        return found[0]
    signs = attempt(lambda: [signs_in(path) for path in paths], refusal)
    if all(valid for valid, _, _ in signs):
        return given
    return "cp1252" if any(controls for _, _, controls in signs) else "latin-1"


def _source_format(how: SourceFormat, looks: Sequence[Look], attributes: Sequence[Attribute]) -> SourceFormat:
    """How the source writes its values: what most columns share, and what single ones write otherwise."""
    kinds = {attribute.name: attribute for attribute in attributes}
    numeric = [look for look in looks if look.numbers is not None and look.column.stored == "text"]
    given = how.notation
    marks = Counter((look.notation.decimal, look.notation.thousands) for look in numeric)
    decimal, thousands = max(marks, key=lambda pair: (pair[1] is not None, marks[pair], str(pair)), default=(".", None))
    words = Counter(token for look in looks for token in look.tokens if not token.lstrip("-").isdigit())
    values = {label for each in attributes if hasattr(each, "values") for label in each.ordinary_labels}
    shared = {token for token, times in words.items() if times > 1 and token not in values}
    shared |= {token for token in given.missing_tokens if token not in values}
    default = Notation(decimal, thousands, tuple(shared))
    own = []
    for look in looks:
        mine = look.notation
        if kinds[look.column.name].kind != "numeric" or _reads_alike(look, default):
            mine = replace(mine, decimal=default.decimal, thousands=default.thousands)
        tokens = shared if set(mine.missing_tokens) <= shared else shared | set(mine.missing_tokens)
        own.append((look.column.name, replace(mine, missing_tokens=tuple(tokens))))
    return replace(how, notation=default, by_attribute=tuple(own))


def _reads_alike(look: Look, notation: Notation) -> bool:
    """Whether the column's texts are the same numbers in this notation as in its own."""
    texts = list(look.texts)
    ours, theirs = read_numbers(texts, look.notation), read_numbers(texts, notation)
    return all((ours == theirs) | ((ours != ours) & (theirs != theirs)))


# ----------------------------------------------------------------------------------------------------------------------
# That a curator compared a domain with the data: noted beside the ledger, so that it need not be suggested.
#
# The note holds the domain's fingerprint and a date, and nothing of what was found.


def note_check(ledger: Path, domain: Domain) -> None:
    """The domain counts as checked against the data of this ledger, whether or not that exists yet."""
    date = datetime.now(UTC).date().isoformat()
    checks = _checks(ledger) | {_reviewed_fingerprint(domain): date}
    write_atomically(_checks_beside(ledger), (json.dumps({"checked": checks}, indent=2) + "\n").encode())


def was_checked(ledger: Path, domain: Domain) -> bool:
    """Whether somebody compared this domain, marks of review aside, with the data of this ledger."""
    return _reviewed_fingerprint(domain) in _checks(ledger)


def _checks_beside(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".checks")


def _checks(ledger: Path) -> dict[str, str]:
    try:
        return dict(json.loads(_checks_beside(ledger).read_text(encoding="utf-8"))["checked"])
    except (OSError, ValueError, TypeError, KeyError):  # nobody checked, or somebody else's file
        return {}


def _reviewed_fingerprint(domain: Domain) -> str:
    return replace(domain, draft=False, unreviewed=(), quotes_data=False).fingerprint
