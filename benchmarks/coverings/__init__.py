"""The search for smaller covering designs, whose finds go into the table that ships with the package."""
