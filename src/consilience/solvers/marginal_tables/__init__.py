"""Tables of counts with known marginals: exact fits, by transforms, in the few dimensions of the dual."""
