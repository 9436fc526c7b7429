import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.distances import DiagonalGaussian, Gaussian, check_gaussians


def test_takes_what_is_fine():
    check_gaussians(DiagonalGaussian(jnp.zeros((3, 2)), jnp.ones((3, 2))))
    root = np.random.default_rng(0).normal(size=(5, 3, 3)).astype(np.float32)
    check_gaussians(Gaussian(jnp.zeros((5, 3)), jnp.asarray(root @ root.swapaxes(1, 2))))
    check_gaussians(Gaussian(jnp.zeros(2), jnp.eye(2)))


@pytest.mark.parametrize(
    "matrix",
    [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.0, np.nan]]],
    ids=["indefinite", "asymmetric", "nan"],
)
def test_names_the_covariance(matrix):
    covariance = np.tile(np.eye(2, dtype=np.float32), (4, 1, 1))
    covariance[2] = matrix
    with pytest.raises(ValueError, match=r"positive definite at index 2 \(1 in all\)"):
        check_gaussians(Gaussian(jnp.zeros((4, 2)), jnp.asarray(covariance)))


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan])
def test_names_the_variance(value):
    variance = np.ones((4, 2), np.float32)
    variance[3, 1] = value
    with pytest.raises(ValueError, match=r"not positive at index \(3, 1\)"):
        check_gaussians(DiagonalGaussian(jnp.zeros((4, 2)), jnp.asarray(variance)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_names_the_mean(value):
    mean = jnp.zeros((4, 2)).at[1, 1].set(value)
    for gaussians in (DiagonalGaussian(mean, mean + 1), Gaussian(mean, jnp.zeros((4, 2, 2)))):
        with pytest.raises(ValueError, match=r"mean that is not finite at index \(1, 1\)"):
            check_gaussians(gaussians)


def test_refuses_infinite_variances_and_covariances_of_another_shape():
    with pytest.raises(ValueError, match="infinite at index 1"):
        check_gaussians(DiagonalGaussian(jnp.zeros(2), jnp.asarray([1.0, np.inf])))
    several = Gaussian(jnp.zeros((3, 2)), jnp.tile(jnp.eye(2), (3, 1, 1)))
    with pytest.raises(ValueError, match=r"covariances of shape \(4, 2, 2\), not \(3, 2, 2\)"):
        check_gaussians(eqx.tree_at(lambda g: g.mean, several, jnp.zeros((4, 2))))
