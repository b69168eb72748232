"""CONFIDENTIAL. Sources whose records stay in the engine that holds them: only counts and sums leave it.

`sql` writes the queries that a warehouse runs; `spark` takes this package's own coder and kernels to the executors.
"""
