"""The query language of the command line: `age=25..34 and sex=Female by marital`.

    query      =  ["total" | terms] [["where"] conditions] ["by" terms ["where" conditions]]
    terms      =  term {("and" | ",") term}
    term       =  attribute  |  level  |  function "(" attribute ["," number] ["," "level" number] ")"
               |  level "(" attribute ")"
    function   =  "prefix" | "ranges" | "haar" | "tree" | "sum" | "moments" | "total"
    conditions =  condition {("and" | ",") condition}
    condition  =  attribute "=" value {"|" value}  |  attribute "=" [low] ".." [high]
               |  attribute "in" "(" value {"," value} ")"  |  attribute ">=" low  |  attribute "<=" high
               |  attribute "==" attribute {"==" attribute}

Words may contain spaces; quotes make anything a word, also `by`, `and` and `..`, and a quote inside quotes is written
twice. Whether attributes and values exist is checked when the query meets a domain.

A query is linear. Means, quantiles, differences, ratios and the largest of several are made of the answers to queries:
`domain/questions.py` reads them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

from consilience.domain.declarations import HEADS, KEYWORDS
from consilience.domain.factors import (
    AllRanges,
    Equal,
    Factor,
    Haar,
    Identity,
    Level,
    Mean,
    Moments,
    Prefix,
    Range,
    Subset,
    Total,
    Tree,
    Value,
    joint_name,
)
from consilience.errors import DeclarationError

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*')"""
    r"""|(?P<operator>>=|<=|!=|==|[=<>(),|])|(?P<word>(?:[^\s=<>(),|"'!]|!(?!=))+))"""
)
LONGEST_SHOWN = 200
"""Letters of a query that messages show."""
_COMPARISONS = ("=", "==", ">=", "<=", "<", ">", "!=", "in")


@dataclass(frozen=True)
class _Function:
    """A function of the language: the factor it makes of its number and its level, and which of them it takes."""

    make: Callable[[int | None, int | None], Factor]
    takes_number: bool = False
    takes_level: bool = False
    of_answers: bool = False
    """What it asks for is no answer of the factor, but is made of its answers."""


FUNCTIONS = {
    "prefix": _Function(lambda _, __: Prefix()),
    "ranges": _Function(lambda _, __: AllRanges()),
    "haar": _Function(lambda _, __: Haar()),
    "tree": _Function(lambda number, level: Tree(number, level), takes_number=True, takes_level=True),
    "sum": _Function(lambda _, __: Mean()),
    "mean": _Function(lambda _, __: Mean(), of_answers=True),
    "moments": _Function(lambda number, _: Moments(2 if number is None else number), takes_number=True),
    "total": _Function(lambda _, __: Total()),
    "median": _Function(lambda _, __: Identity(), of_answers=True),
    "quantile": _Function(lambda _, __: Identity(), of_answers=True),
}


@dataclass(frozen=True)
class _Token:
    text: str
    kind: str


def together(factors: Sequence[tuple[str, Factor]]) -> tuple[tuple[str, Factor], ...]:
    """The factors, with a condition on an attribute and the rows of that attribute as one: its rows where it holds."""
    rows = {name: factor for name, factor in factors if isinstance(factor, Identity | Level)}
    picks = {name: factor for name, factor in factors if factor.is_condition and name in rows}
    found: list[tuple[str, Factor]] = []
    for name, factor in factors:
        if name in picks and factor == rows[name]:
            level, within = (factor.level, factor.within) if isinstance(factor, Level) else (None, None)
            found.append((name, Level(level, picks[name]) if within is None else factor))
        elif factor != picks.get(name):
            found.append((name, factor))
    return tuple(found)


