"""Tables of counts with known marginals: exact fits, by transforms, in the few dimensions of the dual."""

from consilience.solvers.marginal_tables.table_fit import fit_table

__all__ = ["fit_table"]
