"""Covering designs: few blocks of points such that any t points lie together in one of them.

`covering` gives the best design that the shipped table knows, or builds one; `weighted_covering` bounds blocks by the
product of their points' sizes instead of their number; `uncovered` and `coverage` check any blocks exhaustively.
"""

from consilience.coverings.designs import covering, covering_size
from consilience.coverings.sets import Block, coverage, uncovered
from consilience.coverings.weighted import weighted_covering

__all__ = ["Block", "coverage", "covering", "covering_size", "uncovered", "weighted_covering"]
