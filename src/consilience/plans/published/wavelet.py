"""Privlet: the wavelet transform of a table, each coefficient with the same noise (Xiao, Wang, Gehrke 2011)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from consilience.domain.attributes import Attribute, Numeric
from consilience.domain.factors import Factor, Haar, Nominal
from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.privacy.gate import Gate


@dataclass(frozen=True)
class Wavelet:
    """The wavelet coefficients of the table over some attributes (by default all), in one query.

    Numeric attributes get the Haar wavelet, hierarchies and categorical attributes the nominal one; several attributes
    their Kronecker product (the paper's "standard decomposition").

    *Equal noise on these rows is Privlet.* The paper adds noise of scale λ/W(c) to the coefficient c. Haar: c is half
    the difference between the averages of the two halves of an interval of m bins, and W(c) = m, so

        W(c) · c = m · (S_left/(m/2) − S_right/(m/2)) / 2 = S_left − S_right,

    and W = n for the average of all n bins gives their sum: the ±1 rows of `Haar` are the weighted coefficients.
    Nominal: c is a node's sum less the average over its f siblings, and W(c) = f/(2f − 2), so W(c) · c = (f·s_v −
    s_p)/(2(f − 1)), the rows of `Nominal` up to a factor that all of them share. Scaling rows and their noise alike
    changes nothing. In a product weights multiply, and so do rows.

    *Sensitivity.* A record is in 1 + ⌈log₂ n⌉ rows of `Haar` with ±1, and adds at most 1 in absolute value per level
    to the weighted rows of `Nominal`; products multiply (the paper's Theorem 2). The gate computes it from the columns.

    *Variance.* Let n = 2^l and let each row have noise of variance σ². The rows are orthogonal, so least squares
    inverts them, and a range with the indicator r has the variance

        σ² · [ (|r|/n)² + Σ over intervals h of m bins of ((r ∩ left) − (r ∩ right))² / m² ]  ≤  σ² · (1 + l/2),

    because a range cuts at most two intervals of each size, each with a difference of at most m/2, and only one of the
    largest. A nominal row group of f siblings sums to zero, and least squares takes the mean of their noise away, as
    the paper's "mean subtraction" does. Other lengths are padded with zeros that nobody needs to measure.
    """

    attributes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.attributes is None:
            return
        names = (self.attributes,) if isinstance(self.attributes, str) else tuple(self.attributes)
        object.__setattr__(self, "attributes", names)
        if not names:
            raise DeclarationError("a wavelet of no attributes was asked for; name at least one, or None for all")

    def run(self, gate: Gate) -> None:
        names = gate.domain.counted_names if self.attributes is None else self.attributes
        gate.measure(Query.of({name: _wavelet_of(gate.domain[name]) for name in names}), gate.budget)

    def to_json(self) -> dict[str, Any]:
        return {"plan": "wavelet", "attributes": None if self.attributes is None else list(self.attributes)}


def _wavelet_of(attribute: Attribute) -> Factor:
    return Haar() if isinstance(attribute, Numeric) else Nominal()
