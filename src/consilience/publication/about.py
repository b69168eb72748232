"""`publication.toml`: who publishes a release, of whom it tells, for which time and place, and under which licence.

    title = "Population of the town, 2024"
    publisher = "Statistical Office of the Town"     # or { name = "...", url = "https://..." }
    contact = { name = "Information desk", email = "desk@example.org" }
    period = { start = 2024-01-01, end = 2024-12-31 }
    region = "Springfield"
    licence = "CC-BY-4.0"
    intended_use = "Planning of schools."
    unsuitable_use = "Decisions about single persons."
    population = "Residents with a registered address"

    [assessment]                                     # what no release can know, for the privacy self-assessment
    custodian = "The office's own staff, on machines without a network."

All of it is public and for people: it changes no number and no promise, so that it can be corrected after the release.
Every key may be left out.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

from consilience.domain.declarations import Declaration, visible
from consilience.domain.files import read_toml
from consilience.errors import DeclarationError

PUBLICATION = "publication.toml"
"""What the file is called in a bundle."""

LICENCES = {
    "CC0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
    "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "CC-BY-SA-4.0": "https://creativecommons.org/licenses/by-sa/4.0/",
    "CC-BY-NC-4.0": "https://creativecommons.org/licenses/by-nc/4.0/",
    "ODbL-1.0": "https://opendatacommons.org/licenses/odbl/1-0/",
    "ODC-By-1.0": "https://opendatacommons.org/licenses/by/1-0/",
    "OGL-UK-3.0": "https://www.nationalarchives.gov.uk/doc/open-government-licence/version/3/",
    "PDDL-1.0": "https://opendatacommons.org/licenses/pddl/1-0/",
    "dl-de/by-2-0": "https://www.govdata.de/dl-de/by-2-0",
    "dl-de/zero-2-0": "https://www.govdata.de/dl-de/zero-2-0",
    "etalab-2.0": "https://www.etalab.gouv.fr/licence-ouverte-open-licence/",
}
"""Where the licences that data are published under stand, by the names that SPDX and their authors give them."""

ASSESSMENT = ("custodian", "access", "collection", "side_channels", "auxiliary", "other_releases")
"""Who is trusted with the data, who sees what, how they were collected, and what else could give somebody away."""

_URL = re.compile(r"https?://[^\s/?#<>\"{}|\\^`]+[^\s<>\"{}|\\^`]*")
_EMAIL = re.compile(r"[^\s@<>\"]+@[^\s@<>\"]+\.[^\s@<>\"]+")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_DAY = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")


@dataclass(frozen=True)
class Named:
    """A publisher, a region or a licence: what it is called, and where it stands on the web."""

    name: str
    url: str | None = None


@dataclass(frozen=True)
class Contact:
    """Whom to ask; at least one of the three is there."""

    name: str | None = None
    email: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class Period:
    """The first and the last day that the data tell of, as "2024", "2024-05" or "2024-05-31"; either may be open."""

    start: str | None = None
    end: str | None = None

    def __str__(self) -> str:
        if self.start == self.end:
            return str(self.start)
        if self.start is None or self.end is None:
            return f"until {self.end}" if self.start is None else f"since {self.start}"
        return f"{self.start} to {self.end}"


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What a publisher says of a release; whatever was not said is None.

    >>> Publication.from_declaration({"title": "Town", "licence": "CC-BY-4.0"}).licence
    Named(name='CC-BY-4.0', url='https://creativecommons.org/licenses/by/4.0/')
    """

    title: str | None = None
    description: str | None = None
    publisher: Named | None = None
    contact: Contact | None = None
    period: Period | None = None
    region: Named | None = None
    licence: Named | None = None
    intended_use: str | None = None
    unsuitable_use: str | None = None
    population: str | None = None
    """Who or what the records are, such as "residents of the town"."""
    language: str | None = None
    """Of the texts in the domain and in this file, such as "en" or "de-AT"."""
    keywords: tuple[str, ...] = field(default=())
    assessment: Mapping[str, str] = field(default_factory=dict)
    """What no release can know of its privacy, by the keys of `ASSESSMENT`."""

    def __bool__(self) -> bool:
        """Whether anything was said."""
        return self != Publication()

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Publication":
        """What a TOML file says; errors name the line, the key and what it must be."""
        hint = 'write one with lines such as publisher = "Statistical Office"'
        declared = read_toml(path, what="publication file", hint=hint)
        try:
            return Publication.from_declaration(declared, where=Path(path).name)
        except DeclarationError as error:
            raise DeclarationError(_with_line(str(error), Path(path))) from None

    @staticmethod
    def from_declaration(mapping: object, *, where: str = PUBLICATION) -> "Publication":
        """What plain data says, as TOML holds it; the inverse of `to_declaration`."""
        declared = Declaration(mapping, where)
        found = Publication(
            title=_text(declared, "title"),
            description=_text(declared, "description"),
            publisher=_named(declared, "publisher"),
            contact=_contact(declared),
            period=_period(declared),
            region=_named(declared, "region"),
            licence=_named(declared, "licence", LICENCES),
            intended_use=_text(declared, "intended_use"),
            unsuitable_use=_text(declared, "unsuitable_use"),
            population=_text(declared, "population"),
            language=_language(declared),
            keywords=_keywords(declared),
            assessment=_assessment(declared),
        )
        declared.close()
        return found

    def to_declaration(self) -> dict[str, Any]:
        """What was said, as plain data."""
        told: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Named) and value.url is None:
                told[each.name] = value.name
            elif isinstance(value, Named | Contact | Period):
                told[each.name] = {key: text for key, text in vars(value).items() if text is not None}
            elif value:
                told[each.name] = list(value) if isinstance(value, tuple) else value
        return told

    def to_toml(self) -> bytes:
        """The file's content."""
        import tomli_w

        return tomli_w.dumps(self.to_declaration()).encode()


