"""How strongly attributes go together, from an estimate's 2-way margins: the numbers, the section and the heat map.

Cramér's V = √(χ² / (N · (min(r, c) − 1))) with χ² = Σ (n_ij − n_i n_j / N)² / (n_i n_j / N): 0 where two attributes
are independent, 1 where one says all of the other. Of two attributes that were never looked at together there is
none: the model takes them to be independent, which nobody measured. Noise that a fit has not taken out counts as
association: of small tables with much noise V is too large.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import ConsilienceError
from consilience.estimators import Estimate
from consilience.estimators.base import Progress
from consilience.publication.report.pictures import LABELS
from consilience.publication.report.texts import Texts
from consilience.publication.report_page import (
    DARK,
    Content,
    Markup,
    Picture,
    altair,
    figure,
    folded,
    join,
    paragraphs,
    picture,
    table,
)

Floats = NDArray[np.float64]

MOST_ATTRIBUTES = 30
MOST_RANKED = 40
"""Of more attributes than these only the measured pairs are looked at to find the strongest ones."""
LARGEST_PAIR = 1_000_000
"""Pairs with more cells are left out."""
MOST_PAIRS = 60
"""So many pairs are listed as a table."""
NUMBERS_UP_TO = 12
"""Heat maps of more attributes than these have no numbers in their cells."""


@dataclass(frozen=True, eq=False)
class Associations:
    """Cramér's V for each pair of some attributes; NaN where it could not be computed."""

    attributes: tuple[str, ...]
    strengths: Floats
    left_out: int
    """How many other attributes there are, all with weaker associations."""
    measured: frozenset[frozenset[str]]
    """The pairs that measurements determine."""
    not_measured: frozenset[frozenset[str]]
    """The pairs of which nobody measured how they go together; of all others the model says what there is to say."""
    looked_at: Mapping[frozenset[str], float]
    """Cramér's V of every pair that was looked at, those that are left out among them."""

    def strongest(self) -> list[tuple[str, str, float]]:
        """All pairs, the strongest first."""
        pairs = [
            (one, other, float(self.strengths[i, j]))
            for (i, one), (j, other) in itertools.combinations(enumerate(self.attributes), 2)
            if np.isfinite(self.strengths[i, j])
        ]
        return sorted(pairs, key=lambda pair: -pair[2])


def cramers_v(table: Floats) -> float:
    """Cramér's V of a table of counts; NaN where an attribute has one value, or nothing was counted.

    >>> cramers_v(np.array([[10.0, 0.0], [0.0, 10.0]])), cramers_v(np.array([[5.0, 5.0], [5.0, 5.0]]))
    (1.0, 0.0)
    """
    counts = np.maximum(table, 0.0)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    if min(counts.shape) < 2:
        return float("nan")
    total = counts.sum()
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    return float(min(np.sqrt(chi_squared / (total * (min(counts.shape) - 1))), 1.0))


def associations(estimate: Estimate, *, progress: Progress | None = None) -> Associations:
    """Cramér's V of every pair of the attributes with the strongest associations.

    Attributes of which no pair has one, because none was looked at together with another, are left out.
    """
    names = estimate.domain.counted_names
    many = len(names) > MOST_RANKED
    together = _named_together(estimate) if many else frozenset()
    ranked = [pair for pair in itertools.combinations(names, 2) if not many or frozenset(pair) in together]
    found = _strengths(estimate, ranked, progress)
    known = {name for pair, strength in found.items() for name in pair if np.isfinite(strength)}
    kept = tuple(name for name in names if name in known)
    kept = kept if len(kept) <= MOST_ATTRIBUTES else _most_associated(kept, found)
    pairs = list(itertools.combinations(kept, 2))
    found |= _strengths(estimate, [pair for pair in pairs if frozenset(pair) not in found], progress)
    strengths = np.full((len(kept), len(kept)), np.nan)
    for i, j in itertools.permutations(range(len(kept)), 2):
        strengths[i, j] = found.get(frozenset((kept[i], kept[j])), np.nan)
    bases = {frozenset(pair): estimate.basis(Query.marginal(*pair)).worst for pair in pairs}
    measured, missing = (frozenset(p for p, word in bases.items() if word == w) for w in ("measured", "not measured"))
    return Associations(kept, strengths, len(known) - len(kept), measured, missing, found)


def _named_together(estimate: Estimate) -> frozenset[frozenset[str]]:
    """The pairs of attributes that some measurement is about."""
    scopes = [each.query.attributes for each in estimate.measurements]
    return frozenset(frozenset(pair) for scope in scopes for pair in itertools.combinations(scope, 2))


def _strengths(
    estimate: Estimate, pairs: list[tuple[str, str]], progress: Progress | None
) -> dict[frozenset[str], float]:
    sizes = estimate.domain.sizes
    fitting = [pair for pair in pairs if np.prod(sizes(pair), dtype=float) <= LARGEST_PAIR]
    fitting = [pair for pair in fitting if estimate.basis(Query.marginal(*pair)).worst != "not measured"]
    found: dict[frozenset[str], float] = {}
    for start in range(0, len(fitting), 50):
        part = fitting[start : start + 50]
        for pair, counts in zip(part, _association_tables(estimate, part), strict=True):
            found[frozenset(pair)] = float("nan") if counts is None else cramers_v(counts)
        if progress is not None:
            progress("associations", start + len(part), len(fitting))
    return found


