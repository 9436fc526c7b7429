"""Methods of images that are registered first: fits, new images, files, streams and devices."""

import contextlib
import dataclasses
import json

import jax
import jaxtyping
import numpy as np
import pytest

import diffclust
from diffclust import (
    AffineInvariantKMeans,
    DeformationInvariantSpectralClustering,
    DTIKMeans,
    GaussianMixture,
    KMeans,
    metrics,
)
from diffclust.methods import METHODS
from diffclust.models import (
    MODELS,
    ProjectedScatteringSpectralClustering,
    ScatteringKMeans,
    Training,
    spectral,
    unaligned,
    warped_prototypes,
)
from diffclust.models import images as model_images
from diffclust.models.images import AbstractImageModel, restored
from diffclust.parallel import Data, data_mesh
from diffclust.registration import Frame, ink_of, own_sides
from tests.models.cuts import quick_alignments
from tests.models.test_di_spectral import by_bending
from tests.registration.test_colours import Stored
from tests.registration.test_images import blobs
from tests.registry import blobs as draw_blobs
from tests.storage.test_snapshots import Breaking, Broken

KEY = jax.random.key(0)
COUNT = 48
FEW = {"num_restarts": 3, "split_merge": False}
LABELS = np.arange(COUNT) % 3
IMAGES = [name for name, method in METHODS.items() if method.sample_kind == "image"]
REFUSED = (ValueError, jaxtyping.TypeCheckError)
QUICK = pytest.fixture(quick_alignments, scope="module", autouse=True)


def moved(kind: str = "black") -> np.ndarray:
    """Three pictures, each many times at other places and of other sizes, on a ground."""
    draw = np.random.default_rng(0)
    ink = np.stack(
        [
            blobs(
                20,
                20,
                int(label),
                matrix=draw.uniform(0.6, 0.9) * np.eye(2),
                shift=tuple(draw.uniform(-0.3, 0.3, 2)),
            )
            for label in LABELS
        ]
    )
    if kind == "colours":
        front, back = draw.uniform(size=(2, COUNT, 1, 1, 3)).astype(np.float32)
        return ink * front + (1 - ink) * back
    return {"black": ink, "white": 1 - ink}[kind]


@pytest.fixture(scope="module")
def coloured():
    images = moved("colours")
    return images, KMeans(3, **FEW, register="upright").fit(images, key=KEY)


@pytest.mark.parametrize(("kind", "ground"), [("black", "none"), ("white", "light")])
def test_place_and_size_do_not_matter_any_more(kind, ground):
    images = moved(kind)
    alone = KMeans(3, **FEW).fit(images, key=KEY)
    result = KMeans(3, **FEW, register="place").fit(images, key=KEY)
    assert alone.model.register == "none"
    assert (result.model.register, result.model.ground) == ("place", ground)
    assert metrics.adjusted_rand_index(LABELS, alone.assignments) < 0.7
    assert metrics.adjusted_rand_index(LABELS, result.assignments) == 1.0


def test_colours_do_not_matter_any_more(coloured):
    _, result = coloured
    assert result.model.ground == "colour"
    assert metrics.adjusted_rand_index(LABELS, result.assignments) == 1.0
    assert result.prototypes.shape == (3, 28, 28, 1)


def test_new_images_are_registered_as_those_that_were_fitted(coloured):
    images, result = coloured
    again = result.predict(images[:5])
    np.testing.assert_array_equal(again.clusters, result.assignments[:5])
    np.testing.assert_allclose(again.distances, result.distances[:5], rtol=1e-4)
    np.testing.assert_allclose(
        result.align(images[:5], result.outcome.assignment.params[:5]),
        result.registered(images[:5]),
    )


