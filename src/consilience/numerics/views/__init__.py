"""Views: tables of some attributes each, made consistent and non-negative, and marginals reconstructed from them."""
