"""The prototypes of every pass, kept while a fit runs, a few dozen pictures at most."""

import dataclasses
import math

import numpy as np
from jaxtyping import UInt8

from diffclust.models import Result
from diffclust.plotting.pictures import displayable
from diffclust.prototypes import exemplar_of
from diffclust.solvers import Progress

_MOST_PIXELS = 200_000
"""Of one frame; so a film never takes more than some tens of MB."""

_LARGEST_SIDE = 96


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """What the prototypes looked like at one moment.

    Attributes:
        done: Passes or steps that were done before.
        pictures: One picture a cluster, each in its own range of intensities.
    """

    done: int
    pictures: UInt8[np.ndarray, "clusters height width channels"]


class _Reel:
    """Frames in their order, of which every second is dropped whenever they get too many."""

    def __init__(self, most: int) -> None:
        self.frames: list[Frame] = []
        self.most = most
        self.seen = 0
        self.stride = 1

    def add(self, progress: Progress, done: int) -> None:
        if self.seen % self.stride == 0:
            self.frames.append(Frame(done, _pictures(progress)))
        self.seen += 1
        if len(self.frames) >= 2 * self.most:
            self.frames = self.frames[::2]
            self.stride *= 2

    def extend(self, other: "_Reel") -> None:
        self.frames += [dataclasses.replace(f, done=f.done + self.seen) for f in other.frames]
        self.seen += other.seen
        while len(self.frames) >= 2 * self.most:
            self.frames = self.frames[::2]
            self.stride *= 2


class Film:
    """A callback that keeps pictures of the prototypes in the course of a fit of images.

    Of several restarts the best is kept, and of split-and-merge moves those that were accepted. A
    fit that went on from a saved state is filmed from there.
    """

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
        self._best = self._current = self._finish = _Reel(most_frames)
        self._trial: _Reel | None = None
        self._restart = -1
        self._least = math.inf
        self._unit = "pass"

    @property
    def unit(self) -> str:
        """What is counted: `"pass"` or `"step"`."""
        return self._unit

    def __call__(self, progress: Progress) -> None:
        """Keeps what a fit tells of its prototypes.

        Args:
            progress: What the solver tells.
        """
        if progress.stage == "split" and self._trial is not None:
            # New splits are tried only where the last move was accepted.
            self._current.extend(self._trial)
            self._trial = None
        if progress.learned is None or not _is_image(progress):
            return
        if progress.stage == "refine":
            if progress.done == 1:
                self._finish.add(progress, self._finish.seen)
            return
        if progress.restart != self._restart:
            self._begin(progress)
        if progress.stage == "step":
            self._unit = "step"
            self._current.add(progress, progress.done)
        elif progress.stage == "pass" and progress.done == 1:
            if progress.iteration == 0 and self._current.seen:
                self._trial = _Reel(self._most)
            reel = self._trial or self._current
            reel.add(progress, reel.seen)

    def frames(self, result: Result) -> tuple[Frame, ...]:
        """The film of a fit that is done.

        Args:
            result: What the fit returned.

        Returns:
            The frames from the start to the end; none where the prototypes were never told, or
            only once.
        """
        losses = result.outcome.restarts
        kept = self._current if int(np.argmin(losses)) == self._restart else self._best
        whole = _Reel(self._most)
        whole.extend(kept)
        whole.extend(self._finish)
        if len(whole.frames) < 2:
            return ()
        last = _shrunk([displayable(one, own_range=True) for one in result.prototypes])
        done = whole.frames[-1].done if self._unit == "step" else whole.seen
        chosen = whole.frames
        if len(chosen) >= self._most:
            places = np.linspace(0, len(chosen) - 1, self._most - 1).round().astype(int)
            chosen = [chosen[place] for place in places]
        return (*chosen, Frame(done, last))

    def _begin(self, progress: Progress) -> None:
        """Another restart: of those before, only the best is still of interest."""
        least = math.inf if progress.least is None else progress.least
        if self._restart >= 0 and least < self._least:
            self._best = self._current
        self._least = least
        self._restart = progress.restart
        self._current, self._finish, self._trial = _Reel(self._most), _Reel(self._most), None


def _is_image(progress: Progress) -> bool:
    assert progress.learned is not None
    return np.ndim(exemplar_of(progress.learned.clusters.prototype)) == 4


def _pictures(progress: Progress) -> UInt8[np.ndarray, "clusters height width channels"]:
    assert progress.learned is not None
    prototypes = np.asarray(exemplar_of(progress.learned.clusters.prototype))
    return _shrunk([displayable(one, own_range=True) for one in prototypes])


def _shrunk(pictures: list[np.ndarray]) -> UInt8[np.ndarray, "clusters height width channels"]:
    """Pictures made smaller where they are large or many."""
    from PIL import Image

    side = min(_LARGEST_SIDE, max(12, math.isqrt(_MOST_PIXELS // len(pictures))))
    height, width, channels = pictures[0].shape
    if max(height, width) <= side:
        return np.stack(pictures)
    factor = side / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    smaller = [
        np.asarray(Image.fromarray(one.squeeze(-1) if channels == 1 else one).resize(size))
        for one in pictures
    ]
    return np.stack(smaller).reshape(len(pictures), size[1], size[0], channels)
