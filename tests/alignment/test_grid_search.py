import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import testing
from diffclust.alignment import Alignment, Descent, GridSearch, Sequential, Stage
from diffclust.distances import SquaredEuclidean
from diffclust.energies import TransformedDistance, TransformedPrototype
from diffclust.prototypes import Clusters
from diffclust.transforms import (
    Affine,
    Rotation,
    ThinPlateSpline,
    Translation,
    compose,
    params_grid,
)

SHAPE = (20, 20, 1)
O2 = Rotation(reflection=True)


@pytest.fixture(scope="module")
def prototypes() -> jax.Array:
    keys = jax.random.split(jax.random.key(1), 5)
    return jnp.stack([testing.smooth_image(key, *SHAPE, sigma=0.25) for key in keys])


@eqx.filter_jit
def align(aligner, energy, sample, prototypes, start=None) -> Alignment:
    clusters = Clusters(prototypes, jnp.zeros((len(prototypes), energy.num_penalties)))
    if start is None:
        nowhere = jnp.full((1,), -1, dtype=jnp.int32)
        start = Alignment(nowhere, jnp.zeros((1, energy.num_params)), jnp.full((1,), jnp.inf))
    prepared = aligner.prepare(energy, clusters, None)
    return aligner.align(energy, sample, clusters, None, start, prepared)


class Plain(SquaredEuclidean):
    """The same distance under another name, for which nothing is known of FFTs."""


def brute_force(energy, grid, sample, prototypes) -> np.ndarray:
    """Energies `(points, clusters)` one by one."""
    moved = [np.asarray(energy.transform(params, sample)) for params in grid]
    return np.asarray([[np.sum((m - c) ** 2) for c in np.asarray(prototypes)] for m in moved])


@pytest.mark.parametrize("fourier", [False, True])
def test_the_best_of_the_grid_is_found(prototypes: jax.Array, fourier: bool) -> None:
    energy, grid = TransformedDistance(O2), O2.grid(12)
    sample = O2(jnp.asarray([2.0, 1.0]), prototypes[3])
    result = align(GridSearch(grid, candidates=None, fourier=fourier), energy, sample, prototypes)
    table = brute_force(energy, grid, sample, prototypes)
    assert int(result.cluster[0]) == 3
    # An FFT may take the neighbour where two are nearly as good.
    slack = 0.02 * float(table.max()) if fourier else 1e-3
    least = table.min(axis=0)[np.asarray(result.cluster)]
    assert np.all(np.asarray(result.energy) >= least - 1e-3)
    assert np.all(np.asarray(result.energy) <= least + slack)
    assert float(result.params[0, 1]) == 1.0


@pytest.mark.slow
def test_shifts_between_pixels_are_found_by_fft() -> None:
    sample = jax.random.uniform(jax.random.key(5), (12, 12, 1))
    half = params_grid(*[np.arange(-2, 3) / 12.0] * 2)
    energy = TransformedDistance(Translation())
    for number in (0, 7, 12, 18):
        prototype = Translation()(half[number], sample)
        for fourier in (False, True):
            aligner = GridSearch(half, candidates=None, fourier=fourier)
            found = align(aligner, energy, sample, prototype[None])
            np.testing.assert_allclose(found.params[0], half[number], atol=1e-6)


@pytest.mark.parametrize("shape", [(16, 16, 1), (12, 18, 2)])
def test_shifts_by_fft_are_those_of_the_grid(shape: tuple[int, int, int]) -> None:
    # Images of noise up to the border: what leaves the canvas is lost, and the energy knows it.
    rng = np.random.default_rng(0)
    prototypes = jnp.asarray(rng.uniform(size=(4, *shape)), dtype=jnp.float32)
    steps = [2.0 * np.arange(-5, 6) / side for side in (shape[1], shape[0])]
    grid, energy = params_grid(*steps), TransformedDistance(Translation())
    sample = jnp.asarray(rng.uniform(size=shape), dtype=jnp.float32)
    by_fft, plain = (
        align(GridSearch(grid, candidates=None, fourier=fourier), energy, sample, prototypes)
        for fourier in (True, False)
    )
    np.testing.assert_array_equal(by_fft.cluster, plain.cluster)
    np.testing.assert_array_equal(by_fft.params, plain.params)
    np.testing.assert_allclose(by_fft.energy, plain.energy, rtol=1e-5)


@pytest.mark.parametrize(
    "energy",
    [
        TransformedDistance(Rotation("edge")),
        TransformedDistance(Rotation(), Plain()),
        TransformedDistance(Rotation(), pixel_weights="jacobian"),
        TransformedPrototype(Rotation()),
    ],
)
def test_without_an_fft_the_whole_grid_is_tried(energy, prototypes: jax.Array) -> None:
    search = GridSearch(Rotation().grid(8), candidates=None)
    plain = GridSearch(Rotation().grid(8), candidates=None, fourier=False)
    sample = Rotation()(jnp.asarray([1.5]), prototypes[2])
    result, expected = (align(a, energy, sample, prototypes) for a in (search, plain))
    assert jax.tree.all(jax.tree.map(np.array_equal, result, expected))


