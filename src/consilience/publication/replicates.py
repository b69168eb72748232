"""Replicates: the answers of an estimate, refitted many times to noise drawn anew around it (parametric bootstrap).

An account stands in for the data: the estimate, or one less smooth (`estimators.refits.stand_in`). Each replicate
answers the measured queries from it, adds new noise of the laws that the measurements state, clips and withholds as
they were, fits by the same method and answers again. Only public numbers are used: nothing is spent.

Refits that take long run on the machine's cores in threads (the kernels work outside the interpreter's lock); quick
ones are mostly Python, to which threads are a hindrance. Replicate i draws from the stream (seed, i), so that results
depend on neither the number of threads nor their order.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import DeclarationError, TooLarge, readable_bytes
from consilience.estimators.base import Estimate, Progress
from consilience.estimators.refits import Refits
from consilience.kernels.rng import generator

Array = NDArray[np.float64]

MOST_BYTES = 2_000_000_000
FEWEST_REFITS = 20
"""With fewer, the tails of the answers are not seen at all."""

QUICK = 0.1
"""Seconds of a refit below which threads do not pay."""


@dataclass(frozen=True, eq=False)
class Replicates:
    """Of one query the answers of the account that stood in for the data, and those of every refit, a row each."""

    truth: Array
    answers: Array


def replicates(
    fitted: Estimate, queries: Sequence[Query], *, refits: int, seed: int, progress: Progress | None = None
) -> list[Replicates]:
    """The replicates of each query."""
    check_refits(refits)
    sizes = [query.bind(fitted.domain).size for query in queries]
    need = 8 * refits * sum(sizes)
    if need > MOST_BYTES:
        raise TooLarge(
            f"{sum(sizes):,} answers in {refits} refits take {readable_bytes(need)}, and the limit is "
            f"{readable_bytes(MOST_BYTES)}; ask for fewer answers at a time, or for fewer refits"
        )
    shared = Refits.of(fitted, queries)
    found = [np.empty((refits, size)) for size in sizes]

    def run(number: int) -> None:
        for place, values in enumerate(shared.draw(generator(seed, number))):
            found[place][number] = np.ravel(values)

    began = time.perf_counter()
    run(0)
    threads = 1 if time.perf_counter() - began < QUICK else os.cpu_count() or 1
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for done, _ in enumerate(pool.map(run, range(1, refits)), start=2):
            if progress is not None:
                progress("refitting", done, refits)
    truths = [np.ravel(values) for values in shared.answers(shared.account)]
    return [Replicates(truth, answers) for truth, answers in zip(truths, found, strict=True)]


def check_refits(refits: int) -> None:
    """Refuse a number of refits that is none, or too small to say anything."""
    if not isinstance(refits, int) or isinstance(refits, bool) or refits < FEWEST_REFITS:
        raise DeclarationError(f"{refits!r} refits were asked for; ask for a whole number from {FEWEST_REFITS} up")
