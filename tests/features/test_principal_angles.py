import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import strategies

from diffclust.features import principal_angles


@hypothesis.given(seed=strategies.integers(0, 1000), swap=strategies.booleans())
def test_principal_angles_are_scipys(seed: int, swap: bool) -> None:
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(9, 4)).astype(np.float32)
    second = rng.normal(size=(9, 3)).astype(np.float32)
    # One angle small, one zero.
    second[:, 0] = first @ rng.normal(size=4).astype(np.float32)
    second[:, 1] = first[:, 1] + 1e-3 * second[:, 1]
    if swap:
        first, second = second, first
    result = principal_angles(jnp.asarray(first), jnp.asarray(second))
    expected = scipy.linalg.subspace_angles(first.astype(float), second.astype(float))[::-1]
    assert result.shape == (3,)
    np.testing.assert_allclose(result, expected, atol=3e-6)


@pytest.mark.parametrize("angle", [0.0, 1e-6, 1e-3, 0.5, 1.5, np.pi / 2])
def test_angles_of_planes_turned_by_a_known_angle(angle: float) -> None:
    # The cosine of 1e-3 has lost half its digits in single precision.
    first = np.eye(4, 2, dtype=np.float32)
    second = first.copy()
    second[:, 1] = [0.0, np.cos(angle), np.sin(angle), 0.0]
    result = np.asarray(principal_angles(jnp.asarray(first), jnp.asarray(second)))
    np.testing.assert_allclose(result, [0.0, angle], atol=1e-7, rtol=1e-5)
