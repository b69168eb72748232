"""CONFIDENTIAL. Tables into exact counts on a declared domain; only `privacy` and `evaluation` may look at them.

`open_table` opens files, databases and data frames; the `Source` it returns counts any number of marginals in one pass.
Nothing that leaves this package but those counts depends on a record: no message, no log, no refusal. What is for the
curator alone, and NOT PRIVATE, is in `curation`.
"""

from consilience.source.base import Source
from consilience.source.tables import open_table

__all__ = ["Source", "open_table"]
