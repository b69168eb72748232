"""Potentials of one model as potentials of another that has room for them, so that a fit need not begin anew."""

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.models.layout import TableLayout, cells_of

Array = NDArray[np.float64]


def carry_potentials(old: TableLayout, potentials: Array, new: TableLayout) -> Array:
    """The same model in a new layout: each table goes to the scope of its attributes, or the smallest with all.

    >>> old, new = TableLayout([2, 2], [(0,)]), TableLayout([2, 2], [(0, 1)])
    >>> new.unpack(carry_potentials(old, np.array([1.0, 2.0]), new))
    [array([[1., 1.],
           [2., 2.]])]
    """
    carried = np.zeros(new.size)
    for place, axes in enumerate(old.axes):
        table = old.view(potentials, place)
        home = _home(old, place, new)
        order = new.axes[home]
        # Both layouts keep axes in one order, so that a table fits into a larger one without being turned.
        shape = [new.sizes[attribute] if attribute in axes else 1 for attribute in order]
        view = new.view(carried, home)
        view += table.reshape(shape)
    return carried


def _home(old: TableLayout, place: int, new: TableLayout) -> int:
    scope = set(old.axes[place])
    if any(attribute >= len(new.sizes) or new.sizes[attribute] != old.sizes[attribute] for attribute in scope):
        raise DeclarationError(
            f"the attributes {old.scopes[place]} have other sizes in the new model: carry potentials between models of "
            "the same attributes"
        )
    homes = [k for k, axes in enumerate(new.axes) if scope <= set(axes)]
    if not homes:
        raise DeclarationError(
            f"no scope of the new model contains the attributes {old.scopes[place]} of an old one: add such a scope"
        )
    return min(homes, key=lambda k: cells_of(new.sizes, new.axes[k]))
