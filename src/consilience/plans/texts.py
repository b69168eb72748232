"""Plans as people type them on the command line: a name, then what it is about.

flat [0]                                every cell of the full table; with this share, or none, for its total
2-way                                   all marginals over two attributes
marginals age,sex; income               the marginals that are named
queries home==work by sex; prefix(age)  the queries that are named, as the query language has them
views [2 [8]]                           a few larger marginals that hold every pair; of 8 attributes each
histogram age [16] [geometric]          a tree of counts over one attribute
wavelet [age,income]                    Privlet
efpa age · php age · dawa age           the histogram mechanisms of these names
efpa-published age · php-published age  as they were published, for comparison with ours; so are dawa-published
                                        and low-rank-published age prefix
matrix age ranges [p-identity]          the matrix mechanism for a workload of one attribute
low-rank age prefix                     the low-rank mechanism, likewise
fourier 2 · data-cube 2                 all marginals over two attributes, as the mechanisms of these names have them
mwem age,sex; income                    rounds that measure what is estimated worst among some marginals
independent · forest · mst · aim        one-way marginals; pairs worth their noise; a tree of pairs; rounds (AIM)
hdmm age,sex; income                    the strategy that is best for these marginals, whatever the data
residual-planner age,sex; income        likewise, for marginals under rho, with closed-form variances
geography age,sex; total                these marginals for every place, with the best shares of the levels
geography age,sex at State 1, County 3  with these shares; levels that are not named are not measured
mwem-graphical age,sex; income          MWEM with a graphical model, for domains of any size
dual-query age,sex; income              DualQuery
privbayes                               the tables of a Bayesian network
k-means 5 [x,y]                         rounds of noisy k-means: the counts and sums of 5 clusters of points
[2-way with] sums income by sex         sums of amounts, and counts by any plan; alone, the counts of the same groups
"""

import re
from collections.abc import Callable, Mapping
from importlib import import_module

from consilience.domain.declarations import suggestion
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.privacy.measure import Plan

EXAMPLES = (
    "flat",
    "2-way",
    "marginals age,sex; income",
    "queries home==work by sex; prefix(age)",
    "views",
    "views 2 8",
    "histogram age",
    "histogram age 16 geometric",
    "wavelet age",
    "dawa age",
    "matrix age ranges",
    "mwem age,sex; income",
    "aim",
    "hdmm age,sex; income",
    "geography age,sex; total",
    "k-means 5 x,y",
    "sums income by sex",
    "2-way with sums income by sex; income by region",
)


def plan_from_text(text: str, workload: Workload | None = None) -> Plan:
    """The plan that a text names; a workload takes the place of marginals that some plans name.

    >>> plan_from_text("2-way")
    Direct(ways=2)
    >>> plan_from_text("marginals age,sex; income").to_json()["marginals"]
    [['age', 'sex'], ['income']]
    """
    if re.search(r"\b\d{19,}\b", text):
        raise DeclarationError(f"the plan {text[:60]!r} has a number of more than 18 digits; give a smaller one")
    with_sums = re.fullmatch(r"\s*(?:(?P<counts>.*\S)\s+with\s+)?sums\s+(?P<sums>.+)", text, re.IGNORECASE)
    if with_sums:
        return _sums(with_sums["sums"], with_sums["counts"], workload)
    words = text.strip().split(maxsplit=1)
    name = words[0].lower() if words else ""
    rest = words[1] if len(words) > 1 else ""
    ways = re.fullmatch(r"(\d+)-way", name)
    if ways and not rest:
        return _plan("marginals.Direct")(ways=int(ways.group(1)))
    if name == "geography" and (rest or workload is not None):
        return _geography(rest, workload)
    if name == "queries" and (rest or workload is not None):
        return _plan("marginals.Queries")(_asked(rest, workload, _queries))
    if name in FOR_RANGES and rest and workload is not None:
        return _plan(FOR_RANGES[name])(rest, workload=workload)
    if name in FOR_WORKLOADS and (rest or workload is not None):
        return _plan(FOR_WORKLOADS[name])(workload=_asked(rest, workload))
    if workload is not None:
        raise DeclarationError(
            f"the plan {text!r} does not go by a workload; leave the workload out, or use one of "
            f"{', '.join(['queries', 'geography', *FOR_WORKLOADS, *(f'{each} ATTRIBUTE' for each in FOR_RANGES)])}"
        )
    if not rest and name in WITHOUT_WORDS:
        return _plan(WITHOUT_WORDS[name])()
    if rest and name in WITH_WORDS:
        return WITH_WORDS[name](rest)
    if not rest and name in {"queries", "geography", *FOR_RANGES, *FOR_WORKLOADS, *WITH_WORDS}:
        alike = [each for each in EXAMPLES if each.split()[0] == name]
        by_workload = name in {"queries", "geography", *FOR_WORKLOADS}
        example = alike[0] if alike else f"{name} age,sex; income" if by_workload else "histogram age"
        other = ", or give a workload" if by_workload else ""
        raise DeclarationError(f"the plan {name!r} needs words after its name, such as {example!r}{other}")
    raise DeclarationError(
        f"the plan {text!r} is not known; {_nearest(text)}examples: {', '.join(repr(each) for each in EXAMPLES)}"
    )


