"""Metadata of a release, for people who look for data and for the programs that help them.

    tables/csv-metadata.json     CSV on the Web: what every column of every table is, and what its codes mean
    metadata/dcat.jsonld         DCAT-AP and PROV: an entry for data catalogues, and where each file comes from
    metadata/deployment.yaml     a draft for the registry of deployments of differential privacy
    metadata/sdmx/               SDMX-CSV and its structures, of tables whose place and time are known

All of it is made of the other files of the bundle and repeats what they say: it is written anew whenever one of them
changes, spends nothing, and names neither the source nor its user. What was made of simulated noise is called NOT
PRIVATE in each of them.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError, FileFormatError
from consilience.publication.metadata import csvw, dcat, deployments, sdmx
from consilience.publication.metadata.facts import Facts

FOLDER = "metadata"
CATALOGUE, ENTRY, SDMX = f"{FOLDER}/dcat.jsonld", f"{FOLDER}/deployment.yaml", f"{FOLDER}/sdmx/"


def write_metadata(directory: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Write the metadata of a bundle whose other files are there, and return their checksums by their names.

    `manifest` is that of the bundle, with the checksums of the other files.
    """
    facts = Facts.of(directory, manifest)
    found = {ENTRY: deployments.write(deployments.entry(facts)).encode()}
    if (directory / "tables" / csvw.NAME).exists():
        found |= {SDMX + name: content for name, content in sdmx.exchange(facts, directory).items()}
    digests = {}
    for name, content in found.items():
        digests[name] = _write(directory / name, content)
    listed = dict(sorted((dict(manifest["files"]) | digests).items()))
    digests[CATALOGUE] = _write(directory / CATALOGUE, dcat.catalogue_entry(facts, directory, listed))
    return digests


def _write(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def check_metadata(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a bundle whose metadata do not have their form, or say something else than the release."""
    names = [name for name in manifest["files"] if name.startswith(f"{FOLDER}/")]
    tables = f"tables/{csvw.NAME}"
    if not names and tables not in manifest["files"]:
        return
    facts = Facts.of(directory, manifest)
    here = ""

    def read(name: str) -> str:
        nonlocal here
        here = name
        return (directory / name).read_text(encoding="utf-8")

    try:
        if tables in manifest["files"]:
            csvw.check(read(tables), directory / "tables", private=facts.private)
        if ENTRY in names:
            deployments.check(read(ENTRY), facts)
        sdmx.check({name.removeprefix(SDMX): read(name) for name in names if name.startswith(SDMX)}, facts)
        if CATALOGUE in names:
            others = {name: digest for name, digest in manifest["files"].items() if name != CATALOGUE}
            dcat.check(read(CATALOGUE), facts, others)
    except ConsilienceError as error:
        raise FileFormatError(f"the metadata of {directory} are broken: {error}; write the bundle anew") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"{here} in {directory} cannot be read ({type(error).__name__}); write the bundle anew"
        ) from None
