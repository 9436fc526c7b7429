"""Networks normalised over batches: their gradient, their steps, and what stays of them."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from diffclust.alignment import Prediction
from diffclust.energies import TransformedPrototype
from diffclust.networks import AbstractBatchBackbone, make_heads, residual_backbone
from diffclust.networks.backbones import BatchNormalisation, Convolution, Moments
from diffclust.parallel import Batch
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.gradient import GradientEM, GradientState
from diffclust.transforms import Affine
from tests.registry import blobs

COUNT, CLUSTERS = 12, 3


class Small(AbstractBatchBackbone):
    """One normalised convolution, averaged: what a ResNet-20 is made of, compiled in no time."""

    layer: Convolution
    norm: BatchNormalisation

    def __init__(self, key: jax.Array):
        self.layer = Convolution(1, 4, size=3, biased=False, key=key)
        self.norm = BatchNormalisation(4)

    @property
    def num_features(self) -> int:
        return 4

    @property
    def is_batch_normalised(self) -> bool:
        return True

    def __call__(self, image: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.relu(self.norm(self.layer(image))), axis=(0, 1))

    def read_batch(
        self, images: jax.Array, weight: jax.Array, *, axis_name: str | None = None
    ) -> tuple[jax.Array, tuple[Moments, ...]]:
        hidden = jax.vmap(self.layer)(images)
        hidden, running = self.norm.normalise_batch(hidden, weight, axis_name)
        return jnp.mean(jax.nn.relu(hidden), axis=(1, 2)), (running,)

    def with_moments(self, moments: tuple[Moments, ...]) -> "Small":
        return eqx.tree_at(lambda tree: tree.norm.moments, self, moments[0])


@pytest.fixture(scope="module")
def problem() -> tuple[GradientEM, Learned, Batch]:
    """DTI K-means whose steps are gradients; the heads are stirred, so that these are not zero."""
    first, second, third = jax.random.split(jax.random.key(0), 3)
    heads = make_heads(CLUSTERS, 4, 6, key=second)
    heads = jax.tree.map(
        lambda leaf: leaf + 0.05 * jax.random.normal(third, leaf.shape, leaf.dtype), heads
    )
    images = jnp.asarray(blobs(COUNT))
    clusters = Clusters(images[:CLUSTERS], jnp.zeros((CLUSTERS, 1)), (heads,))
    energy, aligner = TransformedPrototype(Affine("edge")), Prediction(transforms=1)
    solver = GradientEM(energy, aligner, decay=0.0, optimizer=optax.sgd(1.0))
    return solver, Learned(clusters, Small(first)), Batch(images, jnp.ones(COUNT))


@eqx.filter_jit
def step(solver: GradientEM, learned: Learned, batch: Batch) -> GradientState:
    return solver.step(solver.init(learned), batch, None, jnp.asarray(1.0))[0]


def same(one: Learned, other: Learned, *, atol: float = 1e-5) -> None:
    chex.assert_trees_all_close(one, other, rtol=1e-4, atol=atol)


def test_against_numpy_with_the_gradient_of_the_textbook() -> None:
    rng = np.random.default_rng(0)
    images, pull = rng.normal(2.0, 3.0, (2, 5, 4, 3, 2))
    gain, shift, weight = rng.normal(size=2), rng.normal(size=2), np.ones(5)
    layer = eqx.tree_at(
        lambda made: (made.gain, made.shift),
        BatchNormalisation(2),
        (jnp.asarray(gain, jnp.float32), jnp.asarray(shift, jnp.float32)),
    )

    def result(x: jax.Array) -> jax.Array:
        return layer.normalise_batch(x, jnp.asarray(weight, jnp.float32))[0]

    given = jnp.asarray(images, jnp.float32)
    mean, variance = images.mean((0, 1, 2)), images.var((0, 1, 2))
    root = np.sqrt(variance + 1e-5)
    normal = (images - mean) / root
    np.testing.assert_allclose(result(given), gain * normal + shift, rtol=1e-4, atol=1e-5)
    # Ioffe and Szegedy, Sec. 3.
    inner = pull.mean((0, 1, 2)) + normal * (pull * normal).mean((0, 1, 2))
    expected = gain / root * (pull - inner)

    def pulled(x):
        return jnp.sum(result(x) * jnp.asarray(pull, jnp.float32))

    got = jax.jit(jax.grad(pulled))(given)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)
    # What stays is a tenth of the batch's moments, as PyTorch has it.
    running = layer.normalise_batch(given, jnp.asarray(weight, jnp.float32))[1]
    np.testing.assert_allclose(running[0], 0.1 * mean, rtol=1e-4)
    unbiased = variance * 60 / 59
    np.testing.assert_allclose(running[1], 0.9 + 0.1 * unbiased, rtol=1e-4)


def test_a_step_leaves_the_running_moments_of_its_batch(problem: tuple) -> None:
    solver, learned, batch = problem
    after = step(solver, learned, batch).learned
    hidden = np.asarray(jax.vmap(learned.shared.layer)(batch.samples), np.float64)
    mean, variance = after.shared.norm.moments
    np.testing.assert_allclose(mean, 0.1 * hidden.mean((0, 1, 2)), rtol=1e-4, atol=1e-6)
    unbiased = hidden.var((0, 1, 2), ddof=1)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * unbiased, rtol=1e-4)
    # The weights follow the gradient, through the moments too: a scale of the kernel has none.
    gradient = learned.shared.layer.weight - after.shared.layer.weight
    assert float(jnp.linalg.norm(gradient)) > 1e-3
    along = jnp.sum(gradient * learned.shared.layer.weight, axis=(0, 1, 2))
    np.testing.assert_allclose(along, 0.0, atol=1e-4)


@pytest.mark.slow
def test_devices_share_the_moments(problem: tuple) -> None:
    solver, learned, batch = problem
    halves = jax.tree.map(lambda leaf: leaf.reshape(2, -1, *leaf.shape[1:]), batch)

    def own(half: Batch) -> GradientState:
        state = solver.init(learned)
        return solver.step(state, half, None, jnp.asarray(1.0), axis_name="devices")[0]

    result = jax.jit(jax.vmap(own, axis_name="devices"))(halves)
    expected = step(solver, learned, batch).learned
    for place in range(2):
        same(jax.tree.map(lambda leaf, i=place: leaf[i], result.learned), expected)


def test_a_weight_of_two_is_two_images_and_of_zero_none(problem: tuple) -> None:
    solver, learned, batch = problem
    twice = Batch(jnp.concatenate([batch.samples, batch.samples[:1]]), jnp.ones(COUNT + 1))
    weights = jnp.append(jnp.ones(COUNT).at[0].set(2.0), 0.0)
    weighted = Batch(twice.samples.at[-1].set(7.0), weights)
    same(step(solver, learned, weighted).learned, step(solver, learned, twice).learned)


def test_images_are_assigned_one_by_one(problem: tuple) -> None:
    solver, learned, batch = problem
    learned = step(solver, learned, batch).learned
    every = eqx.filter_jit(solver.assign)(learned, batch.samples, None)
    alone = eqx.filter_jit(solver.assign)(learned, batch.samples[4:5], None)
    np.testing.assert_allclose(every.params[4:5], alone.params, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_resnet_reads_a_batch_as_with_its_moments(key: jax.Array) -> None:
    backbone = residual_backbone(8, 8, 1, key=key, normalisation="batch")
    images = jnp.asarray(blobs(COUNT))
    for _ in range(120):
        features, moments = eqx.filter_jit(lambda b: b.read_batch(images, jnp.ones(COUNT)))(
            backbone
        )
        backbone = backbone.with_moments(moments)
    # Running moments have come to those of the batch, but for n / (n - 1) in each of 19 layers.
    result = eqx.filter_jit(lambda b: jax.vmap(b)(images))(backbone)
    assert np.corrcoef(np.ravel(result), np.ravel(features))[0, 1] > 0.99
    assert all(block.first.bias is None for block in backbone.blocks)


def test_only_the_ratios_of_weights_count(key: jax.Array) -> None:
    norm, images = BatchNormalisation(2), jax.random.normal(key, (5, 3, 3, 2))
    weight = jnp.asarray([1.0, 2.0, 0.0, 1.0, 3.0])
    expected = norm.normalise_batch(images, weight)
    for factor in (1e-5, 1e3):
        actual = norm.normalise_batch(images, factor * weight)
        chex.assert_trees_all_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_a_batch_that_weighs_nothing_is_read_by_the_running_moments(key: jax.Array) -> None:
    norm, images = BatchNormalisation(2), jax.random.normal(key, (5, 3, 3, 2))
    actual, running = norm.normalise_batch(images, jnp.zeros(5))
    np.testing.assert_allclose(actual, jax.vmap(norm)(images), rtol=1e-6)
    chex.assert_trees_all_equal(running, norm.moments)