def test_registered_images_are_brought_back(coloured):
    images, result = coloured
    back = restored(result, images, result.registered(images))
    np.testing.assert_allclose(back, images, atol=0.12)
    prototypes = result.prototypes[result.assignments]

    def error(drawn: np.ndarray, model: AbstractImageModel = result.model) -> float:
        drawn = restored(dataclasses.replace(result, model=model), images, drawn)
        return np.mean(np.abs(drawn - images))

    # A blank drawing is what ignores the figures.
    blank = error(np.zeros_like(prototypes))
    assert error(prototypes) < blank / 2
    units = prototypes / np.sqrt((prototypes**2).sum((1, 2, 3), keepdims=True))
    assert error(units) > blank / 2
    given = {"register": "upright", "ground": "colour", "canvas": result.model.canvas}
    for kind in (AffineInvariantKMeans, DeformationInvariantSpectralClustering):
        assert error(units, kind(3, **given)) < blank / 2


def test_what_does_not_match_the_images_is_not_drawn(coloured):
    images, result = coloured
    drawn = result.registered(images[:4])
    for given, other in ((images, drawn), (images[:4], drawn[:, 1:]), (images[:1], drawn)):
        with pytest.raises(ValueError, match="drawn must have shape"):
            restored(result, given, other)
    with pytest.raises(ValueError, match="prototypes of registered images must have at least 8"):
        KMeans(3, register="place").fit(
            images, key=jax.random.key(0), prototypes=np.zeros((3, 4, 4, 1))
        )


def test_a_model_is_saved_with_its_frame(coloured, tmp_path):
    images, result = coloured
    diffclust.save(tmp_path / "model", result)
    loaded = diffclust.load(tmp_path / "model")
    assert loaded.model == result.model
    np.testing.assert_array_equal(loaded.predict(images).clusters, result.assignments)


def test_new_images_must_be_of_the_fitted_size_and_finite(coloured):
    images, result = coloured
    # As they come: registered, the shorter side has 28 pixels.
    with pytest.raises(REFUSED, match=r"shape \(20, 20, 3\), not \(18, 20, 3\)"):
        result.predict(images[:4, :18])
    with pytest.raises(REFUSED, match="NaN or infinity at index 3"):
        result.predict(np.where(np.arange(COUNT)[:, None, None, None] == 3, np.nan, images))


def test_new_images_may_have_another_size_of_the_same_proportions(coloured):
    images, result = coloured
    larger = images.repeat(2, 1).repeat(2, 2)
    np.testing.assert_array_equal(result.predict(larger).clusters, result.assignments)


@pytest.mark.parametrize(
    "model",
    [
        KMeans(3, **FEW, register="upright"),
        pytest.param(ProjectedScatteringSpectralClustering(3), marks=pytest.mark.slow),
    ],
    ids=["kmeans", "pssc"],
)
def test_a_fit_that_was_broken_off_goes_on_in_its_frame(model, coloured):
    images, result = coloured
    result = result if isinstance(model, KMeans) else model.fit(images, key=KEY)
    states = Breaking(1)
    for _ in range(50):
        with contextlib.suppress(Broken):
            again = model.fit(images, key=KEY, snapshots=states)
            break
    assert states.count > 2
    assert again.model == result.model
    np.testing.assert_array_equal(again.assignments, result.assignments)
    np.testing.assert_array_equal(again.prototypes, result.prototypes)


def test_streamed_images_give_the_same_clusters(coloured):
    images, result = coloured
    streamed = KMeans(3, **FEW, register="upright").fit(Stored(images), key=KEY)
    assert streamed.model == result.model
    np.testing.assert_array_equal(streamed.assignments, result.assignments)


