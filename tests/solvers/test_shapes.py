"""What is driven by hand refuses what would only broadcast, in one line."""

import jax
import jax.numpy as jnp
import jaxtyping
import pytest
from jaxtyping import Array

from diffclust.alignment import InvariantDistance, NoAlignment
from diffclust.distances import AbstractDistance, FeatureDistance
from diffclust.energies import TransformedDistance, TransformedPrototype
from diffclust.parallel import Batch
from diffclust.prototypes import Clusters, Learned, MeanImages
from diffclust.solvers import (
    GradientEM,
    Lloyd,
    LloydPlan,
    LloydProblem,
    SplitMerge,
    Stopping,
    clusters_of,
)
from diffclust.transforms import Affine, Identity


class Manhattan(AbstractDistance):
    def __call__(self, sample: Array, prototype: Array, weight: Array | None = None) -> Array:
        return jnp.sum(jnp.abs(sample - prototype))


ENERGY = TransformedDistance(Identity(), Manhattan())
SAMPLES = Batch(jnp.ones((4, 6, 6, 1)), jnp.ones(4))
SMALL = Clusters(jnp.zeros((2, 1, 1, 1)), jnp.zeros((2, 0)))
REFUSED = r"the clusters are of samples of shapes \[\(1, 1, 1\)\], not \[\(6, 6, 1\)\]"


def test_a_step_of_lloyd_refuses_samples_of_another_shape() -> None:
    lloyd = Lloyd(ENERGY, NoAlignment(), MeanImages())
    memory = lloyd.init_memory(4, 2, jnp.dtype("float32"))
    with pytest.raises(ValueError, match=REFUSED):
        lloyd.step(lloyd.init(SMALL), SAMPLES, memory)


def test_a_gradient_step_refuses_samples_of_another_shape() -> None:
    solver = GradientEM(ENERGY, NoAlignment())
    state = solver.init(Learned(SMALL, None, None))
    with pytest.raises(ValueError, match=REFUSED):
        solver.step(state, SAMPLES, None, jnp.asarray(1e-3))


def test_an_invariant_distance_refuses_a_sample_of_another_shape() -> None:
    with pytest.raises(ValueError, match=REFUSED):
        InvariantDistance(ENERGY, NoAlignment())(SAMPLES.samples[0], SMALL.prototype[0])


def test_a_batch_has_a_weight_for_each_sample() -> None:
    with pytest.raises(ValueError, match=r"4 samples have 4 weights, not \(1,\)"):
        Batch(SAMPLES.samples, jnp.ones(1))


def test_lloyds_algorithm_refuses_what_moves_prototypes() -> None:
    # The hook that checks annotations under test may be there first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="TransformedPrototype"):
        Lloyd(TransformedPrototype(Affine()), NoAlignment())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("penalty", [(), (1.0, 2.0)])
def test_a_plan_has_a_weight_for_each_penalty(penalty: tuple[float, ...]) -> None:
    lloyd = Lloyd(TransformedDistance(Affine()), NoAlignment())
    plan = LloydPlan(2, penalty, 1, Stopping(5, 0.0), SplitMerge())
    with pytest.raises(ValueError, match="the energy has 1 penalties, one weight for each"):
        LloydProblem(lloyd, plan)
    with pytest.raises(ValueError, match="the energy has 1 penalties, one weight for each"):
        clusters_of(lloyd, SAMPLES.samples[:2], penalty)


def test_a_distance_between_features_of_a_function_is_taken() -> None:
    energy = TransformedDistance(Identity(), FeatureDistance(jnp.ravel))
    lloyd = Lloyd(energy, NoAlignment(), MeanImages())
    clusters = clusters_of(lloyd, jnp.zeros((2, 6, 6, 1)), ())

    def loss(samples: Array) -> Array:
        return jnp.sum(lloyd.assign(Learned(clusters, None, None), samples, None).energy[:, 0])

    value, slope = jax.jit(jax.value_and_grad(loss))(SAMPLES.samples)
    assert float(value) == 4 * 36
    assert jnp.allclose(slope, 2.0)
