"""What to measure. A plan is handed a `Gate` and never sees an exact count.

Plans are imported when they are first used: a command that needs one does not wait for all.
"""

from typing import TYPE_CHECKING

from consilience.late_imports import imported_late

if TYPE_CHECKING:
    from consilience.plans.aim import Aim
    from consilience.plans.best_buy import BestBuy
    from consilience.plans.chosen import chosen_plan
    from consilience.plans.forest import Forest
    from consilience.plans.hdmm import Hdmm
    from consilience.plans.histogram import Histogram
    from consilience.plans.independent import Independent
    from consilience.plans.kmeans import KMeans
    from consilience.plans.logistic import Logistic
    from consilience.plans.marginals import Direct, Flat, Marginals
    from consilience.plans.matrix_mechanism import MatrixMechanism
    from consilience.plans.mst import Mst
    from consilience.plans.published.cluster_grid import ClusterGrid
    from consilience.plans.published.data_cube import DataCube
    from consilience.plans.published.dawa import Dawa
    from consilience.plans.published.dual_query import DualQuery
    from consilience.plans.published.efpa import Efpa
    from consilience.plans.published.fourier import Fourier
    from consilience.plans.published.hybrid_clusters import HybridClusters
    from consilience.plans.published.learning import Learning
    from consilience.plans.published.low_rank import LowRank
    from consilience.plans.published.mwem import Mwem
    from consilience.plans.published.mwem_models import MwemModels
    from consilience.plans.published.php import Php
    from consilience.plans.published.privbayes import PrivBayes
    from consilience.plans.published.sample_and_aggregate import SampleAndAggregate
    from consilience.plans.published.wavelet import Wavelet
    from consilience.plans.residual_planner import ResidualPlanner
    from consilience.plans.texts import plan_from_text
    from consilience.plans.views import Views

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
    "ClusterGrid": "published.cluster_grid",
    "DataCube": "published.data_cube",
    "Dawa": "published.dawa",
    "Direct": "marginals",
    "DualQuery": "published.dual_query",
    "Efpa": "published.efpa",
    "Flat": "marginals",
    "Forest": "forest",
    "Fourier": "published.fourier",
    "Hdmm": "hdmm",
    "Histogram": "histogram",
    "HybridClusters": "published.hybrid_clusters",
    "Independent": "independent",
    "KMeans": "kmeans",
    "Learning": "published.learning",
    "Logistic": "logistic",
    "LowRank": "published.low_rank",
    "Marginals": "marginals",
    "MatrixMechanism": "matrix_mechanism",
    "Mst": "mst",
    "Mwem": "published.mwem",
    "MwemModels": "published.mwem_models",
    "Php": "published.php",
    "PrivBayes": "published.privbayes",
    "ResidualPlanner": "residual_planner",
    "SampleAndAggregate": "published.sample_and_aggregate",
    "Views": "views",
    "Wavelet": "published.wavelet",
    "chosen_plan": "chosen",
    "plan_from_text": "texts",
}

__getattr__ = imported_late(__name__, _HOMES)


def __dir__() -> list[str]:
    return list(__all__)
