"""What every factor is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from consilience.domain.attributes import Attribute
from consilience.domain.declarations import Declaration
from consilience.domain.spelling import spell_attribute
from consilience.kernels.linear_maps import LinearMap, SparseMap


class Factor(ABC):
    """One attribute's part of a query."""

    kind: ClassVar[str]
    word: ClassVar[str] = ""
    """What people type for the kind, where that is another word: files keep the kind for ever."""
    is_condition: ClassVar[bool] = False
    """True of factors with one row that picks values, which people write before `by`."""

    @abstractmethod
    def bind(self, attribute: Attribute) -> LinearMap:
        """The factor as a matrix over the attribute's codes."""

    @abstractmethod
    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        """What each row of the matrix answers."""

    def on_lattice(self, bits: int) -> "Factor | None":
        """The factor rounded to the lattice 2^−bits, for kinds that round themselves; None for the others."""
        return None

    def describe(self, name: str) -> str:
        """The factor as people type it, given the attribute's name."""
        return f"{self.word or self.kind}({', '.join((spell_attribute(name), *self._arguments()))})"

    def _arguments(self) -> tuple[str, ...]:
        """What stands after the attribute's name where the factor is typed as a function."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """The factor's own fields; the kind and the attribute are added by the query."""
        return {}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls()


def indicators(attribute: Attribute, groups: Sequence[Sequence[int]]) -> SparseMap:
    """The 0/1 matrix whose row i marks the codes of group i."""
    rows = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    codes = np.array([code for group in groups for code in group], dtype=np.intp)
    return SparseMap(sp.csr_array((np.ones(len(codes)), (rows, codes)), (len(groups), attribute.size)))
