"""Plans as others published them, kept for their papers and for comparison."""
