"""Snapshots of a long fit's state, saved with orbax, from which the fit can go on."""

import contextlib
import errno
import functools
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

try:
    import fcntl
except ImportError:
    # Windows.
    fcntl = None

import jax
import numpy as np
from jaxtyping import PyTree

from diffclust._renamed import renamed_keywords
from diffclust._signals import signals_deferred
from diffclust.image_source import checksum
from diffclust.parallel.mesh import data_mesh
from diffclust.parallel.processes import (
    allgather_objects,
    broadcast_one_to_all,
    raise_everywhere,
    saving_alone,
)
from diffclust.solvers.driver import STATE_FORMAT, OtherFitError, difference
from diffclust.solvers.result import FitError
from diffclust.storage.arrays import leaf_name, like_leaf, named_leaves
from diffclust.storage.orbax_errors import save_reason, silence_orbax
from diffclust.storage.staging import read_object, refuse_patterns, staged_file, write_json

_RUN_FILE, _LOCK = "snapshots.json", "lock"

Saved = tuple[PyTree, dict[str, Any]]
"""The arrays of a state, and what JSON can hold about them."""

State = Callable[[], Saved]

Like = Callable[[dict[str, Any]], PyTree]
"""From what was saved about arrays, some of the same shapes."""


def lock_file(file: IO[str] | int, *, waits: bool) -> None:
    """Locks a file or folder until it is closed, or the process ends.

    There is no lock on Windows, nor where the file system has none.

    Args:
        file: The file, or its descriptor.
        waits: Whether to wait for another process that has locked it.

    Raises:
        BlockingIOError: If another process has locked it, and is not waited for.
        OSError: If it cannot be locked.
    """
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder of snapshots; the lock ends with the block, or with the process.

    There is none on Windows, nor where the file system has no locks.

    Args:
        folder: The folder, which exists.

    Yields:
        Nothing.

    Raises:
        ValueError: If another fit holds the lock.
        OSError: If the folder cannot be written.
    """
    with (folder / _LOCK).open("a") as file:
        try:
            lock_file(file, waits=False)
            # The other fit may have ended, and removed the folder, since the file was opened.
            if not os.path.samestat(os.fstat(file.fileno()), (folder / _LOCK).stat()):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError) as error:
            raise ValueError(
                f"{str(folder)!r} is in use by another fit; wait until that one ends, or give "
                "another folder"
            ) from error
        yield


class SnapshotFolder:
    """A folder of snapshots, to be used as a context and given to `fit(snapshots=...)`.

    Snapshots are written in the background. One that was being written when the process died is
    not seen afterwards; where the newest is damaged, the one before is taken. When the block ends,
    the newest state is saved, so that a finished fit that is repeated returns its result; also if
    an exception ends it, Ctrl-C and `SystemExit` included: a program that makes an exception of
    SIGTERM loses nothing to it. A `FitError` is excepted: a fit that broke down would break down
    again.
    """

    @renamed_keywords(kept="max_to_keep", tell="log")
    def __init__(
        self,
        path: str | Path,
        *,
        run: Mapping[str, Any] = MappingProxyType({}),
        every: float = 60.0,
        max_to_keep: int = 2,
        save_last: bool = True,
        log: Callable[[str], None] | None = None,
        lock: contextlib.AbstractContextManager[Any] | None = None,
    ) -> None:
        """Opens the folder, or makes it.

        Args:
            path: The folder.
            run: What tells this fit from others, in types that JSON can hold, such as the source of
                the samples; a folder of another one is refused at once. Snapshots of another model,
                other settings, samples, weights or another key are refused by `fit` in any case.
            every: Least seconds between two snapshots; 0 saves every state that there is.
            max_to_keep: How many snapshots are kept.
            save_last: Whether the newest state is saved when the block ends without an error.
            log: Called with a line that says from which snapshot the fit goes on, and with one
                for each that is damaged; where it is None, the latter are warnings.
            lock: What `locked` gave for this folder, if that was entered before; it ends with the
                context.

        Raises:
            ValueError: If another fit uses the folder, if it holds snapshots of another fit or of
                an older format, if none would be kept, or if its path has `[`, `*` or a
                backslash in it.
            OSError: If it cannot be read or written.
        """
        if max_to_keep < 1:
            raise ValueError(
                f"max_to_keep must be at least 1, not {max_to_keep}; 2 outlive a damaged one"
            )
        refuse_patterns(path)
        self._path = Path(path).absolute()
        self._every, self._last_time = every, time.monotonic()
        self._save_last = save_last
        self._log = log
        self._pending: State | None = None
        self._failed = False
        self._path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            if lock is None:
                stack.enter_context(locked(self._path))
            else:
                stack.push(lock)
            self._claim(
                {"format": STATE_FORMAT, "run": json.loads(json.dumps(dict(run), default=str))}
            )
            self._states, self._max_to_keep = self._path / "states", max_to_keep
            self._states.mkdir(exist_ok=True)
            self._lock = stack.pop_all()
        self._quiet = silence_orbax()

    @functools.cached_property
    def _manager(self) -> Any:
        """Orbax's manager, made when first needed, as orbax is slow to import."""
        import orbax.checkpoint as ocp

        self._ocp = ocp
        return ocp.CheckpointManager(
            self._states,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=self._max_to_keep, create=False, multiprocessing_options=saving_alone()
            ),
            item_names=("arrays", "about"),
        )

    @property
    def _is_empty(self) -> bool:
        """Whether nothing was saved, by this process or one before."""
        return "_manager" not in vars(self) and not any(self._states.iterdir())

    def _claim(self, described: dict[str, Any]) -> None:
        """Writes which run the folder is for, or checks that it is for this one."""
        file = self._path / _RUN_FILE
        if not file.is_file():
            with staged_file(file, overwrite=False) as new:
                write_json(new, described)
            return
        stored = read_object(file)
        if not isinstance(stored.get("run"), dict):
            raise ValueError(f"{str(file)!r} is damaged; remove its folder to start anew")
        if stored.get("format") != STATE_FORMAT:
            raise ValueError(
                f"the interrupted run in {str(self._path)!r} was begun by another version of "
                "diffclust, whose snapshots have another format; go on with that one, or remove "
                "that folder to start anew"
            )
        for name, value in described["run"].items():
            was = stored["run"].get(name)
            # As text NaN is itself.
            texts = {json.dumps(each, sort_keys=True) for each in (was, value)}
            if was != value and len(texts) > 1:
                raise ValueError(
                    f"the interrupted run in {str(self._path)!r} {difference(name, was, value)}; "
                    "ask for the same to go on, or remove that folder to start anew"
                )

    def __enter__(self) -> "SnapshotFolder":
        """Returns itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Saves the newest state, and waits until it is complete.

        Args:
            kind: Type of the error that ended the block, or None.
            error: That error.
            traceback: Where it was raised.

        Raises:
            OSError: If a state could not be saved, and nothing else was wrong.
        """
        with self._lock, signals_deferred():
            is_wanted = self._save_last if error is None else not isinstance(error, FitError)
            failures = []
            # Orbax and tensorstore raise whatever they like.
            try:
                if self._pending is not None and is_wanted:
                    self._write(self._pending)
            except Exception as failure:
                failures.append(failure)
            try:
                if "_manager" in vars(self):
                    self._manager.close()
            except Exception as failure:
                failures.append(failure)
            if failures:
                cannot_save = self._save_error(failures[0])
                if error is None:
                    raise cannot_save from failures[0]
            # Of a save that failed, writes may come back even later.
            if not self._failed:
                self._quiet.close()

    @property
    def is_due(self) -> bool:
        """Whether the next state that it is given is saved."""
        return time.monotonic() - self._last_time >= self._every

    def save(self, state: State) -> None:
        """Saves a state in the background, where the last was saved `every` seconds ago.

        Args:
            state: Gives a tree of arrays, and about them what JSON can hold.

        Raises:
            OSError: If this state or the one before cannot be saved: the disk is full, say.
        """
        self._pending = state
        if not self.is_due:
            return
        with signals_deferred():
            try:
                self._write(state)
            except Exception as error:
                raise self._save_error(error) from error

    def _write(self, state: State) -> None:
        if self._failed:
            return
        arrays, about = state()
        # Orbax refuses arrays without elements, such as the params of a phase without transforms.
        named = {name: np.asarray(x) for name, x in named_leaves(arrays).items() if np.size(x)}
        metadata = {"about": about, "crc32": {name: checksum(x) for name, x in named.items()}}
        number = (self._manager.latest_step() or 0) + 1
        self._manager.save(
            number,
            args=self._ocp.args.Composite(
                arrays=self._ocp.args.StandardSave(named), about=self._ocp.args.JsonSave(metadata)
            ),
        )
        self._pending, self._last_time = None, time.monotonic()

    def _save_error(self, error: Exception) -> OSError:
        self._failed = True
        return OSError(
            f"the fit's state cannot be saved in {str(self._path)!r} ({save_reason(error)}); what "
            "was saved before is complete: make room there"
        )

    @signals_deferred()
    def latest(self, like: Like) -> Saved | None:
        """The newest state that can be read.

        Args:
            like: From what was saved about them, arrays of the right shapes; those of NumPy's come
                back as such.

        Returns:
            The arrays and what was saved about them; None where nothing was.

        Raises:
            ValueError: If none of the snapshots can be read, or they are of another fit.
        """
        if self._is_empty:
            return None
        self._manager.wait_until_finished()
        numbers = sorted(self._manager.all_steps(), reverse=True)
        for number in numbers:
            place = f"snapshot {number} in {str(self._path)!r}"
            try:
                state = self._read(number, like)
            except OtherFitError as error:
                raise OtherFitError(
                    f"{place} {error}; ask for the same to go on, or give another folder"
                ) from None
            # Damaged files raise whatever orbax or tensorstore happened to be doing.
            except Exception as error:
                message = f"{place} cannot be read ({save_reason(error)})"
                message += "" if number == numbers[-1] else "; the one before is taken"
                (self._log or functools.partial(warnings.warn, stacklevel=2))(message)
            else:
                if self._log is not None:
                    self._log(f"going on from {place}")
                return state
        if numbers:
            raise ValueError(
                f"no snapshot in {str(self._path)!r} can be read; remove that folder to start anew"
            )
        return None

    def _read(self, number: int, like: Like) -> Saved:
        metadata = self._manager.restore(
            number, args=self._ocp.args.Composite(about=self._ocp.args.JsonRestore())
        )["about"]
        about, checksums = metadata["about"], metadata["crc32"]
        blank = like(about)
        stored = {name: np.asarray(x) for name, x in named_leaves(blank).items() if np.size(x)}
        read = self._manager.restore(
            number, args=self._ocp.args.Composite(arrays=self._ocp.args.StandardRestore(stored))
        )["arrays"]

        def filled(path: tuple[Any, ...], leaf: Any) -> Any:
            name = leaf_name(path)
            array = np.asarray(read.get(name, leaf))
            if array.shape != np.shape(leaf) or array.dtype != leaf.dtype:
                raise ValueError(f"{name} is not what the settings ask for")
            if name in stored and checksum(array) != checksums[name]:
                raise ValueError(f"{name} is not what was saved")
            return like_leaf(leaf, array)

        return jax.tree_util.tree_map_with_path(filled, blank), about

    def last(self) -> str | None:
        """Names the newest snapshot in words; None where nothing was saved."""
        if self._is_empty:
            return None
        # The error of a save that failed is raised where its state is missed.
        with contextlib.suppress(Exception):
            self._manager.wait_until_finished()
        number = self._manager.latest_step()
        return None if number is None else f"snapshot {number} in {str(self._path)!r}"


