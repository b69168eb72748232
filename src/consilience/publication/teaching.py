"""Synthetic records as a dataset to learn and to teach with, in the form that scikit-learn's datasets have.

scikit-learn itself is not needed: its estimators take the arrays as they are.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import suggestion
from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.measurements.measurement_set import NOT_PRIVATE
from consilience.publication.bundle import Bundle
from consilience.publication.synthetic import Spread, synthesize

if TYPE_CHECKING:
    import pyarrow as pa


class Dataset(dict[str, Any]):
    """A mapping whose values are attributes, too: `data`, `target`, `feature_names`, `target_names`, `DESCR`, ..."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the dataset has no {name!r}; {suggestion(name, self)}") from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})


def as_dataset(
    source: Estimate | Bundle,
    *,
    target: str,
    rows: int | None = None,
    seed: int = 0,
    spread: Spread = "even",
) -> Dataset:
    """Synthetic records in the form of scikit-learn's datasets: `data`, a column for each attribute but `target`.

    Numbers are numbers, dates and categories the places of their values in `categories[name]`; what is missing is not
    a number. `target` is the column to be predicted, `target_names` its values where it is no number, `frame` all
    records as a pyarrow table, and `DESCR` says in words what this is and how far it can be trusted. Attributes that
    were not measured are left out. Nothing is spent.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> found = as_dataset(account, target="sex", rows=6)
    >>> found.data.shape, found.feature_names, found.target_names, sorted(set(found.target.tolist())) <= [0.0, 1.0]
    ((6, 1), ['age'], ['0', '1'], True)
    """
    estimate = source.estimate if isinstance(source, Bundle) else source
    known = estimate.domain.counted_names
    if target not in known:
        raise DeclarationError(f"there is no attribute {target!r} to be the target; {suggestion(target, known)}")
    if target in estimate.columns_basis.not_measured:
        raise DeclarationError(
            f"{target!r} was not measured, so that there is nothing to learn about it; choose one of "
            + ", ".join(name for name in known if name not in estimate.columns_basis.not_measured)
        )
    frame = synthesize(estimate, rows, seed=seed, spread=spread)
    columns = {name: _numbers(frame, name) for name in frame.column_names}
    features = [name for name in frame.column_names if name != target]
    categories = {name: values for name in frame.column_names if (values := _categories(frame, name)) is not None}
    data = np.stack([columns[name] for name in features], axis=1) if features else np.zeros((frame.num_rows, 0))
    return Dataset(
        data=data,
        target=columns[target],
        feature_names=features,
        target_names=categories.get(target),
        categories=categories,
        frame=frame,
        DESCR=_words(estimate, frame, target, seed),
    )


def _numbers(frame: "pa.Table", name: str) -> NDArray[np.float64]:
    """A column as numbers; of texts their places among the values."""
    import pyarrow as pa

    column = frame.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # without rows
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], frame.schema.field(name).type)
    if pa.types.is_dictionary(column.type):
        column = column.indices
    return np.array([np.nan if value is None else float(value) for value in column.to_pylist()], dtype=np.float64)


def _categories(frame: "pa.Table", name: str) -> list[str] | None:
    """The values of a column of texts; None of one of numbers."""
    import pyarrow as pa

    column = frame.column(name)
    if not pa.types.is_dictionary(column.type):
        return None
    return column.chunk(0).dictionary.to_pylist() if column.num_chunks else []


def _words(estimate: Estimate, frame: "pa.Table", target: str, seed: int) -> str:
    """What the dataset is, for who reads it a year later."""
    domain = estimate.domain
    lines = [] if estimate.private else [NOT_PRIVATE, ""]
    lines += [f"{domain.name}: {frame.num_rows:,} synthetic records", ""]
    lines.append(
        "Nobody in these records exists. They were drawn from an estimate that was fitted to noisy counts, with the "
        f"seed {seed}. What the counts did not show, such as rare combinations and associations among attributes that "
        "were not measured together, is not in them: use them to learn methods and to write programs, and take "
        "published numbers from the release's tables, which have error bars."
    )
    lines += ["", "Attributes:"]
    for name in frame.column_names:
        basis = estimate.columns_basis.columns.get(name, "not measured")
        lines.append(f"  {name}{' (target)' if name == target else ''}: {domain[name].heading}, {basis}")
    groups = estimate.columns_basis.linked
    if len(groups) > 1:
        shown = " | ".join(", ".join(group) for group in groups)
        lines += ["", f"Independent of each other here, because no measurement links them: {shown}"]
    promise = estimate.measurements.privacy.describe().splitlines() if estimate.private else []
    return "\n".join([*lines, *([""] if promise else []), *promise])
