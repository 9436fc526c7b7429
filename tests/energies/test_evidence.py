"""The evidence against a linear Gaussian model, where Laplace's approximation is exact."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from diffclust.energies import (
    FitStatistics,
    Hyperparameters,
    TransformedDistance,
    effective_pixels,
    em_step,
    estimate_noise,
    evidence,
    log_evidence,
    quadratic_forms,
)
from diffclust.energies import evidence as evidence_module
from diffclust.models import AffineInvariantKMeans, DeformationInvariantKMeans
from diffclust.transforms import Affine, ThinPlateSpline, TimeWarp

PIXELS, PARAMS, SAMPLES = 12, 5, 400
FORMS = np.stack([np.diag([1.0, 1.0, 0, 0, 0]), np.diag([0, 0, 1.0, 2.0, 3.0])])


def draw(seed, noise, precision):
    """Observations y = J ν + ε with ν and ε from their priors."""
    rng = np.random.default_rng(seed)
    jacobian = rng.normal(size=(PIXELS, PARAMS))
    prior = np.tensordot(precision, FORMS, 1)
    warps = rng.normal(size=(SAMPLES, PARAMS)) @ np.linalg.cholesky(np.linalg.inv(prior)).T
    images = warps @ jacobian.T + np.sqrt(noise) * rng.normal(size=(SAMPLES, PIXELS))
    return jacobian, images


def fit(jacobian, images, noise, precision):
    """The most probable warps, as a fit would find them."""
    prior = np.tensordot(precision, FORMS, 1)
    posterior = jacobian.T @ jacobian / noise + prior
    warps = np.linalg.solve(posterior, jacobian.T @ images.T / noise).T
    residuals = images - warps @ jacobian.T
    return FitStatistics(
        count=jnp.asarray([float(SAMPLES)]),
        distance=jnp.asarray([np.sum(residuals**2)], jnp.float32),
        sizes=jnp.asarray(np.einsum("ni,tij,nj->t", warps, FORMS, warps)[None], jnp.float32),
        hessian=jnp.asarray((jacobian.T @ jacobian)[None], jnp.float32),
        forms=jnp.asarray(FORMS, jnp.float32),
        pixels=jnp.asarray(float(PIXELS)),
    )


def hyperparameters(noise, precision):
    return Hyperparameters(jnp.asarray(noise, jnp.float32), jnp.asarray([precision], jnp.float32))


@pytest.mark.parametrize(("noise", "precision"), [(0.3, (0.5, 2.0)), (2.0, (5.0, 0.1))])
def test_is_the_marginal_likelihood_of_a_linear_model(noise, precision):
    jacobian, images = draw(0, 0.5, (1.0, 1.0))
    prior = np.tensordot(precision, FORMS, 1)
    covariance = noise * np.eye(PIXELS) + jacobian @ np.linalg.inv(prior) @ jacobian.T
    exact = multivariate_normal(np.zeros(PIXELS), covariance).logpdf(images).sum()
    result = log_evidence(
        fit(jacobian, images, noise, precision), hyperparameters(noise, precision)
    )
    np.testing.assert_allclose(float(result), exact, rtol=1e-4)


def test_directions_that_no_penalty_measures_are_left_out():
    jacobian, images = draw(0, 0.5, (1.0, 1.0))
    few = fit(jacobian, images, 0.5, (1.0, 1.0))
    # One param more, of which neither the images nor the penalties know anything, and any axes.
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]

    def widened(matrices):
        return jnp.asarray(turned @ np.pad(matrices, ((0, 0), (0, 1), (0, 1))) @ turned.T)

    more = dataclasses.replace(few, hessian=widened(few.hessian), forms=widened(few.forms))
    at = hyperparameters(0.7, (0.5, 2.0))
    np.testing.assert_allclose(log_evidence(more, at), log_evidence(few, at), rtol=1e-5)
    actual, expected = em_step(more, at), em_step(few, at)
    np.testing.assert_allclose(actual.noise, expected.noise, rtol=1e-4)
    np.testing.assert_allclose(actual.precision, expected.precision, rtol=1e-4)


@pytest.mark.parametrize(
    ("energy", "expected"),
    [
        (TransformedDistance(TimeWarp(8)), 1),
        (TransformedDistance(TimeWarp(64)), 1),
        (DeformationInvariantKMeans(2, landmarks=(12, 12)).energy(), 0),
        (AffineInvariantKMeans(2).energy(), 0),
    ],
)
def test_how_many_directions_are_free(energy, expected):
    forms = quadratic_forms(energy)
    blank = jnp.zeros((1, *forms.shape[1:]))
    some = FitStatistics(
        jnp.ones(1), jnp.ones(1), jnp.ones((1, len(forms))), blank, forms, jnp.ones(())
    )
    free = evidence._precisions(some, hyperparameters(1.0, (1.0,) * len(forms)))[2]
    assert jnp.trace(free) == pytest.approx(expected, abs=1e-3)


def test_em_climbs_and_finds_the_truth():
    noise, precision = 0.5, (4.0, 0.7)
    jacobian, images = draw(1, noise, precision)
    given, climbed = hyperparameters(5.0, (0.1, 10.0)), []
    for _ in range(60):
        warps = fit(jacobian, images, float(given.noise), np.asarray(given.precision[0]))
        climbed.append(float(log_evidence(warps, given)))
        given = em_step(warps, given)
    assert np.all(np.diff(climbed) > -1e-2)
    np.testing.assert_allclose(float(given.noise), noise, rtol=0.1)
    np.testing.assert_allclose(np.asarray(given.precision[0]), precision, rtol=0.25)


def test_clusters_of_their_own_learn_their_own_precision():
    one, two = (draw(2, 0.5, (8.0, 8.0)), draw(3, 0.5, (0.5, 0.5)))
    given = hyperparameters(0.5, (1.0, 1.0))
    parts = [fit(*pair, 0.5, (1.0, 1.0)) for pair in (one, two)]
    both = FitStatistics(
        *(
            jnp.concatenate([getattr(part, name) for part in parts])
            for name in ("count", "distance", "sizes", "hessian")
        ),
        forms=parts[0].forms,
        pixels=parts[0].pixels,
    )
    given = Hyperparameters(given.noise, jnp.repeat(given.precision, 2, axis=0))
    own = em_step(both, given, shared=False).precision
    common = em_step(both, given).precision
    assert bool(jnp.all(own[0] > common[0]))
    assert bool(jnp.all(common[0] > own[1]))
    np.testing.assert_array_equal(np.asarray(common[0]), np.asarray(common[1]))


def test_noise_of_given_weights_maximises_the_evidence():
    jacobian, images = draw(4, 0.5, (2.0, 1.0))
    weights = jnp.asarray([[0.8, 0.6]])
    warps = fit(jacobian, images, 1.0, np.asarray(weights[0]))  # warps depend on weights alone
    best = estimate_noise(warps, weights)
    np.testing.assert_allclose(np.asarray(best.weights), np.asarray(weights), rtol=1e-6)
    top = float(log_evidence(warps, best))
    for factor in (0.9, 1.1):
        other = Hyperparameters(best.noise * factor, weights / (best.noise * factor))
        assert float(log_evidence(warps, other)) < top


def test_effective_pixels_counts_independent_ones(key):
    white = jax.random.normal(key, (800, 20))
    assert float(effective_pixels(white)) == pytest.approx(20, rel=0.06)
    # Every pixel four times over: as many pixels as before, not four times as many.
    assert float(effective_pixels(jnp.repeat(white, 4, axis=1))) == pytest.approx(20, rel=0.06)
    assert float(effective_pixels(white[:, :1] * jnp.ones((1, 20)))) == pytest.approx(1, abs=0.05)


def test_effective_pixels_are_of_weighted_samples(key):
    residuals = jax.random.normal(key, (800, 20)).at[400:, 1:].set(0.0)
    # The second moments are 1 along the first pixel and w / (w + v) along the others.
    for first, second in ((1.0, 1.0), (3.0, 1.0), (1.0, 0.0)):
        weights = jnp.repeat(jnp.asarray([first, second]), 400)
        share = first / (first + second)
        expected = (1 + 19 * share) ** 2 / (1 + 19 * share**2)
        actual = effective_pixels(residuals, weights)
        assert float(actual) == pytest.approx(expected, rel=0.1)
        np.testing.assert_allclose(effective_pixels(residuals, 7.0 * weights), actual, rtol=1e-5)
    np.testing.assert_allclose(actual, effective_pixels(residuals[:400]), rtol=1e-5)


@pytest.mark.parametrize(
    "transform", [Affine(), pytest.param(ThinPlateSpline((3, 4)), marks=pytest.mark.slow)]
)
def test_quadratic_forms_are_the_penalties(transform, key):
    energy = TransformedDistance(transform)
    params = 0.1 * jax.random.normal(key, (energy.num_params,))
    forms = jax.jit(lambda: quadratic_forms(energy))()
    result = jnp.einsum("i,tij,j->t", params, forms, params)
    np.testing.assert_allclose(np.asarray(result), np.asarray(energy.penalties(params)), rtol=1e-3)


@pytest.mark.parametrize("scale", [1e-15, 1e12])
def test_effective_pixels_do_not_depend_on_the_unit(key, scale: float) -> None:
    residuals = jax.random.normal(key, (50, 30))
    np.testing.assert_allclose(
        effective_pixels(np.float32(scale) * residuals), effective_pixels(residuals), rtol=1e-3
    )


@pytest.mark.parametrize("intervals", [51, 60, 77])
def test_directions_that_no_penalty_measures_have_no_rank(intervals: int) -> None:
    transform = TimeWarp(intervals)
    forms = quadratic_forms(TransformedDistance(transform))
    for form in np.asarray(forms, np.float32):
        values = np.linalg.eigvalsh(form.astype(np.float64))
        single = np.asarray(jnp.linalg.eigvalsh(form))
        expected = np.sum(values > 1e-6 * values[-1])
        assert (
            np.sum(single > evidence_module._ROUNDING * np.finfo(np.float32).eps * single[-1])
            == expected
        )
