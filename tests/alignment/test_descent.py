import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import optimistix
import pytest

from diffclust import testing
from diffclust.alignment import (
    AbstractMinimiser,
    Alignment,
    Descent,
    InvariantDistance,
    NoAlignment,
    OptaxMinimiser,
    OptimistixMinimiser,
    PreconditionedLBFGS,
    Prediction,
    Stage,
)
from diffclust.alignment.base import or_incumbent
from diffclust.energies import TransformedDistance
from diffclust.prototypes import Clusters
from diffclust.transforms import Affine, Identity, ThinPlateSpline, compose
from tests.registry import QUICK, Gain

SPLINE = ThinPlateSpline((2, 3))
AFFINE_ENERGY, SPLINE_ENERGY = TransformedDistance(Affine()), TransformedDistance(SPLINE)
SHAPE = (12, 16, 2)
"""Not square, and in colour."""


@pytest.fixture(scope="module")
def prototypes() -> np.ndarray:
    keys = jax.random.split(jax.random.key(1), 4)
    return np.stack([testing.smooth_image(k, *SHAPE, sigma=0.3) for k in keys])


def clusters(prototypes: np.ndarray, energy: TransformedDistance, penalty: float = 0.0) -> Clusters:
    weights = np.full((len(prototypes), energy.num_penalties), penalty, np.float32)
    return Clusters(jnp.asarray(prototypes), jnp.asarray(weights))


def nowhere(energy: TransformedDistance, places: int = 1) -> Alignment:
    return Alignment(
        jnp.full((places,), -1, dtype=jnp.int32),
        jnp.zeros((places, energy.num_params)),
        jnp.full((places,), jnp.inf),
    )


@eqx.filter_jit
def align(descent, energy, sample, among, start) -> Alignment:
    prepared = descent.prepare(energy, among, None)
    return descent.align(energy, jnp.asarray(sample), among, None, start, prepared)


@eqx.filter_jit
def energy_at(energy, params, sample, among, index) -> jax.Array:
    return energy.bind(jnp.asarray(sample))(params, jnp.asarray(sample), among.take(index))


def draw(transform: Affine | ThinPlateSpline, scale: float) -> np.ndarray:
    size = transform.num_params
    return (scale * np.random.default_rng(3).uniform(-1, 1, size)).astype(np.float32)


def warped(transform: Affine | ThinPlateSpline, image: np.ndarray, scale: float) -> np.ndarray:
    return np.asarray(eqx.filter_jit(transform)(draw(transform, scale), image))


def check_affine(descent: Descent, prototypes: np.ndarray) -> None:
    sample, among = warped(Affine(), prototypes[1], 0.15), clusters(prototypes, AFFINE_ENERGY)
    result = align(descent, AFFINE_ENERGY, sample, among, nowhere(AFFINE_ENERGY))
    assert int(result.cluster[0]) == 1
    # What moving there and back costs is what interpolation loses: nothing better is known.
    back = Affine().inverse(jnp.asarray(draw(Affine(), 0.15)))
    known = float(energy_at(AFFINE_ENERGY, back, sample, among, jnp.asarray(1)))
    before = float(AFFINE_ENERGY.unaligned(jnp.asarray(sample), among)[1])
    assert known < 0.2 * before
    assert float(result.energy[0]) <= 1.01 * known


def test_known_affine_map_is_found(prototypes: np.ndarray) -> None:
    check_affine(Descent((Stage(12),)), prototypes)


def test_optax_minimiser_finds_it_too(prototypes: np.ndarray) -> None:
    check_affine(Descent((Stage(80),), minimiser=OptaxMinimiser(optax.adam(2e-2))), prototypes)


def test_optimistix_minimiser_finds_it_too(prototypes: np.ndarray) -> None:
    minimiser = OptimistixMinimiser(optimistix.BFGS(rtol=1e-5, atol=1e-7))
    check_affine(Descent((Stage(150),), minimiser=minimiser), prototypes)


