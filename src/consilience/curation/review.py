"""A person goes through a draft: what is kept, dropped or put in its place, in the text of the domain file.

The file's own lines and comments stay as they are, but for the marks of what was reviewed and the comments that tell of
the data. After every step the new text is read again and must declare what was meant: a file that is laid out in a way
that is not understood here is refused, and stays as it was.
"""

import csv
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from consilience.curation.draft import HEADING, attribute_toml
from consilience.domain.attributes import Attribute, Categorical, Continuous, Numeric
from consilience.domain.domains import QUOTES_DATA, Domain
from consilience.domain.files import write_atomically
from consilience.errors import DeclarationError

HEADER = re.compile(r"\s*\[\[?[^\[\]]*(?:\"[^\"]*\"[^\[\]]*)*\]?\]\s*(?:#.*)?")
MARK = re.compile(r"\s*(?:reviewed\s*=\s*false|draft\s*=\s*true)\s*(?:#.*)?")


class Part(NamedTuple):
    """Lines of a domain file: the comments right above a table's header, the header, and what follows."""

    owner: str | None
    """The attribute that they declare, or None for everything else."""
    lines: list[str]


class Review:
    """The review of a domain file, which is written anew after each decision."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.domain = Domain.load(self._path)
        self._parts = _parts(self._path.read_text(encoding="utf-8-sig"))
        owners = {part.owner for part in self._parts}
        if not set(self.domain.names) <= owners:
            raise DeclarationError(
                f"{self._path.name} does not declare every attribute under a header [attributes.NAME] of its own; "
                "write it so, or remove the marks by hand"
            )

    @property
    def left(self) -> tuple[str, ...]:
        """The attributes that nobody has gone through yet, in the order of the file."""
        return self.domain.unreviewed

    @property
    def remarks(self) -> str:
        """What the comments say of columns that were left out."""
        return "\n".join(_said(part.lines) for part in self._parts if part.owner is None and _said(part.lines))

    def remark(self, name: str) -> str:
        """What the comments say of an attribute."""
        return _said([line for part in self._parts if part.owner == name for line in part.lines])

    def keep(self, name: str) -> None:
        """The attribute was reviewed: its mark goes, and the comments that tell of the data."""
        self._take(
            replace(self.domain, unreviewed=tuple(each for each in self.left if each != name)),
            [_without_marks(part) if part.owner == name else part for part in self._parts],
        )

    def drop(self, name: str) -> None:
        """The attribute is no longer part of the domain."""
        names = tuple(each for each in self.domain.names if each != name)
        if not names:
            raise DeclarationError(f"{name!r} is the last attribute; a domain needs one")
        used = [*self.domain.impossible, *self.domain.public.margins]
        if any(name in each.attributes for each in used):
            raise DeclarationError(f"impossible cells or public facts name {name!r}; take it out of them first")
        self._take(self.domain.project(names), [part for part in self._parts if part.owner != name])

    def put(self, attribute: Attribute) -> None:
        """The attribute as it is to be declared; comments above it stay."""
        name = attribute.name
        attributes = tuple(attribute if each.name == name else each for each in self.domain.attributes)
        domain = replace(self.domain, attributes=attributes)
        text = attribute_toml(name, domain.to_declaration()["attributes"][name])
        places = [place for place, part in enumerate(self._parts) if part.owner == name]
        above = [line for line in self._parts[places[0]].lines if line.lstrip().startswith("#")]
        parts = [part for place, part in enumerate(self._parts) if place not in places[1:]]
        parts[places[0]] = Part(name, [*above, *text.splitlines(), ""])
        self._take(domain, parts)

    def finish(self) -> None:
        """Nothing is left to review: the mark at the top goes, and all comments that tell of the data."""
        if self.left:
            raise DeclarationError(f"{', '.join(map(repr, self.left))} are left to review")
        heading = set(HEADING.splitlines())
        parts = [Part(None, [line for line in part.lines if line not in heading]) for part in self._parts]
        self._take(replace(self.domain, draft=False, quotes_data=False), [_without_marks(part) for part in parts])

    def _take(self, domain: Domain, parts: Sequence[Part]) -> None:
        """Write what was decided, if the text says just that."""
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(line for part in parts for line in part.lines)).strip() + "\n"
        try:
            said = Domain.from_declaration(tomllib.loads(text), where=self._path.name, folder=self._path.parent)
        except ValueError:
            said = None
        if said is None or said.to_declaration() != domain.to_declaration():
            raise DeclarationError(
                f"{self._path.name} is laid out in a way that is not understood here; it was left as it is: edit it by "
                "hand"
            )
        write_atomically(self._path, text.encode())
        self.domain = replace(said, quotes_data=QUOTES_DATA in text)
        self._parts = _parts(text)


def _parts(text: str) -> list[Part]:
    """The lines of a file by the attribute they belong to; comments belong to the header right below them."""
    parts = [Part(None, [])]
    for line in text.splitlines():
        path = _header(line)
        if path is not None:
            above: list[str] = []
            while parts[-1].lines and parts[-1].lines[-1].lstrip().startswith("#"):
                above.insert(0, parts[-1].lines.pop())
            parts.append(Part(path[1] if path[0] == "attributes" and len(path) > 1 else None, above))
        parts[-1].lines.append(line)
    return parts


def _header(line: str) -> list[str] | None:
    """The keys of a table's header, or None where the line is none."""
    if not HEADER.fullmatch(line):
        return None
    try:
        table = tomllib.loads(line)
    except ValueError:
        return None
    path = []
    while isinstance(table, Mapping) and len(table) == 1:
        key, table = next(iter(table.items()))
        path.append(key)
    return path or None


