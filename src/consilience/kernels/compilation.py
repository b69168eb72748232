"""What kernels have to do with the machine: how many cores there are, and that some have to be compiled first."""

import logging
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

logger = logging.getLogger("consilience")

MOST_THREADS = 8


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Compilation:
    """The kernels that this process had to compile: announced once, counted, and told to whoever watches."""

    def __init__(self) -> None:
        self.kernels = 0
        self.began: float | None = None
        self._watchers: list[Callable[[str], None]] = []

    def begin(self) -> None:
        """A kernel is about to be compiled; the first one is announced."""
        if self.began is None:
            self.began = time.monotonic()
            logger.info(
                "compiling what is used for the first time: a quarter of a minute to a whole one; it is kept for the "
                "next time, and `consilience warm-up` compiles all of it beforehand"
            )

    def end(self) -> None:
        """A kernel was compiled."""
        self.kernels += 1
        for watcher in self._watchers:
            watcher(f"compiling, {self.kernels} so far")

    @contextmanager
    def watched_by(self, watcher: Callable[[str], None]) -> Generator[None]:
        """Within the block, the watcher is told after every kernel how many were compiled."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)


compilation = Compilation()
"""Of this process."""
