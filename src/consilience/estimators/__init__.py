"""How to fit: estimators turn measurements into one consistent account. Post-processing only."""

from consilience.estimators.base import Estimate, Estimator, Suitability
from consilience.estimators.choose import Choice, choose, estimate, restore
from consilience.estimators.table import Table

__all__ = ["Choice", "Estimate", "Estimator", "Suitability", "Table", "choose", "estimate", "restore"]