@pytest.mark.slow
def test_known_spline_is_found_and_warm_starts_never_lose(prototypes: np.ndarray) -> None:
    sample, among = warped(SPLINE, prototypes[1], 0.2), clusters(prototypes, SPLINE_ENERGY)
    before = np.asarray(SPLINE_ENERGY.unaligned(jnp.asarray(sample), among))
    result = align(QUICK, SPLINE_ENERGY, sample, among, nowhere(SPLINE_ENERGY))
    energies = [float(result.energy[0])]
    for _ in range(5):
        start = jax.tree.map(lambda leaf: leaf[:1], result)
        result = align(QUICK, SPLINE_ENERGY, sample, among, start)
        energies.append(float(result.energy[0]))
    assert int(result.cluster[0]) == 1
    # Each goes on where the last one ended: coarse stages alone would begin anew.
    assert np.all(np.diff(energies) <= 1e-6)
    assert energies[-1] < 0.95 * energies[0]
    assert energies[-1] < 0.1 * before[1]
    aligned = eqx.filter_jit(SPLINE_ENERGY.aligned)(result.params[0], sample)
    left = np.sum((np.asarray(aligned) - prototypes[1]) ** 2)
    np.testing.assert_allclose(result.energy[0], left, rtol=1e-3, atol=1e-6)
    assert float(result.margin) == pytest.approx(float(result.energy[1] - result.energy[0]))


@pytest.mark.slow
def test_energies_are_those_of_the_params_and_ascend(prototypes: np.ndarray) -> None:
    sample, among = warped(SPLINE, prototypes[2], 0.2), clusters(prototypes, SPLINE_ENERGY, 0.1)
    result = align(QUICK, SPLINE_ENERGY, sample, among, nowhere(SPLINE_ENERGY))
    assert result.cluster.shape == (3,)
    assert len(set(np.asarray(result.cluster).tolist())) == 3
    assert np.all(np.diff(result.energy) >= 0)
    for cluster, params, value in zip(result.cluster, result.params, result.energy, strict=True):
        again = energy_at(SPLINE_ENERGY, params, sample, among, cluster)
        np.testing.assert_allclose(value, again, rtol=1e-5)


def test_incumbent_cluster_stays_a_candidate_however_bad(prototypes: np.ndarray) -> None:
    energy = SPLINE_ENERGY
    # Far brighter than the sample: no alignment brings it among the best three.
    among = clusters(np.stack([*prototypes[:3], 5 * prototypes[3] + 3]), energy)
    cold = align(QUICK, energy, prototypes[0], among, nowhere(energy))
    assert 3 not in np.asarray(cold.cluster)
    start = eqx.tree_at(lambda s: s.cluster, nowhere(energy), jnp.asarray([3], dtype=jnp.int32))
    warm = align(QUICK, energy, prototypes[0], among, start)
    assert int(warm.cluster[-1]) == 3
    assert int(warm.cluster[0]) == 0
    still = energy.unaligned(jnp.asarray(prototypes[0]), among)[3]
    assert float(warm.energy[-1]) <= float(still) * (1 + 1e-6)


def test_never_worse_than_no_alignment(prototypes: np.ndarray) -> None:
    among = clusters(prototypes, AFFINE_ENERGY, 1e4)  # so stiff that any move costs too much
    everywhere = Descent((Stage(2),), candidates=None)
    result = align(everywhere, AFFINE_ENERGY, prototypes[0], among, nowhere(AFFINE_ENERGY))
    still = np.asarray(AFFINE_ENERGY.unaligned(jnp.asarray(prototypes[0]), among))
    assert np.all(np.asarray(result.energy) <= still[np.asarray(result.cluster)] + 1e-3)


def test_candidates(prototypes: np.ndarray) -> None:
    assert [Descent(candidates=c).num_candidates(5) for c in (None, 2, 9)] == [5, 2, 5]
    everywhere = Descent((Stage(2),), candidates=None)
    among = clusters(prototypes, AFFINE_ENERGY)
    result = align(everywhere, AFFINE_ENERGY, prototypes[1], among, nowhere(AFFINE_ENERGY))
    assert sorted(np.asarray(result.cluster).tolist()) == [0, 1, 2, 3]
    one = among.take(jnp.arange(1))
    single = align(NoAlignment(), AFFINE_ENERGY, prototypes[1], one, nowhere(AFFINE_ENERGY))
    assert single.cluster.shape == (1,)
    assert float(single.margin) == np.inf


