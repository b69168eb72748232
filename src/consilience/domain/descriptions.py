"""What objects say of themselves, as text at a prompt and as a part of a page in a notebook.

An object lists facts and rows once (`described`); both forms are made from them. In the page every text is escaped,
what is long opens on a click, and nothing needs a script.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from consilience.domain.declarations import visible

_NUMBER = re.compile(r"–|[-−]?∞|[-−]?[\d,]+(\.\d+)?( %)?")
MOST_ROWS = 60
"""How many rows of a list are shown; the number of the others is told."""


@dataclass(frozen=True)
class Description:
    """A heading, sentences, and a list with a header."""

    title: str
    lines: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    warning: str = ""
    """What has to be read first, such as that noise protects nobody."""
    open: bool = True
    """Whether the list is open in a page before anybody clicks."""

    @property
    def more(self) -> str:
        hidden = len(self.rows) - MOST_ROWS
        return f"and {hidden:,} more" if hidden > 0 else ""

    @property
    def _numeric(self) -> list[bool]:
        """Which columns hold numbers alone."""
        return [all(_NUMBER.fullmatch(cell) for cell in column) for column in zip(*self.rows, strict=True)]

    def text(self) -> str:
        """
        >>> print(Description("two people", ("made up",), ("name", "age"), (("Ann", "9"), ("Jo", "10"))).text())
        two people
        made up
          name  age
          Ann     9
          Jo     10
        """
        shown = [self.header, *self.rows[:MOST_ROWS]] if self.rows else []
        widths = [max(len(row[place]) for row in shown) for place in range(len(self.header))] if shown else []
        listed = [
            "  "
            + "  ".join(
                part.rjust(width) if numeric else part.ljust(width)
                for part, width, numeric in zip(row, widths, self._numeric, strict=True)
            ).rstrip()
            for row in shown
        ]
        lines = [self.warning, self.title, *self.lines, *listed, f"  {self.more}" if self.more else ""]
        return "\n".join(visible(line) for each in lines if each for line in each.split("\n"))

    def html(self) -> str:
        """
        >>> "<script>" in Description("<script>", rows=(("<script>",),), header=("a",)).html()
        False
        """
        parts = [f"<strong>{escape(self.warning)}</strong><br>"] if self.warning else []
        parts.append(f"<b>{escape(visible(self.title))}</b>")
        parts += [f"<div>{escape(visible(line))}</div>" for each in self.lines for line in each.split("\n")]
        if self.rows:
            head = self._row(self.header, "th")
            body = "".join(self._row(row, "td") for row in self.rows[:MOST_ROWS])
            table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{escape(self.more)}"
            count = f"{len(self.rows):,} row{'s' * (len(self.rows) != 1)}"
            parts.append(f"<details{' open' * self.open}><summary>{count}</summary>{table}</details>")
        return f"<div>{''.join(parts)}</div>"

    def _row(self, cells: Sequence[str], tag: str) -> str:
        sides = ("right" if numeric else "left" for numeric in self._numeric)
        found = (
            f'<{tag} style="text-align:{side}">{escape(visible(cell))}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(found)}</tr>"


class Described:
    """An object that says what it is, in words rather than in fields."""

    def described(self) -> Description:
        """What the object says of itself."""
        raise NotImplementedError

    def describe(self) -> str:
        """What the object says of itself in sentences, without its list."""
        return replace(self.described(), header=(), rows=()).text()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Data classes write a `__repr__` of fields where their own class has none.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Described.__repr__

    def __repr__(self) -> str:
        return self.described().text()

    def _repr_html_(self) -> str:
        return self.described().html()


def some_of(texts: Sequence[str], most: int = 6) -> str:
    """The first texts and the last, and dots for what is between.

    >>> some_of(["a", "b"]), some_of([str(i) for i in range(9)], 3)
    ('a, b', '0, 1, …, 8')
    """
    return ", ".join(texts) if len(texts) <= most else ", ".join([*texts[: most - 1], "…", texts[-1]])
