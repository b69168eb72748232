"""Scores for private selection: which attribute depends most on which others? (Zhang et al. 2017, section 4)

A candidate is a child X with parents Π, and its score is one of R, F and I on the table of counts n(π, x), M records in
all (privacy/associations.py). The paper divides by a public number of records and takes neighbours
with the same number. In records, the scores need neither. Write a record in cell (π, x) as added to a table with row
sums r, column sums c and M records, and E = r c / M for the table that independence would give.

**R** = ½ Σ |n − E|. *One record added.* n − E changes by

    (x, π itself)  (M − r_π)(M − c_x) / (M (M + 1))        and by the same amount in total, with the other sign,
    in the rest of row π and in the rest of column x, and with this sign in all other cells:

multiply out (r_π + 1)(c_x + 1)/(M + 1) − r_π c_x/M, and sum over the cells of each group, in which the change has one
sign. So Σ|change| = 4 (M − r_π)(M − c_x) / (M (M + 1)) < 4, and R moves by less than **2**. (From an empty table to one
record R stays 0.)

*One record replaced.* Both tables have the same M − 1 other records, with sums r and c. The table with the record in
(π, x) has n − E = what is common − r c/M + e, where e is 1 − (1 + r_π + c_x)/M in the cell, −c/M along the rest of the
row and −r/M along the rest of the column. Where the cell's part is not negative, Σ|e| =
(3(M − 1) − 2 r_π − 2 c_x)/M, else (M − 1)/M: at most 3(M − 1)/M. What is common cancels, two such e remain, and R moves
by at most half of 6(M − 1)/M, less than **3**. The paper has 3 + 2/M. A record replaced by one that the domain drops is
removed: 2. Both bounds are approached by large tables.

R is computed as ⌊2^b R⌋ from exact integers. A floor moves by no more than d if what is under it moves by no more than
a whole d, so that the sensitivity in units is 2 · 2^b and 3 · 2^b.

**F**, doubled: −min over halves (N − 2K₀)₊ + (N − 2K₁)₊, with a public whole number N, declared or measured before.
For given halves a record adds 1 to K₀ or to K₁ or to neither: added or removed it moves the sum by at most **2**;
replaced it may lower one part by 2 and raise the other by 2, or move one of them by 2: again at most **2**. A minimum
over halves moves by no more than the most that one of its terms does. This needs no assumption on M.

**I** = H(M) + Σ H(n) − Σ H(r) − Σ H(c), where H is the sum of whole steps 0 = γ(0) ≤ γ(1) ≤ … ≤ γ(N) that follow
n log n up to a public N and are γ(N) from there on. One record added to (π, x) moves it by
γ(M) + γ(n_πx) − γ(r_π) − γ(c_x). As n_πx ≤ c_x and γ(r_π) ≥ 0 that is at most γ(M), and as M ≥ c_x and γ(n_πx) ≥ 0 it
is at least −γ(r_π): between **±γ(N)**. One record replaced is one removed and one added: **2 γ(N)**. In natural
logarithms γ(N) is about 1 + log N. The paper's bounds for replaced records, about 2 + 2 log(N/2), or half that where
the child or the parents have two values, assume that N is right; these assume nothing. Only that steps are whole and do
not fall enters, so that rounding in logarithms has no influence on privacy.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError, TooLarge
from consilience.privacy.associations import (
    LONGEST_LADDER,
    distances_from_independence,
    distances_to_dependence,
    informations,
    ladder,
)
from consilience.privacy.scores import Integers

Dependence = Literal["R", "F", "I"]

R_BITS = 10
I_BITS = 16

MOST_CELLS = 10_000_000
"""Cells of all candidates' tables together: 80 MB of counts, and some times that for their scores."""


@dataclass(frozen=True)
class Family:
    """An attribute and those it may depend on."""

    child: str
    parents: tuple[str, ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        """The parents, then the child: the axes of the family's table."""
        return (*self.parents, self.child)


@dataclass(frozen=True)
class FamilyDependence:
    """How much the child of each family depends on its parents.

    `records` is a public number of records, exact or rough: what F compares halves with, and up to where I follows the
    logarithm. R does not use it.
    """

    families: tuple[Family, ...]
    dependence: Dependence = "R"
    records: int = 1

    @property
    def candidates(self) -> tuple[Family, ...]:
        return self.families

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        return tuple(family.attributes for family in self.families)

    @cached_property
    def _steps(self) -> Integers:
        return ladder(self.records, I_BITS)

    def sensitivity(self, neighbours: Neighbours) -> float:
        added = neighbours == "add-remove"
        if self.dependence == "R":
            return float((2 if added else 3) << R_BITS)
        if self.dependence == "F":
            return 2.0
        return float(int(self._steps[-1]) * (1 if added else 2))

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        tables = [counts.reshape(-1, counts.shape[-1]) for counts in exact_counts]
        if self.dependence == "R":
            return distances_from_independence(tables, R_BITS)
        if self.dependence == "F":
            return distances_to_dependence(tables, self.records)
        return informations(tables, self._steps)

    def check(self, domain: Domain) -> None:
        if not self.families:
            raise DeclarationError("there is no family to select from; name at least one child")
        if self.dependence not in ("R", "F", "I"):
            raise DeclarationError(f"the score is {self.dependence!r}; choose R, F or I")
        if self.records < 1 or (self.dependence == "I" and self.records > LONGEST_LADDER):
            raise DeclarationError(
                f"the score {self.dependence} was given {self.records:,} records; it takes 1 or more, and I up to "
                f"{LONGEST_LADDER:,}: use R"
            )
        for family in self.families:
            if len(set(family.attributes)) < len(family.attributes):
                raise DeclarationError(
                    f"the family ({', '.join(family.attributes)}) names an attribute twice; name it once"
                )
        cells = sum(math.prod(domain.sizes(family.attributes)) for family in self.families)
        if cells > MOST_CELLS:
            raise TooLarge(
                f"the tables of {len(self.families):,} families have {cells:,} cells, and {MOST_CELLS:,} are counted "
                "at once; name fewer families, or smaller ones"
            )
        if self.dependence == "F":
            for family in self.families:
                if domain[family.child].size != 2:
                    raise DeclarationError(
                        f"the score F is for children of two values, and {family.child!r} has "
                        f"{domain[family.child].size}; use R"
                    )

    def fingerprint(self) -> Sequence[object]:
        named = json.dumps([[family.child, list(family.parents)] for family in self.families])
        return ["family-dependence", self.dependence, self.records, hashlib.sha256(named.encode()).hexdigest()]
