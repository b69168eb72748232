"""Questions: what people ask, which is a query or is made of the answers to several.

    question   =  ["top" number "of"] answer ["minus" answer]
    answer     =  query ["per" query]

In a query, as `domain/language.py` reads it, three more functions then stand for what is made of its answers:

    term       =  "mean" "(" attribute ")"  |  "median" "(" attribute ")"
               |  "quantile" "(" attribute "," share {"," share} ")"
"""

import re
from dataclasses import dataclass, replace

from consilience.domain.domains import Domain
from consilience.domain.factors import Factor, Identity, Mean, Moments, Range
from consilience.domain.language import QueryParser, together
from consilience.domain.queries import Query
from consilience.errors import DeclarationError

_DECIMAL = re.compile(r"[0-9]*\.?[0-9]+")


@dataclass(frozen=True)
class Question:
    """What a text of the query language asks for: the answers to a query, or what is made of the answers to several."""

    query: Query
    per: Query | None = None
    """What the answers are divided by."""
    quantiles_of: str | None = None
    """The attribute whose quantiles are asked for, of which the query lists all values."""
    shares: tuple[float, ...] = ()
    """Which quantiles: 0.5 is the median."""
    word: str = ""
    """How the answers are compared with those to the `other` question: "minus" or "per"."""
    other: "Question | None" = None
    top: int | None = None
    """So many of the largest answers are asked for, in order."""

    @staticmethod
    def parse(text: str) -> "Question":
        """What a person typed, such as "mean(age) by sex".

        >>> asked = Question.parse("mean(age) by sex")
        >>> asked.query.describe(), asked.per.describe()
        ('sum(age), sex', 'age=.. by sex')
        >>> [query.describe() for query in Question.parse("median(age) by sex minus median(age)").parts]
        ['age, sex', 'age']
        """
        return _Parser(text).question()

    @property
    def parts(self) -> tuple[Query, ...]:
        """The queries that it is made of."""
        own = (self.query,) if self.per is None else (self.query, self.per)
        return own if self.other is None else own + self.other.parts

    @property
    def bare(self) -> "Question":
        """The question before its answers are compared or ordered."""
        return replace(self, word="", other=None, top=None)

    def over(self, domain: Domain) -> "Question":
        """The same question in the domain's own words."""
        return replace(
            self,
            query=self.query.over(domain),
            per=None if self.per is None else self.per.over(domain),
            other=None if self.other is None else self.other.over(domain),
        )

    @property
    def mean_of(self) -> str | None:
        """The attribute whose mean this is; None of other questions."""
        if self.per is None or self.per != mean_divisor(self.query):
            return None
        return next(name for name, factor in self.query.factors if isinstance(factor, Mean))

    def describe(self) -> str:
        """The question as a person would type it."""
        if self.top is not None:
            return f"top {self.top} of {replace(self, top=None).describe()}"
        if self.other is not None:
            return f"{self.bare.describe()} {self.word} {self.other.describe()}"
        if self.quantiles_of is not None:
            words = "".join(f", {share:g}" for share in self.shares)
            own = "median" if self.shares == (0.5,) else "quantile"
            return self._with_function(self.quantiles_of, own, "" if own == "median" else words)
        if self.per is None:
            return self.query.describe()
        name = self.mean_of
        if name is None:
            return f"{self.query.describe()} per {self.per.describe()}"
        return self._with_function(name, "mean")

    def _with_function(self, name: str, function: str, arguments: str = "") -> str:
        """The query's words with a function of one attribute, written as a sum first."""
        pairs = tuple((each, Mean() if each == name else factor) for each, factor in self.query.factors)
        word = Mean().describe(name)
        text = Query(pairs).describe()
        if pairs[0][0] == name and not any(factor.is_condition for _, factor in pairs):
            text = " by ".join([word, *filter(None, [Query(pairs[1:]).describe() if pairs[1:] else ""])])
        return text.replace(word, f"{function}{word.removeprefix('sum').removesuffix(')')}{arguments})", 1)


def mean_divisor(query: Query) -> Query | None:
    """The number of records that a sum over one attribute is about, without those that have no number; else None."""
    if sum(isinstance(factor, Mean) for _, factor in query.factors) != 1:
        return None
    counted = ((name, Range(None, None) if isinstance(factor, Mean) else factor) for name, factor in query.factors)
    return Query(tuple(counted))


class _Parser(QueryParser):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.means: list[str] = []
        self.quantiles: list[tuple[str, tuple[float, ...]]] = []

    def question(self) -> Question:
        self.refuse_nothing()
        top = self.top() if self.at_top() else None
        found = self.answer()
        other = self.answer() if self.take("minus") else None
        if self.peek("minus", "per"):
            self.refuse("only two answers are compared at a time")
        self.refuse_more()
        if other is not None:
            for each in (found, other):
                if each.other is not None:
                    raise DeclarationError(
                        f"{each.describe()!r} is a ratio of what is no count by itself, and in {self.text!r} another "
                        "answer is taken from it; ask for each ratio by itself"
                    )
            found = replace(found, word="minus", other=other)
        return replace(found, top=top)

    def top(self) -> int:
        """The number of `top 5 of`, which stands before everything else."""
        self.at = 3
        number = self.whole_number(self.tokens[1].text)
        return number if number > 0 else self.refuse("'top 0' asks for nothing; ask for the first one at least")

    def answer(self) -> Question:
        """A query, a mean or a quantile, divided by another where that is said."""
        found = self.side()
        if not self.take("per"):
            return found
        other = self.side()
        if all(each == Question(each.query) for each in (found, other)):
            return Question(found.query, other.query)
        return replace(found, word="per", other=other)

    def side(self) -> Question:
        """A query, and what is to be made of its answers."""
        self.means, self.quantiles = [], []
        factors = together(self.query())
        sums = [name for name, factor in factors if isinstance(factor, Mean | Moments)]
        if self.means and len(sums) > 1:
            self.refuse(f"the mean of {self.means[0]!r} is asked for beside a sum of {sums[-1]!r}; ask one at a time")
        if len(self.quantiles) + len(sums) > 1 and self.quantiles:
            others = [name for name, _ in self.quantiles[1:]] + sums
            self.refuse(
                f"a quantile of {self.quantiles[0][0]!r} is asked for beside one, or a sum, of {others[-1]!r}; ask one "
                "at a time"
            )
        query = Query(factors)
        name, shares = self.quantiles[0] if self.quantiles else (None, ())
        return Question(query, mean_divisor(query) if self.means else None, name, shares)

    def function(self, word: str, name: str) -> Factor:
        if word not in ("mean", "median", "quantile"):
            return super().function(word, name)
        shares = [0.5] * (word == "median")
        while self.take(","):
            text = self.words("a number")
            if word != "quantile":
                self.refuse(f"{word}(attribute) does not take {text!r}")
            shares.append(self.share(text))
        if word == "mean":
            self.means.append(name)
            return Mean()
        if not shares:
            self.refuse(f"{word}({name}) says not which one; write quantile({name}, 0.9), or median({name})")
        self.quantiles.append((name, tuple(shares)))
        return Identity()

    def share(self, text: str) -> float:
        if not _DECIMAL.fullmatch(text) or not 0.0 < float(text) < 1.0:
            self.refuse(f"a quantile is for a number between 0 and 1, such as 0.9, found {text!r}")
        return float(text)