def test_devices_give_the_same_clusters(coloured):
    images, result = coloured
    shared = KMeans(3, **FEW, register="upright").fit(images, key=KEY, mesh=data_mesh())
    np.testing.assert_array_equal(shared.assignments, result.assignments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        GaussianMixture(
            3, register="upright", training=Training(steps=(20, 10), batch_size=16), num_restarts=1
        ),
        DTIKMeans(
            3,
            register="upright",
            transforms="aff",
            training=Training(steps=(5, 10, 5), batch_size=16),
            num_restarts=1,
        ),
    ],
    ids=["gmm", "dti-kmeans"],
)
def test_gradient_fits_are_the_same_streamed_shared_and_resumed(model):
    images = moved("colours")
    result = model.fit(images, key=KEY)
    assert (result.model.register, result.model.ground) == ("upright", "colour")
    streamed = model.fit(Stored(images), key=KEY)
    assert streamed.model == result.model
    np.testing.assert_allclose(streamed.history, result.history, rtol=1e-6)
    np.testing.assert_array_equal(streamed.assignments, result.assignments)
    shared = model.fit(images, key=KEY, mesh=data_mesh())
    np.testing.assert_allclose(shared.history, result.history, rtol=1e-4)
    states = Breaking(1)
    for _ in range(50):
        with contextlib.suppress(Broken):
            again = model.fit(images, key=KEY, snapshots=states)
            break
    assert states.count > 2
    np.testing.assert_array_equal(again.history, result.history)
    np.testing.assert_array_equal(again.prototypes, result.prototypes)


def test_prototypes_to_start_from_are_registered_ones(coloured):
    images, result = coloured
    again = KMeans(3, **FEW, register="upright").fit(images, key=KEY, prototypes=result.prototypes)
    np.testing.assert_array_equal(again.assignments, result.assignments)
    assert again.loss == pytest.approx(result.loss, rel=1e-4)


def test_a_mask_acts_before_registration():
    images, mask = moved(), np.ones((20, 20))
    mask[0], images[:, 0] = 0.0, np.random.default_rng(1).uniform(size=(COUNT, 20, 1))
    result = KMeans(3, **FEW, register="place", mask=mask).fit(images, key=KEY)
    assert result.model.pixel_mask is None
    assert metrics.adjusted_rand_index(LABELS, result.assignments) == 1.0
    np.testing.assert_array_equal(result.predict(images).clusters, result.assignments)


def test_photographs_are_placed_and_keep_their_colours():
    paints = np.array([[0.8, 0.1, 0.1], [0.1, 0.6, 0.2], [0.2, 0.2, 0.9]], np.float32)
    ink, ground = moved(), np.array([0.7, 0.65, 0.6], np.float32)
    images = ink * paints[LABELS][:, None, None] + (1 - ink) * ground
    result = KMeans(3, **FEW, register="auto", ground="keep").fit(images, key=KEY)
    assert (result.model.register, result.model.ground) == ("place", "keep")
    assert metrics.adjusted_rand_index(LABELS, result.assignments) == 1.0
    assert result.prototypes.shape == (3, 28, 28, 3)
    np.testing.assert_allclose(result.prototypes[:, 0, 0], np.tile(ground, (3, 1)), atol=0.1)
    np.testing.assert_array_equal(result.predict(images).clusters, result.assignments)
    # Its frames would be those of bright ink.
    model = DeformationInvariantSpectralClustering(3, ground="keep").resolved(Data(images))
    assert model.register == "place"


