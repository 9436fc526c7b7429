"""The file that keeps the edits of a run: read once, written anew after every edit."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from diffclust.image_source import checksum
from diffclust.review.edits import Labelling, Review, parse_edit, to_json
from diffclust.storage.snapshots import lock_file
from diffclust.storage.staging import staged_file

_FORMAT = 1


class ReviewFile:
    """One JSON file: the edits, their revision, and which clusters they are of."""

    def __init__(self, path: Path, initial: Labelling) -> None:
        """Names the file; nothing is read.

        Args:
            path: The file, which need not exist.
            initial: The clusters as they were found.
        """
        self.path, self._initial = path, initial
        clusters = initial.clusters.astype("<i8")
        self._run = [len(clusters), len(initial.names), checksum(clusters)]
        self._last_signature: tuple[int, ...] | None = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lets no other process change the file within the block, but for waiting.

        The lock is on the folder, so that no file is left. There is none on Windows, nor where the
        file system has no locks.

        Yields:
            Nothing.

        Raises:
            OSError: If the folder cannot be made or read.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":  # which opens no folder
            yield
            return
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            lock_file(folder, waits=True)
            yield
        finally:
            # The lock goes with it.
            os.close(folder)

    def has_changed(self) -> bool:
        """Whether another process has written the file since it was read or written here."""
        return self._last_signature != self._signature()

    def _signature(self) -> tuple[int, ...]:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def read(self) -> Review:
        """The review in the file; one without edits where there is no file.

        Raises:
            ValueError: If it is of another run, or damaged.
            OSError: If it cannot be read.
        """
        shown = repr(str(self.path))
        remedy = "move it away to begin anew, or give another --out"
        signature = self._signature()
        try:
            content = json.loads(self.path.read_text("utf-8"))
            if content["run"] == self._run:
                edits = map(parse_edit, content["edits"])
                review = Review.replayed(self._initial, edits, int(content["revision"]))
                self._last_signature = signature
                return review
        except FileNotFoundError:
            self._last_signature = ()
            return Review.replayed(self._initial, (), 0)
        # Numbers that are out of all bounds are an OverflowError.
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"the review in {shown} is damaged ({reason}); {remedy}") from error
        raise ValueError(f"the review in {shown} is of another run; {remedy}")

    def write(self, review: Review) -> None:
        """Puts a review in the place of the one before it; whole or not at all.

        Args:
            review: The review.

        Raises:
            OSError: If it cannot be written; what was there is left as it was.
        """
        edits = [to_json(edit) for edit in review.edits]
        content = {"format": _FORMAT, "run": self._run, "revision": review.revision, "edits": edits}
        with (
            staged_file(self.path, overwrite=True) as path,
            path.open("w", encoding="utf-8") as file,
        ):
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        self._last_signature = self._signature()
