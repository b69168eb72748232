"""Datasets that make every iterate of a noisy algorithm likely: chains over datasets, on plain arrays."""
