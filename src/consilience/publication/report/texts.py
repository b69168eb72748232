"""The sentences of a report: all of them stand in one catalogue, so that another language is a file.

`english.toml` is the catalogue. An entry is a text with {places} for what is put in, or a table of two, `one` and
`many`, of which the number `n` chooses. Numbers that are put in whole get their thousands apart.
"""

import os
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from consilience.domain.declarations import suggestion
from consilience.domain.files import read_toml
from consilience.errors import FileFormatError

ENGLISH = "english.toml"

Entry = str | Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of one language, by name."""

    entries: Mapping[str, Entry]

    def __call__(self, name: str, /, **put_in: str | int) -> str:
        """The text of a name.

        >>> english()("tables.left_out", n=1), english()("tables.left_out", n=4812)
        ('1 more measured table is not shown here.', '4,812 more measured tables are not shown here.')
        """
        entry = self.entries[name]
        text = entry if isinstance(entry, str) else entry["one" if put_in["n"] == 1 else "many"]
        return text.format_map({key: f"{each:,}" if isinstance(each, int) else each for key, each in put_in.items()})

    @property
    def language(self) -> str:
        """The code of the language, as pages declare it: "en"."""
        return self("language")

    def listed(self, words: "tuple[str, ...] | list[str]", *, most: int = 12) -> str:
        """The words one after the other; of more than `most` the first, and how many there are besides."""
        shown = ", ".join(words[:most])
        return shown if len(words) <= most else self("and_more", listed=shown, n=len(words) - most)


@lru_cache(maxsize=1)
def english() -> Texts:
    """The catalogue that comes with the package."""
    place = files("consilience.publication.report") / ENGLISH
    return Texts(_flat(read_toml(str(place), what="catalogue", hint="install consilience anew")))


def load_texts(path: str | os.PathLike[str] | None) -> Texts:
    """The catalogue in a file: it has each text of `english.toml`, with the same {places} in it."""
    if path is None:
        return english()
    hint = f"copy {files('consilience.publication.report') / ENGLISH} and translate it"
    found, wanted = _flat(read_toml(path, what="catalogue of texts", hint=hint)), english().entries
    for name in found:
        if name not in wanted:
            raise FileFormatError(f"{path}: there is no text {name!r}; {suggestion(name, wanted)}")
    for name, entry in wanted.items():
        if name not in found:
            raise FileFormatError(f"{path}: the text {name!r} is missing; in English it is {entry!r}")
        if (mine := _places(found[name])) != (theirs := _places(entry)):
            raise FileFormatError(
                f"{path}: the text {name!r} has the places {sorted(mine)}, and in English {sorted(theirs)}; each of "
                "them must be there, and no other"
            )
    if not re.fullmatch(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", str(found["language"])):
        raise FileFormatError(f'{path}: \'language\' is a code such as "en" or "de-CH", found {found["language"]!r}')
    return Texts(found)


def _flat(declared: Mapping[str, Any], prefix: str = "") -> dict[str, Entry]:
    """Texts by the path to them; tables of `one` and `many` are texts."""
    found: dict[str, Entry] = {}
    for key, value in declared.items():
        name = prefix + key
        if isinstance(value, dict) and set(value) != {"one", "many"}:
            found |= _flat(value, f"{name}.")
        elif isinstance(value, str) or (isinstance(value, dict) and all(isinstance(v, str) for v in value.values())):
            found[name] = value
        else:
            raise FileFormatError(f"the text {name!r} of a catalogue must be a text, found {value!r}")
    return found


def _places(entry: Entry) -> set[str]:
    """The names of the places of a text; of two, those of both together."""
    found: set[str] = set()
    for text in [entry] if isinstance(entry, str) else entry.values():
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise FileFormatError(f"{text[:60]!r} of a catalogue has a brace too many or too few: {error}") from None
        for _, place, form, conversion in parts:
            if place is not None and (not place.isidentifier() or form or conversion):
                raise FileFormatError(
                    f"the place {{{place}}} in {text[:60]!r} of a catalogue is a name and nothing else"
                )
            found |= set() if place is None else {place}
    return found