@pytest.mark.parametrize(
    ("found", "kept", "unmoved", "expected"),
    [
        (0.8, 1.0, 1.0, ("upright", "dark")),
        (0.7, 0.79, 0.79, ("upright", "dark")),
        (0.6, 0.9, 0.7, ("place", "keep")),
        (0.6, 0.7, 0.9, ("none", "none")),
    ],
)
def test_a_doubtful_ground_is_taken_out_unless_something_else_is_steadier(
    found: float, kept: float, unmoved: float, expected: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"upright": found, "place": kept, "none": unmoved}
    asked = []

    def stability(model: object, register: str, ground: str, *, images: np.ndarray) -> float:
        asked.append((register, len(images)))
        return said[register]

    monkeypatch.setattr(model_images, "_JUDGES", [stability])
    noise = np.random.default_rng(0).normal(size=(COUNT, 20, 20, 1))
    images = (0.3 + 0.6 * moved() + 0.1 * noise).clip(0, 1).astype(np.float32)
    graphs = ProjectedScatteringSpectralClustering, DeformationInvariantSpectralClustering
    for kind in (*graphs, KMeans):
        tried = contextlib.nullcontext() if found >= 0.8 else pytest.warns(match="doubtful")
        with tried:
            model = kind(3, register="auto").resolved(Data(images))
        is_mean = kind is DeformationInvariantSpectralClustering and expected[0] == "upright"
        assert (model.register, model.ground) == ("auto" if is_mean else expected[0], expected[1])
        names = ["upright", "place", "none"][: 1 if found >= 0.8 else 3]
        # What was found of these images is remembered, whatever the method.
        assert asked == [(name, COUNT) for name in names]
        figures = zip(("found", "kept", "unregistered"), map(said.get, names), strict=False)
        assert kind(3, register="auto").tried(Data(images)) == {
            f"stability_{name}": value for name, value in figures
        }
    # Nothing is tried where the ground is plain, or was given, or images are few.
    asked.clear()
    for model, given in (
        (ProjectedScatteringSpectralClustering(3), moved()),
        (ProjectedScatteringSpectralClustering(3, register="upright"), images),
        (ProjectedScatteringSpectralClustering(3, ground="dark"), images),
        (ProjectedScatteringSpectralClustering(10), images),
        (KMeans(3), images),
    ):
        model.resolved(Data(given))
    assert not asked


def test_frames_of_large_pictures_are_tried_on_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def stability(model: object, register: str, ground: str, *, images: np.ndarray) -> float:
        sizes.append(images.shape[1:])
        if register != "place":
            raise ValueError("too many coefficients")
        return 0.9

    monkeypatch.setattr(model_images, "_JUDGES", [stability])
    noise = np.random.default_rng(1).normal(size=(15, 20, 20, 1))
    images = (0.3 + 0.6 * moved()[:15] + 0.1 * noise).clip(0, 1).astype(np.float32)
    large = images.repeat(20, 1).repeat(26, 2)
    with pytest.warns(match="of 0.00 if it is removed, 0.90 if it is kept"):
        model = KMeans(3, register="auto").resolved(Data(large))
    assert (model.register, model.ground) == ("place", "keep")
    assert set(sizes) == {(100, 130, 1)}
    # Of so few as fit into memory at once there would not be five for each cluster.
    sizes.clear()
    monkeypatch.setattr(model_images, "_MOST_VALUES", 15 * 100 * 130)
    monkeypatch.setattr(model_images, "_JUDGED", {})
    with pytest.warns(match="of 0.00 if it is removed"):
        KMeans(3, register="auto").resolved(Data(large))
    assert set(sizes) == {(100, 130, 1)}


@pytest.mark.slow
def test_stability_is_that_of_a_fit() -> None:
    model = ProjectedScatteringSpectralClustering(3, affinity="graph", register="none")
    result = model.fit(moved(), key=jax.random.key(0))
    figure = result.outcome.figures["stability"]
    judged = spectral.stability_of_frame(model, "none", "auto", moved())
    assert judged == pytest.approx(figure, abs=0.1)


