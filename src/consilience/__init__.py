"""One consistent, non-negative, most likely account of data measured with differential privacy."""
