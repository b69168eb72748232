"""For the curator's eyes alone, NOT PRIVATE: a first domain read off the data, and how a domain fits the data.

Nothing here takes part in measuring. `draft_domain` and `check_domain` read the confidential table and tell what is in
it; what a curator declares after looking is the curator's act, outside ε.
"""

from consilience.curation.draft import draft_domain
from consilience.curation.fit_report import check_domain

__all__ = ["check_domain", "draft_domain"]
