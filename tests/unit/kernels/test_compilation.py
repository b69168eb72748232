"""The first use of a kernel is announced."""

from consilience.kernels.compilation import announce


class Kernel:
    def __init__(self, *, signatures: tuple[str, ...]) -> None:
        self.signatures = signatures


def test_a_kernel_that_must_be_compiled_is_announced(caplog) -> None:
    with caplog.at_level("INFO", logger="consilience"):
        announce(Kernel(signatures=()))
    assert "compiling a kernel" in caplog.text


def test_a_compiled_kernel_is_not_announced(caplog) -> None:
    with caplog.at_level("INFO", logger="consilience"):
        announce(Kernel(signatures=("(int64)",)))
    assert caplog.text == ""
