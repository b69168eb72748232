"""The first compilation of a process is announced."""

from consilience.kernels.compilation import _announce_once, announce


class Kernel:
    def __init__(self, *, signatures: tuple[str, ...]) -> None:
        self.signatures = signatures


def test_that_kernels_must_be_compiled_is_announced_once(caplog) -> None:
    _announce_once.cache_clear()
    with caplog.at_level("INFO", logger="consilience"):
        announce(Kernel(signatures=()))
        announce(Kernel(signatures=()))
    assert caplog.text.count("compiling") == 1


def test_a_compiled_kernel_is_not_announced(caplog) -> None:
    with caplog.at_level("INFO", logger="consilience"):
        announce(Kernel(signatures=("(int64)",)))
    assert caplog.text == ""
