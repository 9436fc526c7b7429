import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.alignment import Descent, InvariantDistance, NoAlignment, Stage
from diffclust.energies import TransformedDistance
from diffclust.sampling import pixel_grid
from diffclust.transforms import Affine, Identity


def blob(x, y, height=10, width=8):
    points = pixel_grid(height, width)
    return jnp.exp(-8.0 * ((points[0] - x) ** 2 + (points[1] - y) ** 2))[..., None]


@pytest.mark.slow
def test_a_shifted_blob_is_near_and_without_alignment_it_is_not():
    plain = InvariantDistance(TransformedDistance(Identity()), NoAlignment())
    seeing = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(15),)))
    one, other = blob(0.0, 0.0), blob(0.25, -0.2)
    expected = float(jnp.sum((one - other) ** 2))
    np.testing.assert_allclose(float(plain(one, other)), expected, rtol=1e-5)
    assert float(seeing(one, other)) < 0.01 * expected


@pytest.mark.slow
def test_a_penalty_makes_a_move_dear():
    distance = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(15),)))
    one, other = blob(0.0, 0.0), blob(0.25, -0.2)
    energies = [float(distance(one, other, jnp.asarray([w]))) for w in (0.0, 1.0, 100.0)]
    assert energies[0] < energies[1] < energies[2]
