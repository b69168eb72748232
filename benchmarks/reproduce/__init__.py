"""Figures and tables of the papers, regenerated: a CSV and a PNG each under `benchmarks/results/`."""
