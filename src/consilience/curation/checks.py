"""That a curator compared a domain with the data: noted beside the ledger, so that it need not be suggested.

The note holds the domain's fingerprint and a date, and nothing of what was found.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from consilience.domain.domains import Domain
from consilience.domain.files import write_atomically


def note_check(ledger: Path, domain: Domain) -> None:
    """The domain counts as checked against the data of this ledger, whether or not that exists yet."""
    date = datetime.now(UTC).date().isoformat()
    checks = _checks(ledger) | {_reviewed_fingerprint(domain): date}
    write_atomically(_checks_beside(ledger), (json.dumps({"checked": checks}, indent=2) + "\n").encode())


def was_checked(ledger: Path, domain: Domain) -> bool:
    """Whether somebody compared this domain, marks of review aside, with the data of this ledger."""
    return _reviewed_fingerprint(domain) in _checks(ledger)


def _checks_beside(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".checks")


def _checks(ledger: Path) -> dict[str, str]:
    try:
        return dict(json.loads(_checks_beside(ledger).read_text(encoding="utf-8"))["checked"])
    except (OSError, ValueError, TypeError, KeyError):  # nobody checked, or somebody else's file
        return {}


def _reviewed_fingerprint(domain: Domain) -> str:
    return replace(domain, draft=False, unreviewed=()).fingerprint
