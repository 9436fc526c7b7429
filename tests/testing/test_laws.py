"""Everything in the registry obeys the laws, and the laws notice what does not."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable

import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import diffclust
from diffclust import testing
from diffclust.alignment import AfterAlignment, NoAlignment, PreparedDistance, Stage
from diffclust.distances import AbstractDistance, FeatureDistance, SquaredEuclidean
from diffclust.energies import TransformedDistance
from diffclust.models import MODELS
from diffclust.sampling import bilinear_sample, pixel_grid
from diffclust.testing import check_distance, check_metric
from diffclust.transforms import (
    AbstractTransform,
    Affine,
    Identity,
    Rotation,
    ThinPlateSpline,
    Translation,
)
from diffclust.transforms.base import Correlation
from diffclust.types import Image, Params, Points
from tests import registry


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


# Variants that differ from another entry in an option: their laws compile as long.
VARIANTS = {
    "projective-edge",
    "morphology-edge",
    "colour-full",
    "spline-2x2-smooth-edge",
    "affine-reflect",
    "rotation-reflection",
    "broken-chain",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in VARIANTS else [])
        for name in registry.TRANSFORMS
    ],
)
def test_transform_obeys_the_laws(name: str, key: jax.Array, double: None) -> None:
    testing.check_transform(registry.TRANSFORMS[name][1](), key=key)


@pytest.mark.parametrize("name", registry.OF_SERIES)
def test_transform_of_series_obeys_the_laws(name: str, key: jax.Array, double: None) -> None:
    testing.check_transform(registry.OF_SERIES[name][1](), key=key, draw=registry.smooth_series)


# In single precision the laws are the same, looser: one transform shows that they can be run.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "translation" else pytest.mark.slow)
        for name in registry.TRANSFORMS
    ],
)
def test_transform_obeys_the_laws_in_single_precision(name: str, key: jax.Array) -> None:
    testing.check_transform(registry.TRANSFORMS[name][1](), key=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.DISTANCES)
def test_distance_obeys_the_laws_in_single_precision(name: str, key: jax.Array) -> None:
    _, make, draw = registry.DISTANCES[name]
    testing.check_distance(make(), key=key, draw=draw)


@pytest.mark.parametrize("name", registry.DISTANCES)
def test_distance_obeys_the_laws(name: str, key: jax.Array, double: None) -> None:
    _, make, draw = registry.DISTANCES[name]
    testing.check_distance(make(), key=key, draw=draw)


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.INVARIANT)
def test_small_affine_maps_make_no_sample_more_distant(name: str, key: jax.Array) -> None:
    testing.check_invariance(*registry.INVARIANT[name](), key=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ai-kmeans", "di-kmeans", "di-spectral"])
def test_models_are_invariant_as_they_come(name: str, key: jax.Array) -> None:
    model = MODELS[name](2)
    aligner = model.aligner()
    if name == "di-spectral":
        # Its eleven steps are for pairs that are much alike; it takes more to bring blobs back.
        aligner = dataclasses.replace(aligner, stages=(Stage(14, blur=1 / 28), Stage(14)))
    testing.check_invariance(model.energy(), aligner, key=key)


def concrete(base: type) -> set[type]:
    """The public concrete classes in diffclust under a base class."""
    result = set()
    for module in pkgutil.walk_packages(diffclust.__path__, "diffclust."):
        for thing in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(thing) and issubclass(thing, base) and not inspect.isabstract(thing):
                result.add(thing)
    own = (c for c in result if c.__module__.startswith("diffclust."))
    return {c for c in own if not c.__name__.startswith("_")}


@pytest.mark.parametrize(
    ("base", "known"),
    [
        (AbstractTransform, registry.TRANSFORMS | registry.OF_SERIES),
        (AbstractDistance, registry.DISTANCES),
    ],
    ids=["transforms", "distances"],
)
def test_registry_holds_everything(base: type, known: dict) -> None:
    # These are made from others, and two of them take no weights: see test_composed.py.
    composed = {PreparedDistance, AfterAlignment, FeatureDistance}
    missing = concrete(base) - {kind for kind, *_ in known.values()} - composed
    assert not missing, f"add {missing} to tests/registry.py"
    for name, (kind, make, *_) in known.items():
        assert type(make()) is kind, name


# Wrong transforms: each breaks one law, and the check has to say which.


class ShiftedAtZero(Affine):
    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        inner = Affine().bind_map(points)
        return lambda params: inner(params) + 1e-6


class Dims(Affine):
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner = Affine().bind(height, width)
        return lambda params, image: 0.99 * inner(params, image)


class Clips(Affine):
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner = Affine().bind(height, width)
        return lambda params, image: jnp.clip(inner(params, image), -0.5, 1.1)


class ReadsElsewhere(Affine):
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner = Affine().bind(height, width)
        return lambda params, image: inner(-params, image)


class FeelsJit(Affine):
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner = Affine().bind(height, width)
        return lambda p, image: inner(0.9 * p if isinstance(p, jax.core.Tracer) else p, image)


class BindsOtherwise(Affine):
    def __call__(self, params: Params, image: Image) -> Image:
        return Affine()(0.9 * params, image)


@jax.custom_vjp
def halved_gradient(x: Array) -> Array:
    return x


halved_gradient.defvjp(lambda x: (x, None), lambda _, g: (0.5 * g,))


class WrongGradient(Affine):
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner = Affine().bind(height, width)
        # Right at zero and wrong elsewhere, or the law about zero would see it too.
        return lambda params, image: (
            inner(params, image + 0 * image)
            + (halved_gradient(jnp.sum(params**2)) - jax.lax.stop_gradient(jnp.sum(params**2)))
            * jnp.sum(image)
        )


class WrongImageGradient(Affine):
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner = Affine().bind(height, width)
        return lambda params, image: inner(params, halved_gradient(image))


class StuckAtZero(Affine):
    """relu(1 - |d|) weights: right values, and no gradient on the lattice."""

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner = Affine().bind(height, width)

        def apply(params: Params, image: Image) -> Image:
            still = jax.lax.stop_gradient(jnp.all(params == 0))
            return inner(jnp.where(still, jax.lax.stop_gradient(params), params), image)

        return apply


class NegativeSize(Affine):
    def deformation(self, params: Params) -> Float[Array, " terms"]:
        return -Affine().deformation(params)


class LinearSize(Affine):
    def deformation(self, params: Params) -> Float[Array, " terms"]:
        return jnp.sqrt(Affine().deformation(params) + 1e-30) - 1e-15


class SizeAtZero(Affine):
    def deformation(self, params: Params) -> Float[Array, " terms"]:
        return Affine().deformation(params) + 1e-3


class TwoSizes(Affine):
    def deformation(self, params: Params) -> Float[Array, " terms"]:
        return jnp.stack([params[0] ** 2, params[1] ** 2])


class WrongDeterminant(Affine):
    def jacobian_determinant(self, params: Params, points: Points) -> Float[Array, "*grid"]:
        return jnp.ones_like(points[0])


class WrongEmbedding(Affine):
    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        return jnp.eye(6)[::-1]


class ComposesBackwards(Affine):
    def compose(self, first: Params, second: Params) -> Params:
        return Affine().compose(second, first)


class WrongInverse(Affine):
    def inverse(self, params: Params) -> Params:
        return -params


class Remembers(Affine):
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner, first = Affine().bind(height, width), []

        def apply(params: Params, image: Image) -> Image:
            first.append(params)
            return inner(first[0], image)

        return apply


class WrongCorrelation(Affine):
    def bind_correlation(self, height: int, width: int) -> Correlation:
        return lambda grid, image, others: (
            -jnp.einsum("hwc,nhwc->n", image, others)[None].repeat(len(grid), 0)
        )


class HalfPrecision(Affine):
    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        inner = Affine().bind(height, width)
        return lambda params, image: inner(params, image).astype(jnp.float16)


WRONG = [
    (ShiftedAtZero, "zero is the identity map, exactly"),
    (Dims, "zero is the identity"),
    (HalfPrecision, "zero is the identity"),
    (Clips, "linear in the image"),
    (ReadsElsewhere, "reads the image where the map says"),
    (FeelsJit, "jit = eager"),
    (BindsOtherwise, "vmap = loop, and bind = call"),
    (Remembers, "what is bound remembers nothing"),
    (WrongGradient, "the gradient of params"),
    (WrongImageGradient, "the gradient of the image"),
    (StuckAtZero, "the gradient at zero is wrong"),
    (NegativeSize, "the deformation is not negative"),
    (LinearSize, "the deformation is quadratic"),
    (SizeAtZero, "the deformation is zero at zero"),
    (TwoSizes, "deformation has shape"),
    (WrongDeterminant, "the Jacobian determinant"),
    (WrongEmbedding, "the affine embedding"),
    (ComposesBackwards, "compose acts like"),
    (WrongInverse, "the inverse undoes"),
    (WrongCorrelation, "bind_correlation gives"),
]


@pytest.mark.parametrize(("kind", "law"), WRONG, ids=[kind.__name__ for kind, _ in WRONG])
def test_broken_law_is_noticed(kind: type[Affine], law: str, key: jax.Array) -> None:
    with pytest.raises(AssertionError, match=f"{kind.__name__}: {law}"):
        testing.check_transform(kind(), key=key)


class Backwards(Translation):
    """Correlations of the opposite moves."""

    def bind_correlation(self, height: int, width: int) -> Correlation:
        inner = Translation().bind_correlation(height, width)
        return lambda grid, image, others: inner(-grid, image, others)


class Still(Rotation):
    """Correlations of no move at all."""

    def bind_correlation(self, height: int, width: int) -> Correlation:
        inner = Rotation().bind_correlation(height, width)
        return lambda grid, image, others: inner(0 * grid, image, others)


@pytest.mark.parametrize("transform", [Backwards(), Still()], ids=["backwards", "still"])
def test_correlations_of_other_moves_are_noticed(transform, key: jax.Array) -> None:
    with pytest.raises(AssertionError, match="bind_correlation gives"):
        testing.check_transform(transform, key=key)


CALLED: list[Array] = []


class Wrong(AbstractDistance):
    """A distance that breaks one law."""

    fault: str = eqx.field(static=True)

    def __call__(self, sample: Image, prototype: Image, weight: Array | None = None) -> Array:
        plain = SquaredEuclidean()(sample, prototype, weight)
        match self.fault:
            case "a distance is one number":
                return plain[None]
            case "a distance is not negative":
                return plain * jnp.sign(jnp.sum(sample - prototype))
            case "zero at equality":
                return plain + 1e-3
            case "the gradient at equality is finite":
                return jnp.sqrt(plain)
            case "weights of one change nothing":
                return plain if weight is None else 2.0 * plain
            case "pixels of weight zero do not count":
                return SquaredEuclidean()(sample, prototype)
            case "calls remember nothing" if not isinstance(plain, jax.core.Tracer):
                CALLED.append(prototype)
                return SquaredEuclidean()(sample, CALLED[0])
            case "calls remember nothing":
                return plain
            case "jit = eager":
                return plain * (1.0 if isinstance(plain, jax.core.Tracer) else 2.0)
            case _:
                return halved_gradient(plain)


@pytest.mark.parametrize(
    "fault",
    [
        "a distance is one number",
        "a distance is not negative",
        "zero at equality",
        "the gradient at equality is finite",
        "the gradient",
        "weights of one change nothing",
        "pixels of weight zero do not count",
        "jit = eager",
        "calls remember nothing",
    ],
)
def test_broken_law_of_a_distance_is_noticed(fault: str, key: jax.Array) -> None:
    with pytest.raises(AssertionError, match=f"Wrong: {fault}"):
        testing.check_distance(Wrong(fault), key=key)


def test_a_small_offset_is_noticed_on_larger_images() -> None:
    for key in jax.random.split(jax.random.key(0), 3):
        with pytest.raises(AssertionError, match="Wrong: zero at equality"):
            testing.check_distance(
                Wrong("zero at equality"),
                key=key,
                draw=lambda k: jax.random.uniform(k, (28, 28, 3)),
            )


def test_wrong_batched_distance_is_noticed(key: jax.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = SquaredEuclidean.to_all
    monkeypatch.setattr(SquaredEuclidean, "to_all", lambda *args: 2.0 * twice(*args))
    with pytest.raises(AssertionError, match="to_all = loop"):
        testing.check_distance(SquaredEuclidean(), key=key)


def test_missing_invariance_is_noticed(key: jax.Array) -> None:
    with pytest.raises(AssertionError, match="made it more distant"):
        testing.check_invariance(TransformedDistance(Identity()), NoAlignment(), key=key)


# What Hypothesis draws.

REFLECTING, SPLINE = Affine("reflect"), ThinPlateSpline((2, 3))


@hypothesis.given(image=testing.images(), params=testing.params(REFLECTING))
def test_reflected_images_gain_no_new_intensities(image: Array, params: Array) -> None:
    moved = eqx.filter_jit(REFLECTING)(params, image)
    assert moved.shape == image.shape
    assert moved.dtype == params.dtype == jnp.float32
    result, given, size = np.asarray(moved), np.asarray(image), np.abs(np.asarray(params)).max()
    assert size <= 0.2 + 1e-6
    assert given.min() - 1e-5 <= result.min() <= result.max() <= given.max() + 1e-5


@eqx.filter_jit
def sampling_matrix(params: Array, height: int, width: int) -> Array:
    """A(ν), its columns read off the pixels' own images (ST K-means, App. A.5)."""
    pixels = jnp.eye(height * width).reshape(height, width, -1)
    at = SPLINE.warp(params, pixel_grid(height, width))
    return bilinear_sample(pixels, at).reshape(height * width, -1)


