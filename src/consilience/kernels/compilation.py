"""What kernels have to do with the machine: how many cores there are, and why the first use takes a moment."""

import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

logger = logging.getLogger("consilience")

MOST_THREADS = 8


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def announce(kernel: Any) -> None:
    """Say that a kernel is about to be compiled, unless it is compiled already or lies in the cache on disk."""
    if kernel.signatures or _is_cached(kernel):
        return
    _announce_once()


@cache
def _announce_once() -> None:
    logger.info("compiling what is used for the first time, which may take a minute; it is kept for the next time")


def _is_cached(kernel: Any) -> bool:
    """Whether an earlier run left this kernel on disk; False where this version of numba does not tell."""
    index = getattr(getattr(getattr(kernel, "_cache", None), "_cache_file", None), "_index_path", None)
    return index is not None and Path(index).exists()
