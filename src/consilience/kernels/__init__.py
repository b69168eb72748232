"""What touches records or plain data and must be fast: linear maps, regions and lattices, nearest centres, gradients.

The one package of kernels that `source` and `privacy` rest on. It knows arrays alone.
"""
