"""Exact solvers for noisy values on trees and forests."""
