"""Derivatives of losses by pixels and by settings, through every model, against differences."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array

from diffclust.alignment import Descent, NoAlignment, Stage
from diffclust.energies import (
    AbstractAdaptiveReduction,
    AbstractReduction,
    Entropic,
    HardMinimum,
    TransformedDistance,
)
from diffclust.methods import METHODS
from diffclust.models import (
    AffineInvariantKMeans,
    Clustering,
    DeformationInvariantKMeans,
    DTIGaussianMixture,
    DTIKMeans,
    GaussianMixture,
    KMeans,
    SeriesKMeans,
    ShapeKMeans,
    TransformationInvariantKMeans,
)
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Learned, MeanImages
from diffclust.solvers import GradientEM, Lloyd, compiled_lloyd
from diffclust.solvers.lloyd_run import clusters_of
from diffclust.testing.drawing import smooth_image
from diffclust.transforms import Affine, Identity

K, N, SIDE = 2, 6, 16
KIND = np.arange(N) % K


def images() -> Array:
    """Two smooth pictures with a plain border, each moved a little three times."""
    key, transform = jax.random.key(3), Affine()
    base = [smooth_image(k, SIDE, SIDE) for k in jax.random.split(key, K)]
    moves = 0.1 * jax.random.normal(key, (N, transform.num_params))
    return jax.jit(jax.vmap(transform))(moves, jnp.stack(base)[KIND])


def series() -> Array:
    times = jnp.linspace(0, 1, 20)[None] ** jnp.linspace(0.8, 1.2, N)[:, None]
    waves = jnp.sin(jnp.pi * (1 + KIND[:, None]) * times)[..., None]
    return waves.at[1, 18:].set(jnp.nan)


def shapes() -> Array:
    key = jax.random.key(1)
    return jax.random.normal(key, (K, 5, 2))[KIND] + 0.2 * jax.random.normal(key, (N, 5, 2))


def shape_solver(floor: Array, samples: Array) -> Lloyd:
    model, reference = ShapeKMeans(K), jnp.mean(samples, axis=0)
    solver = model.solver(reference, model.initial_covariance(samples, reference))
    return eqx.tree_at(lambda s: s.family.floor, solver, floor)


def entropic(temperature: Array) -> Clustering:
    energy = TransformedDistance(Identity())
    return Clustering(K, Lloyd(energy, NoAlignment(), MeanImages(), Entropic(temperature)))


Solver = Callable[[Array, Array], tuple[Lloyd, tuple[Array, ...]]]
"""From a setting and the samples a solver and penalty weights."""

LLOYD: dict[str, tuple[Callable[[], Array], float, Solver]] = {
    "kmeans": (images, 0.0, lambda v, _: (KMeans(K).solver(), ())),
    "ai-kmeans": (images, 0.5, lambda v, _: (AffineInvariantKMeans(K).solver(), (v,))),
    "di-kmeans": (
        images,
        0.5,
        lambda v, _: (DeformationInvariantKMeans(K, landmarks=(3, 3)).solver(), (v, 0.1 * v)),
    ),
    "series-kmeans": (series, 0.1, lambda v, _: (SeriesKMeans(K, num_intervals=4).solver(), (v,))),
    "shape-kmeans": (shapes, 0.05, lambda v, x: (shape_solver(v, x), ())),
    "clustering": (images, 5.0, lambda v, _: (entropic(v).solver(), ())),
}


def check(
    loss: Callable[[Array], Array], at: tuple[float, ...], *, exact: bool = True, step: float = 1e-4
) -> None:
    """Reverse mode is finite, and within 1 % of central differences."""
    point = jnp.asarray(at)
    loss = jax.jit(loss)
    slope = np.asarray(jax.jit(jax.grad(loss))(point))
    assert np.isfinite(slope).all()
    if not exact:
        return
    moves = step * jnp.eye(len(at))
    expected = np.asarray([loss(point + m) - loss(point - m) for m in moves]) / (2 * step)
    np.testing.assert_allclose(slope, expected, rtol=1e-2, atol=1e-6)
    assert np.abs(slope[0]) > 1e-4


def slow_but(quick: set[str], names: Iterable[str]) -> list[Any]:
    """Marks all cases as slow but a few that compile in seconds."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", slow_but({"clustering"}, LLOYD))