def given(publication: "Publication | str | os.PathLike[str] | None") -> Publication:
    """What was given as such, or as a file; without either, nothing was said."""
    if publication is None or isinstance(publication, Publication):
        return publication or Publication()
    return Publication.load(publication)


def _with_line(message: str, path: Path) -> str:
    """The error with the line that it is about, where one begins with that key."""
    keys = re.findall(r": '(\w+)'", message)[:1] + re.findall(rf"^{re.escape(path.name)}\.(\w+)", message)
    words = path.read_text(encoding="utf-8-sig").splitlines()
    for key in keys:
        for number, line in enumerate(words, 1):
            if re.match(rf"""\s*\[?\s*["']?{re.escape(key)}["']?\s*[=.\]]""", line):
                return f"line {number} of {message}"
    return message


def _text(declared: Declaration, key: str) -> str | None:
    text = declared.optional_text(key)
    return None if text is None else _shown(declared, key, text)


def _shown(declared: Declaration, key: str, text: str) -> str:
    """The text without spaces around it; empty ones, and those that a page does not show as they are, are refused."""
    if not text.strip():
        declared.refuse(f"{key!r} is empty; write a text, or leave the line out")
    if any(visible(line) != line for line in text.strip().split("\n")):
        declared.refuse(f"{key!r} holds a control character, {visible(text)!r}; write it without")
    return text.strip()


def _url(declared: Declaration) -> str | None:
    text = _text(declared, "url")
    if text is not None and not _URL.fullmatch(text):
        declared.refuse(f"'url' must be a full address that begins with https://, found {text!r}")
    return text


def _named(declared: Declaration, key: str, known: Mapping[str, str] | None = None) -> Named | None:
    """A text, or a table with `name` and `url`; the address of a known name is added."""
    if key not in declared:
        return None
    addresses = known or {}
    if isinstance(declared.raw(key), str):
        name = str(_text(declared, key))
        return Named(name, addresses.get(name))
    table = declared.table(key)
    found = Named(_shown(table, "name", table.text("name")), _url(table))
    table.close()
    return found if found.url is not None else Named(found.name, addresses.get(found.name))


def _contact(declared: Declaration) -> Contact | None:
    if "contact" not in declared:
        return None
    table = declared.table("contact")
    found = Contact(_text(table, "name"), _text(table, "email"), _url(table))
    table.close()
    if found == Contact():
        table.refuse("nobody is named; write a name, an email or a url, or leave the contact out")
    if found.email is not None and not _EMAIL.fullmatch(found.email):
        table.refuse(f"'email' must be an address such as desk@example.org, found {found.email!r}")
    return found


def _period(declared: Declaration) -> Period | None:
    """`{ start, end }`, each a date, or a text or number for a year, a month or a day."""
    if "period" not in declared:
        return None
    table = declared.table("period")
    found = Period(_day(table, "start"), _day(table, "end"))
    table.close()
    if found == Period():
        table.refuse("neither 'start' nor 'end' is there; write one, such as start = 2024-01-01")
    if found.start is not None and found.end is not None:
        as_exact = min(len(found.start), len(found.end))
        if found.start[:as_exact] > found.end[:as_exact]:
            table.refuse(f"it ends, {found.end}, before it starts, {found.start}; exchange them")
    return found


def _day(table: Declaration, key: str) -> str | None:
    if key not in table:
        return None
    value = table.raw(key)
    text = value.isoformat()[:10] if isinstance(value, date) else str(value)
    try:
        known = _DAY.fullmatch(text) is not None and date.fromisoformat(text + "-01-01"[len(text) - 4 :]) is not None
    except ValueError:
        known = False
    return text if known else table.refuse(f"{key!r} must be a day, month or year such as 2024-05-31, found {text!r}")


def _language(declared: Declaration) -> str | None:
    text = _text(declared, "language")
    if text is not None and not _LANGUAGE.fullmatch(text):
        declared.refuse(f'\'language\' must be a code such as "en" or "de-AT", found {text!r}')
    return text


def _keywords(declared: Declaration) -> tuple[str, ...]:
    words = declared.texts("keywords") if "keywords" in declared else ()
    return tuple(_shown(declared, "keywords", word) for word in words)


def _assessment(declared: Declaration) -> dict[str, str]:
    if "assessment" not in declared:
        return {}
    table = declared.table("assessment")
    found = {key: _text(table, key) for key in ASSESSMENT}
    table.close()
    return {key: text for key, text in found.items() if text is not None}
