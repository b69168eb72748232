"""Tables behind measured rows and exact facts: any mixture of squares and absolute values, with certificates."""

from consilience.solvers.tables.measured_fit import fit_measured_table

__all__ = ["fit_measured_table"]