class SharedSnapshots:
    """Snapshots of which one process knows the folder; to be given to `fit(snapshots=...)`.

    When to save is decided by process 0, whose clock alone counts. States that are not due are
    dropped, as all processes are needed to gather one: a fit that is ended loses up to `every`
    seconds.
    """

    def __init__(self, folder: SnapshotFolder | None) -> None:
        """Reads nothing yet.

        Args:
            folder: Where states are saved, in process 0; None in the others.
        """
        self._folder, self._mesh = folder, data_mesh()

    def save(self, state: State) -> None:
        """Saves a state where it is time to; to be called by all processes.

        Args:
            state: Gives a tree of arrays, and about them what JSON can hold.
        """
        if not allgather_objects(self._folder is not None and self._folder.is_due)[0]:
            return
        # What it takes to make the state may be in all processes.
        arrays, about = state()
        arrays = jax.tree.map(np.asarray, arrays)
        with raise_everywhere(self._mesh):
            if self._folder is not None:
                self._folder.save(lambda: (arrays, about))

    def latest(self, like: Like) -> Saved | None:
        """The newest state that can be read; to be called by all processes.

        Args:
            like: From what was saved about them, arrays of the right shapes.

        Returns:
            The arrays and what was saved about them; None where nothing was.
        """
        own = None
        with raise_everywhere(self._mesh):
            if self._folder is not None:
                own = self._folder.latest(like)
        about = allgather_objects(None if own is None else own[1])[0]
        if about is None:
            return None
        with raise_everywhere(self._mesh):
            blank = like(about) if own is None else own[0]
        return jax.tree.map(like_leaf, blank, broadcast_one_to_all(blank, self._mesh)), about

    def last(self) -> str | None:
        """Names the newest snapshot in words; None in all processes but 0."""
        return None if self._folder is None else self._folder.last()
