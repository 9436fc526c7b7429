"""How transforms move the variances of a Gaussian prototype."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import testing
from diffclust.transforms import (
    AbstractTransform,
    Affine,
    Colour,
    Morphology,
    TimeWarp,
    bind_spatial_variance,
    compose,
)
from diffclust.types import Image, Params


@eqx.filter_jit
def moved(transform: AbstractTransform, params: jax.Array, variance: jax.Array) -> jax.Array:
    return transform.bind_variance(*variance.shape[:2])(params, variance)


@pytest.fixture(scope="module")
def variance() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(8, 8, 1)).astype(np.float32)


def test_variances_turn_with_the_image(variance: np.ndarray) -> None:
    quarter_turn = np.asarray([-1, -1, 1, -1, 0, 0], np.float32)
    result = moved(Affine(), quarter_turn, variance)
    np.testing.assert_allclose(result, np.rot90(variance), atol=1e-5)


def test_grey_gain_acts_squared_and_the_shift_not_at_all(variance: np.ndarray) -> None:
    result = moved(Colour(), np.asarray([-3.0, 0.7], np.float32), variance)
    np.testing.assert_allclose(result, 4 * variance, rtol=1e-6)


def test_morphology_leaves_variances_alone(variance: np.ndarray) -> None:
    params = np.random.default_rng(1).normal(size=51).astype(np.float32)
    np.testing.assert_array_equal(moved(Morphology(), params, variance), variance)


def test_composition_moves_variances_run_by_run(variance: np.ndarray) -> None:
    both = compose(Colour(), Affine(), Morphology(3), Affine())
    turn = [-1, -1, 1, -1, 0, 0]
    params = np.asarray([1.0, 0.3, *turn, *np.ones(11), *turn], np.float32)
    result = moved(both, params, variance)
    np.testing.assert_allclose(result, 4 * np.rot90(variance, 2), atol=1e-4)


def test_spatial_parts_alone_move_variances(variance: np.ndarray) -> None:
    both = compose(Colour(), Affine(), Morphology(3), Affine())
    turn = [-1.0, -1.0, 1.0, -1.0, 0.0, 0.0]
    params, given = jnp.asarray([1.0, 0.3, *turn, *[1.0] * 11, *turn]), jnp.asarray(variance)
    result = jax.jit(bind_spatial_variance(both, 8, 8))(params, given)
    np.testing.assert_allclose(result, np.rot90(variance, 2), atol=1e-4)
    colour = bind_spatial_variance(Colour(), 8, 8)(params[:2], given)
    np.testing.assert_array_equal(colour, variance)


# Wrong rules: each breaks one law, and the check has to say which.

Rule = Callable[[Params, Image], Image]


class Ruled(AbstractTransform):
    """A gain of one param, with any rule for the variance."""

    rule: Rule = eqx.field(static=True)

    @property
    def num_params(self) -> int:
        return 1

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        return ("gain",)

    def deformation(self, params: Params) -> jax.Array:
        return params**2

    def bind(self, height: int, width: int) -> Rule:
        return lambda params, image: image * (1.0 + params[0])

    def bind_variance(self, height: int, width: int) -> Rule:
        return self.rule


RULES: dict[str, Rule] = {
    "variances are unchanged at zero": lambda params, v: 0.99 * v,
    "variances do not become negative": lambda params, v: v * (1.0 - 100.0 * params[0] ** 2),
    "linear in the variances": lambda params, v: v + params[0] ** 2,
}


@pytest.mark.parametrize("law", RULES)
def test_broken_law_is_noticed(law: str, key: jax.Array) -> None:
    with pytest.raises(AssertionError, match=f"Ruled: {law}"):
        testing.check_transform(Ruled(RULES[law]), key=key, scale=1.0)


def test_right_rule_passes(key: jax.Array) -> None:
    with jax.enable_x64(True):
        testing.check_transform(Ruled(lambda params, v: v * (1.0 + params[0]) ** 2), key=key)
    assert jnp.zeros(()).dtype == jnp.float32


def test_warped_time_scales_variances_by_the_square_of_what_scales_values() -> None:
    warp, params = TimeWarp(4, preserve_norm=True), jnp.asarray([0.5, -0.3, 0.2, 0.9])
    ones = jnp.ones((24, 1))
    values = eqx.filter_jit(warp)(params, ones)
    assert float(jnp.ptp(values)) > 0.3
    np.testing.assert_allclose(moved(warp, params, ones), values**2, rtol=1e-5)
