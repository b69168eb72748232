"""What metadata say of a release, whatever their format: gathered from the files of its bundle alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.domain.domains import Domain
from consilience.measurements.measurement_set import NOT_PRIVATE
from consilience.measurements.privacy_statement import PrivacyStatement
from consilience.publication.about import PUBLICATION, Publication

NOT_STATED = "not stated"
MARK = "NOT PRIVATE"
"""What titles begin with where the noise was simulated."""
LISTED_NAMES = 40
"""So many attributes are named in a sentence."""

LAWS = {
    "laplace": "Laplace",
    "gaussian": "Gaussian",
    "discrete-laplace": "discrete Laplace",
    "discrete-gaussian": "discrete Gaussian",
}


@dataclass(frozen=True)
class Facts:
    """The public facts of a release that its metadata repeat.

    Neither the file nor the table that was measured is among them, nor who did it, nor how many records there are.
    """

    manifest: Mapping[str, Any]
    domain: Domain
    publication: Publication
    laws: tuple[str, ...]
    """The noise laws, in words; none where only public facts were used."""

    @staticmethod
    def of(directory: Path, manifest: Mapping[str, Any]) -> "Facts":
        """The facts of a bundle whose other files are written."""
        import pyarrow.parquet as pq

        told = directory / PUBLICATION
        laws = pq.read_table(directory / "measurements.parquet", columns=["noise_law"]).column(0).to_pylist()
        return Facts(
            manifest,
            Domain.load(directory / "domain.toml"),
            Publication.load(told) if told.exists() else Publication(),
            tuple(sorted({LAWS[law] for law in laws if law in LAWS})),
        )

    @property
    def private(self) -> bool:
        return bool(self.manifest["private"])

    @property
    def privacy(self) -> PrivacyStatement:
        return PrivacyStatement.from_json(self.manifest["privacy"])

    @property
    def title(self) -> str:
        """What the release is called; of simulated noise it begins with NOT PRIVATE."""
        title = self.publication.title or f"{self.domain.name}: counts with differential privacy"
        return title if self.private else f"{MARK}: {title}"

    @property
    def description(self) -> str:
        """What the release is, in a paragraph; of simulated noise the first sentence says that nothing is protected."""
        names = self.domain.counted_names
        more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
        usual = (
            f"Tables of counts by {', '.join(names[:LISTED_NAMES])}{more}. Random noise was added to what was "
            "measured, and one consistent estimate was fitted to it; each number says whether it was measured, "
            "modelled or not measured."
        )
        said = self.publication.description
        parts = [] if self.private else [NOT_PRIVATE]
        return "\n".join([*parts, *([said] if said else []), usual])

    @property
    def promise(self) -> str:
        """What is promised, in words; of simulated noise, that nothing is."""
        return self.privacy.describe() if self.private else NOT_PRIVATE

    @property
    def published(self) -> str:
        """When the bundle was written: the date and time in UTC."""
        return str(self.manifest["created"])

    @property
    def measured(self) -> str | None:
        """When the measurements were made; None where that is not known."""
        found = self.manifest["provenance"].get("created")
        return found if isinstance(found, str) else None

    @property
    def tool(self) -> str:
        return str(self.manifest["tool"])

    @property
    def publisher(self) -> str:
        return self.publication.publisher.name if self.publication.publisher is not None else NOT_STATED

    @property
    def plan(self) -> str | None:
        """What the plan is called that was measured; None where that is not known."""
        plan = self.manifest["provenance"].get("plan")
        return str(plan["plan"]) if isinstance(plan, Mapping) and "plan" in plan else None
