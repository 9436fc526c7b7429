"""Writes folders and files that are complete or absent, and replaces nothing unasked."""

import contextlib
import errno
import functools
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from diffclust._signals import signals_deferred

EXPORT_MARK = "export.json"
"""A folder that holds it was written by `diffclust export` or `align`."""

REPORT_MARK = "report.json"
"""A folder that holds it has the files of a report."""


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object in a file.

    Args:
        path: The file.

    Returns:
        The object; empty where the file is missing, or holds something else.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON file for people to read; numbers of NumPy's and JAX's become Python's.

    Args:
        path: The file.
        content: What it shall hold.
    """
    text = json.dumps(content, indent=2, default=lambda value: value.tolist())
    path.write_text(text + "\n", "utf-8")


def is_output(folder: Path, names: Iterable[str]) -> bool:
    """Whether a folder is a run, a sweep, an export, or has the files of a report.

    Args:
        folder: The folder.
        names: What it holds.

    Returns:
        False for a folder of one's own that happens to have files of the same names.
    """
    marks = {
        "summary.json": {"method", "command"},
        EXPORT_MARK: {"what", "run"},
        REPORT_MARK: {"report", "files"},
    }
    return any(marks[name] <= read_object(folder / name).keys() for name in marks.keys() & {*names})


def check_target(
    path: str | Path, *, kind: str, is_one: Callable[[Path], bool], overwrite: bool
) -> Path:
    """Refuses to write a folder where that would mix with, or destroy, something else.

    Args:
        path: The folder to be written.
        kind: What will be written, such as `"run"`.
        is_one: Tells whether a folder holds one, and so may be replaced.
        overwrite: Whether it may.

    Returns:
        The folder's real path, links resolved.

    Raises:
        ValueError: If the path is empty, no UTF-8, a file or the current folder, or holds what must
            not be replaced.
    """
    if not os.fspath(path):
        # As a path it would be the current folder, which an unset shell variable does not mean.
        raise ValueError(f"the folder of the {kind} must not be empty; give a path")
    target = Path(os.path.realpath(path))
    shown = repr(str(path))
    try:
        os.fspath(target).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{shown} is no valid UTF-8; give another path") from error
    if not os.path.lexists(target):
        return target
    if not target.is_dir():
        raise ValueError(f"{shown} is a file; give the path of a new folder for the {kind}")
    if os.path.ismount(target):
        # It cannot be replaced by a folder that was written beside it.
        raise ValueError(f"{shown} is a mount point; give the path of a new folder inside it")
    if Path(os.path.realpath(os.curdir)).is_relative_to(target):
        raise ValueError(
            f"{shown} is the current folder, or holds it, and would be replaced; give a new folder"
        )
    if not any(target.iterdir()):
        return target
    if not is_one(target):
        raise ValueError(
            f"{shown} holds files that are no {kind}, which are never replaced; give a new folder"
        )
    if not overwrite:
        raise ValueError(
            f"{shown} holds another {kind}; give the path of a new folder, or replace it with "
            "--overwrite (overwrite=True)"
        )
    return target


def refuse_patterns(path: str | Path) -> None:
    """Refuses a path that orbax would take for a pattern, so that it could not read what it wrote.

    Args:
        path: A folder that arrays are to be saved in, or below.

    Raises:
        ValueError: If the path, from the root on, has one of those characters.
    """
    special = {"[", "*"} | ({"\\"} if os.sep == "/" else set())
    if found := sorted(special & {*os.path.abspath(path)}):
        raise ValueError(
            f"nothing can be saved in or read from {str(path)!r}: the path of that folder has "
            f"{found[0]} in it, which orbax takes for a pattern; give it another path"
        )


@contextlib.contextmanager
def staged(target: Path, *, replace: bool) -> Iterator[Path]:
    """A temporary folder that takes the target's place when the block ends.

    It lies beside the target, so that renaming it is one step. If the block raises, Ctrl-C
    included, it is removed, and so are the parent folders that were made for it.

    Args:
        target: Where the folder shall be, as `check_target` gives it.
        replace: Whether a folder that has files may be replaced; an empty one always is.

    Yields:
        The folder, empty.

    Raises:
        OSError: If it cannot be made or moved.
    """
    folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    make = functools.partial(folder.mkdir, parents=True)
    remove = functools.partial(shutil.rmtree, folder, ignore_errors=True)
    with _cleanup(target, folder, make, remove):
        yield folder
        try:
            with signals_deferred():
                _move_into_place(folder, target, replace)
        except KeyboardInterrupt as interrupt:
            interrupt.args = (f"{str(target)!r} is written",)
            raise


@contextlib.contextmanager
def _cleanup(
    target: Path, written: Path, make: Callable[[], None], remove: Callable[[], None]
) -> Iterator[None]:
    """Makes folders for a target; if the block raises, removes them and what was written."""
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        try:
            make()
        except OSError as error:
            error.filename = str(target)  # that of a staged folder says nothing to the reader
            raise
        yield
    except BaseException as error:
        if isinstance(error, OSError):
            _name_target(error, written, target)
        remove()
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


@contextlib.contextmanager
def staged_file(path: str | Path, *, overwrite: bool) -> Iterator[Path]:
    """A file to write, which takes its place only when the block ends without an error.

    Args:
        path: Where it shall be.
        overwrite: Whether a file that is there is replaced.

    Yields:
        The path to write to, in the same folder and with the same ending.

    Raises:
        ValueError: If the path is empty, a folder, or a file that must not be replaced.
        OSError: If it cannot be written.
    """
    if not os.fspath(path):
        raise ValueError("the file to write must not be empty; give a path")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(f"{str(path)!r} is a folder; give the path of a file")
    if target.exists() and not overwrite:
        raise ValueError(f"{str(path)!r} exists; give another path, or replace it with --overwrite")
    written = target.with_name(f".{target.stem}.{secrets.token_hex(4)}{target.suffix}")
    make = functools.partial(target.parent.mkdir, parents=True, exist_ok=True)
    with _cleanup(target, written, make, functools.partial(written.unlink, missing_ok=True)):
        yield written
        written.replace(target)


def _name_target(error: OSError, written: Path, target: Path) -> None:
    """Names the target in an error of writing, as the reader knows no other."""
    # Of a copy the second one is what could not be written; a full disk tells of none.
    name = error.filename if error.filename2 is None else error.filename2
    is_full = name is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if is_full or (isinstance(name, str | Path) and Path(name).is_relative_to(written)):
        error.filename, error.filename2 = str(target), None


def _move_into_place(folder: Path, target: Path, replace: bool) -> None:
    """Renames a folder to its target, and removes the folder that it replaces."""
    if target.exists() and not any(target.iterdir()):
        target.rmdir()
    if not target.exists():
        folder.rename(target)
        return
    if not replace:
        raise FileExistsError(f"{str(target)!r} was written by someone else in the meantime")
    old = folder.with_suffix(".old")
    target.rename(old)
    try:
        folder.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
