"""The first compilation of a process is announced, and all are counted."""

from consilience.kernels.compilation import Compilation


def test_that_kernels_must_be_compiled_is_announced_once(caplog) -> None:
    compilation = Compilation()
    with caplog.at_level("INFO", logger="consilience"):
        compilation.begin()
        compilation.end()
        compilation.begin()
    assert caplog.text.count("compiling") == 1
    assert "minute" in caplog.text  # how long it may take


def test_who_watches_is_told_how_many_kernels_there_are_so_far() -> None:
    compilation, told = Compilation(), []
    compilation.end()
    with compilation.watched_by(told.append):
        compilation.end()
        compilation.end()
    compilation.end()
    assert compilation.kernels == 4
    assert told == ["compiling, 2 so far", "compiling, 3 so far"]