def _without_marks(part: Part) -> Part:
    kept = (line for line in part.lines if not line.lstrip().startswith(QUOTES_DATA) and not MARK.fullmatch(line))
    return Part(part.owner, list(kept))


def _said(lines: Sequence[str]) -> str:
    """What comments that tell of the data say, without their beginning; blank lines between them stay."""
    said = [line.lstrip() for line in lines if line.lstrip().startswith(QUOTES_DATA)]
    return "\n".join(line.removeprefix(QUOTES_DATA).strip() for line in said)


def with_values(attribute: Attribute, text: str) -> Attribute:
    """The attribute with other values, edges or bounds, as a person types them: with commas between, and quotes.

    >>> with_values(Attribute.numeric("age", [0, 10]), "0, 18, 65").labels
    ('0..17', '18..64')
    """
    typed = [part.strip() for part in next(csv.reader([text], skipinitialspace=True), []) if part.strip()]
    if isinstance(attribute, Categorical):
        found: Attribute = replace(attribute, values=tuple(typed))
    elif isinstance(attribute, Numeric | Continuous):
        try:
            numbers = tuple(float(part) for part in typed)
        except ValueError:
            raise DeclarationError("edges are numbers with commas between, such as 0, 18, 65") from None
        if isinstance(attribute, Numeric):
            found = replace(attribute, edges=numbers)
        else:
            low, high = numbers if len(numbers) == 2 else (0.0, 0.0)
            found = replace(attribute, bounds=(low, high))
    else:
        raise DeclarationError("the parents of a hierarchy are edited in the file")
    labels = attribute.wording.by_value
    return found.worded(labels={value: label for value, label in labels.items() if value in found.nameable})


def with_words(attribute: Attribute, key: str, text: str) -> Attribute:
    """The attribute with another title, unit, or label of the value that is the key; an empty text removes it."""
    wording = attribute.wording
    if key in ("title", "unit"):
        return replace(attribute, wording=replace(wording, **{key: text}))
    return attribute.worded(labels={k: v for k, v in (wording.by_value | {key: text}).items() if v})
