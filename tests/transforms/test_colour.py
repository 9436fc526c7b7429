import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.transforms import Colour


def drawn(colour: Colour, channels: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(channels)
    params = 0.3 * rng.normal(size=colour.num_params)
    return params.astype(np.float32), rng.uniform(size=(4, 5, channels)).astype(np.float32)


@pytest.mark.parametrize(
    ("channels", "full", "count"), [(1, False, 2), (3, False, 6), (3, True, 12)]
)
def test_papers_numbers_of_params(channels: int, full: bool, count: int) -> None:
    assert Colour(channels, full=full).num_params == count


@pytest.mark.parametrize("channels", [1, 3])
def test_gains_come_before_shifts(channels: int) -> None:
    params, image = drawn(Colour(channels), channels)
    result = eqx.filter_jit(Colour(channels))(params, image)
    expected = (1 + params[:channels]) * image + params[channels:]
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_full_form_is_a_matrix_at_every_pixel() -> None:
    colour = Colour(3, full=True)
    params, image = drawn(colour, 3)
    result = np.asarray(eqx.filter_jit(colour)(params, image))
    matrix, shift = np.eye(3) + params[:9].reshape(3, 3), params[9:]
    for row in range(4):
        for column in range(5):
            expected = matrix @ image[row, column] + shift
            np.testing.assert_allclose(result[row, column], expected, atol=1e-6)


def test_full_form_holds_the_diagonal_one() -> None:
    params, image = drawn(Colour(3), 3)
    embedded = np.concatenate([np.diag(params[:3]).ravel(), params[3:]])
    result = eqx.filter_jit(Colour(3, full=True))(embedded, image)
    np.testing.assert_allclose(result, eqx.filter_jit(Colour(3))(params, image), atol=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_variances_are_those_of_the_transformed_image(full: bool) -> None:
    # Var(A X + b) = diag(A Σ Aᵀ), with A the transform's own Jacobian at a pixel.
    colour = Colour(3, full=full)
    params, variance = drawn(colour, 3)
    pixel = jnp.zeros((1, 1, 3))
    jacobian = jax.jacrev(lambda x: colour(jnp.asarray(params), x)[0, 0])(pixel)[:, 0, 0]
    jacobian = np.asarray(jacobian)
    result = np.asarray(eqx.filter_jit(colour.bind_variance(4, 5))(params, variance))
    for row in range(4):
        for column in range(5):
            covariance = jacobian @ np.diag(variance[row, column]) @ jacobian.T
            np.testing.assert_allclose(result[row, column], np.diag(covariance), atol=1e-6)


@pytest.mark.parametrize("full", [False, True])
def test_sizes_of_gain_and_shift(full: bool) -> None:
    colour = Colour(3, full=full)
    params = np.arange(colour.num_params, dtype=np.float32)
    gain, shift = colour.deformation(jnp.asarray(params))
    np.testing.assert_allclose(gain, (params[:-3] ** 2).sum())
    np.testing.assert_allclose(shift, (params[-3:] ** 2).sum())
    assert colour.deformation_terms == ("gain", "shift")


@pytest.mark.parametrize("full", [False, True])
def test_wrong_number_of_channels_is_refused(full: bool) -> None:
    colour, grey = Colour(3, full=full), jnp.zeros((4, 5, 1))
    params = jnp.zeros(colour.num_params)
    with pytest.raises(ValueError, match=r"num_channels=3.* image with 1 channels"):
        colour(params, grey)
    with pytest.raises(ValueError, match=r"num_channels=3.* image with 1 channels"):
        colour.bind_variance(4, 5)(params, grey)


def test_no_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="num_channels must be 1 or more, not 0"):
        Colour(0)


@pytest.mark.parametrize(("channels", "gradient"), [(1, False), (2, True)])
def test_deformation_is_the_mean_square_of_what_is_added(channels: int, gradient: bool) -> None:
    colour = Colour(channels, gradient=gradient)
    params = np.random.default_rng(3).normal(size=colour.num_params).astype(np.float32)
    gain, shift = colour.deformation(jnp.asarray(params))
    added = eqx.filter_jit(colour)(params, jnp.zeros((60, 80, channels)))
    np.testing.assert_allclose(shift, np.mean(np.sum(added**2, axis=2)), rtol=1e-3)
    np.testing.assert_allclose(gain, np.sum(params[:channels] ** 2), rtol=1e-6)
