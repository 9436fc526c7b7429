"""The prototypes of every pass, kept while a fit runs, a few dozen pictures at most."""

import dataclasses
import math

import jax
import numpy as np
from jaxtyping import UInt8

from diffclust.models import Result
from diffclust.plotting.pictures import as_picture, displayable
from diffclust.prototypes import exemplar_of
from diffclust.solvers import Progress, best_restart

_MOST_PIXELS = 200_000
"""Of one frame; so a film never takes more than some tens of MB."""

_LARGEST_SIDE = 96


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """The prototypes at one moment.

    Attributes:
        done: Passes or steps that were done before.
        pictures: One picture a cluster, each in its own range of intensities.
    """

    done: int
    pictures: UInt8[np.ndarray, "clusters height width channels"]


class _Recording:
    """Frames in their order, of which every second is dropped whenever they get too many."""

    def __init__(self, most: int) -> None:
        self.frames: list[Frame] = []
        self.most, self.seen, self.stride = most, 0, 1

    def add(self, prototypes: jax.Array | np.ndarray, done: int | None = None) -> None:
        """Keeps the prototypes, if it is their turn; `done` counts them where it is not given."""
        if self.seen % self.stride == 0:
            self.frames.append(Frame(self.seen if done is None else done, _pictures(prototypes)))
        self.seen += 1
        self._thin()

    def extend(self, other: "_Recording") -> None:
        self.frames += [dataclasses.replace(f, done=f.done + self.seen) for f in other.frames]
        self.seen += other.seen
        self._thin()

    def _thin(self) -> None:
        while len(self.frames) >= 2 * self.most:
            self.frames = self.frames[::2]
            self.stride *= 2


class Film:
    """A callback that keeps pictures of the prototypes during a fit of images.

    Of several restarts the best is kept, and of split-and-merge moves those that were accepted. A
    fit that was resumed from a saved state is filmed from there.

    Attributes:
        unit: What is counted: `"pass"` or `"step"`.
    """

    unit: str

    def __init__(self, *, most_frames: int = 40) -> None:
        """Holds nothing yet.

        Args:
            most_frames: How many frames a film has at most; at most six times as many are held
                while a fit runs.

        Raises:
            ValueError: If there are fewer than two.
        """
        if most_frames < 2:
            raise ValueError(f"a film needs at least 2 frames, not {most_frames}")
        self._most = most_frames
        self._best = self._current = self._refined = _Recording(most_frames)
        self._trial: _Recording | None = None
        self._restart, self._least, self.unit = -1, math.inf, "pass"

    def __call__(self, progress: Progress) -> None:
        """Keeps a picture of the prototypes, where they changed.

        Args:
            progress: What the solver reports.
        """
        if progress.stage == "split" and self._trial is not None:
            # New splits are tried only where the last move was accepted.
            self._current.extend(self._trial)
            self._trial = None
        if progress.learned is None:
            return
        prototypes = exemplar_of(progress.learned.clusters.prototype)
        if getattr(prototypes, "ndim", 0) != 4:
            return
        if progress.stage == "refine":
            if progress.done == 1:
                self._refined.add(prototypes)
            return
        if progress.restart != self._restart:
            self._next_restart(progress)
        if progress.stage == "step":
            self.unit = "step"
            self._current.add(prototypes, progress.done)
        elif progress.stage == "pass" and progress.done == 1:
            if progress.iteration == 0 and self._current.seen:
                self._trial = _Recording(self._most)
            (self._trial or self._current).add(prototypes)

    def frames(self, result: Result) -> tuple[Frame, ...]:
        """The film of a finished fit.

        Args:
            result: What the fit returned.

        Returns:
            The frames from the start to the end; none where the prototypes were never reported, or
            only once.
        """
        losses = result.outcome.restarts
        is_last = best_restart(losses) == self._restart
        film = _Recording(self._most)
        film.extend(self._current if is_last else self._best)
        film.extend(self._refined)
        frames = film.frames
        if len(frames) < 2:
            return ()
        done = frames[-1].done if self.unit == "step" else film.seen
        if len(frames) >= self._most:
            chosen = np.linspace(0, len(frames) - 1, self._most - 1).round().astype(int)
            frames = [frames[i] for i in chosen]
        return (*frames, Frame(done, _pictures(result.prototypes)))

    def _next_restart(self, progress: Progress) -> None:
        """Another restart: of those before, only the best is still of interest."""
        least = math.inf if progress.least is None else progress.least
        if self._restart >= 0 and best_restart((self._least, least)) == 1:
            self._best = self._current
        self._least, self._restart, self._trial = least, progress.restart, None
        self._current, self._refined = _Recording(self._most), _Recording(self._most)


def _pictures(
    prototypes: jax.Array | np.ndarray,
) -> UInt8[np.ndarray, "clusters height width channels"]:
    """Prototypes each in its own range, made smaller where they are large or many."""
    pictures = [displayable(one, own_range=True) for one in np.asarray(prototypes)]
    side = min(_LARGEST_SIDE, max(12, math.isqrt(_MOST_PIXELS // len(pictures))))
    height, width, channels = pictures[0].shape
    factor = min(1.0, side / max(height, width))
    size = max(1, round(width * factor)), max(1, round(height * factor))
    smaller = [np.asarray(as_picture(one).resize(size)) for one in pictures]
    return np.stack(smaller).reshape(len(pictures), size[1], size[0], channels)
