"""Find files in a folder and its subfolders, and the splits and classes that these tell."""

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from diffclust._validation import some
from diffclust.data.dataset import DataError


def list_files(root: Path, suffixes: Collection[str], noun: str, wanted: str) -> list[Path]:
    """All files with one of some suffixes, relative to the folder, in sorted order.

    Hidden files and folders are passed over. Linked folders are followed, each real folder once,
    so that a loop of links ends.

    Args:
        root: The folder.
        suffixes: What the names end in, in lower case.
        noun: What the files are called in errors.
        wanted: What an error says should be there.

    Returns:
        Relative paths, at least one.

    Raises:
        DataError: If there is no such folder, a part of it cannot be listed, or it holds none.
    """
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise DataError(f"{str(root)!r} {what}; give a folder that holds {noun}.")

    def refuse(error: OSError) -> None:
        raise DataError(
            f"folder {error.filename!r} cannot be listed ({error.strerror}); "
            f"grant access, or move it away."
        ) from error

    found: list[Path] = []
    others: set[str] = set()
    for folder, names in _walk(root, refuse):
        for name in names:
            suffix = Path(name).suffix.lower()
            if suffix in suffixes:
                found.append((Path(folder) / name).relative_to(root))
            else:
                others.add(repr(suffix)[1:-1] or "no suffix")
    if not found:
        holds = f"only other files ({some(sorted(others))})" if others else "no files"
        raise DataError(
            f"folder {str(root)!r} holds no {noun}: {holds}; put files ending in {wanted} there."
        )
    return sorted(found, key=lambda file: file.parts)


def kinds_in(root: Path, *kinds: Collection[str]) -> tuple[bool, ...]:
    """Which kinds of files a folder holds, in it or below; as soon as that is known.

    Args:
        root: The folder.
        *kinds: The suffixes of each kind, in lower case.

    Returns:
        For each kind, whether there is a file of it. What cannot be listed counts as empty.
    """
    present = [False] * len(kinds)
    for _, names in _walk(root, None):
        for name in names:
            suffix = Path(name).suffix.lower()
            present = [found or suffix in kind for found, kind in zip(present, kinds, strict=True)]
        if all(present):
            break
    return tuple(present)


def _walk(root: Path, refuse: Callable[[OSError], None] | None) -> Iterator[tuple[str, list[str]]]:
    """`os.walk` over what is not hidden; linked folders too, but each real one once."""
    visited: set[str] = set()
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=refuse):
        real = os.path.realpath(folder)
        # In sorted order, so that which of two links to one folder counts is no accident.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        yield folder, [name for name in names if not name.startswith(".")]


def choose_split(
    root: Path, found: list[Path], split: str, noun: str
) -> tuple[list[Path], list[str] | None]:
    """The files of a split, and the class of each, where subfolders tell it.

    Args:
        root: The folder, for errors.
        found: Paths relative to it.
        split: `"all"`, or `"train"` or `"test"` where the folder holds nothing but these two.
        noun: What the files are called in errors.

    Returns:
        Relative paths, and the name of the first subfolder of each, or None unless all lie in
        two or more of them.

    Raises:
        DataError: If the folder has no splits, or nothing in this one.
    """
    parents = [file.parts[:-1] for file in found]
    if {parts[0] if parts else "" for parts in parents} <= {"train", "test"}:
        if split != "all":
            found = [file for file in found if file.parts[0] == split]
        parents = [file.parts[1:-1] for file in found]
    elif split != "all":
        raise DataError(
            f"folder {str(root)!r} has no splits; use split 'all', or sort the {noun} into "
            f"subfolders named train and test."
        )
    if not found:
        raise DataError(f"folder {str(root)!r} has no {noun} for split {split!r}; use split 'all'.")
    classes = [parts[0] for parts in parents if parts]
    return found, classes if len(classes) == len(found) and len(set(classes)) > 1 else None
