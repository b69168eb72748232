"""ADMM, the recipe of Lee, Wang and Kifer (2015) for every constraint that is known by its projection."""
