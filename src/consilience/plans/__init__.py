"""What to measure. A plan is handed a `Gate` and never sees an exact count."""

from consilience.plans.cluster_grid import ClusterGrid
from consilience.plans.data_cube import DataCube
from consilience.plans.dawa import Dawa
from consilience.plans.efpa import Efpa
from consilience.plans.fourier import Fourier
from consilience.plans.histogram import Histogram
from consilience.plans.hybrid_clusters import HybridClusters
from consilience.plans.kmeans import KMeans
from consilience.plans.learning import Learning
from consilience.plans.logistic import Logistic
from consilience.plans.low_rank import LowRank
from consilience.plans.marginals import Direct, Flat, Marginals
from consilience.plans.matrix_mechanism import MatrixMechanism
from consilience.plans.mwem import Mwem
from consilience.plans.php import Php
from consilience.plans.sample_and_aggregate import SampleAndAggregate
from consilience.plans.texts import plan_from_text
from consilience.plans.views import Views
from consilience.plans.wavelet import Wavelet

__all__ = [
    "ClusterGrid",
    "DataCube",
    "Dawa",
    "Direct",
    "Efpa",
    "Flat",
    "Fourier",
    "Histogram",
    "HybridClusters",
    "KMeans",
    "Learning",
    "Logistic",
    "LowRank",
    "Marginals",
    "MatrixMechanism",
    "Mwem",
    "Php",
    "SampleAndAggregate",
    "Views",
    "Wavelet",
    "plan_from_text",
]