def _nearest(text: str) -> str:
    """The plan that may have been meant, as the beginning of a sentence."""
    ways = re.fullmatch(r"(\d+)\W*ways?", text.strip().lower().replace("_", "-"))
    if ways:
        return f"did you mean '{ways.group(1)}-way'? Or see the "
    known = ["queries", "geography", *FOR_WORKLOADS, *WITHOUT_WORDS, *WITH_WORDS]
    said = suggestion(text.strip().split(" ")[0], known)
    return f"{said} Or see the " if said.startswith("did you mean") else ""


def _plan(home: str) -> Callable[..., Plan]:
    """The class of a plan, imported when one is made: nobody waits for the kernels of the others."""
    module, _, name = home.rpartition(".")
    return getattr(import_module(f"consilience.plans.{module}"), name)


def _sets(text: str) -> list[tuple[str, ...]]:
    """`age,sex; income` as sets of attributes."""
    sets = [tuple(part.strip() for part in each.split(",")) for each in text.split(";")]
    return [names for names in sets if names != ("",)]


def _queries(text: str) -> list[Query | str]:
    """`home==work by sex; prefix(age)` as texts of queries; a semicolon between quotes is part of a label."""
    parts = re.findall(r"""(?:[^;"']|"[^"]*"|'[^']*'|["'])+""", text)
    return [part.strip() for part in parts if part.strip()]


def _marginals(text: str) -> list[Query | str]:
    return [Query.marginal(*names) for names in _sets(text)]


def _asked(text: str, workload: Workload | None, read: Callable[[str], list[Query | str]] = _marginals) -> Workload:
    """What the text names, or the workload that was given beside it."""
    if text and workload is not None:
        raise DeclarationError(f"the plan names {text!r}, and a workload was given, too; give one of them")
    return workload if workload is not None else Workload.of(read(text))


def _geography(text: str, workload: Workload | None) -> Plan:
    """`MARGINALS [at LEVEL SHARE, …]`: the tables of every place, and the shares of the levels."""
    tables, separator, given = re.match(r"(.*?)(?:(?:^|\s+)(at)\s+(.*))?$", text, re.DOTALL).groups()  # type: ignore[union-attr]
    levels = None
    if separator:
        pairs = [re.fullmatch(r"\s*(.*\S)\s+(\d*\.?\d+)\s*", part) for part in given.split(",")]
        if not all(pairs):
            raise DeclarationError(
                f"the plan 'geography {text}' is not known; say the shares of levels such as 'at State 1, County 3'"
            )
        levels = {pair.group(1): float(pair.group(2)) for pair in pairs if pair}
    named = [() if names == ("total",) else names for names in _sets(tables)]
    asked = Workload.of([Query.marginal(*names) for names in named]) if named else None
    if named and workload is not None:
        raise DeclarationError(f"the plan names {tables!r}, and a workload was given, too; give one of them")
    if (found := asked or workload) is None:
        raise DeclarationError("the plan 'geography' names no table; name one, such as 'geography age,sex; total'")
    return _plan("geography.Geography")(found, levels=levels)


def _views(text: str) -> Plan:
    """`WAYS [ATTRIBUTES]`: how many attributes every set has that is covered, and how many a view."""
    words = text.split()
    if len(words) > 2 or not all(word.isdigit() for word in words):
        raise DeclarationError(
            f"the plan 'views {text}' is not known; say 'views', 'views WAYS' or 'views WAYS ATTRIBUTES', such as "
            "'views 2 8'; views of your own are the plan 'marginals'"
        )
    return _plan("views.Views")(ways=int(words[0]), attributes_per_view=int(words[1]) if len(words) > 1 else None)


def _sums(text: str, counts: str | None, workload: Workload | None) -> Plan:
    """`AMOUNT [by ATTRIBUTES]; ...`: with half of the budget where only the groups are counted besides."""
    from consilience.plans.sums import WithSums, sums_in_words, sums_of

    sums = sums_of(sums_in_words(text))
    if counts is not None or workload is not None:
        return WithSums(plan_from_text(counts or "queries", workload), sums)
    groups = dict.fromkeys(names for _, sets in sums for names in sets)
    return WithSums(_plan("marginals.Marginals")(tuple(groups)), sums, share=0.5)