class TextParser:
    """Reads a text word by word: what queries and the constraints of domains have in common."""

    keywords: ClassVar[tuple[str, ...]] = KEYWORDS
    what: ClassVar[str] = "query"
    example: ClassVar[str] = "age=25..34 by sex"

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
                word = word[1:-1].replace(word[0] * 2, word[0])
            elif kind == "word" and word.lower() in self.keywords:
                kind, word = "keyword", word.lower()
            tokens.append(_Token(word, kind))
        return tokens

    def refuse(self, message: str) -> NoReturn:
        shown = self.text if len(self.text) <= LONGEST_SHOWN else self.text[: LONGEST_SHOWN - 3] + "..."
        raise DeclarationError(f'cannot read the {self.what} {shown!r}: {message}; an example is "{self.example}"')

    def peek(self, *texts: str) -> bool:
        if self.at >= len(self.tokens):
            return False
        token = self.tokens[self.at]
        return token.kind in ("operator", "keyword") and token.text in texts

    def take(self, *texts: str) -> bool:
        found = self.peek(*texts)
        self.at += found
        return found

    def found(self) -> str:
        """What stands at this place, for messages."""
        return repr(self.tokens[self.at].text) if self.at < len(self.tokens) else "the end"

    def expect(self, text: str) -> None:
        if not self.take(text):
            self.refuse(f"expected {text!r}, found {self.found()}")

    def run(self, what: str) -> list[_Token]:
        """One or more words in a row."""
        first = self.at
        while self.at < len(self.tokens) and self.tokens[self.at].kind in ("word", "quoted"):
            self.at += 1
        if first == self.at:
            signs = self.at < len(self.tokens) and self.tokens[self.at].kind == "operator"
            hint = "; put a name or value that holds signs in quotes" if signs else ""
            self.refuse(f"expected {what}, found {self.found()}{hint}")
        return self.tokens[first : self.at]

    def words(self, what: str) -> str:
        """One or more words in a row, joined by spaces."""
        return " ".join(token.text for token in self.run(what))

    def picked(self) -> Factor | None:
        """The condition that follows an attribute, on its values; None where none does."""
        if self.take("in"):
            self.expect("(")
            values = [self.words("a value")]
            while self.take(",", "|"):
                values.append(self.words("a value"))
            self.expect(")")
            return Subset(tuple(values))
        if self.take(">="):
            return Range(self.words("a value"), None)
        if self.take("<="):
            return Range(None, self.words("a value"))
        return self.equals() if self.take("=") else None

    def equals(self) -> Factor:
        tokens = self.run("a value")
        value = " ".join(token.text for token in tokens)
        if self.peek("|"):
            values = [value]
            while self.take("|"):
                values.append(self.words("a value"))
            return Subset(tuple(values))
        return _range_of(tokens) or Value(value)


