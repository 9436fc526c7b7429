"""The film of a fit, its maps, and other methods from the same start."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.analysis import evidence_of, fit_from_common_start
from diffclust.data import load_digits
from diffclust.models import (
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    KMeans,
    ProjectedScatteringSpectralClustering,
)
from diffclust.plotting import Film, displayable, map_svg, neighbour_map
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers import Progress

DIGITS = load_digits().take(range(60))


def progress(stage: str, restart: int, iteration: int, grey: float, **more) -> Progress:
    """A report of a fit whose two prototypes are a grey and a white pixel, and black ones."""
    image = np.array([[grey, 1.0], [0.0, 0.0]], np.float32)[None, :, :, None].repeat(2, 0)
    learned = Learned(Clusters(jnp.asarray(image), jnp.zeros((2, 0))))
    return Progress(stage, restart, iteration, 1, 1, learned=learned, **more)


def shades(film: Film, result) -> list[int]:
    return [int(frame.pictures[0, 0, 0, 0]) for frame in film.frames(result)]


def finished(losses: tuple[float, ...]):
    """A result of which only the losses of the restarts and the prototypes matter."""
    result = KMeans(2, num_restarts=1, max_passes=1).fit(
        np.random.default_rng(0).uniform(size=(4, 2, 2, 1)), key=jax.random.key(0)
    )
    return dataclasses.replace(result, outcome=dataclasses.replace(result.outcome, restarts=losses))


def test_a_film_shows_the_best_restart_and_the_moves_that_were_accepted() -> None:
    film, result = Film(), finished((5.0, 3.0, 4.0))
    film(progress("pass", 0, 0, 0.9))
    film(progress("pass", 1, 0, 0.0, least=5.0))
    film(progress("pass", 1, 1, 0.2, least=5.0))
    film(Progress("split", 1, 2, 1, 2))
    film(progress("pass", 1, 0, 0.7, least=5.0))  # a move that was not accepted: another follows it
    film(progress("pass", 1, 0, 0.4, least=5.0))
    film(Progress("split", 1, 3, 1, 2))
    film(progress("pass", 1, 0, 0.8, least=5.0))  # and one after which the run ended
    film(progress("pass", 2, 0, 0.9, least=3.0))
    film(progress("pass", 2, 1, 0.9, least=3.0))
    film(progress("refine", 1, 0, 0.6, least=3.0))
    actual = film.frames(result)
    assert shades(film, result)[:-1] == [0, 51, 102, 153]
    assert [frame.done for frame in actual] == [0, 1, 2, 3, 4]
    own = displayable(result.prototypes[0], own_range=True)
    np.testing.assert_array_equal(actual[-1].pictures[0], own)


def test_a_long_film_is_thinned_out_but_keeps_its_ends() -> None:
    film, result = Film(most_frames=10), finished((1.0,))
    for number in range(500):
        film(progress("pass", 0, number, number / 500))
    actual = film.frames(result)
    assert len(actual) == 10
    assert (actual[0].done, actual[-1].done) == (0, 500)
    dones = [frame.done for frame in actual]
    assert dones == sorted(set(dones))
    # Those that are kept are those that they are said to be.
    for frame in actual[:-1]:
        assert abs(int(frame.pictures[0, 0, 0, 0]) - 255 * frame.done / 500) <= 1


def test_a_fit_without_passes_has_no_film() -> None:
    film = Film()
    film(Progress("cut", 0, 0, 1, 1))
    assert film.frames(finished((1.0,))) == ()
    with pytest.raises(ValueError, match="at least 2 frames"):
        Film(most_frames=1)


def test_a_film_begins_with_the_seeds_and_a_start_is_drawn_again() -> None:
    model = KMeans(5, num_restarts=3, max_passes=4, split_merge=False)
    film, key = Film(), jax.random.key(3)
    result = model.fit(DIGITS.images, key=key, callback=film)
    others = fit_from_common_start(result, DIGITS.images, ["kmeans"], key=key)
    first = film.frames(result)[0]
    for image, picture in zip(others.start, first.pictures, strict=True):
        np.testing.assert_array_equal(displayable(image, own_range=True), picture)
    np.testing.assert_array_equal(DIGITS.images[others.indices], others.start)
    # Going on from there is the fit itself, whatever the key.
    again = model.fit(DIGITS.images, key=jax.random.key(9), prototypes=others.start)
    np.testing.assert_array_equal(again.assignments, result.assignments)
    assert again.history == result.history
    (kin,) = others.results
    # The same method with settings of its own, but for those that all have in common.
    assert kin.model == KMeans(5, split_merge=False)


def test_methods_without_a_common_start_are_refused() -> None:
    model = KMeans(2, num_restarts=1, max_passes=1)
    result = model.fit(DIGITS.images, key=jax.random.key(0))
    with pytest.raises(ValueError, match="among kmeans, ai-kmeans, di-kmeans, not gmm"):
        fit_from_common_start(result, DIGITS.images, ["gmm"], key=jax.random.key(0))
    foreign = dataclasses.replace(result, model=ProjectedScatteringSpectralClustering(2))
    with pytest.raises(ValueError, match="pssc has no start in common"):
        fit_from_common_start(foreign, DIGITS.images, ["kmeans"], key=jax.random.key(0))


def test_a_map_keeps_neighbours_together() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(3), 20)
    samples = (np.eye(3)[groups] * 5 + rng.normal(scale=0.1, size=(60, 3))).reshape(60, 3, 1, 1)
    places = neighbour_map(samples)
    assert places is not None
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(distance, np.inf)
    np.testing.assert_array_equal(groups[distance.argmin(axis=1)], groups)
    np.testing.assert_array_equal(places, neighbour_map(samples))
    assert neighbour_map(samples[:10]) is None
    assert neighbour_map(np.ones((40, 2, 2, 1))) is None
    drawn = map_svg(places, groups, alt="<x>", names=["a", "<b>", "c"])
    assert drawn.count("h0") == 60
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    assert all(f'class="colour-{group}"' in drawn for group in range(3))


def test_names_on_maps_hide_no_small_group() -> None:
    places = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    drawn = map_svg(places, np.array([0, 0, 1, 1]), alt="")
    dots = [int(y) for y in re.findall(r"M\d+ (\d+)h0", drawn)]
    names = [int(y) for y in re.findall(r'<text [^>]*y="(\d+)"', drawn)]
    letters, dot = 44 / 2, 13 / 2
    for group, name in enumerate(names):
        assert letters <= name <= dots[2 * group] - letters - dot


@pytest.mark.slow
def test_the_evidence_of_a_fit_is_that_of_its_last_pass() -> None:
    model = AffineInvariantKMeans(3, num_restarts=1, max_passes=4)
    result = model.fit(DIGITS.images, key=jax.random.key(0))
    value, pixels = evidence_of(result, DIGITS.images)
    # By hand, with SciPy's Gaussian: the energy of Eq. 2 at its best noise, warps' volume left out,
    # bounds it: what warps could do besides is a price, never a gain.
    count = len(DIGITS)
    noise = result.loss / (count * pixels)
    bound = -0.5 * pixels * (1 + np.log(2 * np.pi * noise))
    assert value < bound
    assert value > bound - 0.5 * 6 * 20
    more, same = evidence_of(result, DIGITS.images, pixels=2 * pixels)
    assert same == pytest.approx(2 * pixels)
    assert more != value
    stiff = DeformationInvariantKMeans(3, bending_penalty=0.0)
    with pytest.raises(ValueError, match="must be positive"):
        evidence_of(dataclasses.replace(result, model=stiff), DIGITS.images)
    with pytest.raises(ValueError, match="no penalised warps"):
        evidence_of(dataclasses.replace(result, model=KMeans(3)), DIGITS.images)


@pytest.mark.slow
def test_a_film_shows_registered_images() -> None:
    images = np.zeros((12, 20, 24, 3), np.float32)
    for number, image in enumerate(images):
        image[4 : 10 + number % 2 * 5, 5:9] = [0.9, 0.3, 0.2]
    model, film = KMeans(2, num_restarts=1, register="upright", ground="colour"), Film()
    result = model.fit(images, key=jax.random.key(0), callback=film)
    frames = film.frames(result)
    assert {frame.pictures.shape for frame in frames} == {result.prototypes.shape}
    assert result.prototypes.shape[3] == 1
    own = displayable(result.prototypes[0], own_range=True)
    np.testing.assert_array_equal(frames[-1].pictures[0], own)
