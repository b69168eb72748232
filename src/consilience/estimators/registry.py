"""The estimators and their estimates by the names that files and commands use, imported when they are asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

from consilience.estimators.base import Estimate, Estimator

Found = TypeVar("Found")

_FULL_TABLE = "full_table.FullTableEstimate"
_HOMES = {
    "tree": ("tree.Tree", _FULL_TABLE),
    "table": ("table.Table", _FULL_TABLE),
    "matrix": ("matrix.Matrix", _FULL_TABLE),
    "graphical": ("graphical.Graphical", "graphical_estimate.GraphicalEstimate"),
    "residual": ("residual.Residual", "marginals_estimate.MarginalsEstimate"),
    "views": ("views.Views", "views_estimate.ViewsEstimate"),
    "multiplicative-weights": ("published.multiplicative_weights.MultiplicativeWeights", _FULL_TABLE),
    "fourier": ("published.fourier.Fourier", "published.fourier.FourierEstimate"),
    "learning": ("published.learning.Learning", "published.learning.LearningEstimate"),
    "uniform": ("published.uniform.Uniform", "published.uniform.UniformEstimate"),
    "bayesian-network": (
        "published.bayesian_network.BayesianNetwork",
        "published.bayesian_network.BayesianNetworkEstimate",
    ),
    "dual-query": ("published.dual_query.DualQuery", "published.dual_query.SyntheticRecords"),
    "dual-query-model": (
        "published.dual_query_model.DualQueryModel",
        "published.dual_query_model.DualQueryModelEstimate",
    ),
    "factored-weights": ("published.factored_weights.FactoredWeights", "published.factored_weights.FactoredEstimate"),
    "local-squares": ("published.local_squares.LocalSquares", "published.local_squares.LocalSquaresEstimate"),
}
"""Of each method where the estimator is, and where the estimate."""


class _Imported(Mapping[str, Found]):
    """Classes of this package by method, each imported at its first use."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def __getitem__(self, method: str) -> Found:
        module, name = self._homes[method].split(".")
        return getattr(import_module(f"consilience.estimators.{module}"), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


ESTIMATORS: Mapping[str, type[Estimator]] = _Imported({name: homes[0] for name, homes in _HOMES.items()})
ESTIMATES: Mapping[str, type[Estimate]] = _Imported({name: homes[1] for name, homes in _HOMES.items()})
