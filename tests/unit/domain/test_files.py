"""Files are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from consilience.domain.files import write_atomically
from consilience.errors import FileFormatError


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    target = tmp_path / "a.toml"
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["a.toml"]


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "a.toml"
    target.write_bytes(b"a longer old content")
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"


def test_new_files_get_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a.toml", b"new")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.toml").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("failing", "error"), [("os.fsync", OSError(28, "No space left on device")), ("os.fsync", KeyboardInterrupt())]
)
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    target = tmp_path / "a.toml"
    target.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(failing, fail)
    with pytest.raises((FileFormatError, KeyboardInterrupt)) as caught:
        write_atomically(target, b"new")
    if isinstance(error, OSError):
        assert "No space left on device" in str(caught.value)
    assert target.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.toml"]


def test_content_that_is_no_bytes_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_atomically(tmp_path / "a.toml", "text")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(FileFormatError, match="cannot write"):
        write_atomically(target, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"absent.*No such file.*check the folder"):
        write_atomically(tmp_path / "absent" / "a.toml", b"new")
