"""How a fit by gradient steps proceeds, and the order of samples in batches."""

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Int

from diffclust.types import Key


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of a fit under one solver and one learning rate.

    Attributes:
        solver: Which solver, by number: one transform more than the one before.
        steps: Most steps.
        rate: The learning rate.
        moves: Whether clusters may be split and removed in it.
    """

    solver: int
    steps: int
    rate: float
    moves: bool = True


@dataclasses.dataclass(frozen=True)
class GradientPlan:
    """How a fit by gradient steps proceeds.

    Attributes:
        phases: What is done, in turn.
        batch_size: Samples a step.
        tolerance: A phase ends early where the loss of a window falls by less than this fraction
            below the least so far, `patience` windows in a row; 0 does all steps.
        patience: How many windows.
        window: Steps over which losses are averaged, and after which tiny clusters are refilled.
        least_share: A cluster is tiny that holds less than this share of an even one; 0 refills
            none.
        noise: Standard deviation of the noise that parts a refilled cluster from its source.
        moves_every: Windows between two attempts to split one cluster and remove another; 0 tries
            none.
        least_gain: The least net gain that is worth such a move, as a fraction of the loss.
        move_samples: Most samples by which it is judged.
    """

    phases: tuple[Phase, ...]
    batch_size: int
    tolerance: float = 0.0
    patience: int = 3
    window: int = 50
    least_share: float = 0.2
    noise: float = 1e-4
    moves_every: int = 0
    least_gain: float = 0.005
    move_samples: int = 2048


class BatchOrder:
    """The order of samples in batches: shuffled anew for every pass, without a break between them.

    A batch depends on the key and its number alone, so that a run goes on where it stopped. Of
    several processes each draws its part of the batch from its own samples; all know all parts.
    """

    def __init__(self, counts: Sequence[int], batch_size: int, key: Key) -> None:
        """Draws nothing yet.

        Args:
            counts: How many samples each process has.
            batch_size: Samples a batch; a multiple of the number of processes.
            key: Random key.
        """
        seed = np.asarray(jax.random.key_data(key)).astype(np.uint32).tolist()
        each = batch_size // len(counts)
        starts = [0, *itertools.accumulate(counts)]
        self._parts = [
            # The first draws what it would if it were alone.
            _ProcessOrder(start, count, each, [*seed, *([number] if number else [])])
            for number, (start, count) in enumerate(zip(starts, counts, strict=False))
        ]

    def batch(self, step: int) -> Int[np.ndarray, " batch"]:
        """Indices of one batch.

        Args:
            step: Number of the step, from 0.

        Returns:
            Indices of its samples, those of each process beside each other.
        """
        return np.concatenate([part.batch(step) for part in self._parts])


class _ProcessOrder:
    """The order of one process's samples."""

    def __init__(self, start: int, num_samples: int, batch_size: int, seed: list[int]) -> None:
        self._start, self._size, self._batch = start, num_samples, batch_size
        self._seed = seed
        self._orders: dict[int, np.ndarray] = {}

    def _order(self, number: int) -> Int[np.ndarray, " n"]:
        if number not in self._orders:
            # One at a time, and of 32 bits: there may be millions of samples.
            self._orders.clear()
            order = np.arange(self._size, dtype=np.int32)
            np.random.default_rng([*self._seed, number]).shuffle(order)
            self._orders[number] = order
        return self._orders[number]

    def batch(self, step: int) -> Int[np.ndarray, " batch"]:
        place, stop = step * self._batch, (step + 1) * self._batch
        parts = []
        while place < stop:
            number, offset = divmod(place, self._size)
            parts.append(self._order(number)[offset : offset + stop - place])
            place += len(parts[-1])
        return np.concatenate(parts) + np.int32(self._start)
