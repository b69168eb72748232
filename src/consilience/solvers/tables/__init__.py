"""Tables behind measured rows and exact facts: any mixture of squares and absolute values, with certificates."""
