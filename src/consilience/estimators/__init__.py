"""How to fit: estimators turn measurements into one consistent account. Post-processing only.

    >>> from consilience import estimators
    >>> estimators.Table(tolerance=1e-8).name
    'table'

Estimators are imported when they are first used: a command that needs one does not wait for all.
"""

from typing import TYPE_CHECKING

from consilience.estimators.base import Estimate, Estimator, Suitability
from consilience.estimators.choose import ESTIMATOR_HOMES, Choice, choose, estimate, judged, restore
from consilience.late_imports import imported_late

if TYPE_CHECKING:
    from consilience.estimators.base import MarginalLoss
    from consilience.estimators.clusters import ClusterEstimate, cluster
    from consilience.estimators.geographic import Geographic
    from consilience.estimators.graphical import Graphical
    from consilience.estimators.iterates import Iterates
    from consilience.estimators.logistic import RegressionEstimate, regress
    from consilience.estimators.matrix import Matrix
    from consilience.estimators.own_records import OwnRecords, own_records
    from consilience.estimators.published.bayesian_network import BayesianNetwork
    from consilience.estimators.published.dual_query import DualQuery
    from consilience.estimators.published.dual_query_model import DualQueryModel
    from consilience.estimators.published.fourier import Fourier
    from consilience.estimators.published.learning import Learning
    from consilience.estimators.published.local_squares import LocalSquares
    from consilience.estimators.published.multiplicative_weights import FactoredWeights, MultiplicativeWeights
    from consilience.estimators.published.uniform import Uniform
    from consilience.estimators.residual import Residual
    from consilience.estimators.reweighted import PublicRecords, Reweighted
    from consilience.estimators.table import Table
    from consilience.estimators.tree import Tree
    from consilience.estimators.views import Views

__all__ = [
    "BayesianNetwork",
    "Choice",
    "ClusterEstimate",
    "DualQuery",
    "DualQueryModel",
    "Estimate",
    "Estimator",
    "FactoredWeights",
    "Fourier",
    "Geographic",
    "Graphical",
    "Iterates",
    "Learning",
    "LocalSquares",
    "MarginalLoss",
    "Matrix",
    "MultiplicativeWeights",
    "OwnRecords",
    "PublicRecords",
    "RegressionEstimate",
    "Residual",
    "Reweighted",
    "Suitability",
    "Table",
    "Tree",
    "Uniform",
    "Views",
    "choose",
    "cluster",
    "estimate",
    "judged",
    "own_records",
    "regress",
    "restore",
]

_HOMES = {
    "ClusterEstimate": "clusters",
    "Iterates": "iterates",
    "MarginalLoss": "base",
    "OwnRecords": "own_records",
    "PublicRecords": "reweighted",
    "RegressionEstimate": "logistic",
    "cluster": "clusters",
    "own_records": "own_records",
    "regress": "logistic",
    **{name: module for module, _, name in (path.rpartition(".") for path in ESTIMATOR_HOMES.values())},
}

__getattr__ = imported_late(__name__, _HOMES)


def __dir__() -> list[str]:
    return list(__all__)