def _ways(plan: str, text: str) -> int:
    if not text.isdigit():
        raise DeclarationError(f"the plan '{plan} {text}' is not known; say how many attributes, such as '{plan} 2'")
    return int(text)


def _flat(text: str) -> Plan:
    """`SHARE`: what of the budget may go to the total."""
    if not re.fullmatch(r"\d*\.?\d+", text):
        raise DeclarationError(f"the plan 'flat {text}' is not known; say 'flat', or the share of its total: 'flat 0'")
    return _plan("marginals.Flat")(total_share=float(text))


def _histogram(text: str) -> Plan:
    """`ATTRIBUTE [BRANCHING] [uniform|geometric]`; the attribute may hold spaces."""
    words = text.split()
    budgets = "uniform"
    if len(words) > 1 and words[-1] in ("uniform", "geometric"):
        budgets = "geometric" if words.pop() == "geometric" else "uniform"
    branching = int(words.pop()) if len(words) > 1 and words[-1].isdigit() else None
    return _plan("histogram.Histogram")(" ".join(words), branching=branching, level_budgets=budgets)


def _matrix(text: str) -> Plan:
    """`ATTRIBUTE [identity|prefix|ranges] [STRATEGY]`; all ranges unless said."""
    from consilience.plans.matrix_mechanism import STRATEGIES

    words = text.split()
    strategy = words.pop() if len(words) > 1 and words[-1] in STRATEGIES else "auto"
    return _plan("matrix_mechanism.MatrixMechanism")(*_workload(words), strategy)


def _workload(words: list[str]) -> tuple[str, str]:
    from consilience.plans.matrix_mechanism import FACTOR_OF_NAME

    named = len(words) > 1 and words[-1] in FACTOR_OF_NAME
    return (words[-1], " ".join(words[:-1])) if named else ("ranges", " ".join(words))


def _k_means(text: str) -> Plan:
    """`CLUSTERS [ATTRIBUTES]`."""
    number, _, names = text.partition(" ")
    if not number.isdigit():
        raise DeclarationError(f"the plan 'k-means {text}' is not known; say how many clusters, such as 'k-means 5'")
    return _plan("rounds.KMeans")(int(number), _names(names) if names.strip() else None)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


FOR_WORKLOADS: Mapping[str, str] = {
    "aim": "aim.Aim",
    "best-buy": "best_buy.BestBuy",
    "dual-query": "published.dual_query.DualQuery",
    "forest": "forest.Forest",
    "hdmm": "matrix_mechanism.Hdmm",
    "independent": "forest.Independent",
    "mst": "forest.Mst",
    "mwem": "published.mwem.Mwem",
    "mwem-graphical": "published.mwem.MwemModels",
    "privbayes": "published.privbayes.PrivBayes",
    "residual-planner": "residual_planner.ResidualPlanner",
}

FOR_RANGES: Mapping[str, str] = {"dawa": "published.histograms.Dawa", "histogram": "histogram.Histogram"}

WITHOUT_WORDS: Mapping[str, str] = {
    **{name: FOR_WORKLOADS[name] for name in ("aim", "best-buy", "forest", "independent", "mst", "privbayes")},
    "flat": "marginals.Flat",
    "views": "views.Views",
    "wavelet": "published.histograms.Wavelet",
}

WITH_WORDS: Mapping[str, Callable[[str], Plan]] = {
    "flat": _flat,
    "marginals": lambda text: _plan("marginals.Marginals")(_sets(text)),
    "views": _views,
    "fourier": lambda text: _plan("published.marginals.Fourier")(_ways("fourier", text)),
    "data-cube": lambda text: _plan("published.marginals.DataCube")(_ways("data-cube", text)),
    "histogram": _histogram,
    "wavelet": lambda text: _plan("published.histograms.Wavelet")(_names(text)),
    "efpa": lambda text: _plan("published.histograms.Efpa")(text),
    "php": lambda text: _plan("published.histograms.Php")(text),
    "dawa": lambda text: _plan("published.histograms.Dawa")(text),
    "efpa-published": lambda text: _plan("published.histograms.EfpaAsPublished")(text),
    "php-published": lambda text: _plan("published.histograms.PhpAsPublished")(text),
    "dawa-published": lambda text: _plan("published.histograms.DawaAsPublished")(text),
    "matrix": _matrix,
    "low-rank": lambda text: _plan("matrix_mechanism.LowRank")(*_workload(text.split())),
    "low-rank-published": lambda text: _plan("matrix_mechanism.LowRankAsPublished")(*_workload(text.split())),
    "k-means": _k_means,
}
