"""The state of a fit over several processes: process 0 saves and reads it, all go on from it."""

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from diffclust.processes import agreed, gathered_bytes, together
from diffclust.snapshots import SnapshotFolder, State


class SharedSnapshots:
    """Snapshots of which one process knows the folder; to be given to `fit(snapshots=...)`.

    When to save is decided by process 0, whose clock alone counts.
    """

    def __init__(self, folder: SnapshotFolder | None, mesh: Mesh) -> None:
        """Reads nothing yet.

        Args:
            folder: Where states are saved, in process 0; None in the others.
            mesh: Devices of several processes.
        """
        self._folder, self._mesh = folder, mesh

    def save(self, state: State) -> None:
        """See `solvers.Snapshots.save`; to be called by all processes.

        Args:
            state: Gives a tree of arrays, and about them what JSON can hold.
        """
        is_due = b"1" if self._folder is not None and self._folder.is_due else b""
        if not gathered_bytes(is_due)[0]:
            return
        # What it takes to tell the state may be in all processes.
        arrays, about = state()
        arrays = jax.tree.map(np.asarray, arrays)
        with together(self._mesh):
            if self._folder is not None:
                self._folder.save(lambda: (arrays, about))

    def latest(
        self, like: Callable[[dict[str, Any]], PyTree]
    ) -> tuple[PyTree, dict[str, Any]] | None:
        """See `solvers.Snapshots.latest`; to be called by all processes.

        Args:
            like: From what was saved about them, arrays of the right shapes.

        Returns:
            The arrays and what was saved about them; None where nothing was.
        """
        found = None
        with together(self._mesh):
            if self._folder is not None:
                found = self._folder.latest(like)
        told = b"" if found is None else json.dumps(found[1]).encode()
        said = gathered_bytes(told)[0]
        if not said:
            return None
        about = json.loads(said)
        blank = like(about) if found is None else found[0]

        def typed(leaf: Any, array: np.ndarray) -> Any:
            return array if isinstance(leaf, np.ndarray) else jnp.asarray(array)

        return jax.tree.map(typed, blank, agreed(blank, self._mesh)), about

    def last(self) -> str | None:
        """See `solvers.Snapshots.last`; None in all processes but 0."""
        return None if self._folder is None else self._folder.last()
