"""What a staged method will take: features by image, neighbours by pair, directions by feature."""

import math
import time
from typing import Any

import jax
import numpy as np

from diffclust.estimate.lloyd import chunk_size_of
from diffclust.estimate.rehearsal import Rehearsal, rehearse, some_of
from diffclust.estimate.result import StageCost
from diffclust.features import Scattering
from diffclust.features.orthogonal_complement import fit_principal_directions
from diffclust.graphs import nearest_neighbours
from diffclust.models import AbstractModel
from diffclust.models.di_spectral import DeformationInvariantSpectralClustering
from diffclust.models.scattering import AbstractScatteringModel
from diffclust.models.spectral import ProjectedScatteringSpectralClustering
from diffclust.types import Key

_SHARE, _LEAST, _MOST = 24, 128, 1024
"""One image in so many is rehearsed with, and bounds of their number."""

_TRIED = (512, 1024)
"""Features of the problems by which the time of principal directions is judged."""

_OF_EACH = 200
"""Images of a cluster that its portrait is made of."""

_CUT_SIZE, _CUT_POWER = 6000, 1.1
"""A cut of so many images takes twice as long as one of a few, and grows by this power beyond: that
of 70,000 MNIST digits takes 14 s, that of 128 one second."""


def spectral_stages(
    model: AbstractScatteringModel,
    samples: Any,
    *,
    key: Key,
    chunk_size: int | None,
    seconds: float,
) -> tuple[StageCost, ...]:
    """The stages of a fit by scattering coefficients.

    Args:
        model: The model.
        samples: All images.
        key: Random key.
        chunk_size: Images a chunk of the alignments, or None for the model's choice.
        seconds: About how long the rehearsal may take.

    Returns:
        The stages.
    """
    count = len(samples)
    few = min(count, int(np.clip(count // _SHARE, _LEAST, _MOST)))
    few = min(count, max(few, 4 * model.num_clusters))
    full = chunk_size_of(model.portrait(), samples, chunk_size)
    small = min(full, 16 * -(-few // 16))
    part = some_of(samples, few, key)

    def fit() -> Rehearsal:
        return rehearse(model, part, key=key, chunk_size=small, seconds=seconds)

    # So few images take less than what surrounds a compilation: the second time tells.
    cold, seen = fit(), fit()
    ratio, padded = count / few, (full * -(-count // full)) / (small * -(-few // small))
    portraits, means = _portraits(seen)
    drawn = _OF_EACH * model.num_clusters
    stages = [
        seen.cost("begin").scaled(ratio),
        seen.cost("features", typical=True).scaled(ratio),
        _directions(model, samples, few, seen, key),
        seen.cost("pass", typical=True).scaled(ratio * ratio**0.25, most=2.0),
        seen.cost("seeding").scaled(ratio),
        seen.cost("neighbours").scaled(ratio),
        _searching(model, count, key),
        seen.cost("pairs", typical=True).scaled(ratio),
        seen.cost("cut").scaled(_cut_growth(few, count), least=0.5, most=2.0),
        means.scaled(min(drawn, count) / min(drawn, few)),
        portraits.scaled(padded),
        seen.cost("end").scaled(ratio),
        # Programs for rows of another number are others.
        cold.compiling("cut", "pass", "seeding", "neighbours"),
    ]
    if full != small:
        stages.append(cold.compiling("portraits"))
    return tuple(stage for stage in stages if stage.seconds > 0)


def _cut_growth(few: int, count: int) -> float:
    """How many times longer a cut of many images takes than one of a few."""
    less, more = ((number / _CUT_SIZE) ** _CUT_POWER for number in (few, count))
    return (1.0 + more) / (1.0 + less)


def _portraits(seen: Rehearsal) -> tuple[StageCost, StageCost]:
    """Aligning all images, and before that the means of some."""
    here = seen.of("portraits")
    every = seen.cost("portraits")
    if not here:
        return every, every
    rest = here[1:]
    if rest:
        one = sum(i.wall for i in rest) / len(rest)
        share = min(one * len(here) / max(every.seconds, 1e-9), 1.0)
    else:
        # Four passes over the same images, and one to align them.
        share = 1 / 5
    return every.scaled(share), every.scaled(1.0 - share)


def _feature_count(model: AbstractScatteringModel, samples: Any) -> int:
    scattering = model.feature_map(*samples.shape[1:3]).feature_map
    assert isinstance(scattering, Scattering)
    return scattering.num_features(samples.shape[3])


def _timed(name: str, work: Any) -> StageCost:
    """What something takes when its programs are there."""
    work()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return StageCost(name, wall, cpu, wall, wall)


def _directions(
    model: AbstractScatteringModel, samples: Any, few: int, seen: Rehearsal, key: Key
) -> StageCost:
    """Principal directions: of many images from a covariance, of few from their products."""
    count, size = len(samples), _feature_count(model, samples)
    own = seen.cost("directions")
    if 2 * count <= size:
        return own.scaled((count / few) ** 2)
    # The covariance grows with the images and the square of the features; the eigenvectors with
    # some power of the features, near the cube. Both are timed on problems of fewer features.
    small, large = (min(size, tried) for tried in _TRIED)
    rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))

    def of(features: int, number: int) -> StageCost:
        rows = rng.random((number, features), dtype=np.float32)
        wanted = min(model.num_dimensions, features // 4)
        parts = [rows[i : i + 32] for i in range(0, number, 32)]
        return _timed("directions", lambda: fit_principal_directions(parts, num_directions=wanted))

    first, less, more = of(small, small), of(large, large), of(large, 2 * large)
    each = max(more.seconds - less.seconds, 0.0) / large
    once = max(less.seconds - each * large, 0.1 * less.seconds)
    power = 2.5
    if large > small:
        growth = less.seconds / max(first.seconds, 1e-9)
        # Not the cube: from these sizes to some thousands it was seen to be less than that.
        power = float(np.clip(math.log(growth) / math.log(large / small), 1.5, 2.5))
    scale = size / large
    seconds = each * scale**2 * count + once * scale**power
    cpu = seconds * less.cpu_seconds / max(less.seconds, 1e-9)
    return StageCost("directions", seconds, cpu, 0.5 * seconds, 2.0 * seconds)


def _searching(model: AbstractScatteringModel, count: int, key: Key) -> StageCost:
    """Comparing all images with each other, timed with some of them as queries."""
    nothing = StageCost("neighbours", 0.0, 0.0, 0.0, 0.0)
    if isinstance(model, DeformationInvariantSpectralClustering):
        wanted = model.num_candidates
    elif isinstance(model, ProjectedScatteringSpectralClustering):
        wanted = max(model.num_neighbours)
        if model.by_representatives(count):
            return nothing
    else:
        return nothing
    rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
    rows = rng.standard_normal((count, model.num_dimensions), dtype=np.float32)
    asked = rows[: min(count, 512)]
    spare = max(48, 6 * wanted) if len(model.num_removed) > 1 else wanted
    return _timed("neighbours", lambda: nearest_neighbours(asked, rows, spare)).scaled(
        count / len(asked)
    )


def resident_bytes(model: AbstractModel, samples: Any) -> int:
    """Bytes of the arrays that a fit holds for all images, beside the images themselves.

    Args:
        model: The model.
        samples: All images.

    Returns:
        Features as far as they are kept, their covariance, coordinates, and neighbours.
    """
    assert isinstance(model, AbstractScatteringModel)
    count, size = len(samples), _feature_count(model, samples)
    pixels = int(np.prod(samples.shape[1:]))
    features = min(4 * count * size, 2 * 2**30)
    square = 8 * min(count, size) ** 2 if 2 * count <= size else 8 * size**2
    row = 4 * (4 * model.num_dimensions + 2 * pixels) + 64 * 12
    return int(features + 3 * square + count * row)
