"""CONFIDENTIAL. Tables into exact counts on a declared domain; only `privacy` and `evaluation` may look at them.

`open_table` opens files, databases and data frames; the `Source` it returns counts any number of marginals in one pass.
Nothing that leaves this package but those counts depends on a record: no message, no log, no refusal. What is for the
curator alone, and NOT PRIVATE, is asked for by its own name: `draft.draft_domain` and `check_fit`.
"""

from typing import TYPE_CHECKING

from consilience.late_imports import imported_late
from consilience.source.tables import Source, open_table

if TYPE_CHECKING:
    from consilience.curation.fit_report import check_fit

__all__ = ["Source", "check_fit", "open_table"]


__getattr__ = imported_late(__name__, {"check_fit": "fit_report"})
