"""Fits in stages: what an earlier process finished is read, and not computed again."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree, Shaped

from diffclust.chunkwise import Chunkwise, all_rows
from diffclust.parallel import spans
from diffclust.processes import agreed
from diffclust.solvers.progress import Snapshots


class Stages:
    """The stages of a fit, each with a name and a result of arrays.

    After every stage, and every chunk of one whose rows are found chunk by chunk, the state is
    offered to the snapshots; a stage that is found there is not computed.
    """

    def __init__(self, snapshots: Snapshots | None = None, *, mesh: Mesh | None = None) -> None:
        """Reads what is there.

        Args:
            snapshots: Where stages are saved and found, or None to compute all of them.
            mesh: Devices over which the stages run, or None for one. Of several processes, all go
                on with what process 0 found.
        """
        self._snapshots, self.mesh = snapshots, mesh
        self._done: dict[str, dict[str, np.ndarray]] = {}
        self._begun: tuple[str, np.ndarray] | None = None
        self._start = time.perf_counter()
        latest = None if snapshots is None else snapshots.latest(_like)
        if latest is not None:
            arrays, about = latest
            self._done = arrays["done"]
            if about["begun"] is not None:
                self._begun = about["begun"]["name"], arrays["begun"]
            self._start -= float(about["seconds"])

    @property
    def seconds(self) -> float:
        """How long it took so far, in all processes one after the other."""
        return time.perf_counter() - self._start

    def run(
        self, name: str, compute: Callable[[], Mapping[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """One stage.

        Args:
            name: Its name.
            compute: Gives its result: arrays by name.

        Returns:
            The result.
        """
        if name not in self._done:
            found = {key: np.asarray(array) for key, array in compute().items()}
            self._done[name] = agreed(found, self.mesh)
            self._offer()
        return dict(self._done[name])

    def rows(self, name: str, chunks: Chunkwise) -> Shaped[np.ndarray, "n ..."]:
        """A stage whose result is one array, found chunk by chunk.

        Args:
            name: Its name.
            chunks: Yields the array's chunks from a given row on.

        Returns:
            All rows.
        """
        if spans(self.mesh):
            # Those of this process alone, which no other could go on with.
            return all_rows(chunks)
        if name not in self._done:
            parts: list[np.ndarray] = []
            if self._begun is not None and self._begun[0] == name:
                parts.append(self._begun[1])
            for part in chunks(sum(map(len, parts))):
                parts.append(part)
                self._offer(name, parts)
            self._done[name] = {"rows": np.concatenate(parts)}
            self._begun = None
            self._offer()
        return self._done[name]["rows"]

    def _offer(self, begun: str | None = None, parts: list[np.ndarray] | None = None) -> None:
        if self._snapshots is None:
            return
        # As it is now: it may be asked for later.
        done, parts, seconds = dict(self._done), list(parts or []), self.seconds

        def state() -> tuple[PyTree, dict[str, Any]]:
            rows = np.concatenate(parts) if parts else None
            about = {
                "done": {
                    name: {key: _described(array) for key, array in result.items()}
                    for name, result in done.items()
                },
                "begun": None if rows is None else {"name": begun, "rows": _described(rows)},
                "seconds": seconds,
            }
            return {"done": done, "begun": rows}, about

        self._snapshots.save(state)


def _described(array: np.ndarray) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": array.dtype.name}


def _blank(described: dict[str, Any]) -> np.ndarray:
    return np.zeros(tuple(described["shape"]), described["dtype"])


def _like(about: dict[str, Any]) -> PyTree:
    begun = about["begun"]
    return {
        "done": {
            name: {key: _blank(each) for key, each in result.items()}
            for name, result in about["done"].items()
        },
        "begun": None if begun is None else _blank(begun["rows"]),
    }
