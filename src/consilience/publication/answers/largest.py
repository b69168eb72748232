"""The largest answers, and how sure their order is."""

from dataclasses import replace

import numpy as np

from consilience.measurements.basis import Basis
from consilience.publication.answers.tables import AnswerTable, Order
from consilience.publication.answers.writing import likely


def in_order(table: AnswerTable) -> AnswerTable:
    """The largest answers, so many as the question asks for, with how sure their order is where there are intervals.

    With the draws θ of what the truth might be, place i is sure in the share of draws in which θ of the answer there
    is the i-th largest. Answers that are no numbers have no place. Nor have those that are not measured: any of them
    may be larger than all the others, so that nothing is said of the order then.
    """
    known = np.flatnonzero(~np.isnan(table.estimates))
    every = known[np.argsort(-table.numbers[known], kind="stable")]
    chosen = every[: table.question.top]
    listed = [axis for axis, labels in enumerate(table.axes) if len(labels) > 1] or list(range(len(table.axes)))
    shown, values = (
        [", ".join(each[axis] for axis in listed) for each in labels] for labels in (table.shown_labels, table.labels)
    )
    interval, order, notes = table.interval, None, table.notes
    unknown = int(table.basis.not_measured.sum())
    if unknown:
        notes = (*notes, f"The order is not known: {unknown} of {len(table)} answers are {table.basis.explain()}.")
    draws = None if interval is None or unknown else interval.might_be
    if interval is not None:
        ends = [each[chosen] for each in (interval.estimates, interval.low, interval.high)]
        interval = replace(interval, estimates=ends[0], low=ends[1], high=ends[2])
    if draws is not None and chosen.size:
        places = np.argsort(np.argsort(-draws[:, every], axis=1), axis=1)[:, : chosen.size]
        among = places < chosen.size
        together = float(among.all(axis=1).mean())
        order = Order((places == np.arange(chosen.size)).mean(axis=0), among.mean(axis=0), together)
        last = f" The next one is {shown[every[chosen.size]]}." if every.size > chosen.size else ""
        notes = (*notes, f"That these are the {chosen.size} largest, in whatever order: {likely(together)}.{last}")
    basis = table.basis
    return replace(
        table,
        columns=(", ".join(table.columns[axis] for axis in listed),),
        headings=(", ".join(table.shown_columns[axis] for axis in listed),),
        axes=(tuple(values[place] for place in chosen),),
        worded=(tuple(shown[place] for place in chosen),),
        labels=tuple((values[place],) for place in chosen),
        numbers=table.numbers[chosen],
        noisy=None if table.noisy is None else np.ravel(table.noisy)[chosen],
        basis=Basis(basis.codes[chosen], basis.unmeasured, basis.too_fine, basis.asked),
        remarks=tuple(table.remarks[place] for place in chosen) if table.remarks else (),
        interval=interval,
        order=order,
        notes=notes,
        adds_up=False,
    )
