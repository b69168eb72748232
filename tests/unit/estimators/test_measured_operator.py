"""Measured queries as an operator: written out it is what it does to every single cell."""

import numpy as np

from consilience.domain import Domain, Query
from consilience.estimators.measured_table import MeasuredOperator


def test_the_written_matrix_is_the_operator_on_every_cell():
    domain = Domain.from_sizes({"a": 3, "b": 2, "c": 4})
    texts = ("total", "by c, a", "b=1 by a", "prefix(c) by b", "ranges(a)", "by b, c, a")
    queries = [Query.parse(text).bind(domain) for text in texts]
    rng = np.random.default_rng(0)
    operator = MeasuredOperator(domain, queries, [rng.uniform(0.0, 2.0, query.size) for query in queries])
    units = np.eye(domain.cells).reshape(-1, *domain.shape)
    np.testing.assert_allclose(operator.matrix(), np.stack([operator.apply(unit) for unit in units], axis=1))
