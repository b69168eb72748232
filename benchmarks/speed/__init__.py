"""Benchmarks of speed. Everybody computes in one thread: linear algebra is told so before NumPy is first imported."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
