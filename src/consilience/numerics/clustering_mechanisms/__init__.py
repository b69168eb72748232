"""What other private clusterings than iterated k-means compute: cells of a grid, clusterings of blocks of records."""
