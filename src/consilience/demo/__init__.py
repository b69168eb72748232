"""A made-up town, and what a release of it looks like next to the truth: what `consilience demo` shows.

`town` makes the table, `show` runs the demo. Nobody lives in the town, so that the demo may show exact counts.
"""

from consilience.demo.town import DOMAIN_FILE, write_table, write_town

__all__ = ["DOMAIN_FILE", "write_table", "write_town"]
