"""A made-up town and a made-up country, and what releases of them look like next to the truth: `consilience demo`.

`town` and `country` make the tables, `show` and `show_country` run the demos. Nobody lives there, so that they may
show exact counts.
"""

from consilience.demo.town import DOMAIN_FILE, write_table, write_town

__all__ = ["DOMAIN_FILE", "write_table", "write_town"]
