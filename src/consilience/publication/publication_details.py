"""`publication.toml`: who publishes a release, about whom, for what, and who has seen the data. Written by people.

    title = "Employment in Aton"                     # every key may be left out; pages then say "not stated"
    publisher = "Statistical Office of Aton"
    contact = "statistics@aton.example"

    [assessment]                                     # what no file can know, for the privacy self-assessment
    custodian = "The office's own staff, on machines without a network."

It is public. A bundle holds what it states, without its comments, so that everything made of it tells the same.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.domain.declarations import suggestion
from consilience.domain.files import read_toml
from consilience.errors import FileFormatError

PUBLICATION = "publication.toml"
"""What the file is called in a bundle."""

KEYS = (
    "title",
    "publisher",
    "contact",
    "population",
    "period",
    "region",
    "licence",
    "intended_use",
    "unsuitable_use",
)
ASSESSMENT = ("custodian", "access", "collection", "side_channels", "other_releases", "auxiliary")
LONGEST = 2000
"""Characters of one text: a page is to be read."""
_TURNING = re.compile(r"[\u0000-\u0008\u000b-\u001f\u007f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and signs that turn the direction of writing: what people read would not be what is written."""


@dataclass(frozen=True)
class PublicationDetails:
    """What is stated about a publication; what is not stated has no entry."""

    stated: Mapping[str, str] = field(default_factory=dict)
    """By the keys of the file."""
    assessment: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> str | None:
        return self.stated.get(key)

    @staticmethod
    def load(path: "str | os.PathLike[str] | PublicationDetails") -> "PublicationDetails":
        """The details in a file; whatever is wrong with it is a `FileFormatError` that names the line.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     place = Path(folder) / "publication.toml"
        ...     _ = place.write_text('publisher = "Office of Aton"')
        ...     PublicationDetails.load(place)["publisher"]
        'Office of Aton'
        """
        if isinstance(path, PublicationDetails):
            return path
        hint = f'write one, such as: publisher = "Statistical Office of Aton". The keys are {", ".join(KEYS)}'
        declared = read_toml(path, what="publication file", hint=hint)
        text = Path(path).read_text(encoding="utf-8-sig")
        own = {key: value for key, value in declared.items() if key != "assessment"}
        more = declared.get("assessment", {})
        if not isinstance(more, dict):
            raise FileFormatError(
                f"{path}{_line(text, 'assessment')}: 'assessment' is a table of texts; begin it with [assessment]"
            )
        stated = _texts(own, KEYS, text, str(path))
        return PublicationDetails(stated, _texts(more, ASSESSMENT, text, str(path)))

    def to_toml(self) -> bytes:
        """The file that states this, without comments."""
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in self.stated.items()]
        more = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in self.assessment.items()]
        return "\n".join([*lines, *(["", "[assessment]", *more] if more else []), ""]).encode()

    @staticmethod
    def of_bundle(folder: Path) -> "PublicationDetails":
        """The details that a bundle holds; none where it holds none."""
        place = folder / PUBLICATION
        return PublicationDetails.load(place) if place.is_file() else PublicationDetails()


def is_publication_file(path: Path) -> bool:
    """Whether a TOML file is meant to be one: nothing but what only such a file has at its top."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return path.name == PUBLICATION
    return path.name == PUBLICATION or (bool(found) and set(found) <= {*KEYS, "assessment"})


def _texts(declared: Mapping[str, Any], keys: tuple[str, ...], text: str, where: str) -> dict[str, str]:
    for key, value in declared.items():
        place = f"{where}{_line(text, key)}"
        if key not in keys:
            tables = ["assessment"] if keys is KEYS else []
            raise FileFormatError(f"{place}: {key!r} is not known here; {suggestion(key, [*keys, *tables])}")
        if not isinstance(value, str) or not value.strip():
            raise FileFormatError(
                f"{place}: {key!r} is a text and not empty, found {value!r:.60}; put it in quotes, or leave the key out"
            )
        if len(value) > LONGEST:
            raise FileFormatError(
                f"{place}: {key!r} has {len(value):,} characters and may have {LONGEST:,}; shorten it, and put the "
                "rest where it can be linked to"
            )
        if _TURNING.search(value):
            raise FileFormatError(
                f"{place}: {key!r} holds a control character, or a sign that turns the direction of writing; remove it"
            )
    return {key: " ".join(declared[key].split()) for key in keys if key in declared}


def _line(text: str, key: str) -> str:
    """Where a key stands, for a message; nothing where it is written in a way that is not looked for."""
    found = re.compile(rf"""^[ \t]*(?:\[[ \t]*)?["']?{re.escape(key)}["']?[ \t]*[=.\]]""", re.MULTILINE).search(text)
    return "" if found is None else f", line {text.count(chr(10), 0, found.start()) + 1}"
