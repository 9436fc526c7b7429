"""The Fisher–Rao distances against closed forms, integrated geodesics and each other."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from diffclust.distances import (
    DiagonalGaussian,
    Gaussian,
    diagonal_fisher_rao,
    diagonalised_fisher_rao,
    fisher_rao,
    fisher_rao_exp,
    fisher_rao_geodesic,
    fisher_rao_log,
    isotropic_fisher_rao,
    same_mean_fisher_rao,
    squared_fisher_rao,
    wasserstein,
)
from diffclust.distances._planar import squared_planar
from diffclust.distances._spatial import squared_spatial
from tests.distances.gaussians import check_gradient, diagonal, full, gaussian, mapped
from tests.distances.shooting import shooting_distance

SEEDS = st.integers(0, 10_000)
EXACT = jax.jit(fisher_rao, static_argnames="scale")
DIAGONAL = jax.jit(diagonal_fisher_rao)
DIAGONALISED = jax.jit(diagonalised_fisher_rao, static_argnames="scale")
SAME_MEAN = jax.jit(same_mean_fisher_rao)


@pytest.fixture(autouse=True, scope="module")
def _double():
    with jax.enable_x64(True):
        yield


def stacked(gaussians):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *gaussians)


def printed_equation_7(p, q):
    """Eq. 7 as the paper prints it."""
    s, t = np.sqrt(p.variance), np.sqrt(q.variance)
    x = np.asarray(p.mean - q.mean) / np.sqrt(2)
    near, far = np.hypot(x, s - t), np.hypot(x, s + t)
    return np.sqrt(2 * np.sum(np.log((far + near) / (far - near)) ** 2))


@given(SEEDS)
def test_diagonal_is_equation_7(seed):
    p, q = diagonal(seed, apart=3.0), diagonal(seed + 1)
    assert float(DIAGONAL(p, q)) == pytest.approx(printed_equation_7(p, q), rel=1e-10)


@given(SEEDS)
def test_diagonal_is_a_metric_that_diagonal_maps_keep(seed):
    p, q, r = (diagonal(seed + i) for i in range(3))
    pq = float(DIAGONAL(p, q))
    assert pq == pytest.approx(float(DIAGONAL(q, p)), rel=1e-12)
    assert 0.0 < pq <= float(DIAGONAL(p, r)) + float(DIAGONAL(r, q)) + 1e-12
    scale, shift = jnp.asarray([-2.0, 0.3]), jnp.asarray([5.0, -1.0])
    moved = [DiagonalGaussian(scale * x.mean + shift, scale**2 * x.variance) for x in (p, q)]
    assert float(DIAGONAL(*moved)) == pytest.approx(pq, rel=1e-10)


@pytest.mark.slow
def test_float32_is_exact_close_by_and_finite_far_away():
    with jax.enable_x64(False):
        p = DiagonalGaussian(jnp.zeros(2), jnp.asarray([1e-3, 1.0]))
        for move in (1e-4, 1e6, 1e12):
            q = DiagonalGaussian(jnp.asarray([move, 0.0]), p.variance)
            exact = 2 * np.sqrt(2) * np.arcsinh(np.float64(np.float32(move)) / np.sqrt(8e-3))
            assert float(diagonal_fisher_rao(p, q)) == pytest.approx(exact, rel=2e-6)
            slope = jax.grad(diagonal_fisher_rao)(p, q)
            chex.assert_tree_all_finite(slope)
        for distance, at in ((diagonal_fisher_rao, p), (fisher_rao, gaussian(0))):
            slope = jax.grad(distance)(at, at)
            assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(slope))
            assert distance(at, at) == 0.0


def test_exact_is_symmetric_in_single_precision_for_narrow_gaussians():
    with jax.enable_x64(False):
        wide = Gaussian(jnp.zeros(3), jnp.eye(3))
        for variance in (1e-4, 1e-7, 1e-9):
            narrow = Gaussian(jnp.zeros(3), jnp.diag(jnp.asarray([1.0, 1.0, variance])))
            expected = np.sqrt(0.5) * abs(np.log(variance))
            for pair in ((wide, narrow), (narrow, wide)):
                assert float(EXACT(*pair)) == pytest.approx(expected, rel=1e-5)
                assert float(DIAGONALISED(*pair)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("scale", [0.5, 0.2])
def test_round_distance_is_the_length_of_its_geodesic(scale):
    # A half circle of (x/√(4Kd), s) about a point of the boundary, its length integrated.
    dims, centre, radius, a, b = 3, 0.2, 2.0, 0.4, 2.5
    unit = np.sqrt(4 * scale * dims)

    def at(angle):
        mean = np.zeros(dims)
        mean[1] = unit * (centre + radius * np.cos(angle))
        return DiagonalGaussian(jnp.asarray(mean), jnp.asarray((radius * np.sin(angle)) ** 2))

    def speed(angle):
        s, ds = radius * np.sin(angle), radius * np.cos(angle)
        dm = -unit * radius * np.sin(angle)
        # tr (Σ⁻¹dΣ)² of s²I is d (2 ds/s)².
        return np.sqrt(scale * dims * (2 * ds / s) ** 2 + dm**2 / s**2)

    length = scipy.integrate.quad(speed, a, b, epsabs=1e-12)[0]
    assert float(isotropic_fisher_rao(at(a), at(b), scale=scale)) == pytest.approx(
        length, rel=1e-10
    )


@given(SEEDS)
def test_same_mean_is_that_of_generalised_eigenvalues(seed):
    p, q = gaussian(seed, 3), gaussian(seed + 1, 3)
    values = scipy.linalg.eigvalsh(q.covariance, p.covariance)
    expected = np.sqrt(0.5 * np.sum(np.log(values) ** 2))
    result = float(SAME_MEAN(p, q))
    assert result == pytest.approx(expected, rel=1e-10)
    together = Gaussian(p.mean, q.covariance)
    assert float(EXACT(p, together)) == pytest.approx(expected, rel=1e-10)
    assert result <= float(EXACT(p, q)) + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exact_is_shooting_in_the_plane(seed):
    p, q = gaussian(seed), gaussian(seed + 50)
    assert float(EXACT(p, q)) == pytest.approx(shooting_distance(p, q), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [3, 4])
def test_exact_is_shooting_in_space(dims):
    p, q = gaussian(dims, dims), gaussian(dims + 9, dims)
    assert float(EXACT(p, q)) == pytest.approx(shooting_distance(p, q), rel=1e-9)


def test_exact_is_the_closed_form_in_one_dimension():
    p, q = diagonal(0, 1), diagonal(1, 1)
    expected = printed_equation_7(p, q)
    assert float(EXACT(full(p), full(q))) == pytest.approx(expected, rel=1e-12)
    assert float(jnp.sqrt(squared_spatial(full(p), full(q)))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [1e-3, 1.0, 30.0])
def test_both_constructions_agree_in_the_plane(apart):
    p = stacked([gaussian(s, apart=apart, floor=0.05) for s in range(40)])
    q = stacked([gaussian(s, apart=apart, floor=0.05) for s in range(100, 140)])
    planar, spatial = (
        jax.jit(jax.vmap(jax.value_and_grad(f)))(p, q) for f in (squared_planar, squared_spatial)
    )
    np.testing.assert_allclose(planar[0], spatial[0], rtol=1e-8)
    np.testing.assert_allclose(planar[1].mean, spatial[1].mean, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_far_pairs_have_their_shortest_geodesic():
    # Found among random pairs. In the first, plain Newton or secant steps go astray; the second has
    # two minima over w, of which a bracketing search alone finds the longer, of 264.36.
    pairs = {
        93.743334: (
            ([9.62486074, 13.75342321], [[4.65652015, 2.57500568], [2.57500568, 1.43816438]]),
            ([21.75207299, -1.76181642], [[34.8858679, -68.4111507], [-68.4111507, 134.20288]]),
        ),
        256.67138369: (
            (
                [17.974980576329408, -14.269761423043807],
                [[7.38148480968429, -0.2785610652863853], [-0.2785610652863853, 0.02853108565875]],
            ),
            (
                [19.220623274781037, 62.92954860826848],
                [[13.342106640555004, 23.96648751096763], [23.96648751096763, 43.0934131837004]],
            ),
        ),
    }
    for expected, pair in pairs.items():
        p, q = (Gaussian(jnp.asarray(mean), jnp.asarray(c)) for mean, c in pair)
        for first, second in ((p, q), (q, p)):
            assert float(squared_planar(first, second)) == pytest.approx(expected, rel=1e-5)
    p, q = (Gaussian(jnp.asarray(mean), jnp.asarray(c)) for mean, c in pairs[93.743334])
    assert float(squared_spatial(p, q)) == pytest.approx(93.743334, rel=1e-5)


@given(SEEDS)
def test_exact_is_kept_by_affine_maps_and_is_a_metric(seed):
    rng = np.random.default_rng(seed)
    p, q, r = (gaussian(seed + i) for i in range(3))
    matrix, shift = rng.normal(size=(2, 2)) + 2 * np.eye(2), rng.normal(size=2)
    distance = float(EXACT(p, q))
    moved = float(EXACT(mapped(p, matrix, shift), mapped(q, matrix, shift)))
    assert moved == pytest.approx(distance, rel=1e-6)
    assert float(EXACT(q, p)) == pytest.approx(distance, rel=1e-10)
    assert distance <= float(EXACT(p, r)) + float(EXACT(r, q)) + 1e-10
    assert distance <= float(DIAGONALISED(p, q)) + 1e-10


@pytest.mark.slow
@given(SEEDS, st.sampled_from([0.5, 0.1, 2.0]))
def test_exact_is_no_longer_than_within_the_diagonal_ones(seed, scale):
    p, q = diagonal(seed), diagonal(seed + 1)
    inside = float(diagonal_fisher_rao(p, q, scale=scale))
    assert float(EXACT(full(p), full(q), scale=scale)) <= inside + 1e-10
    assert float(DIAGONALISED(full(p), full(q), scale=scale)) == pytest.approx(inside, rel=1e-9)


@pytest.mark.parametrize("dims", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("round_ones", [False, True])
def test_gradient_is_that_of_differences(dims, round_ones):
    p, q = gaussian(1, dims), gaussian(2, dims)
    if round_ones:  # equal eigenvalues, and the other one a multiple
        p = Gaussian(p.mean, jnp.eye(dims))
        q = Gaussian(q.mean, 2.0 * jnp.eye(dims))
    check_gradient(EXACT, p, q, rel=1e-7)


@pytest.mark.slow
def test_second_derivative_at_equality_is_twice_the_metric():
    p, move = gaussian(4), gaussian(5)

    def squared(t):
        return squared_fisher_rao(
            p, Gaussian(p.mean + t * move.mean, p.covariance + t * move.covariance)
        )

    inverse = np.linalg.inv(p.covariance)
    growth = inverse @ np.asarray(move.covariance)
    metric = 0.5 * np.trace(growth @ growth) + move.mean @ inverse @ move.mean
    assert float(jax.grad(jax.grad(squared))(0.0)) == pytest.approx(2 * float(metric), rel=1e-9)


@pytest.mark.parametrize(
    ("dims", "scale"),
    [
        (1, 0.5),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, 0.1), (2, 0.5), (3, 2.0))),
    ],
)
def test_geodesic_has_both_ends_and_constant_speed(dims, scale):
    p, q = gaussian(6, dims), gaussian(7, dims)
    there = fisher_rao_exp(p, fisher_rao_log(p, q, scale=scale), scale=scale)
    np.testing.assert_allclose(there.mean, q.mean, atol=1e-7)
    np.testing.assert_allclose(there.covariance, q.covariance, atol=1e-7)
    between = fisher_rao_geodesic(p, q, 0.3, scale=scale)
    whole = float(EXACT(p, q, scale=scale))
    assert float(EXACT(p, between, scale=scale)) == pytest.approx(0.3 * whole, rel=1e-6)
    assert float(EXACT(between, q, scale=scale)) == pytest.approx(0.7 * whole, rel=1e-6)


def test_faults_are_named():
    with pytest.raises(ValueError, match="scale"):
        diagonal_fisher_rao(diagonal(0), diagonal(1), scale=0.0)
    with pytest.raises(ValueError, match=r"jax\.vmap"):
        fisher_rao(stacked([gaussian(0)]), stacked([gaussian(1)]))
    with pytest.raises(ValueError, match="one variance"):
        isotropic_fisher_rao(diagonal(0), diagonal(1))
    with pytest.raises(ValueError, match="one shape"):
        diagonal_fisher_rao(diagonal(0), diagonal(1, 3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["generic", "same mean", "equal"])
def test_second_derivatives_in_space(kind: str) -> None:
    p, q = gaussian(0, 3), gaussian(1, 3)
    if kind != "generic":
        q = Gaussian(p.mean, q.covariance if kind == "same mean" else p.covariance)
    lower = np.tril_indices(3)
    start = jnp.concatenate([q.mean, jnp.linalg.cholesky(q.covariance)[lower]])

    def gaussian_at(place):
        root = jnp.zeros((3, 3)).at[lower].set(place[3:])
        return Gaussian(place[:3], root @ root.T)

    def velocity(place):
        return fisher_rao_log(p, gaussian_at(place))

    def slope(place):
        return jax.grad(lambda at: squared_fisher_rao(p, gaussian_at(at)))(place)

    for function in (slope, lambda place: velocity(place).mean, lambda at: velocity(at).covariance):
        compiled, steps = jax.jit(function), 1e-5 * np.eye(9)
        expected = [(compiled(start + step) - compiled(start - step)) / 2e-5 for step in steps]
        expected = np.moveaxis(np.asarray(expected), 0, -1)
        actual = jax.jit(jax.jacfwd(function))(start)
        np.testing.assert_allclose(actual, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    "apart", [1e7, *(pytest.param(x, marks=pytest.mark.slow) for x in (1e5, 1e6))]
)
def test_single_precision_holds_millions_of_deviations_apart(apart: float) -> None:
    pairs = (
        stacked([gaussian(seed) for seed in range(20)]),
        stacked([gaussian(100 + seed, apart=apart) for seed in range(20)]),
    )
    wanted = jax.vmap(EXACT)(*pairs)
    with jax.enable_x64(False):
        single = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), pairs)
        value, slope = jax.jit(jax.vmap(jax.value_and_grad(fisher_rao)))(*single)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    np.testing.assert_allclose(value, wanted, rtol=1e-4)


@pytest.mark.parametrize(
    "power", [-80, 80, *(pytest.param(p, marks=pytest.mark.slow) for p in (-60, 64))]
)
@pytest.mark.parametrize("distance", [fisher_rao, wasserstein, diagonal_fisher_rao])
def test_no_scale_is_too_large_or_small_in_single_precision(distance, power: int) -> None:
    means = np.array([[0.0, 0.0], [0.5, -0.7]], np.float32)
    covariances = np.array([[[2.0, 0.3], [0.3, 1.0]], [[1.0, -0.4], [-0.4, 3.0]]], np.float32)
    if distance is diagonal_fisher_rao:
        kind, covariances = DiagonalGaussian, np.einsum("kii->ki", covariances)
    else:
        kind = Gaussian

    @jax.jit
    @jax.value_and_grad
    def value(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        return distance(*(kind(mean, covariance) for mean, covariance in zip(*pair, strict=True)))

    with jax.enable_x64(False):
        unit = np.float32(2.0 ** (power // 2))
        expected, slopes = value((means, covariances))
        got, scaled = value((unit * means, unit**2 * covariances))
        size = unit if distance is wasserstein else np.float32(1.0)
        np.testing.assert_allclose(got / size, expected, rtol=1e-5)
        # The slopes by means and covariances, in the units of the latter.
        slope, bend = (np.asarray(x, np.float64) for x in scaled)
        np.testing.assert_allclose(slope * (unit / size), slopes[0], rtol=1e-4)
        np.testing.assert_allclose(bend * float(unit) ** 2 / size, slopes[1], rtol=1e-4)
