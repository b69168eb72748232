"""`report`: one page that says what a release is, what it protects, and how far its numbers can be trusted.

    facts ──► pictures ──► sections ──► page            all sentences: `texts` (english.toml)
    (gather)               summary, tables, evidence, associations, privacy

The page stands alone: no network, no script, pictures inside. In a bundle it is `report.html`, and each of its pictures
is there as SVG and PNG under `pictures/`, for use elsewhere. Post-processing: it spends no budget. How large a page can
become is bounded in `facts` and `tables`, and the page says what it leaves out.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from consilience.domain.files import write_atomically
from consilience.errors import FileFormatError
from consilience.estimators.base import Progress, check_level, check_whole
from consilience.publication.about import PUBLICATION, Publication, given
from consilience.publication.bundle import Bundle, add_to_bundle, keep_refits, open_bundle
from consilience.publication.intervals.refits import check_refits
from consilience.publication.report import evidence, privacy, summary
from consilience.publication.report.associations import association_section, draw_associations
from consilience.publication.report.facts import ReportFacts, Settings, gather
from consilience.publication.report.pictures import draw_margin, draw_moved, draw_quantiles, draw_table
from consilience.publication.report.texts import load_texts
from consilience.publication.report_page import Picture, check_pictures, page

PAGE = "report.html"
FOLDER = "pictures"

File = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Report:
    """A finished page, its pictures, and the facts they show."""

    html: str
    pictures: Mapping[str, Picture]
    facts: ReportFacts
    path: Path | None = None
    """Where the page was written."""

    def files(self) -> dict[str, bytes]:
        """What a bundle gets: the page, every picture in both kinds, and who publishes it where that is stated."""
        found = {PAGE: self.html.encode("utf-8")}
        for name, drawn in self.pictures.items():
            found[f"{FOLDER}/{name}.svg"] = drawn.svg.encode("utf-8")
            found[f"{FOLDER}/{name}.png"] = drawn.png
        return found | ({PUBLICATION: self.facts.details.to_toml()} if self.facts.details else {})


def make_report(
    release: Bundle | File,
    *,
    publication: Publication | File | None = None,
    texts: File | None = None,
    level: float = 0.95,
    refits: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """The report of a release, as a page and pictures that are nowhere on disk yet."""
    settings = _checked(level, refits, seed, texts)
    check_pictures()
    told = given(publication)
    opened = release if isinstance(release, Bundle) else open_bundle(release)
    facts = gather(replace(opened, publication=told) if told else opened, settings, progress=progress)
    pictures = _pictures(facts, progress)
    return Report(_page(facts, pictures), pictures, facts)


def report(
    release: Bundle | File,
    *,
    out: File | None = None,
    publication: Publication | File | None = None,
    texts: File | None = None,
    level: float = 0.95,
    refits: int = 200,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Report:
    """The report, written into its bundle in place of an earlier one, or the page alone to `out`.

    `publication` is a file that says who publishes the release and for what; it is kept in the bundle, and without one
    that of the bundle is taken. `texts` is a catalogue in another language. The report's `path` says where it is.
    Spends nothing.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(report(cs.write_bundle(account, f"{folder}/release"), refits=20).path.name)
    report.html
    """
    _checked(level, refits, seed, texts)
    if out is not None:
        _refuse_place(Path(out), overwrite=overwrite)
    made = make_report(
        release, publication=publication, texts=texts, level=level, refits=refits, seed=seed, progress=progress
    )
    keep_refits(made.facts.release)
    if out is not None:
        write_atomically(Path(out), made.html.encode("utf-8"))
        return replace(made, path=Path(out))
    bundle = release.path if isinstance(release, Bundle) else Path(release)
    about = {"report": made.facts.settings.to_json()}
    add_to_bundle(bundle, made.files(), about=about, in_place_of=(PAGE, FOLDER, PUBLICATION))
    return replace(made, path=bundle / PAGE)


def _refuse_place(out: Path, *, overwrite: bool) -> None:
    """Refuse, before any work, a place that cannot be written or holds something else."""
    if out.is_dir() or (out.exists() and not overwrite):
        raise FileFormatError(f"{out} exists already; choose another name, or replace a file with overwrite")
    if not out.absolute().parent.is_dir():
        raise FileFormatError(f"there is no folder {out.parent}; create it first")


def _checked(level: float, refits: int, seed: int, texts: File | None) -> Settings:
    check_level(level)
    check_refits(refits)
    check_whole(seed, "the seed", 0)
    return Settings(level, refits, seed, load_texts(texts))


def _pictures(known: ReportFacts, progress: Progress | None) -> dict[str, Picture]:
    """All pictures by name."""
    say, level, private = known.say, known.settings.level, known.estimate.private
    drawn: list[Picture | None] = []
    steps = len(known.margins) + len(known.tables)
    for number, margin in enumerate(known.margins, start=1):
        if not margin.basis.not_measured.all():
            drawn.append(draw_margin(margin, number, say, level=level, private=private))
        if progress is not None:
            progress("drawing", number, steps)
    for number, shown in enumerate(known.tables, start=1):
        drawn.append(draw_table(shown, number, say, level=level, private=private))
        if progress is not None:
            progress("drawing", len(known.margins) + number, steps)
    if any(each.stddev > 0 for each in known.diagnosis.moved):
        drawn.append(draw_moved(known.diagnosis.moved, say, private=private))
    if known.associations is not None and known.associations.strongest():
        drawn.append(draw_associations(known.associations, known.by_name, say, private=private))
    noise = known.diagnosis.noise
    if noise.quantiles is not None:
        drawn.append(draw_quantiles(noise.quantiles, noise.verdict, say, private=private))
    return {each.name: each for each in drawn if each is not None}


def _page(known: ReportFacts, pictures: Mapping[str, Picture]) -> str:
    say = known.say
    sections = {
        "summary": summary.summary(known),
        "publication": summary.publication(known),
        "asked": summary.asked(known),
        "margins": evidence.margins(known, pictures),
        "tables": evidence.measured_tables(known, pictures),
        "sums": evidence.sums_and_means(known, pictures),
        "associations": association_section(known.associations, known.by_name, pictures.get("associations"), say),
        "missing": evidence.not_measured(known),
        "protection": privacy.protection(known),
        "attacker": privacy.attacker(known),
        "assessment": privacy.assessment(known),
        "certainty": evidence.certainty(known),
        "measurements": evidence.measurements(known, pictures),
        "noise": evidence.noise(known, pictures),
        "method": evidence.method(known),
        "cite": summary.cite(known),
        "glossary": summary.glossary(known),
    }
    listed = [(name, say(f"sections.{name}"), content) for name, content in sections.items() if content is not None]
    return page(summary.title(known), summary.heading(known), listed, language=say.language, contents=say("contents"))