def test_fits_by_lloyds_algorithm(name: str) -> None:
    with jax.enable_x64(True):
        draw, setting, make = LLOYD[name]
        samples = draw()

        def last_loss(values: Array, passes: int, exact: bool, steps: int = 300) -> Array:
            given = samples.at[(3,) + (4,) * (samples.ndim - 2) + (0,)].add(values[0])
            if not exact and draw is not shapes:
                given = given.at[N - 1].set(0.0)  # has no norm to be divided by
            solver, penalty = make(values[1], given)
            if exact and solver.energy.num_params:
                # Until the search has ended, as the envelope theorem asks, or through its steps.
                settings = {"aligner": Descent((Stage(steps),))}
                settings |= {} if steps == 300 else {"adjoint": "unrolled"}
                solver = dataclasses.replace(solver, **settings)
            units = jax.vmap(solver.normalise)(given)
            start = clusters_of(solver, units[:K], penalty and jnp.stack(penalty))
            given = (solver, Batch(units, jnp.ones(N)), start)
            return compiled_lloyd(*given, num_clusters=K, max_passes=passes, fixed=True).loss

        at, searched = (0.01, setting), make(jnp.asarray(setting), samples)[0].energy.num_params
        check(functools.partial(last_loss, passes=3, exact=False), at, exact=False)
        # The means of warped samples follow their params, through which only "unrolled" goes.
        check(functools.partial(last_loss, passes=1 if searched else 12, exact=True), at)
        if searched:
            check(functools.partial(last_loss, passes=3, exact=True, steps=8), at, step=1e-6)


def trained(solver: GradientEM, learned: Learned, samples: Array, steps: int) -> Array:
    """The loss of all samples after some steps."""
    state, weight = solver.init(learned), jnp.ones(N)
    memory = solver.training_memory(N, K, weight.dtype)
    for _ in range(steps):
        state, memory = solver.step(state, Batch(samples, weight), memory, jnp.asarray(1e-2))
    result = solver.assign(state.learned, samples, memory)
    return jnp.sum(solver.losses(state.learned, samples, result))


GRADIENT = {
    "ti-kmeans": TransformationInvariantKMeans(K, align_steps=300),
    "dti-kmeans": DTIKMeans(K, transforms="col-aff"),
    "dti-gmm": DTIGaussianMixture(K, transforms="aff"),
    "gmm": GaussianMixture(K),
}


def test_every_model_with_prototypes_is_there() -> None:
    prototypes = {name for name, method in METHODS.items() if method.has_prototypes}
    assert prototypes == {*LLOYD, *GRADIENT} - {"clustering"}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [None, optax.sgd(1e-3)], ids=["adam", "sgd"])
@pytest.mark.parametrize("name", GRADIENT)
def test_gradient_steps(name: str, optimizer: optax.GradientTransformation | None) -> None:
    with jax.enable_x64(True):
        samples, model = images(), GRADIENT[name]
        count = len(model.sequence(1))
        solver = dataclasses.replace(model.solver(count, 1), optimizer=optimizer)
        # Zero heads predict the identity, where bilinear sampling has a kink.
        first = jax.tree.map(
            lambda leaf: leaf + 0.01 if eqx.is_inexact_array(leaf) else leaf,
            model.init(samples[:K], jax.random.key(0)),
        )
        terms = first.clusters.penalty.shape

        def loss(values: Array, steps: int = 1) -> Array:
            given = samples.at[3, 4, 4, 0].add(values[0])
            penalty = jnp.broadcast_to(values[1], terms)
            learned = eqx.tree_at(lambda t: t.clusters.penalty, first, penalty)
            return trained(solver, learned, given, steps)

        # Adam's first step has the size of its rate: its slope at small gradients is vast. Params
        # that are searched for are held fixed, so that the slope of a step is not whole.
        searched = name == "ti-kmeans"
        check(loss, (0.01, 0.3), exact=optimizer is not None and not searched)
        if optimizer is not None and searched:
            check(functools.partial(loss, steps=0), (0.01, 0.3))


def by_jvp(function: Callable[[Array], Array]) -> Callable[[Array], tuple[Array, Array]]:
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))


@pytest.fixture(scope="module")
def by_weight() -> tuple[Callable[[Array], Array], Array, Array]:
    """A loss of a penalty weight, a weight, and its slope there."""
    samples, family = images()[:3], MeanImages()
    lloyd = Lloyd(TransformedDistance(Affine()), Descent((Stage(3),)), family)

    def loss(weight: Array) -> Array:
        clusters = clusters_of(lloyd, samples[:K], weight[None])
        learned = Learned(clusters, None, None)
        return jnp.sum(lloyd.assign(learned, samples, None).energy)

    at = jnp.asarray(0.3)
    return loss, at, jax.jit(jax.grad(loss))(at)


