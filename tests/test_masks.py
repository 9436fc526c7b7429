"""Pixels that do not count: what a mask is, and that no model looks behind it."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from scipy.optimize import minimize
from sklearn import cluster

import diffclust
from diffclust.alignment import Descent, Stage
from diffclust.cli import main
from diffclust.data import load_digits, load_mask, open_stream
from diffclust.data.dataset import DataError
from diffclust.distances import SquaredEuclidean
from diffclust.energies import TransformedDistance, TransformedPrototype
from diffclust.masks import as_mask, mask_weights
from diffclust.methods import METHODS
from diffclust.models import MODELS, KMeans
from diffclust.prototypes import Clusters, UnitNormImages
from diffclust.prototypes.images import Sums
from diffclust.report import write_report
from diffclust.transforms import Affine, Colour

KEY = jax.random.key(0)
DIGITS = load_digits()
COUNT = 60
STEPS: dict[str, Any] = {"steps": (5, 5, 5, 5), "batch_size": 32}
SMALL: dict[str, dict[str, Any]] = {
    "kmeans": {"num_restarts": 1},
    "ai-kmeans": {"num_restarts": 1, "max_passes": 3, "split_merge": False},
    "di-kmeans": {"num_restarts": 1, "max_passes": 3, "landmarks": (3, 3)},
    "scattering-kmeans": {"num_angles": 2, "num_scales": 2, "num_restarts": 1},
    "pssc": {"num_angles": 2, "num_scales": 2, "num_removed": (1,), "num_neighbours": (5,)},
    "di-spectral": {"num_angles": 2, "num_scales": 2, "num_candidates": 7, "landmarks": (3, 3)},
    "dti-kmeans": {"transforms": "aff", "steps": (5, 5, 5), "batch_size": 32},
    "dti-gmm": {"transforms": "col-aff", **STEPS},
    "ti-kmeans": {"transforms": "aff", "align_steps": 2, "steps": (5, 5, 5), "batch_size": 32},
    "gmm": {"steps": (10, 5), "batch_size": 32, "split_merge": False},
}
"""Settings with which every model of images is quick."""
QUICK = ("kmeans", "gmm")
"""K-means without and with a search, and gradient steps; the others take longer to compile."""


def hidden_columns(count: int = 2) -> np.ndarray:
    """A mask that hides the columns at the left."""
    mask = np.ones((8, 8))
    mask[:, :count] = 0.0
    return mask


def stained(images: np.ndarray, mask: np.ndarray, seed: int = 0) -> np.ndarray:
    """The images with noise wherever the mask hides them."""
    noise = np.random.default_rng(seed).uniform(size=images.shape).astype(images.dtype)
    return np.where(mask[None, :, :, None] == 0.0, noise, images)


def test_all_models_of_images_are_looked_at() -> None:
    assert set(SMALL) == {name for name, m in METHODS.items() if m.sample_kind == "image"}


@pytest.mark.parametrize(
    "method",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SMALL],
)
def test_what_a_mask_hides_changes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if method == "ai-kmeans":  # di-kmeans has all stages of its own
        stages = Descent((Stage(3, blur=1 / 14), Stage(2)))
        monkeypatch.setattr(MODELS[method], "aligner", lambda self: stages)
    mask = hidden_columns()
    settings = {"num_clusters": 4, "mask": mask, **SMALL[method]}
    model = MODELS[method].from_settings(settings)
    images = DIGITS.images[:COUNT]
    clean = model.fit(images, key=KEY)
    dirty = model.fit(stained(images, mask), key=KEY)
    assert np.array_equal(clean.assignments, dirty.assignments)
    assert np.array_equal(clean.prototypes, dirty.prototypes)
    assert clean.loss == dirty.loss
    other = stained(images, mask, seed=1)
    assert np.array_equal(clean.predict(images).clusters, dirty.predict(other).clusters)


def test_kmeans_is_that_of_the_columns_that_are_seen() -> None:
    mask = hidden_columns(3)
    images = stained(DIGITS.images[:300], mask)
    start = images[:6]
    ours = KMeans(6, mask=mask, num_restarts=1, split_merge=False).fit(
        images, key=KEY, prototypes=start
    )
    seen = images[:, :, 3:].reshape(len(images), -1)
    theirs = cluster.KMeans(6, init=seen[:6], n_init=1, tol=0.0, algorithm="lloyd").fit(seen)
    assert np.array_equal(ours.assignments, theirs.labels_)
    assert ours.loss == pytest.approx(theirs.inertia_, rel=1e-5)


def test_kmeans_takes_weights_of_pixels() -> None:
    weights = np.rint(np.random.default_rng(0).uniform(0.1, 1.0, (8, 8)) * 255) / 255
    images = DIGITS.images[:300]
    ours = KMeans(6, mask=weights, num_restarts=1, split_merge=False).fit(
        images, key=KEY, prototypes=images[:6]
    )
    scaled = (images * weights[None, :, :, None] ** 0.5).reshape(len(images), -1)
    theirs = cluster.KMeans(6, init=scaled[:6], n_init=1, tol=0.0, algorithm="lloyd").fit(scaled)
    assert np.array_equal(ours.assignments, theirs.labels_)
    assert ours.loss == pytest.approx(theirs.inertia_, rel=1e-5)


def energy_of(energy: Any, sample: np.ndarray, prototype: np.ndarray, params: Any) -> float:
    alone = Clusters(jnp.asarray(prototype), jnp.zeros((energy.num_penalties,)))
    bound = energy.bind(jnp.asarray(sample))
    return float(bound(jnp.asarray(params, dtype=jnp.float32), jnp.asarray(sample), alone))


def test_hidden_pixels_move_with_the_sample() -> None:
    mask, images = hidden_columns(), DIGITS.images
    energy = TransformedDistance(Affine(), mask=as_mask(mask))
    # One pixel to the right: what was the second column from the left comes to the third.
    params = np.array([0.0, 0.0, 0.0, 0.0, -0.25, 0.0])
    moved = np.asarray(energy.aligned(jnp.asarray(params, jnp.float32), jnp.asarray(images[0])))
    assert np.allclose(moved[:, 1:], images[0][:, :-1], atol=1e-6)
    result = energy_of(energy, images[0], images[1], params)
    both = mask * np.concatenate([np.ones((8, 1)), mask[:, :-1]], axis=1)
    expected = np.sum(both[..., None] * (moved - images[1]) ** 2) * mask.sum() / both.sum()
    assert result == pytest.approx(expected, rel=1e-5)


def test_covering_what_differs_gains_nothing_by_itself() -> None:
    """Where every pixel differs alike, no move under the mask is worth anything."""
    energy = TransformedDistance(Affine(boundary="edge"), mask=as_mask(hidden_columns()))
    sample, prototype = np.full((8, 8, 1), 0.7), np.full((8, 8, 1), 0.2)
    rng = np.random.default_rng(0)
    result = [energy_of(energy, sample, prototype, 0.2 * rng.normal(size=6)) for _ in range(5)]
    assert np.allclose(result, 48 * 0.25, rtol=1e-5)


@pytest.mark.parametrize("unbound", [TransformedDistance, TransformedPrototype])
def test_unaligned_is_the_energy_at_the_identity(unbound: Any) -> None:
    weights = np.random.default_rng(0).integers(0, 256, (8, 8)).astype(np.uint8)
    energy = unbound(Affine(), SquaredEuclidean(), mask=as_mask(weights))
    images = DIGITS.images[:3]
    clusters = Clusters(jnp.asarray(images[1:]), jnp.zeros((2, energy.num_penalties)))
    result = energy.unaligned(jnp.asarray(images[0]), clusters)
    each = [energy_of(energy, images[0], other, np.zeros(6)) for other in images[1:]]
    expected = [np.sum(weights[..., None] / 255 * (images[0] - other) ** 2) for other in images[1:]]
    assert np.allclose(result, each, rtol=1e-5)
    assert np.allclose(result, expected, rtol=1e-5)


def test_a_prototype_of_unit_norm_is_best_among_what_is_seen() -> None:
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, (1, 3, 4, 1)).astype(np.float32)
    weight[0, :, 0] = 0.0
    total = rng.uniform(size=(1, 3, 4, 2)).astype(np.float32) * (weight > 0)
    sums = Sums(jnp.asarray(total), jnp.asarray(weight), jnp.ones((1,)))
    update = jax.jit(UnitNormImages().update)
    result = np.asarray(update(sums, jnp.zeros((1, 3, 4, 2))))[0]
    assert np.all(result[:, 0] == 0.0)
    assert np.sum(result**2) == pytest.approx(1.0, rel=1e-5)

    def cost(flat: np.ndarray) -> float:
        image = (flat / np.linalg.norm(flat)).reshape(3, 3, 2)
        return float(np.sum(weight[0, :, 1:] * image**2 - 2 * total[0, :, 1:] * image))

    best = min(minimize(cost, rng.normal(size=18)).fun for _ in range(3))
    assert cost(result[:, 1:].reshape(-1)) == pytest.approx(best, rel=1e-4)


def test_a_mask_is_saved_with_the_model(tmp_path: Path) -> None:
    mask = hidden_columns()
    fitted = KMeans(3, mask=mask, num_restarts=1, split_merge=False).fit(
        DIGITS.images[:COUNT], key=KEY
    )
    diffclust.save(tmp_path / "model", fitted)
    loaded = diffclust.load(tmp_path / "model")
    assert loaded.model == fitted.model
    dirty = stained(DIGITS.images[:COUNT], mask)
    assert np.array_equal(loaded.predict(dirty).clusters, fitted.assignments)


def test_a_stream_is_masked_as_an_array_is(tmp_path: Path) -> None:
    mask = hidden_columns()
    images = stained(DIGITS.images[:COUNT], mask)
    np.save(tmp_path / "images.npy", images)
    model = KMeans(3, mask=mask, num_restarts=1, split_merge=False)
    start = images[:3]
    whole = model.fit(images, key=KEY, prototypes=start)
    streamed = model.fit(open_stream(tmp_path / "images.npy").samples, key=KEY, prototypes=start)
    assert np.array_equal(whole.assignments, streamed.assignments)
    assert streamed.loss == pytest.approx(whole.loss, rel=1e-6)


def test_images_that_are_blank_but_for_what_is_hidden_are_refused() -> None:
    images = DIGITS.images[:COUNT].copy()
    images[7, :, 2:] = 0.0
    model = MODELS["di-kmeans"].from_settings({"num_clusters": 3, "mask": hidden_columns()})
    with pytest.raises(ValueError, match=r"blank.*7"):
        model.fit(stained(images, hidden_columns()), key=KEY)


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_a_mask_keeps_its_weights(levels: np.ndarray) -> None:
    if not levels.any():
        with pytest.raises(ValueError, match="hides all pixels"):
            as_mask(levels)
        return
    text, largest = as_mask(levels), 255 if levels.max() > 1 else 1
    if text is None:
        assert np.all(levels == largest)
        return
    assert as_mask(text) == as_mask(levels / largest) == json.loads(json.dumps(text))
    assert np.array_equal(mask_weights(text)[..., 0], levels / largest)


def test_a_report_tells_a_mask_in_words(tmp_path: Path) -> None:
    fitted = KMeans(3, mask=hidden_columns(), num_restarts=1).fit(DIGITS.images[:COUNT], key=KEY)
    page = tmp_path / "report.html"
    write_report(page, fitted, DIGITS.take(np.arange(COUNT)), map_samples=0)
    assert "8x8 pixels, 25.0% hidden" in page.read_text("utf-8")


def test_of_coarser_images_a_mask_is_the_mean() -> None:
    weights = np.random.default_rng(0).integers(1, 255, (6, 9)).astype(np.uint8)
    text = as_mask(weights)
    assert text is not None
    coarse = mask_weights(text, 3, 3)[..., 0]
    assert np.allclose(coarse, weights.reshape(3, 2, 3, 3).mean(axis=(1, 3)) / 255)
    # A pixel and a half in each cell.
    uneven = mask_weights(text, 4, 9)[..., 0] * 255
    assert np.allclose(uneven[0], (weights[0] + 0.5 * weights[1]) / 1.5)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones((3, 4, 1)), "one number for each pixel"),
        (np.ones((0, 4)), "one number for each pixel"),
        (np.array([["a"]]), "one number for each pixel"),
        (np.full((3, 4), np.nan), "from 0 to 1"),
        (np.full((3, 4), 1.5), "from 0 to 1"),
        (np.zeros((3, 4)), "hides all pixels"),
        ("mask.png", "text from as_mask"),
        ("2x2:AAAA", "text from as_mask"),
    ],
)
def test_what_is_no_mask_is_refused(mask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KMeans(3, mask=mask)


def test_a_mask_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="mask is of 4x8 pixels and the images are of 8x8"):
        KMeans(3, mask=np.eye(4, 8)).fit(DIGITS.images[:COUNT], key=KEY)


def test_a_mask_of_colours_is_refused() -> None:
    with pytest.raises(ValueError, match="a mask needs a spatial transform, not Colour"):
        TransformedDistance(Colour(1), mask=as_mask(hidden_columns()))


def test_a_fit_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mask = hidden_columns()
    np.save("images.npy", stained(DIGITS.images[:COUNT], mask))
    Image.fromarray((mask * 255).astype(np.uint8)).save("mask.png")
    Image.fromarray((mask * 255).astype(np.uint8)).resize((16, 16), 0).save("large.png")
    np.save("mask.npy", mask > 0)
    quick = ["-k", "3", "--method", "kmeans", "--restarts", "1", "--no-report"]
    fit = ["fit", "images.npy", *quick]
    assert main([*fit, "--mask", "mask.png", "--out", "a"]) == 0
    assert main([*fit, "--mask", "mask.npy", "--out", "b"]) == 0
    model = KMeans(3, mask=mask, num_restarts=1)
    expected = model.fit(DIGITS.images[:COUNT], key=KEY).assignments
    for run in ("a", "b"):
        assert np.array_equal(diffclust.load(Path(run) / "model").assignments, expected)
    for options, message in (
        (["--mask", "large.png"], "the mask is of 16x16 pixels and the images are of 8x8"),
        (["--mask", "none.png"], "mask in 'none.png' cannot be read"),
        (["--mask", "images.npy"], "mask in 'images.npy' is not one"),
        (["--mask", "mask.png", "--method", "shape-kmeans"], "takes no --mask"),
    ):
        assert main([*fit, *options, "--out", "d"]) == 2
        assert message in capsys.readouterr().err
        assert not Path("d").exists()


def test_a_picture_of_a_mask_is_resized_like_the_images(tmp_path: Path) -> None:
    picture = np.zeros((20, 40, 3), np.uint8)
    picture[:, 20:] = 255
    Image.fromarray(picture).save(tmp_path / "mask.png")
    result = load_mask(tmp_path / "mask.png", (4, 4))
    assert np.allclose(result, [[0, 0, 1, 1]] * 4, atol=0.2)
    picture[...] //= 255
    Image.fromarray(picture).save(tmp_path / "ones.png")
    np.testing.assert_array_equal(load_mask(tmp_path / "ones.png"), picture[..., 0])
    # 8-bit numbers of which none is above 1 are no weights of 1/255.
    assert as_mask(picture[..., 0]) == as_mask(picture[..., 0] > 0)
    assert as_mask(np.ones((4, 4), np.uint8)) is None
    Image.fromarray(255 * picture).save(tmp_path / "mask.jpg")
    (tmp_path / "mask.jpg").rename(tmp_path / "jpeg.png")
    with pytest.raises(DataError, match="is a JPEG, in which pixels beside an edge"):
        load_mask(tmp_path / "jpeg.png")
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "black.png")
    with pytest.raises(DataError, match="hides all pixels"):
        load_mask(tmp_path / "black.png")
