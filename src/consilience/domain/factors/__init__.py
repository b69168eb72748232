"""Factors: what a query asks of one attribute, or of several together. Plain data that serialises to JSON.

A factor bound to an attribute is a matrix F whose columns are the attribute's codes and whose rows are answers
(McKenna et al. 2019, Table 2, and more). `bind` gives it as a `LinearMap`; `row_labels` says what each row is.

    >>> from consilience import Attribute, factors
    >>> factors.Prefix().bind(Attribute.numeric("age", [0, 18, 65, 100])).dense()
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
"""

from consilience.domain.declarations import Declaration, suggestion
from consilience.domain.factors.joint import Equal, JointFactor, JointMatrix, joint_name
from consilience.domain.factors.ordered import AllRanges, Fourier, Haar, Intervals, Nominal, Prefix, Tree
from consilience.domain.factors.selections import (
    Buckets,
    Factor,
    Identity,
    Level,
    Matrix,
    Mean,
    Moments,
    Range,
    Subset,
    Total,
    Value,
)

__all__ = [
    "FACTORS",
    "AllRanges",
    "Buckets",
    "Equal",
    "Factor",
    "Fourier",
    "Haar",
    "Identity",
    "Intervals",
    "JointFactor",
    "JointMatrix",
    "Level",
    "Matrix",
    "Mean",
    "Moments",
    "Nominal",
    "Prefix",
    "Range",
    "Subset",
    "Total",
    "Tree",
    "Value",
    "factor_from_json",
    "joint_name",
]

FACTORS: dict[str, type[Factor]] = {
    factor.kind: factor
    for factor in (
        Identity,
        Total,
        Value,
        Subset,
        Range,
        Prefix,
        AllRanges,
        Buckets,
        Level,
        Intervals,
        Mean,
        Moments,
        Tree,
        Haar,
        Nominal,
        Fourier,
        Matrix,
        Equal,
        JointMatrix,
    )
}


def factor_from_json(declared: Declaration) -> Factor:
    """The factor that one JSON table describes; the table's `attribute` must have been read by the caller."""
    kind = declared.text("kind")
    if kind not in FACTORS:
        declared.refuse(f"factor kind {kind!r} is not known; {suggestion(kind, FACTORS)}")
    factor = FACTORS[kind].from_json(declared)
    declared.close()
    return factor
