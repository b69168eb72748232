"""Fitting a graphical model to measured rows: losses, first-order methods, the proximal point method, least risk."""
