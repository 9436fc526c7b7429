"""Stages as a problem: those that an interrupted process finished are not computed again."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from diffclust._random import key_data_template, key_of
from diffclust.parallel.data import Data, Description, HostRows
from diffclust.parallel.in_flight import Chunkwise, all_rows
from diffclust.solvers.driver import AbstractProblem, Position, State
from diffclust.solvers.result import Callback, Outcome, Progress
from diffclust.types import Key

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Context:
    """The arguments of a stage.

    Attributes:
        data: The samples and the devices that share them.
        key: Random key of the fit.
        results: The arrays that earlier stages have computed, by stage and name; a stage by chunks
            has the single name `"rows"`.
        callback: Called with the progress.
    """

    data: Data
    key: Key
    results: Mapping[str, Arrays]
    callback: Callback


@dataclasses.dataclass(frozen=True)
class FitStage:
    """A stage of a fit, which is one computation.

    Attributes:
        name: Name of the stage in snapshots.
        compute: Returns its arrays by name; None for a stage by chunks.
        chunks: Yields the chunks of its single array, for this process's share of the rows.
    """

    name: str
    compute: Callable[[Context], Arrays] | None = None
    chunks: Callable[[Context], Chunkwise] | None = None


class StagedArrays(eqx.Module):
    """The arrays of a fit by stages.

    Attributes:
        key: Data of the random key.
        results: The arrays of the finished stages, by stage and name.
        rows: The rows so far of a stage by chunks; None between two stages.
    """

    key: Array
    results: dict[str, dict[str, np.ndarray]]
    rows: HostRows | None = None


class StagedProblem(AbstractProblem):
    """Stages in order, each of which may use the results of earlier ones.

    There is a state after every stage, and after every chunk of a stage by chunks.
    """

    def __init__(self, stages: tuple[FitStage, ...], outcome: Callable[[Context], Outcome]) -> None:
        """Stores the arguments; nothing is computed yet.

        Args:
            stages: The stages, in order.
            outcome: Makes the outcome from the stages' results.
        """
        self._stages, self._outcome = stages, outcome
        # The chunks of the running stage, and the number of rows so far.
        self._running: tuple[tuple[str, int], Iterator[np.ndarray]] | None = None

    def init(self, data: Data, key: Key) -> State:
        """The state before the first stage."""
        arrays = StagedArrays(jax.random.key_data(key), {})
        return State(arrays, {"stages": {}, "rows": None})

    def done(self, state: State) -> bool:
        """Whether all stages are done."""
        return len(state.position["stages"]) == len(self._stages)

    def _context(self, data: Data, arrays: StagedArrays, callback: Callback) -> Context:
        return Context(data, key_of(arrays.key), arrays.results, callback)

    def advance(self, data: Data, state: State, callback: Callback) -> State:
        """Computes one stage, or one chunk of it."""
        arrays, position = state
        number = len(position["stages"])
        stage, names = self._stages[number], tuple(each.name for each in self._stages)

        def report(progress: Progress) -> None:
            callback(dataclasses.replace(progress, stages=names, stages_done=number))

        context, rows = self._context(data, arrays, report), arrays.rows or HostRows(())
        if stage.chunks is None:
            assert stage.compute is not None
            computed = {name: np.asarray(array) for name, array in stage.compute(context).items()}
            computed = data.broadcast(computed)
        elif data.is_distributed:
            # With only this process's rows, no other process could continue.
            computed = {"rows": data.allgather(all_rows(stage.chunks(context)))}
        else:
            if self._running is None or self._running[0] != (stage.name, len(rows)):
                self._running = (stage.name, len(rows)), stage.chunks(context)(len(rows))
            iterator = self._running[1]
            if (part := next(iterator, None)) is not None:
                rows = HostRows((*rows.parts, part))
                self._running = (stage.name, len(rows)), iterator
                shape = [len(rows), *part.shape[1:]]
                described = {"stage": stage.name, "shape": shape, "dtype": part.dtype.name}
                return State(
                    dataclasses.replace(arrays, rows=rows), {**position, "rows": described}
                )
            self._running, computed = None, {"rows": rows.joined}
        described = {
            name: {"shape": list(array.shape), "dtype": array.dtype.name}
            for name, array in computed.items()
        }
        results = {**arrays.results, stage.name: computed}
        stages = {**position["stages"], stage.name: described}
        return State(StagedArrays(arrays.key, results), {"stages": stages, "rows": None})

    def outcome(self, data: Data, state: State, callback: Callback) -> Outcome:
        """Makes the outcome from the stages' results."""
        return self._outcome(self._context(data, state.arrays, callback))

    def template(self, description: Description, position: Position) -> PyTree:
        """Zeros in place of every array: the position records their shapes."""

        def blank(described: dict[str, Any]) -> np.ndarray:
            return np.zeros(tuple(described["shape"]), described["dtype"])

        results = {
            stage: {name: blank(each) for name, each in arrays.items()}
            for stage, arrays in position["stages"].items()
        }
        rows = position["rows"]
        kept = None if rows is None else HostRows((blank(rows),))
        return StagedArrays(key_data_template(), results, kept)
