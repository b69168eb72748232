"""What to measure. A plan is handed a `Gate` and never sees an exact count."""

from consilience.plans.histogram import Histogram
from consilience.plans.marginals import Direct, Flat, Marginals
from consilience.plans.texts import plan_from_text

__all__ = ["Direct", "Flat", "Histogram", "Marginals", "plan_from_text"]