@pytest.mark.parametrize(
    "outer",
    [
        jax.grad,
        *(
            pytest.param(derivative, marks=pytest.mark.slow)
            for derivative in (jax.jacfwd, lambda f: lambda x: by_jvp(f)(x)[1])
        ),
    ],
)
@pytest.mark.parametrize("inner", [jax.value_and_grad, by_jvp])
def test_a_value_keeps_its_slope_in_nested_derivatives(
    outer: Any, inner: Any, by_weight: tuple[Callable[[Array], Array], Array, Array]
) -> None:
    loss, at, slope = by_weight
    assert slope > 1e-4
    nested = jax.jit(outer(lambda w: inner(loss)(w)[0]))(at)
    np.testing.assert_allclose(nested, slope, rtol=1e-5)


@pytest.mark.slow
def test_second_derivatives_where_nothing_is_searched_for() -> None:
    samples, result = images()[:3], []
    for adjoint in ("envelope", "unrolled"):
        lloyd = Lloyd(TransformedDistance(Identity()), NoAlignment(), adjoint=adjoint)

        def loss(move: Array, lloyd: Lloyd = lloyd) -> Array:
            clusters = clusters_of(lloyd, samples[:K] + move * samples[1:], ())
            return jnp.sum(lloyd.assign(Learned(clusters, None, None), samples, None).energy ** 2)

        result.append(jax.hessian(loss)(jnp.asarray(0.2)))
    assert abs(result[1]) > 1.0
    np.testing.assert_allclose(*result, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("reduction", [HardMinimum(), Entropic(1.5)])
def test_second_derivatives_through_passes(reduction: AbstractReduction) -> None:
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        centres = 3 * np.eye(3)[np.arange(12) % 3][:, None, None, :]
        samples = jnp.asarray(rng.normal(size=(12, 1, 1, 3)) + centres)
        lloyd = Lloyd(TransformedDistance(Identity()), NoAlignment(), reduction=reduction)

        def loss(weight: Array) -> Array:
            start = clusters_of(lloyd, samples[:3], ())
            given = {"num_clusters": 3, "max_passes": 2, "fixed": True}
            return compiled_lloyd(lloyd, Batch(samples, weight), start, **given).loss

        weight, direction = (jnp.asarray(rng.uniform(0.2, 2.0, 12)) for _ in range(2))
        slope = jax.jit(jax.grad(loss))
        change = slope(weight + 1e-5 * direction) - slope(weight - 1e-5 * direction)
        actual = jax.jit(jax.hessian(loss))(weight) @ direction
        np.testing.assert_allclose(actual, change / 2e-5, atol=1e-7)
    assert np.abs(actual).max() > 0.1


class Biased(AbstractReduction):
    """A soft minimum of energies to which something is added."""

    bias: Array

    def offsets(self, objective: Any, num_clusters: int) -> Array:
        return self.bias

    def __call__(self, scores: Array) -> Array:
        return Entropic(2.0)(scores)


class Annealed(AbstractAdaptiveReduction):
    """A temperature that falls from pass to pass."""

    temperature: Array

    def __call__(self, scores: Array) -> Array:
        return Entropic(self.temperature)(scores)

    def statistics(self, scores: Array, weight: Array, cluster: Array) -> Array:
        return jnp.sum(weight)

    def update(self, statistics: Array) -> "Annealed":
        return Annealed(0.8 * self.temperature)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reduction", "at"),
    [(Biased, (0.2, -0.1)), (lambda v: Annealed(v[0]), (3.0,))],
    ids=["offsets", "adaptive"],
)
def test_slopes_by_what_a_reduction_is_made_of(
    reduction: Callable[[Array], AbstractReduction], at: tuple[float, ...]
) -> None:
    with jax.enable_x64(True):
        samples = images()

        def loss(values: Array) -> Array:
            energy = TransformedDistance(Identity())
            solver = Lloyd(energy, NoAlignment(), MeanImages(), reduction=reduction(values))
            given = solver, Batch(samples, jnp.ones(N)), clusters_of(solver, samples[:K], ())
            return compiled_lloyd(*given, num_clusters=K, max_passes=3, fixed=True).loss

        check(loss, at)


def test_an_empty_cluster_leaves_finite_slopes() -> None:
    samples = images()
    energy = TransformedDistance(Identity())
    solver = Lloyd(energy, NoAlignment(), MeanImages())
    far = samples[:K].at[K - 1].add(1e3)

    def loss(weight: Array) -> Array:
        given = solver, Batch(samples, weight), clusters_of(solver, far, ())
        return compiled_lloyd(*given, num_clusters=K, max_passes=2, fixed=True).loss

    assert np.isfinite(jax.jit(jax.grad(loss))(jnp.ones(N))).all()
