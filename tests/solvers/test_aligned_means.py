import jax
import numpy as np
import pytest

from diffclust.alignment import Descent, NoAlignment, Stage
from diffclust.energies import TransformedDistance
from diffclust.parallel import Data
from diffclust.parallel.in_flight import all_rows
from diffclust.prototypes import Clusters, MeanImages, UnitNormImages
from diffclust.solvers import (
    Lloyd,
    LloydPlan,
    LloydProblem,
    Progress,
    SplitMerge,
    Stopping,
    aligned_means,
    alignment_chunks,
    ignore,
)
from diffclust.transforms import Affine, Identity
from tests.registry import blobs

KEY = jax.random.key(0)
LABELS = np.arange(18) % 2
AS_THEY_ARE = Lloyd(TransformedDistance(Identity()), NoAlignment(), MeanImages())
ALIGNED = Lloyd(TransformedDistance(Affine()), Descent((Stage(6),)), UnitNormImages())


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Two classes of nine images, not square and in colour, each moved by a pixel or none."""
    rng = np.random.default_rng(0)
    means = blobs(2, 8, 10, 3, seed=1)
    moved = [np.roll(means[label], rng.integers(-1, 2, 2), axis=(0, 1)) for label in LABELS]
    return np.stack(moved)


def problem_of(solver: Lloyd, clusters: int = 2) -> LloydProblem:
    penalty = (0.1,) * solver.energy.num_penalties
    return LloydProblem(solver, LloydPlan(clusters, penalty, 1, Stopping(1, 0.0), SplitMerge()))


def align_all(solver, clusters, images, labels, *, count=2, chunk_size=18, callback=ignore):
    data = Data(images, None, chunk_size)
    chunks = alignment_chunks(problem_of(solver, count), clusters, data, labels, callback=callback)
    return all_rows(chunks)


def means_of(
    solver: Lloyd, images: np.ndarray, labels: np.ndarray = LABELS, key=KEY, **options
) -> Clusters:
    problem = problem_of(solver, options.pop("clusters", 2))
    data = Data(images, options.pop("weight", None), options.pop("chunk_size", 18))
    return aligned_means(problem, data, labels, key=key, **options)


def test_without_a_transform_they_are_the_means(images: np.ndarray) -> None:
    result = np.asarray(means_of(AS_THEY_ARE, images).prototype)
    expected = np.stack([images[k == LABELS].mean(0) for k in range(2)])
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_no_sample_changes_its_cluster(images: np.ndarray) -> None:
    # Halves of both classes: nearest prototypes would sort them otherwise.
    mixed = np.arange(18) // 9
    result = np.asarray(means_of(AS_THEY_ARE, images, labels=mixed).prototype)
    expected = np.stack([images[k == mixed].mean(0) for k in range(2)])
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_means_are_made_of_a_few_of_each_cluster(images: np.ndarray) -> None:
    result = np.asarray(means_of(AS_THEY_ARE, images, most=1).prototype)
    for cluster, prototype in enumerate(result):
        members = images[cluster == LABELS]
        assert np.abs(members - prototype).max(axis=(1, 2, 3)).min() < 1e-6
    other = means_of(AS_THEY_ARE, images, most=1, key=jax.random.key(3))
    assert np.abs(np.asarray(other.prototype) - result).max() > 0.1


def test_weighed_means(images: np.ndarray) -> None:
    weight = np.random.default_rng(1).integers(1, 4, 18)
    result = np.asarray(means_of(AS_THEY_ARE, images, weight=weight.astype(float)).prototype)
    copies = np.repeat(images, weight, axis=0)
    data = Data(copies, None, 64)
    wanted = aligned_means(problem_of(AS_THEY_ARE), data, np.repeat(LABELS, weight), key=KEY)
    np.testing.assert_allclose(result, wanted.prototype, atol=1e-6)
    assert np.abs(result - np.asarray(means_of(AS_THEY_ARE, images).prototype)).max() > 1e-2


def test_a_few_of_each_cluster_are_drawn_by_their_weights(images: np.ndarray) -> None:
    # Of equal weights those are drawn that are drawn without any.
    plain = means_of(AS_THEY_ARE, images, most=3).prototype
    equal = means_of(AS_THEY_ARE, images, most=3, weight=np.full(18, 0.1)).prototype
    np.testing.assert_allclose(equal, plain, atol=1e-6)
    # Else the mean of those drawn is that of all, more or less; heavy ones are always among them.
    weight = np.where(np.arange(18) < 2, 100.0, 1.0) * np.linspace(0.5, 1.5, 18)
    exact = np.stack(
        [np.average(images[k == LABELS], axis=0, weights=weight[k == LABELS]) for k in range(2)]
    )
    errors = [
        np.asarray(means_of(AS_THEY_ARE, images, most=4, weight=weight, key=key).prototype) - exact
        for key in jax.random.split(KEY, 12)
    ]
    assert np.abs(errors).max() < 0.25 * np.ptp(images)
    assert np.abs(np.mean(errors, axis=0)).max() < 0.06


@pytest.mark.slow
def test_aligned_samples_lie_nearer_to_sharper_means(images: np.ndarray) -> None:
    clusters = means_of(ALIGNED, images)
    prototypes = np.asarray(clusters.prototype)
    assert np.isfinite(prototypes).all()
    np.testing.assert_allclose(np.sqrt((prototypes**2).sum((1, 2, 3))), 1.0, rtol=1e-5)
    reported: list[Progress] = []
    params = align_all(ALIGNED, clusters, images, LABELS, chunk_size=8, callback=reported.append)
    assert params.shape == (18, 6)
    assert [(p.stage, p.done, p.total) for p in reported] == [
        ("alignments", done, 3) for done in (1, 2, 3)
    ]
    aligned = np.asarray(jax.vmap(ALIGNED.energy.aligned)(params, images))
    scale = np.sqrt((images**2).sum((1, 2, 3), keepdims=True))
    units = images / scale
    own = prototypes[LABELS]
    moved = ((aligned / scale - own) ** 2).sum((1, 2, 3))
    blurred = np.stack([units[k == LABELS].mean(0) for k in range(2)])[LABELS]
    unmoved = ((units - blurred) ** 2).sum((1, 2, 3))
    assert moved.sum() < 0.5 * unmoved.sum()


@pytest.mark.slow
def test_the_prototype_of_an_empty_cluster_is_blank(images: np.ndarray) -> None:
    for solver in (AS_THEY_ARE, ALIGNED):
        # Not the last one, whose place might be the padding's.
        clusters = means_of(solver, images, labels=2 * LABELS, clusters=3)
        prototypes = np.asarray(clusters.prototype)
        assert np.isfinite(prototypes).all()
        assert not prototypes[1].any()
        assert prototypes[0].any()
        assert prototypes[2].any()
        params = align_all(solver, clusters, images, np.arange(18) % 3, count=3)
        # Samples that are said to be in it are left somewhere finite.
        assert np.isfinite(params).all()


@pytest.mark.slow
def test_the_chunk_size_is_only_a_matter_of_rounding(images: np.ndarray) -> None:
    one = means_of(ALIGNED, images, chunk_size=5).prototype
    np.testing.assert_allclose(one, means_of(ALIGNED, images).prototype, atol=2e-3)
    again = means_of(ALIGNED, images, chunk_size=5).prototype
    np.testing.assert_array_equal(one, again)
