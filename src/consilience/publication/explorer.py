"""The explorer: one page that answers any query about a release in the reader's browser, without a server or a network.

    estimate, refits, what was measured ──► numbers as JSON ─┐
    web/engine.js, web/page.js, web/page.css ────────────────┴──► explorer.html

The page holds the model itself, not its answers: log-potentials of a graphical model, or tables of counts, with the
refits of its error bars (`refits`). `web/engine.js` sums them as the library does. Nothing in it comes from the data.
"""

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Hierarchy, Numeric
from consilience.domain.declarations import spell, spell_attribute
from consilience.domain.factors import Buckets, Level
from consilience.errors import ConsilienceError, FileFormatError
from consilience.estimators.base import Estimate, FullTableEstimate, Progress, check_level
from consilience.kernels.rng import generator
from consilience.measurements import Exact
from consilience.measurements.basis import Evidence
from consilience.measurements.privacy_statement import describe_budget
from consilience.measurements.row_spaces import SAME, RowSpace
from consilience.publication.bundle import Bundle, add_to_bundle, keep_refits, open_bundle
from consilience.publication.intervals import ADAPTIVE, is_adaptive
from consilience.publication.intervals.drawn_errors import LARGEST_INTERACTION, ModelErrors, linear_errors, unbiased
from consilience.publication.intervals.refits import KEPT_SEED, LEAST_SQUARES, OWN, KeptRefits, check_refits
from consilience.publication.report_page import Markup, element, join

Array = NDArray[np.float64]

PAGE = "explorer.html"

MOST_CELLS = 2**20
"""Numbers of the estimate that a page holds; of a larger one it has the tables of fewest cells."""

MOST_STEPS = 2**22
"""Numbers of all refits that a page holds, 22 MB as text; of larger models it has fewer refits, and says so."""

FEWEST = 20
"""With fewer refits than these there are no error bars."""

CLOSED = "The errors of this release are known in closed form, which this page does not hold; the command below has it."
TOO_LARGE = "The refits behind the error bars are too large for this page; the command below has them."
IMPOSSIBLE = "There are no error bars for this method: {}"


@dataclass(frozen=True, eq=False)
class Explorer:
    """A page, and where it was written."""

    path: Path
    html: str
    refits: int
    """How many refits its error bars rest on; 0 where it has none."""