def test_penalty_keeps_warps_small(prototypes: np.ndarray) -> None:
    sample = warped(Affine(), prototypes[1], 0.15)
    sizes = []
    for penalty in (0.0, 10.0, 1000.0):
        among = clusters(prototypes, AFFINE_ENERGY, penalty)
        result = align(Descent((Stage(12),)), AFFINE_ENERGY, sample, among, nowhere(AFFINE_ENERGY))
        sizes.append(float(AFFINE_ENERGY.penalties(result.params[0])[0]))
    assert sizes[0] > sizes[1] > 10 * sizes[2] >= 0


@pytest.mark.slow
def test_transform_without_affine_maps_is_searched_whole(prototypes: np.ndarray) -> None:
    energy = TransformedDistance(compose(Affine(), Gain(2)))
    assert energy.affine_embedding is None
    sample = prototypes[0] * np.asarray([0.8, 1.3], np.float32)
    # Only in that case may a stage for affine maps move the rest of the params.
    descent = Descent((Stage(12, affine=True),))
    result = align(descent, energy, sample, clusters(prototypes, energy), nowhere(energy))
    assert int(result.cluster[0]) == 0
    np.testing.assert_allclose(result.params[0, 6:], [0.25, -0.2308], atol=0.02)


def test_minimisers_that_climb_are_refused_and_the_former_name_warns() -> None:
    for optimizer in (optax.scale_by_adam(), optax.sgd(-0.1), optax.identity()):
        with pytest.raises(ValueError, match="the optimizer climbs"):
            OptaxMinimiser(optimizer)
    with pytest.warns(DeprecationWarning, match="optimiser= is now optimizer="):
        former = OptaxMinimiser(optimiser=optax.sgd(0.9))
    assert former.minimise(lambda x: jnp.sum(x**2), jnp.ones(2), None, steps=3)[1] < 2.0


MINIMISERS = {
    "lbfgs": PreconditionedLBFGS(),
    "adam": OptaxMinimiser(optax.adam(0.1)),
    "overshooting": OptaxMinimiser(optax.sgd(0.9)),
    "line-search": OptaxMinimiser(optax.lbfgs()),
    "optimistix": OptimistixMinimiser(optimistix.BFGS(rtol=1e-6, atol=1e-6)),
}


def valley(x: jax.Array) -> jax.Array:
    """Rosenbrock's function, of which no step is sure to descend."""
    return 10 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


@eqx.filter_jit
def minimise(minimiser: AbstractMinimiser, start: jax.Array, steps: int) -> tuple:
    return minimiser.minimise(valley, start, None, steps=steps)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in ("line-search", "optimistix") else n
        for n in MINIMISERS
    ],
)
def test_more_steps_are_never_worse(name: str) -> None:
    start = jnp.asarray([-1.0, 1.5])
    values = [float(valley(start))]
    for steps in (1, 3, 8, 40):
        point, value = minimise(MINIMISERS[name], start, steps)
        np.testing.assert_allclose(value, valley(point), rtol=1e-5, atol=1e-9)
        values.append(float(value))
    assert np.all(np.diff(values) <= 0)
    if name == "lbfgs":
        assert values[-1] < 1e-3


def test_preconditioner_solves_a_quadratic_in_one_step() -> None:
    hessian = jnp.asarray([[100.0, 3.0], [3.0, 0.5]])

    def quadratic(x: jax.Array) -> jax.Array:
        return 0.5 * x @ hessian @ x

    point, value = PreconditionedLBFGS().minimise(
        quadratic, jnp.asarray([1.0, -2.0]), jnp.linalg.inv(hessian), steps=1
    )
    np.testing.assert_allclose(point, 0.0, atol=1e-4)
    assert float(value) < 1e-6


def test_without_params_there_is_nothing_to_descend() -> None:
    sample, other = jnp.ones((4, 5, 1)), jnp.zeros((4, 5, 1))
    distance = InvariantDistance(TransformedDistance(Identity()), Descent((Stage(3),)))
    np.testing.assert_allclose(distance(sample, other), 20.0)


