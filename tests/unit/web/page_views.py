"""Random views of a page, and the library's answers to what they ask."""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from consilience.estimators.base import Estimate
from consilience.publication.intervals import intervals
from consilience.publication.questions import BoundQuestion, as_question


def random_views(data: dict[str, Any], number: int, seed: int) -> Iterator[str]:
    """Counts, shares and means by up to two attributes or levels, with up to two filters."""
    rng = np.random.default_rng(seed)
    attributes = data["attributes"]
    for _ in range(number):
        pool = [int(axis) for axis in rng.permutation(len(attributes))][:4]
        if rng.random() < 0.7:  # together measured
            scope = data["scopes"][rng.integers(len(data["scopes"]))]
            pool = [*(int(axis) for axis in rng.permutation(scope)), *(axis for axis in pool if axis not in scope)]
        count = int(rng.integers(0, 3))
        sides = [_side(attributes, axis, rng) for axis in pool[:count]]
        means = [axis for axis, each in enumerate(attributes) if "midpoints" in each and axis not in pool[:count]]
        show = str(rng.choice(["counts", "counts", "total", "row", "column", "mean"]))
        show = (f"mean/{rng.choice(means)}" if means else "counts") if show == "mean" else show
        view = [f"show={show}", *(f"{key}={side}" for key, side in zip(("rows", "columns"), sides, strict=False))]
        for axis in pool[count : count + int(rng.integers(0, 3))]:
            if show != f"mean/{axis}" and len(attributes[axis]["labels"]) > 1:
                view.append(
                    f"only.{quote(attributes[axis]['name'])}={'.'.join(map(str, _picked(attributes[axis], rng)))}"
                )
        yield "&".join(view)


def _side(attributes: Sequence[Any], axis: int, rng: np.random.Generator) -> str:
    levels = [place for place, level in enumerate(attributes[axis]["levels"]) if level["spelled"] is not None]
    return f"{axis}/{rng.choice(levels)}" if levels and rng.random() < 0.5 else str(axis)


def _picked(attribute: Any, rng: np.random.Generator) -> list[int]:
    if attribute["levels"] and rng.random() < 0.5:
        return list(attribute["levels"][0]["groups"][rng.integers(len(attribute["levels"][0]["groups"]))])
    size = len(attribute["labels"])
    return sorted(rng.choice(size, rng.integers(1, size), replace=False).tolist())


def differences(estimate: Estimate, found: dict[str, Any], refits: int) -> tuple[str, float]:
    """What is not alike in a page's answer and the library's, and by how much at most.

    Where the page says why error bars are missing, those of answers that were not measured are not compared.
    """
    asked = as_question(found["text"])
    known = intervals(estimate, [asked], refits=refits)[0]
    basis = BoundQuestion(asked.over(estimate.domain), estimate.domain).basis(estimate).codes
    if basis.tolist() != found["basis"]:
        return "basis", np.inf
    worst, what = 0.0, ""
    for name, wanted in (("estimates", known.estimates), ("low", known.low), ("high", known.high)):
        page = np.array([np.nan if each is None else each for each in found[name]], dtype=float)
        wanted = np.where(np.isinf(wanted), np.nan, wanted)  # JSON has no infinity
        looked_at = (basis == 0) | (name == "estimates" or not found["why"])
        off = np.abs(page - wanted) / np.maximum(np.abs(wanted), 1e-3)
        off = np.where(np.isnan(page) & np.isnan(wanted), 0.0, np.nan_to_num(off, nan=np.inf))[looked_at]
        if off.max(initial=0.0) > worst:
            worst, what = float(off.max()), name
    return what, worst