@pytest.mark.slow
def test_descent_goes_on_from_what_was_found(prototypes: jax.Array) -> None:
    energy, sample = TransformedDistance(O2), O2(jnp.asarray([2.6, 1.0]), prototypes[1])
    alone = align(Descent((Stage(20),)), energy, sample, prototypes)
    search = GridSearch(O2.grid(16))
    rough = align(search, energy, sample, prototypes)
    fine = align(Sequential(search, Descent((Stage(8),))), energy, sample, prototypes)
    assert int(fine.cluster[0]) == int(rough.cluster[0]) == 1
    assert float(fine.energy[0]) < 0.5 * float(rough.energy[0])
    assert float(fine.energy[0]) < 0.2 * float(alone.energy[0])
    # T(g) undoes what was done to the sample.
    np.testing.assert_allclose(fine.params[0], [2.6, 1.0], atol=0.02)


@pytest.mark.parametrize(
    "candidates", [2, *[pytest.param(number, marks=pytest.mark.slow) for number in (3, None)]]
)
def test_sequence_keeps_an_incumbent_that_is_far(prototypes: jax.Array, candidates) -> None:
    energy, sample = TransformedDistance(O2), O2(jnp.asarray([2.6, 1.0]), prototypes[1])
    every = GridSearch(O2.grid(8), candidates=None)
    worst = jax.tree.map(lambda leaf: leaf[-1:], align(every, energy, sample, prototypes))
    steps = Sequential(every, Descent((Stage(1),), candidates=candidates), candidates=candidates)
    result = align(steps, energy, sample, prototypes, worst)
    assert int(worst.cluster[0]) in result.cluster
    assert result.cluster.shape[0] == (candidates or len(prototypes))
    assert np.all(np.diff(result.energy) >= 0)


def test_a_grid_of_other_params_is_refused(prototypes: jax.Array) -> None:
    turns = GridSearch(Rotation().grid(8))
    with pytest.raises(ValueError, match="the grid has 1 params a point, not 2"):
        align(turns, TransformedDistance(O2), prototypes[0], prototypes)


def test_an_incumbent_off_the_grid_is_kept(prototypes: jax.Array) -> None:
    energy, turn = TransformedDistance(Rotation()), jnp.asarray([[0.77]])
    sample = Rotation()(-turn[0], prototypes[4])
    start = Alignment(jnp.asarray([4], dtype=jnp.int32), turn, jnp.asarray([0.0]))
    search = GridSearch(Rotation().grid(4), candidates=2)
    result = align(search, energy, sample, prototypes, start)
    assert int(result.cluster[0]) == 4
    np.testing.assert_array_equal(result.params[0], turn[0])
    # In the worst of clusters it stays a candidate.
    worst = int(np.argmax(brute_force(energy, search.grid, sample, prototypes).min(axis=0)))
    start = Alignment(jnp.asarray([worst], dtype=jnp.int32), turn, jnp.asarray([0.0]))
    assert worst in align(search, energy, sample, prototypes, start).cluster


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="one vector of params a row"):
        GridSearch(jnp.zeros((0, 1)))
    with pytest.raises(ValueError, match="candidates must be at least 2"):
        GridSearch(jnp.zeros((3, 1)), candidates=1)
    assert GridSearch([[0.0], [1.0]]).grid.shape == (2, 1)


def test_a_part_of_what_is_one_is_refused(prototypes: jax.Array) -> None:
    search = GridSearch(Rotation().grid(4), part=0)
    with pytest.raises(ValueError, match="part=0 is for composed transforms, not Rotation"):
        align(search, TransformedDistance(Rotation()), prototypes[0], prototypes)


def test_a_grid_of_any_transform(prototypes: jax.Array) -> None:
    grid = params_grid((-0.3, 0.0, 0.3), (0.0,), (0.0,), (0.0,), (0.0,), (-0.2, 0.0, 0.2))
    energy = TransformedDistance(Affine())
    sample = Affine()(grid[6], prototypes[0])
    result = align(GridSearch(grid), energy, sample, prototypes)
    least = brute_force(energy, grid, sample, prototypes).min()
    np.testing.assert_allclose(result.energy[0], least, rtol=1e-4)


@pytest.mark.parametrize("place", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_one_part_of_a_sequence_is_searched_by_fft(prototypes: jax.Array, place: int) -> None:
    spline = ThinPlateSpline((3, 3), boundary="zero")
    transform = compose(*((O2, spline) if place == 0 else (spline, O2)))
    energy, grid = TransformedDistance(transform), O2.grid(16)
    params = transform.embed(place, jnp.asarray([2.0, 1.0]))
    assert params.shape == (20,)
    np.testing.assert_array_equal(transform.split(params)[place], [2.0, 1.0])
    sample = transform(params, prototypes[3])
    by_fft, plain = (
        align(GridSearch(grid, part=place, fourier=fourier), energy, sample, prototypes)
        for fourier in (True, False)
    )
    assert int(by_fft.cluster[0]) == int(plain.cluster[0]) == 3
    np.testing.assert_array_equal(by_fft.params[0], plain.params[0])
    np.testing.assert_allclose(by_fft.energy[0], plain.energy[0], rtol=1e-5)
    # Inner products of the part alone choose as the whole does on the grid.
    alone = align(GridSearch(grid), TransformedDistance(O2), sample, prototypes)
    np.testing.assert_array_equal(transform.split(by_fft.params[0])[place], alone.params[0])
    np.testing.assert_array_equal(transform.split(by_fft.params[0])[1 - place], 0.0)
