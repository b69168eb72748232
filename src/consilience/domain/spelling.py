"""How attributes and values are spelled in the query language: bare where that is clear, in quotes where not."""

import re

KEYWORDS = ("by", "and", "where", "in")
HEADS = ("total", "count")
"""Words that ask for the number of records where a query starts with them."""

_BARE = re.compile(r"""[^\s=<>(),|"'!]+(?: [^\s=<>(),|"'!]+)*""")


def spell(word: str) -> str:
    """The word as the query language reads it back; inside quotes a quote is written twice.

    >>> print(spell("Never married"), spell("<=50K"), spell('5" pipe'))
    Never married "<=50K" "5"" pipe"
    """
    keyword = any(part.lower() in KEYWORDS for part in word.split(" "))
    return word if _BARE.fullmatch(word) and ".." not in word and not keyword else quoted(word)


def spell_attribute(name: str) -> str:
    """An attribute's name, in quotes where it could be taken for the start of a query."""
    return quoted(name) if name.lower() in HEADS else spell(name)


def spell_end(end: str | None) -> str:
    """One end of a range; nothing where it is open."""
    if end is None:
        return ""
    return quoted(end) if end.startswith(".") or end.endswith(".") else spell(end)


def quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'
