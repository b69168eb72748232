"""Noisy measurements, the law of their noise, and the promise they carry: the waist of the hourglass.

Whatever measured the data, from here on everything is public. Estimators see a `MeasurementSet` and nothing else.
"""

from consilience.measurements.further_laws import Exact, Gaussian, Gumbel, Laplace
from consilience.measurements.importers import from_long_table
from consilience.measurements.measurement import Measurement
from consilience.measurements.measurement_set import MeasurementSet
from consilience.measurements.noise_laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from consilience.measurements.parquet import noise_law, noise_law_from_json
from consilience.measurements.privacy_statement import PrivacyStatement
from consilience.measurements.tool_results import from_mbi, from_opendp

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "Gaussian",
    "Gumbel",
    "Laplace",
    "Measurement",
    "MeasurementSet",
    "NoiseLaw",
    "PrivacyStatement",
    "from_long_table",
    "from_mbi",
    "from_opendp",
    "noise_law",
    "noise_law_from_json",
]
