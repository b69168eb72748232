"""The consistency solvers against general ones: trees, tables with known marginals, matrices.

`timing` says how solvers are timed and peers judged; each of the three modules says what its problems are.
"""

from typing import Any

from benchmarks.speed import matrices, tables, trees


def run(quick: bool) -> list[dict[str, Any]]:
    """All rows: our solvers with their certificates, peers with their ratios, targets and whether they are met."""
    return [*trees.run(quick), *tables.run(quick), *matrices.run(quick)]
