"""`report`: one page that says what a release is, what it protects, and how far its numbers can be trusted.

The page stands alone: no network, no script, pictures inside. In a bundle it is `report.html`, and each of its pictures
is there as SVG and PNG under `pictures/`, for use elsewhere. Post-processing: it spends no budget.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from consilience.domain.files import write_atomically
from consilience.errors import DeclarationError, FileFormatError
from consilience.estimators.base import Progress
from consilience.publication import report_numbers, report_sections
from consilience.publication.bundle import Bundle, add_to_bundle, open_bundle
from consilience.publication.drawing import Picture, check_pictures
from consilience.publication.intervals import check_level, check_refits
from consilience.publication.pictures import draw_associations, draw_margin, draw_moved, draw_quantiles
from consilience.publication.report_facts import ReportFacts, Settings, gather
from consilience.publication.report_page import page

PAGE = "report.html"
FOLDER = "pictures"


@dataclass(frozen=True, eq=False)
class Report:
    """A finished page, its pictures, and the facts they show."""

    html: str
    pictures: Mapping[str, Picture]
    facts: ReportFacts
    path: Path | None = None
    """Where the page was written."""

    def files(self) -> dict[str, bytes]:
        """What a bundle gets: the page, and every picture in both kinds."""
        found = {PAGE: self.html.encode("utf-8")}
        for name, drawn in self.pictures.items():
            found[f"{FOLDER}/{name}.svg"] = drawn.svg.encode("utf-8")
            found[f"{FOLDER}/{name}.png"] = drawn.png
        return found


def make_report(
    release: Bundle | str | os.PathLike[str],
    *,
    level: float = 0.95,
    refits: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """The report of a release, as a page and pictures that are nowhere on disk yet."""
    settings = _checked(level, refits, seed)
    check_pictures()
    opened = release if isinstance(release, Bundle) else open_bundle(release)
    facts = gather(opened, settings, progress=progress)
    pictures = _pictures(facts, progress)
    return Report(_page(facts, pictures), pictures, facts)


def report(
    release: Bundle | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    level: float = 0.95,
    refits: int = 200,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Report:
    """The report, written into its bundle in place of an earlier one, or the page alone to `out`.

    Its `path` says where. Spends nothing.
    """
    _checked(level, refits, seed)
    if out is not None:
        _refuse_place(Path(out), overwrite=overwrite)
    made = make_report(release, level=level, refits=refits, seed=seed, progress=progress)
    if out is not None:
        write_atomically(Path(out), made.html.encode("utf-8"))
        return replace(made, path=Path(out))
    bundle = release.path if isinstance(release, Bundle) else Path(release)
    add_to_bundle(bundle, made.files(), about={"report": asdict(made.facts.settings)}, in_place_of=(PAGE, FOLDER))
    return replace(made, path=bundle / PAGE)


def _refuse_place(out: Path, *, overwrite: bool) -> None:
    """Refuse, before any work, a place that cannot be written or holds something else."""
    if out.is_dir() or (out.exists() and not overwrite):
        raise FileFormatError(f"{out} exists already; choose another name, or replace a file with overwrite")
    if not out.absolute().parent.is_dir():
        raise FileFormatError(f"there is no folder {out.parent}; create it first")


def _checked(level: float, refits: int, seed: int) -> Settings:
    check_level(level)
    check_refits(refits)
    if seed < 0:
        raise DeclarationError(f"the seed is {seed}; give a whole number from 0 up")
    return Settings(level, refits, seed)


def _pictures(known: ReportFacts, progress: Progress | None) -> dict[str, Picture]:
    """All pictures by name."""
    drawn: list[Picture] = []
    private = known.estimate.private
    for number, margin in enumerate(known.margins, start=1):
        if not margin.basis.not_measured.all():
            drawn.append(draw_margin(margin, number, level=known.settings.level, private=private))
        if progress is not None:
            progress("drawing", number, len(known.margins))
    if any(each.stddev > 0 for each in known.diagnosis.moved):
        drawn.append(draw_moved(known.diagnosis.moved, private=private))
    if known.associations is not None and known.associations.strongest():
        drawn.append(draw_associations(known.associations, private=private))
    if known.diagnosis.noise.quantiles is not None:
        drawn.append(draw_quantiles(known.diagnosis.noise.quantiles, known.diagnosis.verdict, private=private))
    return {each.name: each for each in drawn}


def _page(known: ReportFacts, pictures: Mapping[str, Picture]) -> str:
    parts = [
        ("asked", "What was asked, and what it cost", report_sections.asked(known)),
        ("protection", "What is protected, and what is not", report_sections.protection(known)),
        ("margins", "Totals and margins", report_numbers.margins(known, pictures)),
        ("associations", "Which attributes go together", report_numbers.associations(known, pictures)),
        ("certainty", "The most and the least certain tables", report_numbers.certainty(known)),
        ("measurements", "The measurements, and how far they moved", report_numbers.measurements(known, pictures)),
        ("noise", "Is the noise what it should be?", report_numbers.noise(known, pictures)),
        ("method", "How the account was made", report_sections.method(known)),
        ("cite", "How to cite it, and how to repeat it", report_sections.cite(known)),
        ("glossary", "Words used here", report_sections.glossary()),
    ]
    present = [(identifier, title, body) for identifier, title, body in parts if body is not None]
    contents = [(identifier, title) for identifier, title, _ in present]
    title = f"{known.estimate.domain.name}: a release with differential privacy"
    return page(title, contents, report_sections.heading(known), *(body for _, _, body in present))
