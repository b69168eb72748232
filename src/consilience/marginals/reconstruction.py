"""Marginals of any attributes from views, many at a time.

A target that is part of a view is its sum, and any other a table put together from its margins: of greatest entropy, of
least squares, or by a linear programme. Targets are independent of each other, and the kernels leave the interpreter
free, so that threads share them out; the answers do not depend on how many there are.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from consilience.errors import DeclarationError
from consilience.kernels.compilation import MOST_THREADS, available_cores
from consilience.marginals.entropy_tables import greatest_entropy_table
from consilience.marginals.least_squares_tables import least_squares_table
from consilience.marginals.linear_programme_tables import linear_programme_table
from consilience.marginals.margins import Array, Reconstructed, ViewReader
from consilience.marginals.scopes import Scope
from consilience.marginals.table_stacks import TableStack

Method = Literal["entropy", "least-squares", "linear-programme"]
METHODS: tuple[Method, ...] = ("entropy", "least-squares", "linear-programme")

Progress = Callable[[int, int], None]
"""Told how many targets are done, and of how many."""


def reconstruct(
    targets: Sequence[Scope],
    stack: TableStack,
    flat: Array,
    *,
    method: Method = "entropy",
    total: float,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Reconstructed]:
    """The marginals of all targets, in their order, each with axes in the target's order.

    >>> import numpy as np
    >>> views = TableStack((2, 2, 2), [(0, 1), (1, 2)])
    >>> reconstruct([(0, 2)], views, np.array([1.0, 2, 3, 4, 4, 0, 3, 3]), total=10.0)[0].table
    array([[2.1, 0.9],
           [4.9, 2.1]])
    """
    reader = ViewReader(stack, flat)
    return reconstruct_from(reader, targets, method=method, total=total, threads=threads, progress=progress)


def reconstruct_from(
    reader: ViewReader,
    targets: Sequence[Scope],
    *,
    method: Method = "entropy",
    total: float,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Reconstructed]:
    """`reconstruct` for views that are prepared already."""
    if method not in METHODS:
        raise DeclarationError(f"no method {method!r} puts marginals together; there are {', '.join(METHODS)}")

    def one(target: Scope) -> Reconstructed:
        return reconstructed(reader, target, method=method, total=total)

    workers = min(threads or min(available_cores(), MOST_THREADS), len(targets))
    found: list[Reconstructed] = []
    if workers <= 1:
        for target in targets:
            _take(found, one(target), len(targets), progress)
        return found
    with ThreadPoolExecutor(workers, thread_name_prefix="consilience-views") as pool:
        try:
            for each in pool.map(one, targets):
                _take(found, each, len(targets), progress)
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def reconstructed(reader: ViewReader, target: Scope, *, method: Method, total: float) -> Reconstructed:
    """The marginal of one target."""
    margins = reader.margins(target, maximal=method != "linear-programme")
    shape = tuple(reader.sizes[attribute] for attribute in target)
    if method == "entropy":
        return greatest_entropy_table(shape, margins, total=total)
    if method == "least-squares":
        return least_squares_table(shape, margins, total=total)
    return linear_programme_table(shape, margins, total=total)


def _take(found: list[Reconstructed], each: Reconstructed, count: int, progress: Progress | None) -> None:
    found.append(each)
    if progress is not None:
        progress(len(found), count)
