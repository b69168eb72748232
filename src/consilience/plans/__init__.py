"""What to measure. A plan is handed a `Gate` and never sees an exact count."""

from consilience.plans.dawa import Dawa
from consilience.plans.efpa import Efpa
from consilience.plans.histogram import Histogram
from consilience.plans.low_rank import LowRank
from consilience.plans.marginals import Direct, Flat, Marginals
from consilience.plans.matrix_mechanism import MatrixMechanism
from consilience.plans.mwem import Mwem
from consilience.plans.php import Php
from consilience.plans.texts import plan_from_text
from consilience.plans.wavelet import Wavelet

__all__ = [
    "Dawa",
    "Direct",
    "Efpa",
    "Flat",
    "Histogram",
    "LowRank",
    "Marginals",
    "MatrixMechanism",
    "Mwem",
    "Php",
    "Wavelet",
    "plan_from_text",
]
