"""The three binary contingency tables of Lee, Wang and Kifer (2015), Table 2: small, published facts.

Edwards: barley powdery mildew, 70 isolates, six loci (Edwards 1992). Czech: 1,841 car workers, six risk factors for
coronary thrombosis (Edwards and Havránek 1985). Rochdale: 665 households, eight variables (Whittaker 1990).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Attribute, Domain


@dataclass(frozen=True, eq=False)
class ContingencyTable:
    """A named table of counts with its variables; every variable has two levels."""

    name: str
    variables: tuple[str, ...]
    levels: tuple[str, str]
    flat: tuple[int, ...]

    @property
    def counts(self) -> NDArray[np.int64]:
        """The counts, one axis for each variable."""
        return np.array(self.flat, dtype=np.int64).reshape((2,) * len(self.variables))

    @property
    def domain(self) -> Domain:
        return Domain(self.name, tuple(Attribute.categorical(each, list(self.levels)) for each in self.variables))


# fmt: off
EDWARDS = ContingencyTable(
    "edwards",
    ("la10", "locc", "mp58", "c365", "p53a", "a367"),
    ("1", "2"),
    (
        0, 16, 1, 0, 0, 1, 0, 0, 3, 1, 7, 0, 0, 0, 1, 0,
        0, 4, 1, 0, 0, 1, 0, 0, 1, 0, 4, 0, 0, 0, 0, 0,
        0, 1, 0, 0, 1, 4, 0, 0, 0, 0, 1, 0, 1, 0, 3, 0,
        0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 1, 11, 0,
    ),
)
CZECH = ContingencyTable(
    "czech",
    ("smoke", "mental", "phys", "systol", "protein", "family"),
    ("y", "n"),
    (
        44, 5, 23, 7, 35, 4, 24, 4, 129, 9, 50, 9, 109, 14, 51, 5,
        112, 21, 70, 14, 80, 11, 73, 13, 12, 1, 7, 2, 7, 5, 7, 4,
        40, 7, 32, 3, 12, 3, 25, 0, 145, 17, 80, 16, 67, 17, 63, 14,
        67, 9, 66, 14, 33, 8, 57, 11, 23, 4, 13, 3, 9, 2, 16, 4,
    ),
)
ROCHDALE = ContingencyTable(
    "rochdale",
    ("wife_active", "wife_over_38", "husband_unemployed", "child_under_5",
     "wife_educated", "husband_educated", "asian_origin", "other_working"),
    ("no", "yes"),
    (
        5, 0, 2, 1, 5, 1, 0, 0, 4, 1, 0, 0, 6, 0, 2, 0,
        8, 0, 11, 0, 13, 0, 1, 0, 3, 0, 1, 0, 26, 0, 1, 0,
        5, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
        4, 0, 8, 2, 6, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0,
        17, 10, 1, 1, 16, 7, 0, 0, 0, 2, 0, 0, 10, 6, 0, 0,
        1, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
        4, 7, 3, 1, 1, 1, 2, 0, 1, 0, 0, 0, 1, 0, 0, 0,
        0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        18, 3, 2, 0, 23, 4, 0, 0, 22, 2, 0, 0, 57, 3, 0, 0,
        5, 1, 0, 0, 11, 0, 1, 0, 11, 0, 0, 0, 29, 2, 1, 1,
        3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
        1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        41, 25, 0, 1, 37, 26, 0, 0, 15, 10, 0, 0, 43, 22, 0, 0,
        0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
        2, 4, 0, 0, 2, 1, 0, 0, 0, 1, 0, 0, 2, 1, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ),
)
# fmt: on

CONTINGENCY_TABLES = (EDWARDS, CZECH, ROCHDALE)
