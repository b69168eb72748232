"""What would be measured, and how far answers would be off: told from declarations alone, before there are data.

domain, workload, a guess of N ──► `stand_ins` ──► a simulated run of the plan ──► `expected_errors` ──► `what_if`
"""