@pytest.mark.parametrize("exponent", [-60, 40, 60])
def test_the_unit_of_a_function_does_not_matter(exponent: int) -> None:
    start, minimiser = jnp.asarray([-1.0, 1.5]), PreconditionedLBFGS()
    unit = jnp.ldexp(jnp.ones(()), exponent)
    point, value = eqx.filter_jit(minimiser.minimise)(
        lambda x: unit * valley(x), start, jnp.eye(2) / unit, steps=20
    )
    np.testing.assert_allclose(point, minimise(minimiser, start, 20)[0], rtol=1e-4)
    assert float(value / unit) < 0.1


@pytest.mark.parametrize("name", MINIMISERS)
def test_minimiser_does_not_hide_nan(name: str) -> None:
    start = jnp.asarray([0.2, -0.1])
    _, value = MINIMISERS[name].minimise(lambda x: jnp.nan * jnp.sum(x), start, None, steps=3)
    assert np.isnan(value)


@pytest.mark.parametrize("name", MINIMISERS)
def test_minimiser_steps_back_from_nan(name: str) -> None:
    def walled(x: jax.Array) -> jax.Array:
        return jnp.where(x[0] < 0.5, (x[0] - 1) ** 2, jnp.nan)

    start = jnp.asarray([0.3])
    point, value = MINIMISERS[name].minimise(walled, start, None, steps=12)
    assert float(value) <= float(walled(start))
    assert float(point[0]) < 0.5


def test_no_alignment_takes_the_nearest(prototypes: np.ndarray) -> None:
    energy = TransformedDistance(Affine())
    result = align(
        NoAlignment(), energy, prototypes[2], clusters(prototypes, energy), nowhere(energy)
    )
    distances = ((prototypes - prototypes[2]) ** 2).sum((1, 2, 3))
    np.testing.assert_array_equal(result.cluster, np.argsort(distances)[:2])
    np.testing.assert_allclose(result.energy, np.sort(distances)[:2], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(result.params, 0.0)


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="blur 0"):
        Descent((Stage(3, blur=0.1),))
    with pytest.raises(ValueError, match="blur 0"):
        Descent(())
    with pytest.raises(ValueError, match="candidates must be at least 2"):
        Descent(candidates=1)
    for aligner in (NoAlignment, Prediction):
        with pytest.raises(ValueError, match="candidates must be at least 1"):
            aligner(candidates=0)
    with pytest.raises(ValueError, match="transforms must be at least 1"):
        Prediction(transforms=0)
    with pytest.raises(ValueError, match="damping must be at least 0"):
        Descent(damping=-0.1)
    with pytest.raises(ValueError, match="steps must be at least 0"):
        Stage(-1)
    with pytest.raises(ValueError, match="blur must be at least 0"):
        Stage(1, blur=-0.5)
    # The jaxtyping hook sees it first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="stages"):
        Descent(Stage(3))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("count", [2, None])
def test_no_cluster_is_taken_twice_where_energies_are_infinite(count: int | None) -> None:
    energy = TransformedDistance(Identity())
    prototypes = np.array([0.1, 1e30, 1e30], np.float32)[:, None, None, None]
    sample = np.zeros((1, 1, 1), np.float32)
    start = nowhere(energy)
    result = align(
        NoAlignment(candidates=count), energy, sample, clusters(prototypes, energy), start
    )
    np.testing.assert_array_equal(result.cluster, [0, 1, 2][:count])
    np.testing.assert_allclose(result.energy, [0.01, np.inf, np.inf][:count], rtol=1e-6)


def test_every_candidate_keeps_the_better_of_new_and_remembered_params() -> None:
    energy, sample = TransformedDistance(Gain(1)), jnp.ones((1, 1, 1))
    among = Clusters(jnp.full((3, 1, 1, 1), 2.0), jnp.zeros((3, 1)))
    params = jnp.asarray([[0.5], [0.5], [0.5]])
    start = Alignment(jnp.asarray([2, 0]), jnp.asarray([[0.1], [0.9]]), jnp.zeros(2))
    kept = or_incumbent(energy, sample, among, jnp.arange(3), params, start)
    np.testing.assert_allclose(kept, [[0.9], [0.5], [0.5]])
