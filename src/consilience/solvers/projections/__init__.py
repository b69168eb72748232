"""Convex sets that constrain counts, each known by its Euclidean projection."""
