"""Loopy belief propagation: marginals by local messages, exact on trees, without a bound on how far off on loops.

Messages run between the scopes of a model and what scopes share, as if the graph had no loops (Pearl 1988). What they
settle on is a stationary point of the free energy of Kikuchi, with Bethe's where scopes share single attributes
(Yedidia, Freeman, Weiss 2005); there may be several, and the messages need not settle: `damping` helps, and the status
of the result tells. Work is linear in the cells of the scopes, however large a junction tree would be. McKenna, Sheldon
and Miklau (2019, §5.2) name it as the way out where a junction tree is too large.
"""

from consilience.models.region_propagation import RegionPropagation


class LoopyOracle(RegionPropagation):
    """Pseudo-marginals by loopy belief propagation, with the interface of `MarginalOracle`.

    >>> import numpy as np
    >>> oracle = LoopyOracle([2, 2], [(0, 1)], total=10.0)
    >>> found = oracle.marginals(np.log([1.0, 2.0, 3.0, 4.0]))
    >>> found.values.round(9), found.status.value
    (array([1., 2., 3., 4.]), 'converged')
    """

    usual_damping = 0.5
