import inspect
import itertools
from typing import Any, cast

import chex
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.decomposition
from hypothesis import strategies
from jax.sharding import PartitionSpec

from diffclust.features import (
    Moments,
    directions_of,
    drop_leading,
    feature_moments,
    fit_principal_directions,
    project_features,
)
from diffclust.features.orthogonal_complement import fit_projection
from tests.registry import blobs

NORMALISATIONS = ["none", "largest", "root", "standardise"]


def samples(count: int = 60, size: int = 12, seed: int = 0) -> np.ndarray:
    """Features of very different spread, far from the origin."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, size)) @ rng.normal(size=(size, size))
    return (mixed * np.logspace(-0.5, 0.5, size) + 5.0).astype(np.float32)


def normalised(features: np.ndarray, how: str, path_size: int = 4) -> np.ndarray:
    x = features.astype(np.float64)
    if how == "root":
        return np.sign(x) * np.sqrt(np.abs(x))
    if how == "standardise":
        return x / x.std(axis=0)
    if how == "largest":
        paths = x.reshape(len(x), -1, path_size)
        return (paths / np.linalg.norm(paths, axis=2).max(axis=0)[:, None]).reshape(x.shape)
    return x


# Moments.


@hypothesis.given(
    seed=strategies.integers(0, 1000),
    cuts=strategies.lists(strategies.integers(0, 40), max_size=3),
)
def test_moments_do_not_depend_on_the_batches(seed: int, cuts: list[int]) -> None:
    x = samples(40, 4, seed) + 100.0
    padded = np.full((48, 4), 1e4, np.float32)
    padded[:40] = x
    # Batches of one shape; weights say what each of them holds.
    edges = [0, *sorted(cuts), 40]
    moments = Moments.empty(4, num_paths=2, dtype=jnp.float32)
    for start, stop in itertools.pairwise(edges):
        weight = ((np.arange(48) >= start) & (np.arange(48) < stop)).astype(np.float32)
        moments = moments.add(jnp.asarray(padded), jnp.asarray(weight))
    exact = x.astype(np.float64)
    centred = exact - exact.mean(0)
    assert float(moments.count) == 40
    np.testing.assert_allclose(moments.mean, exact.mean(0), rtol=1e-5)
    scale = np.abs(centred.T @ centred).max()
    np.testing.assert_allclose(moments.scatter, centred.T @ centred, atol=2e-5 * scale)
    norms = (exact.reshape(40, 2, 2) ** 2).sum(2).max(0)
    np.testing.assert_allclose(moments.largest, norms, rtol=1e-5)


def test_moments_are_stable_far_from_the_origin() -> None:
    # Σ x² - n mean² would have no correct digit here.
    x = np.random.default_rng(0).normal(size=(4096, 3)).astype(np.float32) + np.float32(3000)
    moments = feature_moments(x, chunk_size=256)
    exact = np.cov(x.astype(np.float64).T, bias=True)
    np.testing.assert_allclose(moments.scatter / 4096, exact, atol=2e-3)


def test_moments_of_all_devices_are_summed() -> None:
    x = samples(32, 4)
    mesh = jax.make_mesh((2,), ("devices",), (jax.sharding.AxisType.Auto,))

    def add(batch):
        return Moments.empty(4, num_paths=2, dtype=jnp.float32).add(batch, axis_name="devices")

    split = jax.jit(
        jax.shard_map(
            add,
            mesh=mesh,
            in_specs=PartitionSpec("devices"),
            out_specs=PartitionSpec(),
            check_vma=False,
        )
    )(jnp.asarray(x))
    whole = Moments.empty(4, num_paths=2, dtype=jnp.float32).add(jnp.asarray(x))
    chex.assert_trees_all_close(split, whole, rtol=1e-5, atol=1e-3)


# Principal directions.


@pytest.mark.parametrize("how", NORMALISATIONS)
def test_directions_are_those_of_a_pca_of_normalised_features(how: str) -> None:
    x = samples()
    result = fit_principal_directions(x, num_directions=5, normalisation=how, path_size=4)
    prepared = normalised(x, how)
    pca = sklearn.decomposition.PCA(5, svd_solver="full").fit(prepared)
    variances = pca.explained_variance_ * (len(x) - 1) / len(x)
    np.testing.assert_allclose(result.eigenvalues, variances, rtol=1e-4)
    expected = pca.transform(prepared)
    signs = np.sign(np.sum(pca.components_.T * np.asarray(result.basis), axis=0))
    projected = project_features(result, x, chunk_size=16)
    np.testing.assert_allclose(projected, expected * signs, atol=2e-3 * np.abs(expected).max())
    np.testing.assert_allclose(result(jnp.asarray(x[7])), projected[7], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("how", ["largest", "standardise"])
def test_scalings_make_units_immaterial(how: str) -> None:
    x = samples()
    units = np.repeat(np.float32([1.0, 64.0, 0.125]), 4)
    first = fit_principal_directions(x, normalisation=how, path_size=4)
    second = fit_principal_directions(x * units, normalisation=how, path_size=4)
    np.testing.assert_allclose(first.eigenvalues, second.eigenvalues, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("how", NORMALISATIONS)
@pytest.mark.parametrize(("count", "size"), [(50, 12), (8, 24)], ids=["moments", "products"])
def test_whole_weights_are_repetitions(how: str, count: int, size: int) -> None:
    x = samples(count, size)
    counts = np.random.default_rng(2).integers(1, 4, count)
    # A large one that weighs nothing.
    x[3], counts[3] = 1e3, 0
    settings = {"normalisation": how, "path_size": 4, "num_directions": 4, "chunk_size": 16}
    with jax.enable_x64(True):
        result = fit_principal_directions(x, weight=counts.astype(float), **settings)
        copies = fit_principal_directions(np.repeat(x, counts, axis=0), **settings)
        # How much a unit is does not matter, not for the number of directions either.
        parts = [x[:5], x[5:]]
        scaled = fit_principal_directions(parts, weight=counts * 0.01, **settings)
        plain = fit_principal_directions(x[counts > 0], **settings)
    for other in (copies, scaled):
        for got, want in zip(jax.tree.leaves(result), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-9 * np.abs(want).max())
    variances, others = np.asarray(result.eigenvalues), np.asarray(plain.eigenvalues)
    assert (variances > 0).all()
    assert np.abs(variances / others - 1).max() > 0.02


@pytest.mark.parametrize("size", [12, 200], ids=["moments", "products"])
@pytest.mark.parametrize("length", [39, 41])
def test_weights_of_another_number_are_refused(size: int, length: int) -> None:
    with pytest.raises(ValueError, match=r"weight must have one number .* for 40 samples"):
        fit_principal_directions(samples(40, size), weight=np.ones(length), chunk_size=40)


def test_iterables_and_chunks_change_nothing_but_the_last_digits() -> None:
    x = samples(50)
    whole = fit_principal_directions(x)
    pieces = (x[start : start + 7] for start in range(0, 50, 7))
    for other in (pieces, [x[:20], x[20:]], x.tolist()):
        again = fit_principal_directions(other, chunk_size=16)
        np.testing.assert_allclose(again.eigenvalues, whole.eigenvalues, rtol=1e-4)
        np.testing.assert_allclose(again.mean, whole.mean, rtol=1e-5)
    np.testing.assert_array_equal(
        project_features(whole, [x[:20], x[20:]], chunk_size=16),
        project_features(whole, x, chunk_size=16),
    )


def test_signs_are_settled() -> None:
    result = fit_principal_directions(samples(), normalisation="none")
    basis = np.asarray(result.basis)
    largest = basis[np.abs(basis).argmax(0), np.arange(basis.shape[1])]
    assert (largest > 0).all()
    np.testing.assert_allclose(basis.T @ basis, np.eye(12), atol=1e-5)
    mirrored = fit_principal_directions(-samples(), normalisation="none")
    np.testing.assert_allclose(mirrored.basis, basis, atol=1e-3)


def test_complement_of_several_n_are_slices_of_one_projection() -> None:
    x = samples()
    directions = fit_principal_directions(x, num_directions=8)
    all_of_them = project_features(directions, x)
    for n in range(4):
        complement = directions.complement(n, 4)
        expected = all_of_them[:, n : n + 4]
        np.testing.assert_array_equal(drop_leading(all_of_them, n, 4), expected)
        np.testing.assert_allclose(
            jax.vmap(complement)(jnp.asarray(x)), expected, rtol=1e-3, atol=1e-4
        )
    assert directions.complement().n == 2
    assert directions.complement(3)(jnp.asarray(x[0])).shape == (5,)


def test_complement_is_blind_to_what_it_removes() -> None:
    # Eq. 4 is an orthogonal projection: moving along removed directions changes nothing.
    x = samples()
    directions = fit_principal_directions(x, normalisation="none")
    moved = x[0] + 30.0 * np.asarray(directions.basis[:, 0]) - 10.0 * directions.basis[:, 1]
    complement = directions.complement(2)
    np.testing.assert_allclose(
        complement(jnp.asarray(moved)), complement(jnp.asarray(x[0])), atol=1e-3
    )


@pytest.mark.parametrize("how", NORMALISATIONS)
@pytest.mark.parametrize(
    "case", ["few samples", "constant features", "one sample", "all alike", "zeros"]
)
def test_what_has_no_variance_has_no_direction(how: str, case: str) -> None:
    x = samples(60)
    x[:, :4] = 3.3
    x = {
        "few samples": samples(4),
        "constant features": x,
        "one sample": x[:1],
        "all alike": np.repeat(x[:1], 20, axis=0),
        "zeros": np.zeros((20, 12), np.float32),
    }[case]
    result = fit_principal_directions(x, normalisation=how, path_size=4)
    rank = {"few samples": 3, "constant features": 8}.get(case, 0)
    chex.assert_tree_all_finite(result)
    assert np.count_nonzero(result.eigenvalues) == rank
    assert not np.asarray(result.basis)[:, rank:].any()
    projected = project_features(result, x)
    assert np.isfinite(projected).all()
    assert not projected[:, rank:].any()


def test_gradient_is_finite_where_features_are_zero() -> None:
    result = fit_principal_directions(samples(), normalisation="root")
    gradient = jax.grad(lambda x: jnp.sum(result(x) ** 2))(jnp.zeros(12))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": np.zeros((3, 2, 2))}, "shape"),
        ({"features": np.zeros((0, 2))}, "shape"),
        ({"features": [[0.0, 1.0], [np.nan, 0.0]]}, "row 1"),
        ({"features": [np.zeros((2, 40)), np.full((1, 40), np.inf)]}, "row 2"),
        ({"features": 1e25 * samples(), "normalisation": "none"}, "range of float32"),
        ({"features": 1e25 * samples(5), "normalisation": "none"}, "range of float32"),
        ({"features": iter([])}, "without any chunk"),
        ({"features": [np.zeros((2, 3)), np.zeros((2, 4))]}, "(n, 3)"),
        ({"features": [["a", "b"]]}, "numbers"),
        ({"normalisation": "l2"}, "normalisation"),
        ({"num_directions": 0}, "num_directions"),
        ({"path_size": 5}, "does not divide"),
    ],
)
def test_bad_input_is_named(settings: dict, message: str) -> None:
    settings = {"features": samples(), **settings}
    # The import hook's own check of the Literal comes first under test.
    errors = (ValueError, Exception) if "normalisation" in settings else ValueError
    with pytest.raises(errors, match=message.replace("(", r"\(").replace(")", r"\)")):
        fit_principal_directions(settings.pop("features"), **settings)


def test_nothing_left_is_refused() -> None:
    directions = fit_principal_directions(samples(), num_directions=3)
    for n, dimensions in [(3, None), (-1, None), (1, 0)]:
        with pytest.raises(ValueError, match=r"remove at least|dimensions"):
            directions.complement(n, dimensions)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path_size": 0}, "path_size must be at least 1"),
        ({"chunk_size": 0}, "chunk_size must be at least 1"),
        ({"weight": -np.ones(30)}, "weight must be finite and at least 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_principal_directions(np.eye(30, 4), **settings)
    with pytest.raises(ValueError, match=message):
        feature_moments(np.eye(30, 4), **settings)


def test_unknown_normalisations_and_half_directions_are_refused() -> None:
    # Under test, the import hook's own check of the types would come first.
    moments, of, fit = feature_moments(samples()), directions_of, fit_principal_directions
    with pytest.raises(ValueError, match="normalisation must be one of"):
        inspect.unwrap(of)(moments, normalisation=cast(Any, "l2"))
    with pytest.raises(ValueError, match="normalisation must be one of"):
        inspect.unwrap(feature_moments)(samples(), normalisation=cast(Any, "l2"))
    with pytest.raises(ValueError, match="num_directions must be a whole number"):
        inspect.unwrap(fit)(samples(), num_directions=cast(Any, 2.5))


@pytest.mark.parametrize("chunk_size", [0, -1])
def test_chunks_of_no_samples_are_refused(chunk_size: int) -> None:
    directions = fit_principal_directions(samples())
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        project_features(directions, samples(), chunk_size=chunk_size)
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        feature_moments(samples(), chunk_size=chunk_size)


def test_other_features_than_the_fitted_ones_are_refused() -> None:
    directions = fit_principal_directions(samples())
    with pytest.raises(ValueError, match=r"as those of which the directions were computed; got"):
        project_features(directions, samples()[:, :2])


def test_directions_of_weighted_images_are_those_of_repeated_ones() -> None:
    images, weight = blobs(20, 3, 3, seed=2), np.arange(20.0) % 3
    rows = np.repeat(images.reshape(20, -1), weight.astype(int), axis=0).astype(float)
    directions, _ = fit_projection(
        lambda image: image.reshape(-1),
        images,
        num_directions=3,
        normalisation="none",
        weight=weight,
    )
    variances = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1][:3]
    np.testing.assert_allclose(directions.eigenvalues, variances, rtol=1e-4)