@pytest.mark.slow
def test_where_the_ground_is_kept_local_contrast_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is what a fit takes."""
    seen = []
    features = ProjectedScatteringSpectralClustering.features_stage

    def watched(self: ProjectedScatteringSpectralClustering, context: object) -> object:
        seen.append(self.contrast)
        return features(self, context)

    monkeypatch.setattr(ProjectedScatteringSpectralClustering, "features_stage", watched)
    model = ProjectedScatteringSpectralClustering(3, register="place", ground="keep")
    spectral.stability_of_frame(model, "place", "keep", moved())
    spectral.stability_of_frame(model, "place", "dark", moved())
    assert seen == ["local", "local", "none"]


def test_images_of_weight_zero_say_nothing_of_the_ground() -> None:
    images = np.zeros((20, 28, 28, 1), np.float32)
    images[:, 8:20, 12:16] = 1.0
    images[10:] = 1.0 - images[10:]
    data = Data(images, np.repeat([1.0, 0.0], 10))
    model = KMeans(2, register="place")
    assert model.resolved(data).ground == "none"
    assert model.resolved(Data(images)).ground == "colour"


def test_images_for_a_frame_alone_must_be_finite():
    images = moved()
    images[3, 0, 0] = np.nan
    frame = Frame("place", "dark")
    for call in (frame.registered, frame.params_of, ink_of):
        with pytest.raises(ValueError, match="NaN or infinity at index 3"):
            call(images)


def test_without_a_plain_ground_auto_takes_nothing_out():
    noise = np.random.default_rng(0).uniform(size=(12, 10, 10, 1)).astype(np.float32)
    model = KMeans(2, register="auto").fit(noise, key=KEY).model
    assert (model.register, model.ground) == ("none", "none")


@pytest.mark.parametrize("blank", [1, COUNT])
def test_blank_images_are_registered_or_refused(blank):
    images = moved()
    images[:blank] = 0.0
    result = KMeans(3, **FEW, register="auto").fit(images, key=KEY)
    assert (result.model.register, result.model.ground) == ("upright", "none")
    assert not result.registered(images[:blank]).any()
    with pytest.raises(ValueError, match="images holds blank images at index 0"):
        by_bending(register="auto").fit(images, key=KEY)


def in_large_pictures(margin: int = 16) -> np.ndarray:
    return np.pad(moved(), ((0, 0), (margin, 0), (0, margin), (0, 0)))


@pytest.mark.slow
def test_registered_images_have_as_many_pixels_as_their_figures():
    images = in_large_pictures()
    result = KMeans(3, **FEW, register="place").fit(images, key=KEY)
    assert result.model.canvas == 28
    assert (result.sample_shape, result.given_shape) == ((28, 28, 1), (36, 36, 1))
    assert metrics.adjusted_rand_index(LABELS, result.assignments) == 1.0
    np.testing.assert_array_equal(result.predict(images[:9]).clusters, result.assignments[:9])
    drawn = restored(result, images, result.prototypes[result.assignments])
    assert drawn.shape == images.shape
    assert np.mean(np.abs(drawn - images)) < 0.01
    # In larger pictures figures of the same size have as many.
    assert KMeans(3, register="place").resolved(Data(in_large_pictures(99))).canvas == 28
    large = KMeans(3, **FEW, register="place", canvas=32).fit(images, key=KEY)
    assert large.prototypes.shape == (3, 32, 32, 1)
    # Where the ground is kept, so is what lies around.
    kept = KMeans(3, register="place", ground="keep").resolved(Data(images))
    assert kept.canvas == 36
    assert KMeans(3).resolved(Data(images)).canvas is None


@pytest.mark.slow
def test_figures_of_a_size_between_the_bounds_have_that_size():
    images = in_large_pictures(10).repeat(5, axis=1).repeat(5, axis=2)
    model = KMeans(3, **FEW, register="place")
    sides = own_sides(images, Frame("place"))
    expected = 4 * np.ceil(np.median(sides) / 4)
    assert 28 < expected < images.shape[1]
    assert model.resolved(Data(images)).canvas == expected
    # Images of weight zero say nothing of it.
    small = np.concatenate([images, in_large_pictures(130)[:40]])
    weight = np.repeat([1.0, 0.0], [COUNT, 40])
    assert model.fit(small, key=KEY, sample_weight=weight).model.canvas == expected
    # Nor do blank ones.
    blank = np.concatenate([images, np.zeros_like(images)])
    assert model.resolved(Data(blank)).canvas == expected


def test_a_fit_from_prototypes_has_their_size():
    images = in_large_pictures()
    result = KMeans(3, **FEW, register="place").fit(images, key=KEY, prototypes=images[:3])
    assert result.prototypes.shape == (3, 36, 36, 1)
    again = KMeans(3, **FEW, register="place").fit(images, key=KEY, prototypes=result.prototypes)
    np.testing.assert_allclose(again.loss, result.loss, rtol=1e-4)


def test_splines_of_upright_images_have_other_penalties() -> None:
    """Where none are given."""
    model = diffclust.DeformationInvariantKMeans(3)
    upright = dataclasses.replace(model, register="upright")
    placed = dataclasses.replace(model, register="place")
    assert model.penalty() == placed.penalty() == placed.without_registration.penalty()
    assert model.penalty() == (0.5, 0.015)
    assert upright.penalty() == upright.without_registration.penalty() == (1.0, 0.012)
    used = upright.automatic_settings(Data(moved()).description)
    assert (used["affine_penalty"], used["bending_penalty"]) == upright.penalty()
    given = dataclasses.replace(upright, affine_penalty=0.5)
    assert given.penalty() == given.without_registration.penalty() == (0.5, 0.012)


@pytest.mark.slow
def test_registered_images_are_fitted_with_these_penalties() -> None:
    model = diffclust.DeformationInvariantKMeans(3, **FEW, max_passes=2)
    upright, images = dataclasses.replace(model, register="upright"), moved()[:12]
    result = upright.fit(images, key=KEY)
    weighed = dataclasses.replace(model, affine_penalty=1.0, bending_penalty=0.012)
    again = weighed.fit(upright.prepared(images), key=KEY)
    np.testing.assert_array_equal(result.assignments, again.assignments)
    np.testing.assert_allclose(result.loss, again.loss, rtol=1e-6)
    assert result.model.affine_penalty is None


def test_landmarks_fit_the_canvas():
    model = by_bending(register="auto", canvas=8, landmarks=(10, 10))
    with pytest.raises(ValueError, match="landmarks"):
        model.fit(in_large_pictures(), key=KEY)


def test_models_saved_before_keep_the_size_of_images(tmp_path):
    images = in_large_pictures()
    result = KMeans(3, **FEW, register="place", canvas=36).fit(images, key=KEY)
    diffclust.save(tmp_path / "model", result)
    path = tmp_path / "model" / "model.json"
    about = json.loads(path.read_text())
    assert about["settings"].pop("canvas") == 36
    path.write_text(json.dumps(about))
    loaded = diffclust.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.registered(images), result.registered(images))
    inked = KMeans(3, **FEW, ground="dark").fit(images, key=KEY)
    diffclust.save(tmp_path / "inked", inked)
    assert diffclust.load(tmp_path / "inked").model == inked.model


@pytest.mark.slow
def test_the_mean_graph_over_frames_of_large_pictures(tmp_path):
    images = in_large_pictures()
    result = by_bending(register="auto").fit(images, key=KEY)
    assert (result.model.register, result.model.canvas) == ("auto", 28)
    assert result.prototypes.shape == (3, 28, 28, 1)
    assert result.registered(images).shape == (COUNT, 28, 28, 1)
    assert result.align(images, result.outcome.assignment.params).shape == (COUNT, 28, 28, 1)
    diffclust.save(tmp_path / "model", result)
    again = diffclust.load(tmp_path / "model").predict(images)
    assert np.mean(again.clusters == result.assignments) > 0.95


@pytest.mark.slow
def test_the_mean_graph_over_frames():
    images = moved("colours")
    model = by_bending(register="auto")
    result = model.fit(images, key=KEY)
    assert (result.model.register, result.model.ground) == ("auto", "colour")
    assert metrics.adjusted_rand_index(LABELS, result.assignments) > 0.9
    # Two distances, which may agree or not.
    assert "stability" in result.outcome.figures
    again = result.predict(images)
    assert np.mean(again.clusters == result.assignments) > 0.95
    params = result.outcome.assignment.params
    upright = dataclasses.replace(result.model, register="upright").prepared(images)
    # Small images are read twice here: at more pixels, and upright.
    assert np.mean(np.abs(result.registered(images) - upright)) < 0.02
    assert result.align(images, params).shape == upright.shape


@pytest.mark.parametrize("method", IMAGES)
def test_what_is_the_default(method):
    expected = "auto" if method in ("pssc", "di-spectral") else "none"
    assert MODELS[method](3).register == expected
    with pytest.raises(REFUSED, match="register"):
        MODELS[method](3, register="straight")
    with pytest.raises(REFUSED, match="ground"):
        MODELS[method](3, ground="red")


def test_as_published_registers_nothing():
    assert MODELS["pssc"].as_published(3).register == "none"
    assert DeformationInvariantSpectralClustering(3, register="none").frame.is_identity


@pytest.mark.slow
def test_coloured_things_on_one_ground_are_told_apart() -> None:
    rng, (y, x) = np.random.default_rng(0), np.mgrid[:24, :24]
    inks = np.array([[0.9, 0.2, 0.1], [0.1, 0.6, 0.2], [0.2, 0.2, 0.9]], np.float32)
    images = np.ones((24, 24, 24, 3), np.float32)
    for number, image in enumerate(images):
        row, column = rng.integers(8, 16, 2)
        image[(y - row) ** 2 + (x - column) ** 2 <= rng.integers(16, 36)] = inks[number % 3]
    settings = {"num_dimensions": 20, "num_angles": 3, "num_restarts": 1}
    model = ScatteringKMeans(3, register="auto", **settings)
    result = model.fit(images, key=KEY)
    assert (result.model.register, result.model.ground) == ("place", "keep")
    assert metrics.accuracy(np.arange(24) % 3, result.assignments) == 1.0


SHORT = {
    "lloyd": {"num_restarts": 1, "split_merge": False, "max_passes": 3},
    "gradient": {"max_steps": 40, "transforms": "aff", "num_restarts": 1, "split_merge": False},
    "graph": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", IMAGES)
def test_every_method_registers_predicts_restores_and_is_saved(method, tmp_path):
    images, descriptor = moved("colours"), METHODS[method]
    known = MODELS[method].setting_types()
    given = {"register": "upright", **SHORT[descriptor.solver]}
    given = {name: value for name, value in given.items() if name in known}
    result = MODELS[method].from_settings({"num_clusters": 3, **given}).fit(images, key=KEY)
    assert (result.model.register, result.model.ground) == ("upright", "colour")
    assert result.prototypes.shape == (3, 28, 28, 1)
    diffclust.save(tmp_path / "model", result)
    again = diffclust.load(tmp_path / "model")
    few, assignment = images[:6], result.outcome.assignment
    np.testing.assert_array_equal(again.predict(few).clusters, result.predict(few).clusters)
    drawn = result.prototypes[result.assignments]
    if descriptor.moves == "prototypes":
        drawn = warped_prototypes(result, assignment.clusters, assignment.params)
    elif descriptor.moves == "samples":
        drawn = unaligned(result, assignment.params, drawn)
    back, nothing = (restored(again, images, each) for each in (drawn, np.zeros_like(drawn)))
    assert back.shape == images.shape
    # On each image's own ground, in its own colours.
    assert np.abs(back - images).mean() < 0.7 * np.abs(nothing - images).mean()


@pytest.mark.parametrize("nested", [False, True])
def test_images_in_a_list_are_those_of_an_array(nested: bool) -> None:
    images = draw_blobs(40, 14, 12)
    model = KMeans(2, register="auto", **FEW)
    given = images.tolist() if nested else [*images]
    wanted = model.fit(images, key=KEY)
    result = model.fit(given, key=KEY, prototypes=None)
    np.testing.assert_array_equal(result.assignments, wanted.assignments)
    assert result.model == wanted.model
    with pytest.raises(ValueError, match="must have the fitted shape"):
        result.predict(images[:, :-1].tolist())
    again = model.fit(given, key=KEY, prototypes=wanted.prototypes.tolist())
    assert again.prototypes.shape == wanted.prototypes.shape
