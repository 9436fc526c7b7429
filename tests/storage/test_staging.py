"""Errors of writing name what was to be written, not the folder beside it."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from diffclust.storage.staging import staged, staged_file


@pytest.mark.parametrize("files", [(), ("written",), ("read.png", None, "written")], ids=len)
def test_errors_name_the_target(tmp_path: Path, files: tuple[str | None, ...]) -> None:
    target, text = tmp_path / "new" / "run", os.strerror(errno.ENOSPC)

    def fill() -> None:
        with staged(target, replace=False) as folder:
            known = {"written": str(folder / "a.png")}
            raise OSError(errno.ENOSPC, text, *(known.get(each or "", each) for each in files))

    with pytest.raises(OSError, match=text) as caught:
        fill()
    assert (caught.value.filename, caught.value.filename2) == (str(target), None)
    assert not list(tmp_path.iterdir())


def test_errors_of_reading_keep_their_names(tmp_path: Path) -> None:
    gone = tmp_path / "gone.png"
    with (
        pytest.raises(FileNotFoundError) as caught,
        staged_file(tmp_path / "a.png", overwrite=False) as path,
    ):
        shutil.copyfile(gone, path)
    assert caught.value.filename in (gone, str(gone))
    with pytest.raises(OSError, match="broken") as caught, staged(tmp_path / "b", replace=False):
        raise OSError(errno.EIO, "broken")
    assert caught.value.filename is None
