"""Graphical models on plain arrays: junction trees, and the marginals of a model by belief propagation.

scopes ──► junction_trees ──► program ──► oracle: potentials to marginals     (passes)
model ──► elimination, factored_queries: any query                            (elimination_plans, tables)
      └─► sampling: records
fitting/ : the model of least cost behind measured rows
"""
