"""What to measure. A plan is handed a `Gate` and never sees an exact count.

    >>> from consilience import plans
    >>> plans.plan_from_text("marginals age,sex; income").to_json()["marginals"]
    [['age', 'sex'], ['income']]

Plans are imported when they are first used: a command that needs one does not wait for all.
"""

from typing import TYPE_CHECKING

from consilience.late_imports import imported_late

if TYPE_CHECKING:
    from consilience.plans.aim import Aim
    from consilience.plans.best_buy import BestBuy
    from consilience.plans.chosen import chosen_plan
    from consilience.plans.clusters import AutoClusters
    from consilience.plans.forest import Forest, Independent, Mst
    from consilience.plans.geography import Geography
    from consilience.plans.histogram import Histogram
    from consilience.plans.marginals import Direct, Flat, Marginals, Queries
    from consilience.plans.matrix_mechanism import Hdmm, LowRank, LowRankAsPublished, MatrixMechanism
    from consilience.plans.published.clusters import ClusterGrid, HybridClusters, SampleAndAggregate
    from consilience.plans.published.dual_query import DualQuery
    from consilience.plans.published.histograms import (
        Dawa,
        DawaAsPublished,
        Efpa,
        EfpaAsPublished,
        Php,
        PhpAsPublished,
        Wavelet,
    )
    from consilience.plans.published.marginals import DataCube, Fourier, Learning
    from consilience.plans.published.mwem import Mwem, MwemModels
    from consilience.plans.published.privbayes import PrivBayes
    from consilience.plans.published.privgene import PrivGene
    from consilience.plans.residual_planner import ResidualPlanner
    from consilience.plans.rounds import KMeans, Logistic, OwnRounds, RecordFunction
    from consilience.plans.sums import WithSums
    from consilience.plans.texts import plan_from_text
    from consilience.plans.views import Views

__all__ = [
    "Aim",
    "AutoClusters",
    "BestBuy",
    "ClusterGrid",
    "DataCube",
    "Dawa",
    "DawaAsPublished",
    "Direct",
    "DualQuery",
    "Efpa",
    "EfpaAsPublished",
    "Flat",
    "Forest",
    "Fourier",
    "Geography",
    "Hdmm",
    "Histogram",
    "HybridClusters",
    "Independent",
    "KMeans",
    "Learning",
    "Logistic",
    "LowRank",
    "LowRankAsPublished",
    "Marginals",
    "MatrixMechanism",
    "Mst",
    "Mwem",
    "MwemModels",
    "OwnRounds",
    "Php",
    "PhpAsPublished",
    "PrivBayes",
    "PrivGene",
    "Queries",
    "RecordFunction",
    "ResidualPlanner",
    "SampleAndAggregate",
    "Views",
    "Wavelet",
    "WithSums",
    "chosen_plan",
    "plan_from_text",
]

_HOMES = {
    "Aim": "aim",
    "AutoClusters": "clusters",
    "BestBuy": "best_buy",
    "ClusterGrid": "published.clusters",
    "DataCube": "published.marginals",
    "Dawa": "published.histograms",
    "DawaAsPublished": "published.histograms",
    "Direct": "marginals",
    "DualQuery": "published.dual_query",
    "Efpa": "published.histograms",
    "EfpaAsPublished": "published.histograms",
    "Flat": "marginals",
    "Forest": "forest",
    "Fourier": "published.marginals",
    "Geography": "geography",
    "Hdmm": "matrix_mechanism",
    "Histogram": "histogram",
    "HybridClusters": "published.clusters",
    "Independent": "forest",
    "KMeans": "rounds",
    "Learning": "published.marginals",
    "Logistic": "rounds",
    "LowRank": "matrix_mechanism",
    "LowRankAsPublished": "matrix_mechanism",
    "Marginals": "marginals",
    "MatrixMechanism": "matrix_mechanism",
    "Mst": "forest",
    "Mwem": "published.mwem",
    "MwemModels": "published.mwem",
    "OwnRounds": "rounds",
    "Php": "published.histograms",
    "PhpAsPublished": "published.histograms",
    "PrivBayes": "published.privbayes",
    "PrivGene": "published.privgene",
    "Queries": "marginals",
    "RecordFunction": "rounds",
    "ResidualPlanner": "residual_planner",
    "SampleAndAggregate": "published.clusters",
    "Views": "views",
    "Wavelet": "published.histograms",
    "WithSums": "sums",
    "chosen_plan": "chosen",
    "plan_from_text": "texts",
}

__getattr__ = imported_late(__name__, _HOMES)


def __dir__() -> list[str]:
    return list(__all__)
