"""Aligners and prototype families obey their laws, and the laws notice those that do not."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PyTree

from diffclust.alignment import (
    AbstractAligner,
    Alignment,
    Descent,
    GridSearch,
    NoAlignment,
    Sequential,
    Stage,
    ranked,
)
from diffclust.distances import AbstractDistance, LandmarkNegativeLogLikelihood
from diffclust.energies import (
    AbstractPairEnergy,
    LandmarkEnergy,
    TransformedDistance,
    TransformedPrototype,
)
from diffclust.features import square_root_velocity
from diffclust.prototypes import (
    Clusters,
    MeanImages,
    MeanShapes,
    Sums,
    UnitNormImages,
    UnitNormSeries,
)
from diffclust.testing import check_aligner, check_family, smooth_image
from diffclust.transforms import Affine, Identity, Rotation, TimeWarp
from diffclust.types import Key
from tests.models.test_own import Pair, PairMeans
from tests.registry import QUICK, smooth_series

O2 = Rotation(reflection=True)
SEARCH = GridSearch(O2.grid(8))
ALIGNERS: dict[str, tuple[AbstractPairEnergy, AbstractAligner]] = {
    "descent": (TransformedDistance(Affine()), Descent((Stage(4),))),
    "coarse-to-fine": (TransformedPrototype(Affine()), QUICK),
    "grid": (TransformedDistance(O2), dataclasses.replace(SEARCH, fourier=False)),
    "grid-fourier": (TransformedDistance(O2), SEARCH),
    "sequential": (TransformedDistance(O2), Sequential(SEARCH, Descent((Stage(3),)))),
    "short list": (TransformedDistance(Affine()), Sequential(NoAlignment(), Descent((Stage(4),)))),
}


# What the slow ones are composed of, a descent and a search, is tried by itself too.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow)
        if n in ("coarse-to-fine", "sequential", "short list", "grid-fourier")
        else n
        for n in ALIGNERS
    ],
)
def test_aligner_obeys_the_laws(name: str, key: Key) -> None:
    energy, aligner = ALIGNERS[name]
    grid = O2.grid(8) if energy.num_params == 2 else None
    # Inner products by FFT are of pictures read onto rings.
    tolerance = 1e-4 if name == "grid" else 0.02
    penalty = 0.0 if grid is not None else 0.1
    check_aligner(aligner, energy, key=key, grid=grid, tolerance=tolerance, penalty=penalty)


@pytest.mark.slow
def test_aligner_of_series_obeys_the_laws(key: Key) -> None:
    energy = TransformedDistance(TimeWarp(4))
    check_aligner(QUICK, energy, key=key, draw=smooth_series)


class Wrong(AbstractAligner):
    """A grid search that breaks one law."""

    fault: str = eqx.field(static=True)

    @property
    def is_learned(self) -> bool:
        return False

    def num_candidates(self, num_clusters: int) -> int:
        return SEARCH.num_candidates(num_clusters)

    def working_copies(self, num_clusters: int) -> int:
        return SEARCH.working_copies(num_clusters)

    def prepare(self, energy: AbstractPairEnergy, clusters: Clusters, shared: PyTree) -> PyTree:
        return clusters.penalty if self.fault == "what prepare returns" else None

    def align(
        self,
        energy: AbstractPairEnergy,
        sample: PyTree,
        clusters: Clusters,
        shared: PyTree,
        start: Alignment,
        prepared: PyTree,
    ) -> Alignment:
        if prepared is not None:
            clusters = Clusters(clusters.prototype, clusters.penalty + 0.0 * prepared)
        inner, own = SEARCH, start
        if self.fault == "never worse than the incumbent":
            start = jax.tree.map(lambda leaf: leaf[:1], start)
        if self.fault in ("the incumbent stays", "never worse"):
            start = jax.tree.map(lambda leaf: leaf[:0], start)
        counts = self.fault == "a vacant place counts" and start.cluster.shape[0]
        if self.fault == "no worse than the best of the grid" or counts:
            inner = GridSearch(O2.grid(2))
        result = inner.align(energy, sample, clusters, shared, start, None)
        cluster, params, value = result.cluster, result.params, result.energy
        match self.fault:
            case "candidates ascend":
                return Alignment(cluster[::-1], params[::-1], value[::-1])
            case "candidates are different":
                return Alignment(cluster.at[1].set(cluster[0]), params, value)
            case "energies are those of the params":
                return Alignment(cluster, params, value + 1e-3)
            case "no cluster is worse than unaligned":
                params = jnp.zeros_like(params).at[:, 0].set(0.5 * jnp.pi)
                value = jax.vmap(energy.bind(sample), (0, None, 0))(
                    params, sample, clusters.take(cluster)
                )
                order = jnp.argsort(value)
                return Alignment(cluster[order], params[order], value[order])
            case "never worse" if own.cluster.shape[0]:
                # Its cluster is kept, its params are not.
                known = (own.cluster[0] < 0) | jnp.any(cluster == own.cluster[0])
                cluster = cluster.at[-1].set(jnp.where(known, cluster[-1], own.cluster[0]))
                params = params.at[-1].set(jnp.where(known, params[-1], 0.0))
                alone = clusters.take(cluster)
                value = jax.vmap(energy.bind(sample), (0, None, 0))(params, sample, alone)
                order = jnp.argsort(value)
                return Alignment(cluster[order], params[order], value[order])
        return result


@pytest.mark.parametrize(
    "fault",
    [
        "candidates ascend",
        "candidates are different",
        "energies are those of the params",
        *(
            pytest.param(fault, marks=pytest.mark.slow)
            for fault in (
                "no cluster is worse than unaligned",
                "a vacant place counts",
                "the incumbent stays",
                "never worse",
                "never worse than the incumbent",
                "no worse than the best of the grid",
                "what prepare returns",
            )
        ),
    ],
)
def test_broken_law_of_an_aligner_is_noticed(fault: str, key: Key) -> None:
    energy = TransformedDistance(O2)
    with pytest.raises(AssertionError, match=f"Wrong: {fault}"):
        check_aligner(Wrong(fault), energy, key=key, grid=O2.grid(8), penalty=0.0, tolerance=0.01)


class Stays(NoAlignment):
    """Looks at the first cluster alone."""

    def num_candidates(self, num_clusters: int) -> int:
        return 1

    def align(self, energy, sample, clusters, shared, start, prepared) -> Alignment:
        first = clusters.take(jnp.zeros(1, dtype=jnp.int32))
        return super().align(energy, sample, first, shared, start, prepared)


def test_an_aligner_that_does_not_look_is_noticed(key: Key) -> None:
    with pytest.raises(
        AssertionError, match="Stays: no worse than the nearest prototype unaligned"
    ):
        check_aligner(Stays(), TransformedDistance(Identity()), key=key)


def test_a_small_offset_is_noticed_on_larger_images() -> None:
    energy = TransformedDistance(O2)
    for key in jax.random.split(jax.random.key(0), 3):
        with pytest.raises(AssertionError, match="Wrong: energies are those of the params"):
            check_aligner(
                Wrong("energies are those of the params"),
                energy,
                key=key,
                draw=lambda k: smooth_image(k, 28, 28, sigma=0.25),
            )


def cut_series(key: Key) -> Array:
    """A series that ends early."""
    length = jax.random.randint(key, (), 12, 25)
    return jnp.where(jnp.arange(24)[:, None] < length, smooth_series(key), jnp.nan)


def shape(key: Key) -> Array:
    return jnp.eye(5, 2) + 0.1 * jax.random.normal(key, (5, 2))


SHAPES = MeanShapes(jnp.eye(5, 2), 0.01 * jnp.ones((5, 2)), jnp.asarray(1e-4), pooling="within")
LIKELIHOOD = LandmarkEnergy(LandmarkNegativeLogLikelihood())
FAMILIES = {
    "means": (MeanImages(), TransformedDistance(Affine()), None),
    "means-unmoved": (MeanImages(), TransformedDistance(Identity()), None),
    "means-jacobian": (MeanImages(), TransformedDistance(Affine(), pixel_weights="jacobian"), None),
    "unit-norm": (UnitNormImages(), TransformedDistance(Affine()), None),
    "unit-norm-jacobian": (
        UnitNormImages(),
        TransformedDistance(Affine(), pixel_weights="jacobian"),
        None,
    ),
    "series": (MeanImages(), TransformedDistance(TimeWarp(4)), smooth_series),
    "series-unit-norm": (UnitNormImages(), TransformedDistance(TimeWarp(4)), smooth_series),
    "series-missing": (
        UnitNormSeries(),
        TransformedDistance(TimeWarp(4), missing=True),
        cut_series,
    ),
    "series-velocity": (
        UnitNormSeries(),
        TransformedDistance(TimeWarp(4, preserve_norm=True), missing=True),
        lambda key: square_root_velocity(cut_series(key)),
    ),
    "shapes": (SHAPES, LIKELIHOOD, shape),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow)
        if n in ("series-velocity", "series-missing", "unit-norm-jacobian")
        else n
        for n in FAMILIES
    ],
)
def test_family_obeys_the_laws(name: str, key: Key) -> None:
    family, energy, draw = FAMILIES[name]
    check_family(family, energy, key=key, draw=draw)


class Climbs(MeanImages):
    """Steps beyond the mean."""

    def update(self, statistics: Sums, previous: Array) -> Array:
        return previous + 2.5 * (super().update(statistics, previous) - previous)


class Claims(MeanImages):
    """Goes half of the way: its sums hold where it was, which it says they do not."""

    def statistics(self, aligned: Array, pixel_weight: object, membership: Array, *rest) -> Sums:
        sums = super().statistics(aligned, pixel_weight, membership, *rest)
        image = (sums.image + sums.weight * rest[0]) / 2
        return eqx.tree_at(lambda s: s.image, sums, image)


class Forgets(MeanImages):
    """Empty clusters become black."""

    def update(self, statistics: Sums, previous: Array) -> Array:
        return super().update(statistics, 0 * previous)


class OfBatch(MeanImages):
    """Divides by what a batch weighs, not by what its cluster does: sums of batches do not add."""

    def statistics(self, *args: object) -> Sums:
        sums = super().statistics(*args)
        total = jnp.sum(sums.count)
        return jax.tree.map(lambda leaf: leaf / total, sums)


class Unweighted(MeanImages):
    """Counts every sample once."""

    def statistics(self, aligned: Array, pixel_weight: object, membership: Array, *rest) -> Sums:
        ones = (membership > 0).astype(membership.dtype)
        return super().statistics(aligned, pixel_weight, ones, *rest)


class NeverMoves(MeanImages):
    """Never moves, and so never raises the loss."""

    def update(self, statistics: Sums, previous: Array) -> Array:
        return previous


@pytest.mark.parametrize(
    ("family", "law"),
    [
        (NeverMoves(), "updates lower the loss"),
        (Climbs(), "an update does not raise the loss"),
        (Claims(), "is_additive, but statistics are not the same of all prototypes"),
        (Forgets(), "an empty cluster's prototype stays"),
        (OfBatch(), "statistics add up over batches"),
        (Unweighted(), "an update does not raise the loss|statistics follow the weights"),
    ],
    ids=["never-moves", "climbs", "claims", "forgets", "of-batch", "unweighted"],
)
def test_broken_law_of_a_family_is_noticed(family: MeanImages, law: str, key: Key) -> None:
    with pytest.raises(AssertionError, match=law):
        check_family(family, TransformedDistance(Affine()), key=key)


def test_a_family_of_another_energy_is_noticed(key: Key) -> None:
    class FourthPower(AbstractDistance):
        def __call__(self, sample, prototype, weight=None):
            return jnp.sum((sample - prototype) ** 4)

    # The mean is the minimiser of squares, not of fourth powers.
    with pytest.raises(AssertionError, match="does not raise the loss"):
        check_family(
            MeanImages(), TransformedDistance(Affine(), FourthPower()), key=key, draw=spots
        )


def test_means_under_manhattan_are_noticed(key: Key) -> None:
    class Manhattan(AbstractDistance):
        def __call__(self, sample, prototype, weight=None):
            return jnp.sum(jnp.abs(sample - prototype))

    with pytest.raises(AssertionError, match="does not raise the loss"):
        check_family(MeanImages(), TransformedDistance(Affine(), Manhattan()), key=key)


@pytest.mark.slow
def test_families_of_trees_are_checked_as_others_are(key: Key) -> None:
    class Manhattan(Pair):
        def _between(self, x: dict[str, Array], c: dict[str, Array]) -> Array:
            return sum((jnp.sum(jnp.abs(x[part] - c[part])) for part in x), jnp.zeros(()))

    def pair(key: Key) -> dict[str, Array]:
        return {"place": jax.random.exponential(key, (40,)) ** 3, "size": jnp.ones((5,))}

    check_family(PairMeans(), Pair(), key=key, draw=pair)
    with pytest.raises(AssertionError, match="does not raise the loss"):
        check_family(PairMeans(), Manhattan(), key=key, draw=pair)


def spots(key: Key) -> Array:
    """Mostly black, so that means and midranges differ."""
    return (jax.random.uniform(key, (6, 6, 1)) ** 20).astype(jnp.float32)


class Rotates(AbstractAligner):
    """Always turns by a quarter: `ranked` puts the identity or the incumbent in its place."""

    def align(self, energy, sample, clusters, shared, start, prepared) -> Alignment:
        params = jnp.full((len(clusters), energy.num_params), 0.25 * np.pi, clusters.dtype)
        return ranked(energy, sample, clusters, params, start)


def test_an_aligner_needs_only_the_params_of_every_cluster(key: Key) -> None:
    check_aligner(Rotates(), TransformedDistance(Rotation()), key=key)