@hypothesis.given(image=testing.images(), params=testing.params(SPLINE, 0.5))
def test_sampling_is_a_matrix(image: Array, params: Array) -> None:
    height, width, channels = image.shape
    moved = eqx.filter_jit(SPLINE)(params, image)
    matrix = np.asarray(sampling_matrix(params, height, width))
    product = matrix @ np.asarray(image).reshape(-1, channels)
    np.testing.assert_allclose(np.asarray(moved).reshape(-1, channels), product, atol=2e-5)


def test_laws_of_distances_hold_in_any_unit(key: jax.Array) -> None:
    class Euclidean(AbstractDistance):
        def __call__(self, sample, prototype, weight=None):
            return jnp.sqrt(jnp.sum((sample - prototype) ** 2) + 1e-30)

    check_metric(Euclidean(), key=key, draw=lambda k: 1e-4 * jax.random.normal(k, (5,)))


@pytest.mark.parametrize("scale", [1.0, 1e-5])
def test_a_wrong_slope_is_noticed_in_any_unit(scale: float, key: jax.Array) -> None:
    @jax.custom_jvp
    def squared(x):
        return scale * jnp.sum(x**2)

    squared.defjvp(
        lambda primals, tangents: (
            squared(*primals),
            10.0 * scale * jnp.sum(primals[0] * tangents[0]),
        )
    )

    class Steep(AbstractDistance):
        def __call__(self, sample, prototype, weight=None):
            return squared(sample - prototype)

    with pytest.raises(AssertionError, match="the gradient"):
        check_distance(Steep(), key=key, draw=lambda k: jax.random.normal(k, (5,)))


class Gain(AbstractTransform):
    """Brighter or darker, and no more than that."""

    @property
    def num_params(self) -> int:
        return 1

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        return lambda params, image: (1.0 + params[0]) * image


def test_a_transform_needs_params_and_a_map_alone(key: jax.Array) -> None:
    assert Gain().deformation_terms == ("gain",)
    testing.check_transform(Gain(), key=key)
    with pytest.raises(NotImplementedError, match="Gain does not say how it moves variances"):
        Gain().bind_variance(4, 4)