def explore(
    release: Bundle | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    level: float = 0.95,
    refits: int = 200,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Explorer:
    """The explorer, written into its bundle in place of an earlier one, or to `out`. Spends nothing.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(explore(cs.write_bundle(account, f"{folder}/release"), refits=20).path.name)
    explorer.html
    """
    check_level(level)
    check_refits(refits)
    if out is not None and Path(out).exists() and not overwrite:
        raise FileFormatError(f"{out} exists already; choose another name, or replace it with overwrite")
    opened = release if isinstance(release, Bundle) else open_bundle(release)
    numbers, made = _numbers(opened, level, refits, progress)
    keep_refits(opened)
    html = _page(numbers)
    if out is not None:
        Path(out).write_text(html, encoding="utf-8")
        return Explorer(Path(out), html, made)
    add_to_bundle(
        opened.path, {PAGE: html.encode()}, about={"explorer": {"level": level, "refits": made}}, in_place_of=(PAGE,)
    )
    return Explorer(opened.path / PAGE, html, made)


# ----------------------------------------------------------------------------------------------------------------------
# What the page knows, as plain data.


def _numbers(opened: Bundle, level: float, refits: int, progress: Progress | None) -> tuple[dict[str, Any], int]:
    estimate, manifest = opened.estimate, opened.manifest
    domain, measured = estimate.domain, estimate.measurements
    form = _Form.of(estimate)
    sets, reason = _sets(estimate, form, refits, progress)
    scopes = estimate.public_tables.scopes
    names, spent = domain.counted_names, measured.privacy.spent
    wider = _evidence(Evidence.of(measured, scopes), names)
    numbers = {
        "name": domain.name,
        "folder": opened.path.name,
        "private": estimate.private,
        "tool": manifest.get("tool", "consilience"),
        "created": manifest.get("created", ""),
        "checksum": manifest["files"]["measurements.parquet"],
        "spent": "not known" if spent is None else describe_budget(spent),
        "promise": measured.privacy.describe(),
        "tables": sum(each.kind == "linear" and not isinstance(each.noise, Exact) for each in measured),
        "counted": "records" if domain.weight is None else "records by weight",
        "notes": [ADAPTIVE] * is_adaptive(estimate),
        "level": level,
        "attributes": [_attribute(domain[name]) for name in domain.counted_names],
        "sizes": list(domain.shape),
        "same": SAME,
        "smooths": estimate.smooths,
        "no_intervals": reason,
        "rules": [[[names.index(name), list(codes)] for name, codes in rule.codes] for rule in domain.impossible],
        "evidence": _evidence(Evidence.of(measured), names),
        "public": None if not scopes else {"name": estimate.public_tables.name, "evidence": wider},
        "irregular": [_f8(vector) for vector in _irregular(estimate)],
        "measured": _measured(estimate, level),
        "sets": sets,
        "by_itself": estimate.smooths and LEAST_SQUARES not in sets and not reason,
        "interactions": _interactions(estimate),
        **form.described(),
    }
    shown = [sets[name]["refits"] for name in sets]
    return numbers, min(shown, default=0)


def _attribute(attribute: Attribute) -> dict[str, Any]:
    """The name and values of an attribute, as people read them and as the query language spells them."""
    found: dict[str, Any] = {
        "name": attribute.name,
        "title": attribute.heading,
        "spelled": spell_attribute(attribute.name),
        "labels": [attribute.say(label) for label in attribute.labels],
        "values": [spell(label) for label in attribute.labels],
        "raw": list(attribute.labels),
        "ordered": attribute.is_ordered or attribute.kind == "date",
        "levels": [
            {
                "name": level,
                "spelled": spelled,
                "labels": [attribute.say(label) for label in groups],
                "groups": [list(codes) for codes in groups.values()],
            }
            for level, spelled, groups in levels_of(attribute)
            if len(groups) < attribute.size
        ],
    }
    if isinstance(attribute, Numeric):
        found |= {"midpoints": attribute.midpoints().tolist(), "ordinary": len(attribute.ordinary_labels)}
    return found


def levels_of(attribute: Attribute) -> list[tuple[str, str | None, Mapping[str, Sequence[int]]]]:
    """The levels of an attribute, coarsest first, as the query language spells them; it has no words for those of a
    hierarchy that names none."""
    if attribute.levels or not isinstance(attribute, Hierarchy):
        return [(each, Level(each).describe(attribute.name), attribute.groups(each)) for each in attribute.levels]
    found = []
    for depth in range(1, max(attribute.depths.values()) + 1):
        buckets = Buckets.at_depth(attribute, depth)
        codes = (tuple(attribute.code(label) for label in labels) for _, labels in buckets.groups)
        found.append((f"level {depth}", None, dict(zip(dict(buckets.groups), codes, strict=True))))
    return found


def _evidence(evidence: Evidence, names: Sequence[str]) -> dict[str, Any]:
    """What measurements determine of each attribute, and which values they tell apart."""
    places = {name: place for place, name in enumerate(names)}
    sizes = [evidence.domain[name].size for name in names]
    return {
        "known": [
            {
                "determines": known.determines,
                "spaces": {places[name]: _space(space) for name, space in known.spaces.items() if name in places},
            }
            for known in evidence.known
            if known.spaces.keys() <= places.keys()
        ],
        "groups": [[places[name] for name in group] for group in evidence.groups],
        "apart": [evidence.alike(name, size).tolist() for name, size in zip(names, sizes, strict=True)],
    }


def _space(space: RowSpace) -> Any:
    if space.full:
        return "all"
    vectors = space.vectors()
    return "unknown" if vectors is None else {"rows": _f8(vectors)}


def _irregular(estimate: Estimate) -> list[Array]:
    """Random numbers of sum 1 for the values of each attribute, by which sums are known again (`intervals`)."""
    sizes = estimate.domain.shape
    vectors = [generator(0, place).random(size) for place, size in enumerate(sizes)]
    return [vector / vector.sum() for vector in vectors]


def _measured(estimate: Estimate, level: float) -> list[dict[str, Any]]:
    """What was measured, and how far noise reaches: answers next to zero have at least the high ends of these."""
    vectors = dict(zip(estimate.domain.counted_names, _irregular(estimate), strict=True))
    found = []
    for each in estimate.measurements:
        if each.kind != "linear" or each.clipped or each.threshold is not None or isinstance(each.noise, Exact):
            continue
        bound, sums = each.query.bind(estimate.domain), []
        for group, map_ in zip(bound.groups, bound.maps, strict=True):
            product = np.ones(1)
            for name in group:
                product = np.multiply.outer(product, vectors[name]).ravel()
            sums.append(_f8(np.asarray(map_.apply(product, 0)).ravel()))
        reach = float(each.noise.quantile(0.5 + level / 2.0))
        found.append(
            {"sums": sums, "values": _f8(np.ravel(each.values)), "variance": each.noise.variance, "reach": reach}
        )
    return found


@dataclass(frozen=True, eq=False)
class _Form:
    """How the page holds an estimate and its refits: as one list of numbers each, of log-potentials or of counts."""

    estimate: Estimate
    scopes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(estimate: Estimate) -> "_Form":
        from consilience.estimators.graphical_model import GraphicalEstimate
        from consilience.estimators.marginals import MarginalsEstimate

        places = estimate.domain.counted_names.index
        if isinstance(estimate, GraphicalEstimate):
            return _Form(estimate, tuple(tuple(map(places, scope)) for scope in estimate.scopes))
        if isinstance(estimate, FullTableEstimate) and estimate.counts.size <= MOST_CELLS:
            return _Form(estimate, (tuple(range(len(estimate.domain.shape))),))
        if isinstance(estimate, MarginalsEstimate) and estimate.counts.size <= MOST_CELLS:
            return _Form(estimate, estimate.scopes)
        return _Form(estimate, _printed(estimate))

    @property
    def potentials(self) -> bool:
        from consilience.estimators.graphical_model import GraphicalEstimate

        return isinstance(self.estimate, GraphicalEstimate)

    def numbers(self, estimate: Estimate) -> Array:
        """The estimate, or a refit of it, in this form."""
        from consilience.estimators.graphical_model import GraphicalEstimate
        from consilience.estimators.marginals import MarginalsEstimate

        if isinstance(estimate, GraphicalEstimate):
            return np.concatenate([[estimate.records], *map(np.ravel, estimate.potentials)])
        if isinstance(estimate, FullTableEstimate) and len(self.scopes) == 1:
            return np.ravel(estimate.counts)
        if isinstance(estimate, MarginalsEstimate) and estimate.scopes == self.scopes:
            return np.ravel(estimate.counts)
        names = estimate.domain.counted_names
        return np.concatenate(
            [np.ravel(estimate.marginal(*(names[place] for place in scope))) for scope in self.scopes]
        )

    def described(self) -> dict[str, Any]:
        from consilience.estimators.graphical_model import MeasuredModel

        allowed = MeasuredModel.of(self.estimate.measurements, loss="l2", alpha=0.0).allowed if self.potentials else ()
        return {
            "form": "potentials" if self.potentials else "tables",
            "scopes": [list(scope) for scope in self.scopes],
            "allowed": [
                [list(scope), "".join("01"[mark] for mark in marks.ravel().astype(int))] for scope, marks in allowed
            ],
            "estimate": _f8(self.numbers(self.estimate)),
        }


def _printed(estimate: Estimate) -> tuple[tuple[int, ...], ...]:
    """The tables of an estimate of another form: those that were measured and each attribute's, the smallest first."""
    domain, found = estimate.domain, dict[tuple[str, ...], None]()
    for each in estimate.measurements:
        if each.kind == "linear":
            found[domain.ordered(set(each.query.bind(domain).attributes))] = None
    found |= dict.fromkeys([(), *((name,) for name in domain.counted_names)])
    room, kept = MOST_CELLS, []
    for names in sorted(found, key=lambda names: math.prod(domain.sizes(names))):
        room -= math.prod(domain.sizes(names))
        if room >= 0:
            kept.append(tuple(map(domain.counted_names.index, names)))
    return tuple(kept)


def _sets(
    estimate: Estimate, form: _Form, refits: int, progress: Progress | None
) -> tuple[dict[str, dict[str, Any]], str]:
    """The refits of the estimate, and those of least squares for measured answers of a method that smooths.

    Else the reason why there are none.
    """
    try:
        if linear_errors(estimate) is not None:
            return {}, CLOSED
        asked: dict[str, tuple[Estimate, _Form]] = {OWN: (estimate, form)}
        squares = unbiased(estimate) if estimate.smooths else None
        if squares is not None:
            asked[LEAST_SQUARES] = squares, _Form.of(squares)
        size = sum(own.numbers(fitted).size for fitted, own in asked.values())
        fitting = min(refits, MOST_STEPS // max(size, 1))
        if fitting < FEWEST:
            return {}, TOO_LARGE
        sets = {}
        for name, (fitted, own) in asked.items():
            kept = KeptRefits.of(fitted, KEPT_SEED)
            if not kept.can_hold(refits) or not kept.add(fitting, progress):
                return {}, TOO_LARGE
            account = own.numbers(kept.account)
            steps = _f4(np.array([own.numbers(kept.estimate(number)) - account for number in range(fitting)]))
            same = None if kept.account is estimate else _f8(account)
            scopes = [list(scope) for scope in own.scopes]
            sets[name] = {"refits": fitting, "scopes": scopes, "account": same, "steps": steps}
    except ConsilienceError as error:
        return {}, IMPOSSIBLE.format(error)
    return sets, ""


def _interactions(estimate: Estimate) -> dict[str, Any]:
    """How strong measured interactions are, from which the page draws those that were not measured (`ModelErrors`)."""
    model, places = ModelErrors(estimate, KEPT_SEED), estimate.domain.counted_names.index
    largest = max(map(len, model.scopes), default=0)
    strengths = {
        order: [[sorted(map(places, names)), strength] for names, strength in model.strengths_of(order).items()]
        for order in range(2, min(largest, LARGEST_INTERACTION) + 1)
    }
    return {
        "scopes": [sorted(map(places, scope)) for scope in model.scopes],
        "strengths": strengths,
        "most": estimate.domain.most_counted,
        "signed": estimate.method.get("nonnegative") is False,
    }


def _f8(numbers: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).decode()


def _f4(numbers: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype="<f4").tobytes()).decode()


# ----------------------------------------------------------------------------------------------------------------------
# The page: one file that may load nothing, and run nothing but the script whose checksum it states.


MODULES = ("tables.js", "random.js", "model_errors.js", "engine.js", "page.js")
"""In an order in which each needs only those before it."""


def script() -> str:
    """The modules of the page as one."""
    place = files("consilience") / "web"
    parts = [(place / name).read_text(encoding="utf-8") for name in MODULES]
    return "\n".join(re.sub(r"^(export |import .*)", "", part, flags=re.MULTILINE) for part in parts)


def _page(numbers: Mapping[str, Any]) -> str:
    style = (files("consilience") / "web" / "page.css").read_text(encoding="utf-8")
    body = (files("consilience") / "web" / "page.html").read_text(encoding="utf-8")
    code = script()
    policy = (
        f"default-src 'none'; script-src '{_digest(code)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # What could end the element is written as JSON escapes; a block of JSON is no script, and is never run.
    data = json.dumps(numbers, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"Explore {numbers['name']}"),
        element("style", Markup(style)),
    )
    scripts = f'<script type="application/json" id="release">{data}</script><script type="module">{code}</script>'
    whole = element("body", join(Markup(body), Markup(scripts)))
    return "<!DOCTYPE html>\n" + element("html", head, whole, lang="en") + "\n"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