class QueryParser(TextParser):
    """Reads one query; a `Question` is read by more."""

    def whole(self) -> tuple[tuple[str, Factor], ...]:
        """The factors of the query that the whole text is."""
        self.refuse_nothing()
        if self.at_top():
            self.made_of_answers("the largest of some answers")
        factors = together(self.query())
        if self.peek("minus", "per"):
            self.made_of_answers("a comparison")
        self.refuse_more()
        return factors

    def made_of_answers(self, what: str, instead: str = "them") -> NoReturn:
        self.refuse(
            f"{what} is made of the answers to several queries, and here a query of sums is needed; ask for {instead}, "
            "or take it from answer_table, interval or the command line"
        )

    def refuse_nothing(self) -> None:
        if not self.tokens:
            self.refuse('it is empty; for the number of records ask for "total"')

    def refuse_more(self) -> None:
        if self.at < len(self.tokens):
            self.refuse(f"{self.found()} was not expected there")

    def at_top(self) -> bool:
        """True before `top 5 of`."""
        texts = [token.text.lower() for token in self.tokens[:3] if token.kind == "word"]
        return len(texts) == 3 and texts[::2] == ["top", "of"]

    def query(self) -> list[tuple[str, Factor]]:
        factors = self.head()
        conditioned = self.take("where") or self.at_condition()
        if conditioned:
            factors += self.conditions()
        terms = self.terms() if self.take("by") else []
        last = self.conditions() if terms and self.take("where") else []
        return [*factors, *last, *terms] if conditioned else [*factors, *terms, *last]

    def head(self) -> list[tuple[str, Factor]]:
        """What comes before conditions: the word total, attributes and functions, or nothing."""
        first, follows = self.tokens[self.at : self.at + 1], self.tokens[self.at + 1 : self.at + 2]
        alone = not follows or (follows[0].kind == "keyword" and follows[0].text != "in")
        if alone and first and first[0].kind == "word" and first[0].text.lower() in HEADS:
            self.at += 1
            return []
        if self.peek("where", "by") or self.at_condition():
            return []
        return self.terms()

    def at_condition(self) -> bool:
        """True where words and a comparison come next."""
        at = self.at
        while at < len(self.tokens) and self.tokens[at].kind in ("word", "quoted"):
            at += 1
        return at < len(self.tokens) and self.tokens[at].text in _COMPARISONS

    def conditions(self) -> list[tuple[str, Factor]]:
        conditions = [self.condition()]
        while self.take("and", ","):
            conditions.append(self.condition())
        return conditions

    def condition(self) -> tuple[str, Factor]:
        name = self.words("an attribute")
        if self.peek("=="):
            names = [name]
            while self.take("=="):
                names.append(self.words("an attribute"))
            return joint_name(names), Equal(tuple(names))
        if self.peek("<", ">", "!="):
            self.refuse(f"{self.found()} is not in the language; use '>=', '<=' or a range such as 25..34")
        factor = self.picked()
        if factor is None:
            self.refuse(f"{name!r} has no condition; write {name}=value, or 'by {name}' for a row for each value")
        return name, factor

    def terms(self) -> list[tuple[str, Factor]]:
        terms = [self.term()]
        while self.take(",", "and"):
            terms.append(self.term())
        return terms

    def term(self) -> tuple[str, Factor]:
        tokens = self.run("an attribute")
        word = " ".join(token.text for token in tokens)
        if word.lower().startswith("count distinct") or (word.lower() in ("count", "distinct") and self.peek("(")):
            self.refuse(
                "how many different values occur is no question for noisy counts: one record more can add a value, a "
                "value with few records cannot be told from one with none, and the domain lists all that may occur; "
                "ask for their counts with error bars, and see which are above zero"
            )
        if self.peek(*_COMPARISONS):
            self.refuse(
                f"the condition on {word!r} comes too late; write 'where' before conditions and 'by' after them"
            )
        if not self.take("("):
            return word, Identity()
        if word.lower() in FUNCTIONS and any(token.kind == "quoted" for token in tokens):
            self.refuse(f"the function {word!r} is written without quotes")
        name = self.words("an attribute")
        if word.lower() not in FUNCTIONS:
            self.expect(")")
            return name, Level(word)
        factor = self.function(word.lower(), name)
        self.expect(")")
        return name, factor

    def function(self, word: str, name: str) -> Factor:
        """The factor that a function makes of the numbers after its attribute."""
        function = FUNCTIONS[word]
        if function.of_answers:
            self.made_of_answers(f"a {word}", f"sum({name}) and {name}=.." if word == "mean" else name)
        number = level = None
        while self.take(","):
            text = self.words("a whole number")
            if function.takes_level and level is None and text.lower().startswith("level "):
                level = self.whole_number(text[len("level ") :])
            elif function.takes_number and number is None and level is None:
                number = self.whole_number(text)
            else:
                more = ", number" * function.takes_number + ", level number" * function.takes_level
                self.refuse(f"{word}(attribute{more}) does not take {text!r}")
        return function.make(number, level)

    def whole_number(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            self.refuse(f"expected a whole number, found {text!r}")
        return int(text)


def _range_of(tokens: list[_Token]) -> Range | None:
    """The range that words with `..` outside quotes make, each end one or more words or left open."""
    for i, token in enumerate(tokens):
        if token.kind == "word" and ".." in token.text:
            before, _, after = token.text.partition("..")
            low = [each.text for each in tokens[:i]] + ([before] if before else [])
            high = ([after] if after else []) + [each.text for each in tokens[i + 1 :]]
            return Range(" ".join(low) if low else None, " ".join(high) if high else None)
    return None
