"""Covering designs: few blocks of points such that any t points lie together in one of them.

`covering` gives the best design that the shipped table knows, or builds one; `weighted_covering` bounds blocks by the
product of their points' sizes instead of their number; `uncovered` and `coverage` check any blocks exhaustively.
"""
