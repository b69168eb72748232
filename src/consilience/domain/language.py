"""The query language of the command line: `age=25..34 and sex=Female by marital`.

    query      =  [head] [["where"] condition {("and" | ",") condition}] ["by" term {"," term}]
    head       =  "total" | "mean(" attribute ")" | "moments(" attribute "," order ")"
    condition  =  attribute "=" value {"|" value}  |  attribute "=" [low] ".." [high]
               |  attribute "in" "(" value {"," value} ")"  |  attribute ">=" low  |  attribute "<=" high
    term       =  attribute  |  function "(" attribute ["," number] ")"
    function   =  "prefix" | "ranges" | "haar" | "tree" | "mean" | "moments"

Words may contain spaces; quotes make anything a word, also `by`, `and` and `..`. Whether attributes and values exist
is checked when the query meets a domain.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from consilience.domain.declarations import suggestion
from consilience.domain.factors import (
    AllRanges,
    Factor,
    Haar,
    Identity,
    Mean,
    Moments,
    Prefix,
    Range,
    Subset,
    Tree,
    Value,
)
from consilience.domain.queries import Query
from consilience.errors import DeclarationError

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"[^"]*"|'[^']*')|(?P<operator>>=|<=|!=|[=<>(),|])|(?P<word>[^\s=<>(),|"']+))""",
)
_KEYWORDS = ("by", "and", "where", "in")
_FUNCTIONS: dict[str, Callable[[int | None], Factor]] = {
    "prefix": lambda _: Prefix(),
    "ranges": lambda _: AllRanges(),
    "haar": lambda _: Haar(),
    "tree": lambda number: Tree(number),
    "mean": lambda _: Mean(),
    "moments": lambda number: Moments(2 if number is None else number),
}


@dataclass(frozen=True)
class _Token:
    text: str
    kind: str


def parse_query(text: str) -> Query:
    """The query that the text asks for.

    >>> parse_query("age=25..34 by sex").attributes
    ('age', 'sex')
    """
    return _Parser(text).query()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.at = 0

    def _tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        stripped = self.text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                self.refuse(f"a quote at position {position} is not closed")
            position = match.end()
            kind = str(match.lastgroup)
            word = match.group(kind)
            if kind == "quoted":
                word = word[1:-1]
            elif kind == "word" and word.lower() in _KEYWORDS:
                kind, word = "keyword", word.lower()
            tokens.append(_Token(word, kind))
        return tokens

    def refuse(self, message: str) -> NoReturn:
        raise DeclarationError(f'cannot read the query {self.text!r}: {message}; an example is "age=25..34 by sex"')

    def peek(self, *texts: str) -> bool:
        if self.at >= len(self.tokens):
            return False
        token = self.tokens[self.at]
        return token.kind in ("operator", "keyword") and token.text in texts

    def take(self, *texts: str) -> bool:
        found = self.peek(*texts)
        self.at += found
        return found

    def expect(self, text: str) -> None:
        if not self.take(text):
            found = self.tokens[self.at].text if self.at < len(self.tokens) else "the end"
            self.refuse(f"expected {text!r}, found {found!r}")

    def words(self, what: str) -> tuple[str, bool]:
        """One or more words in a row, joined by spaces, and whether they were quoted."""
        first = self.at
        while self.at < len(self.tokens) and self.tokens[self.at].kind in ("word", "quoted"):
            self.at += 1
        found = self.tokens[first : self.at]
        if not found:
            at = self.tokens[self.at].text if self.at < len(self.tokens) else "the end"
            self.refuse(f"expected {what}, found {at!r}")
        return " ".join(token.text for token in found), any(token.kind == "quoted" for token in found)

    def query(self) -> Query:
        if not self.tokens:
            self.refuse('it is empty; for the number of records ask for "total"')
        factors: list[tuple[str, Factor]] = []
        self.head(factors)
        self.take("where")
        while self.at < len(self.tokens) and not self.peek("by"):
            factors.append(self.condition())
            if not self.take("and", ","):
                break
        if self.take("by"):
            factors.append(self.term())
            while self.take(",", "and"):
                factors.append(self.term())
        if self.at < len(self.tokens):
            self.refuse(f"{self.tokens[self.at].text!r} was not expected there")
        return Query(tuple(factors))

    def head(self, factors: list[tuple[str, Factor]]) -> None:
        token = self.tokens[0]
        if token.kind != "word":
            return
        if token.text.lower() in ("total", "count") and not self._operator_follows():
            self.at += 1
        elif token.text.lower() in _FUNCTIONS and len(self.tokens) > 1 and self.tokens[1].text == "(":
            factors.append(self.term())

    def _operator_follows(self) -> bool:
        return len(self.tokens) > 1 and (self.tokens[1].kind in ("operator", "word") or self.tokens[1].text == "in")

    def condition(self) -> tuple[str, Factor]:
        name, _ = self.words("an attribute")
        if self.take("in"):
            self.expect("(")
            values = [self.words("a value")[0]]
            while self.take(",", "|"):
                values.append(self.words("a value")[0])
            self.expect(")")
            return name, Subset(tuple(values))
        if self.take(">="):
            return name, Range(self.words("a value")[0], None)
        if self.take("<="):
            return name, Range(None, self.words("a value")[0])
        if self.peek("<", ">", "!="):
            self.refuse(
                f"{self.tokens[self.at].text!r} is not in the language; use '>=', '<=' or a range such as 25..34"
            )
        if not self.peek("="):
            self.refuse(f"{name!r} has no condition; write {name}=value, or 'by {name}' for a row for each value")
        self.expect("=")
        return name, self.equals()

    def equals(self) -> Factor:
        value, quoted = self.words("a value")
        if not quoted and ".." in value:
            low, _, high = value.partition("..")
            return Range(low.strip() or None, high.strip() or None)
        values = [value]
        while self.take("|"):
            values.append(self.words("a value")[0])
        return Value(value) if len(values) == 1 else Subset(tuple(values))

    def term(self) -> tuple[str, Factor]:
        word, quoted = self.words("an attribute")
        if quoted or not self.take("("):
            return word, Identity()
        if word.lower() not in _FUNCTIONS:
            self.refuse(f"the function {word!r} is not known; {suggestion(word, _FUNCTIONS)}")
        name, _ = self.words("an attribute")
        number = self.number() if self.take(",") else None
        self.expect(")")
        return name, _FUNCTIONS[word.lower()](number)

    def number(self) -> int:
        text, _ = self.words("a whole number")
        if not text.isdigit():
            self.refuse(f"expected a whole number, found {text!r}")
        return int(text)
