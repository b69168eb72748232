"""What to measure. A plan is handed a `Gate` and never sees an exact count.

Plans are imported when they are first used: a command that needs one does not wait for all.
"""

from typing import TYPE_CHECKING

from consilience.late_imports import imported_late

if TYPE_CHECKING:
    from consilience.plans.aim import Aim
    from consilience.plans.best_buy import BestBuy
    from consilience.plans.chosen import chosen_plan
    from consilience.plans.cluster_grid import ClusterGrid
    from consilience.plans.data_cube import DataCube
    from consilience.plans.dawa import Dawa
    from consilience.plans.dual_query import DualQuery
    from consilience.plans.efpa import Efpa
    from consilience.plans.forest import Forest
    from consilience.plans.fourier import Fourier
    from consilience.plans.hdmm import Hdmm
    from consilience.plans.histogram import Histogram
    from consilience.plans.hybrid_clusters import HybridClusters
    from consilience.plans.independent import Independent
    from consilience.plans.kmeans import KMeans
    from consilience.plans.learning import Learning
    from consilience.plans.logistic import Logistic
    from consilience.plans.low_rank import LowRank
    from consilience.plans.marginals import Direct, Flat, Marginals
    from consilience.plans.matrix_mechanism import MatrixMechanism
    from consilience.plans.mst import Mst
    from consilience.plans.mwem import Mwem
    from consilience.plans.mwem_models import MwemModels
    from consilience.plans.php import Php
    from consilience.plans.privbayes import PrivBayes
    from consilience.plans.residual_planner import ResidualPlanner
    from consilience.plans.sample_and_aggregate import SampleAndAggregate
    from consilience.plans.texts import plan_from_text
    from consilience.plans.views import Views
    from consilience.plans.wavelet import Wavelet

__all__ = [
    "Aim",
    "BestBuy",
    "ClusterGrid",
    "DataCube",
    "Dawa",
    "Direct",
    "DualQuery",
    "Efpa",
    "Flat",
    "Forest",
    "Fourier",
    "Hdmm",
    "Histogram",
    "HybridClusters",
    "Independent",
    "KMeans",
    "Learning",
    "Logistic",
    "LowRank",
    "Marginals",
    "MatrixMechanism",
    "Mst",
    "Mwem",
    "MwemModels",
    "Php",
    "PrivBayes",
    "ResidualPlanner",
    "SampleAndAggregate",
    "Views",
    "Wavelet",
    "chosen_plan",
    "plan_from_text",
]

_HOMES = {
    "Aim": "aim",
    "BestBuy": "best_buy",
    "ClusterGrid": "cluster_grid",
    "DataCube": "data_cube",
    "Dawa": "dawa",
    "Direct": "marginals",
    "DualQuery": "dual_query",
    "Efpa": "efpa",
    "Flat": "marginals",
    "Forest": "forest",
    "Fourier": "fourier",
    "Hdmm": "hdmm",
    "Histogram": "histogram",
    "HybridClusters": "hybrid_clusters",
    "Independent": "independent",
    "KMeans": "kmeans",
    "Learning": "learning",
    "Logistic": "logistic",
    "LowRank": "low_rank",
    "Marginals": "marginals",
    "MatrixMechanism": "matrix_mechanism",
    "Mst": "mst",
    "Mwem": "mwem",
    "MwemModels": "mwem_models",
    "Php": "php",
    "PrivBayes": "privbayes",
    "ResidualPlanner": "residual_planner",
    "SampleAndAggregate": "sample_and_aggregate",
    "Views": "views",
    "Wavelet": "wavelet",
    "chosen_plan": "chosen",
    "plan_from_text": "texts",
}

__getattr__ = imported_late(__name__, _HOMES)


def __dir__() -> list[str]:
    return list(__all__)
