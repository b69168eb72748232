"""How attributes and values are spelled: in the query language, on terminals, and in CSV files."""

import re

KEYWORDS = ("by", "and", "where", "in")
HEADS = ("total", "count")
"""Words that ask for the number of records where a query starts with them."""

_INVISIBLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""Control characters, ends of lines and paragraphs, signs that turn the direction of writing, and halves of signs."""
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBERS = re.compile(rf"{_NUMBER}(?:\.\.{_NUMBER})?")

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


def visible(text: str) -> str:
    """The text with what a terminal would obey, or not show, written out as JSON writes it.

    >>> print(visible("red\\x1b[31m alert"))
    red\\u001b[31m alert
    """
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def guarded(text: str) -> str:
    """The text as it is written into CSV: with an apostrophe before what a spreadsheet would take for a formula.

    Numbers, and ranges of them, stay as they are. Texts that begin with apostrophes and then so get one more, so that
    no two texts are written alike.

    >>> [guarded(text) for text in ("=1+2", "-5", "-9..0", "- none", "'=1", "fine")]
    ["'=1+2", '-5', '-9..0', "'- none", "''=1", 'fine']
    """
    return "'" + text if _FORMULA.match(text) and not _NUMBERS.fullmatch(text) else text
