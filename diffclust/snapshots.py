"""The state of a long fit, saved with orbax as it goes, and found again."""

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from diffclust._version import __version__

_MARK = "snapshots.json"


class SnapshotFolder:
    """A folder of snapshots, to be used as a context and given to `fit(snapshots=...)`.

    Snapshots are written in the background. One that was being written when the process died is
    not seen afterwards; where the newest is damaged, the one before is taken, with a warning.
    """

    def __init__(
        self, path: str | Path, *, run: dict[str, Any], every: float = 60.0, kept: int = 2
    ) -> None:
        """Opens the folder, or makes it.

        Args:
            path: The folder.
            run: What tells this fit from others, in types that JSON can hold: method, settings,
                seed, source. Snapshots of another fit are refused.
            every: Least seconds between two snapshots; 0 saves after every window of steps.
            kept: How many snapshots are kept.

        Raises:
            ValueError: If the folder holds snapshots of another fit.
            OSError: If it cannot be read or written.
        """
        self._path = Path(path).absolute()
        self._every, self._last_time = every, time.monotonic()
        described = {"diffclust": __version__, "run": json.loads(json.dumps(run, default=str))}
        mark = self._path / _MARK
        if mark.is_file():
            self._check(json.loads(mark.read_text("utf-8")), described)
        else:
            self._path.mkdir(parents=True, exist_ok=True)
            mark.write_text(json.dumps(described, indent=2) + "\n", "utf-8")
        import orbax.checkpoint as ocp

        self._ocp = ocp
        self._manager = ocp.CheckpointManager(
            self._path / "states",
            options=ocp.CheckpointManagerOptions(max_to_keep=kept, create=True),
            item_names=("arrays", "about"),
        )

    def _check(self, found: dict[str, Any], expected: dict[str, Any]) -> None:
        for name in expected["run"]:
            there, here = found["run"].get(name), expected["run"][name]
            if there != here:
                raise ValueError(
                    f"the unfinished run in {str(self._path)!r} had {name} {there!r}, not "
                    f"{here!r}; ask for the same to go on, or remove that folder to start anew"
                )

    def __enter__(self) -> "SnapshotFolder":
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Waits until what is being saved is whole.

        Args:
            kind: Type of the error that ended the block, or None.
            error: That error.
            traceback: Where it was raised.
        """
        del kind, error, traceback
        self._manager.wait_until_finished()
        self._manager.close()

    def save(self, arrays: PyTree, about: dict[str, Any]) -> None:
        """See `solvers.Snapshots.save`.

        Args:
            arrays: A tree of arrays.
            about: What JSON can hold.
        """
        now = time.monotonic()
        if now - self._last_time < self._every:
            return
        # Orbax refuses arrays without elements, such as the params of a phase without transforms.
        named = {name: np.asarray(x) for name, x in _named(arrays).items() if np.size(x)}
        number = (self._manager.latest_step() or 0) + 1
        self._manager.save(
            number,
            args=self._ocp.args.Composite(
                arrays=self._ocp.args.StandardSave(named), about=self._ocp.args.JsonSave(about)
            ),
        )
        self._last_time = time.monotonic()

    def latest(
        self, like: Callable[[dict[str, Any]], PyTree]
    ) -> tuple[PyTree, dict[str, Any]] | None:
        """See `solvers.Snapshots.latest`.

        Args:
            like: From what was saved about them, arrays of the right shapes.

        Returns:
            The arrays and what was saved about them; None where nothing was.

        Raises:
            ValueError: If none of the snapshots can be read.
        """
        self._manager.wait_until_finished()
        numbers = sorted(self._manager.all_steps(), reverse=True)
        for number in numbers:
            try:
                return self._read(number, like)
            # Damaged files raise whatever orbax or tensorstore happened to be doing.
            except Exception as error:
                reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
                warnings.warn(
                    f"snapshot {number} in {str(self._path)!r} cannot be read ({reason}); the one "
                    "before is taken",
                    stacklevel=2,
                )
        if numbers:
            raise ValueError(
                f"none of the snapshots in {str(self._path)!r} can be read; remove that folder to "
                "start anew"
            )
        return None

    def _read(
        self, number: int, like: Callable[[dict[str, Any]], PyTree]
    ) -> tuple[PyTree, dict[str, Any]]:
        about = self._manager.restore(
            number, args=self._ocp.args.Composite(about=self._ocp.args.JsonRestore())
        )["about"]
        blank = like(about)
        named = {name: np.asarray(x) for name, x in _named(blank).items()}
        stored = {name: x for name, x in named.items() if x.size}
        read = self._manager.restore(
            number, args=self._ocp.args.Composite(arrays=self._ocp.args.StandardRestore(stored))
        )["arrays"]

        def filled(path: tuple[Any, ...], leaf: Any) -> Any:
            array = np.asarray(read.get(_name(path), leaf))
            if array.shape != np.shape(leaf) or array.dtype != leaf.dtype:
                raise ValueError(f"{_name(path)} is not what the settings ask for")
            return jnp.asarray(array)

        return jax.tree_util.tree_map_with_path(filled, blank), about

    def last(self) -> str | None:
        """See `solvers.Snapshots.last`."""
        self._manager.wait_until_finished()
        number = self._manager.latest_step()
        return None if number is None else f"snapshot {number} in {str(self._path)!r}"


def _named(tree: PyTree) -> dict[str, Any]:
    return {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
