"""Noisy answers to the rows of a matrix: the most likely cells behind them."""
