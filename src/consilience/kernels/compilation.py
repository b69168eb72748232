"""Telling people why the first use of a kernel takes a moment."""

import logging
from pathlib import Path
from typing import Any

logger = logging.getLogger("consilience")


def announce(kernel: Any) -> None:
    """Say that a kernel is about to be compiled, unless it is compiled already or lies in the cache on disk."""
    if kernel.signatures or _is_cached(kernel):
        return
    logger.info("compiling a kernel, which takes a few seconds; it is cached for the next time")


def _is_cached(kernel: Any) -> bool:
    """Whether an earlier run left this kernel on disk; False where this version of numba does not tell."""
    index = getattr(getattr(getattr(kernel, "_cache", None), "_cache_file", None), "_index_path", None)
    return index is not None and Path(index).exists()
