"""What is to be said of means and quantiles because records are known by their bins, or by clipped numbers, alone."""

import math

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Numeric
from consilience.domain.dates import Date
from consilience.domain.declarations import format_number
from consilience.domain.factors import Matrix, Mean
from consilience.domain.queries import Query
from consilience.domain.questions import Question
from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.publication.questions import BoundQuestion, Quantiles, ratio

Said = tuple[tuple[str, ...], tuple[str, ...]]
"""A remark for each answer, and notes on all of them."""


def said_of_bins(
    estimate: Estimate, asked: BoundQuestion, numbers: NDArray[np.float64], missing: NDArray[np.bool_]
) -> Said:
    """What is to be said of means and quantiles because records are known by their bins alone."""
    found: list[Said] = []
    for side in asked.sides:
        if (sums := side.sums(estimate)) is not None:
            found.append(((), (_clipped(sums.attribute, means=side.question.mean_of is not None),)))
        elif side.question.mean_of is not None:
            found.append(_bins_of_mean(estimate, side.question))
        elif side.quantiles is not None:
            found.append(_bins_of_quantiles(side.quantiles, numbers, missing))
    remarks = found[0][0] if len(asked.sides) == 1 and found and not missing.all() else ()
    notes = dict.fromkeys(note for _, each in found for note in each)
    remarks = tuple("" if unknown else said for said, unknown in zip(remarks, missing, strict=False))
    return remarks, () if missing.all() else tuple(notes)


def _clipped(attribute: Numeric, *, means: bool) -> str:
    """What is to be said of measured sums, and of means made of them."""
    low, high = map(format_number, attribute.amount or (-math.inf, math.inf))
    unit = f" {attribute.wording.unit}" if attribute.wording.unit else ""
    what = "A mean is such a sum divided by the estimated number of records. " if means else ""
    return (
        f"Sums of {attribute.name} were measured, each record's number clipped to {low} to {high}{unit}. {what}How far "
        "clipping puts them from those of the numbers as they are is not known, and not in the error bars."
    )


def _bins_of_quantiles(quantiles: Quantiles, numbers: NDArray[np.float64], missing: NDArray[np.bool_]) -> Said:
    """In which bin each quantile lies, and that records are taken to lie evenly there."""
    name, bins, attribute = quantiles.name, quantiles.attribute.ordinary_labels, quantiles.attribute
    unit = attribute.by if isinstance(attribute, Date) else "bin"
    remarks: list[str] = []
    for value, unknown in zip(numbers, missing, strict=True):
        at = min(max(int(np.searchsorted(quantiles.edges, value)) - 1, 0), len(bins) - 1)
        known = not unknown and not math.isnan(value)
        end = ", which is open-ended" * math.isinf(value)
        remarks.append(f"in the {unit} {bins[at]}{end}" if known else "")
    notes = [
        f"Records are taken to lie evenly within their {unit} of {name}. Error bars are of the quantile of the true "
        f"counts by {unit}s, read off in the same way; that of the records themselves lies in the same {unit}."
    ]
    if attribute.clips:
        notes.append(
            f"The first and the last {unit} of {name} are open-ended, for they also hold what lies beyond them "
            '(unlisted = "clip"): a quantile in one of them has no number.'
        )
    return tuple(remarks), tuple(notes)


def _bins_of_mean(estimate: Estimate, question: Question) -> Said:
    """How far a mean may be off because each record counts as the middle of its bin, and what is to be said of that.

    A record lies at most half a bin's width from the middle: Σ half width × count / Σ count. Of bins that also hold
    what lies beyond them there is no such limit, and their share of the records is told instead. Of means that were not
    measured nothing is said.
    """
    name, per = question.mean_of, question.per
    attribute = None if name is None else estimate.domain[name]
    if not isinstance(attribute, Numeric) or name is None or per is None:
        raise DeclarationError(f"{question.describe()!r} is no mean; only means of numbers have bins")
    ends = np.zeros(attribute.size)
    ends[[0, len(attribute.bins) - 1]] = 1.0
    weighed = [_weighed(question.query, name, entries) for entries in (attribute.half_widths(), ends)]
    wide, open_ended, below = (np.ravel(each) for each in estimate.answers([*weighed, per]))
    off, share = (
        np.where(estimate.basis(each, per).not_measured, np.nan, ratio(above, below))
        for each, above in zip(weighed, (wide, open_ended), strict=True)
    )
    remarks = tuple(f"bins: ± {each:.3g}" if math.isfinite(each) else "" for each in off)
    notes = [
        f"Each record counts as the middle of its bin of {name}: whatever the noise, a mean may be off by up to "
        f"{_span(off)}, which error bars do not hold. The sum is {Mean().describe(name)}."
    ]
    if attribute.clips:
        notes.append(
            f"WARNING: the first and the last bin of {name} are open-ended, for they also hold what lies beyond them "
            f'(unlisted = "clip"). Up to {_span(100 * share)} % of the records are in these bins, and nothing limits'
            " how far their values lie outside: the mean may be off by that share of the distance, on top of the above."
        )
    return remarks, tuple(notes)


def _weighed(query: Query, name: str, entries: NDArray[np.float64]) -> Query:
    """The query with these numbers for the values of one attribute."""
    return Query(tuple((each, Matrix.of(entries) if each == name else factor) for each, factor in query.factors))


def _span(values: NDArray[np.float64]) -> str:
    known = values[np.isfinite(values)]
    if not known.size:
        return "an unknown amount"
    low, high = f"{known.min():,.3g}", f"{known.max():,.3g}"
    return low if low == high else f"{low} to {high}"