def _association_tables(estimate: Estimate, pairs: list[tuple[str, str]]) -> list[Floats | None]:
    """The 2-way margins; None for those that the estimate cannot give."""
    try:
        return list(estimate.answers([Query.marginal(*pair) for pair in pairs]))
    except ConsilienceError:
        return [_table(estimate, pair) for pair in pairs]


def _table(estimate: Estimate, pair: tuple[str, str]) -> Floats | None:
    try:
        return estimate.marginal(*pair)
    except ConsilienceError:
        return None


def _most_associated(names: tuple[str, ...], found: dict[frozenset[str], float]) -> tuple[str, ...]:
    """The attributes of the strongest pairs, in the domain's order."""
    kept: dict[str, None] = {}
    for pair, _ in sorted(found.items(), key=lambda item: -np.nan_to_num(item[1], nan=-1.0)):
        if len(kept) < MOST_ATTRIBUTES:
            kept |= dict.fromkeys(sorted(pair - kept.keys())[: MOST_ATTRIBUTES - len(kept)])
    chosen = set(kept)
    return tuple(name for name in names if name in chosen)


# ----------------------------------------------------------------------------------------------------------------------
# The section and its picture.


def association_section(
    found: Associations | None, headings: Mapping[str, str], drawn: Picture | None, say: Texts
) -> Markup | None:
    """The heat map of pairwise associations, and the same as a table; `headings` are those of all attributes."""
    if found is None or not found.attributes:
        return None
    pairs = found.strongest()
    rows: list[list[Content]] = [
        [
            f"{headings[one]} – {headings[other]}",
            f"{strength:.3f}",
            say("basis.measured" if frozenset((one, other)) in found.measured else "associations.modelled"),
        ]
        for one, other, strength in pairs[:MOST_PAIRS]
    ]
    alone = [heading for name, heading in headings.items() if name not in found.attributes]
    said = [say("associations.lead"), say("associations.unlooked_at") if found.not_measured else ""]
    if found.left_out:
        said.append(say("associations.left_out", shown=len(found.attributes), n=found.left_out))
    elif alone:
        said.append(say("associations.alone", names=say.listed(alone)))
    caption = say("associations.caption_part", shown=len(rows), all=len(pairs))
    caption = caption if len(pairs) > len(rows) else say("associations.caption")
    header = [say("associations.pair"), say("associations.measure"), say("columns.basis")]
    return join(
        paragraphs(" ".join(filter(None, said))),
        figure(drawn, folded(say("same_as_table"), table(caption, header, rows, numeric=2))),
    )


def draw_associations(found: Associations, headings: Mapping[str, str], say: Texts, *, private: bool) -> Picture:
    """The heat map of Cramér's V: darker is stronger, and numbers say how strong where there is room."""
    alt = altair()
    names = [headings.get(name, name) for name in found.attributes]
    numbers = len(names) <= NUMBERS_UP_TO
    rows = []
    for i in range(1, len(names)):
        for j in range(i):
            strength = found.strengths[i, j]
            mark = "" if frozenset((found.attributes[i], found.attributes[j])) in found.measured else "*"
            known = bool(np.isfinite(strength))
            text = (f"{strength:.2f}".removeprefix("0") + mark if numbers else mark) if known else "–"
            rows.append({"row": names[i], "column": names[j], "v": float(strength) if known else None, "text": text})
    side = 36 if numbers else 19
    x = alt.X("column:N", sort=list(names[:-1]), title=None, axis=alt.Axis(labelAngle=-45, labelLimit=LABELS))
    y = alt.Y("row:N", sort=list(names[1:]), title=None, axis=alt.Axis(labelLimit=LABELS))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, y=y)
    scale = alt.Scale(domain=[0, 1], range=["#ffffff", "#c6dbef", "#6baed6", "#2171b5", "#08306b"], interpolate="lab")
    measure = say("associations.measure")
    legend = alt.Legend(orient="top", title=measure, gradientLength=160, gradientThickness=10, titleLimit=200)
    cells = base.mark_rect(stroke="#bbbbbb", strokeWidth=0.5).encode(color=alt.Color("v:Q", scale=scale, legend=legend))
    color = alt.condition("datum.v > 0.5", alt.value("white"), alt.value(DARK))
    texts = base.mark_text(fontSize=11).encode(text="text:N", color=color)
    chart = alt.layer(cells, texts).properties(width=side * (len(names) - 1), height=side * (len(names) - 1))
    strongest = found.strongest()
    words = [say("associations.picture", cells=len(rows), attributes=len(names))]
    if strongest:
        one, other, strength = strongest[0]
        words.append(
            say(
                "associations.strongest",
                one=headings.get(one, one),
                other=headings.get(other, other),
                strength=f"{strength:.2f}",
            )
        )
    starred = any(row["text"].endswith("*") for row in rows)
    return picture(
        chart,
        name="associations",
        title=say("associations.picture_title"),
        subtitle=say("associations.picture_subtitle_modelled" if starred else "associations.picture_subtitle"),
        description=" ".join([*words, say("associations.marks")]),
        private=private,
        stamp=say("simulated_stamp"),
    )
