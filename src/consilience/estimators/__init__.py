"""How to fit: estimators turn measurements into one consistent account. Post-processing only."""

from consilience.estimators.base import Estimate, Estimator, Suitability
from consilience.estimators.choose import Choice, choose, estimate, restore
from consilience.estimators.clusters import ClusterEstimate, cluster
from consilience.estimators.fourier import Fourier
from consilience.estimators.graphical import Graphical
from consilience.estimators.iterates import Iterates
from consilience.estimators.learning import Learning
from consilience.estimators.logistic import RegressionEstimate, regress
from consilience.estimators.marginal_loss import MarginalLoss
from consilience.estimators.matrix import Matrix
from consilience.estimators.multiplicative_weights import MultiplicativeWeights
from consilience.estimators.residual import Residual
from consilience.estimators.table import Table
from consilience.estimators.tree import Tree
from consilience.estimators.uniform import Uniform
from consilience.estimators.views import Views

__all__ = [
    "Choice",
    "ClusterEstimate",
    "Estimate",
    "Estimator",
    "Fourier",
    "Graphical",
    "Iterates",
    "Learning",
    "MarginalLoss",
    "Matrix",
    "MultiplicativeWeights",
    "RegressionEstimate",
    "Residual",
    "Suitability",
    "Table",
    "Tree",
    "Uniform",
    "Views",
    "choose",
    "cluster",
    "estimate",
    "regress",
    "restore",
]
