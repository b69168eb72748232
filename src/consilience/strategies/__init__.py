"""Strategies: which linear queries to measure so that the answers to a workload come out best.

A workload W is known here by its Gram matrix WᵀW, because the expected error depends on nothing else; so that all
ranges of a thousand values are a matrix of a thousand columns and not of half a million rows. Workloads over several
attributes are unions of products, known by the Gram matrices of their factors.
"""
