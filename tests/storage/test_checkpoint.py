"""What is saved comes back bit for bit, whole or not at all."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint
import pytest

import diffclust
from diffclust import AffineInvariantKMeans, KMeans, load, save
from diffclust.models import MODELS, Result
from diffclust.prototypes import UnitNormImages
from diffclust.solvers import Assignment
from diffclust.storage import checkpoint

ROOT = Path(__file__).parents[2]


def blobs(count: int = 12, side: int = 8) -> np.ndarray:
    """Bright squares at several places, none of them blank."""
    random = np.random.default_rng(0)
    images = random.uniform(0.0, 0.2, (count, side, side, 1)).astype(np.float32)
    for i in range(count):
        images[i, 1 + i % 3 : 5 + i % 3, 2 : 4 + i % 4] += 0.6
    return images


IMAGES = blobs()
MODELS_TRIED = {
    "kmeans": KMeans(2, num_restarts=2, split_merge=False),
    "ai-kmeans": AffineInvariantKMeans(2, num_restarts=1, max_passes=2, split_merge=False),
}


@pytest.fixture(scope="module", params=sorted(MODELS_TRIED))
def result(request: pytest.FixtureRequest, key: jax.Array) -> Result:
    return MODELS_TRIED[request.param].fit(IMAGES, key=key)


@pytest.fixture(scope="module")
def plain(key: jax.Array) -> Result:
    return MODELS_TRIED["kmeans"].fit(IMAGES, key=key)


@pytest.fixture
def saved(plain: Result, tmp_path: Path) -> Path:
    save(tmp_path / "model", plain)
    return tmp_path / "model"


def assert_same(one: Assignment, other: Assignment) -> None:
    for name, first in vars(one).items():
        second = getattr(other, name)
        assert getattr(first, "dtype", None) == getattr(second, "dtype", None)
        np.testing.assert_array_equal(first, second, err_msg=name)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def edit(model: Path, **changes: object) -> None:
    description = json.loads((model / "model.json").read_text("utf-8"))
    (model / "model.json").write_text(json.dumps({**description, **changes}), "utf-8")


def test_everything_comes_back(result: Result, tmp_path: Path) -> None:
    save(tmp_path / "model", result)
    loaded = load(tmp_path / "model")
    assert loaded.model == result.model
    assert loaded.sample_shape == result.sample_shape
    assert loaded.summary() == result.summary()
    assert loaded.history == result.history
    assert_same(loaded.outcome.assignment, result.outcome.assignment)
    np.testing.assert_array_equal(loaded.prototypes, result.prototypes)


def test_loaded_result_predicts_the_same_bits(result: Result, tmp_path: Path) -> None:
    save(tmp_path / "model", result)
    loaded = load(tmp_path / "model")
    new = IMAGES[::-1].copy()
    assert_same(loaded.predict(new), result.predict(new))
    params = result.outcome.assignment.params
    np.testing.assert_array_equal(loaded.align(IMAGES, params), result.align(IMAGES, params))


def test_folder_holds_json_and_no_pickle(saved: Path) -> None:
    description = json.loads((saved / "model.json").read_text("utf-8"))
    assert description["format"] == 2
    assert description["diffclust"] == diffclust.__version__
    assert description["settings"]["num_clusters"] == 2
    assert not [path for path in saved.rglob("*") if path.suffix in (".pkl", ".pickle")]


@pytest.mark.slow
@pytest.mark.parametrize("result", ["kmeans", "ai-kmeans"], indirect=True)
def test_another_process_predicts_the_same_bits(result: Result, tmp_path: Path) -> None:
    save(tmp_path / "model", result)
    np.save(tmp_path / "images.npy", IMAGES)
    code = (
        "import numpy, diffclust\n"
        "found = diffclust.load('model').predict(numpy.load('images.npy'))\n"
        "numpy.savez('found.npz', **{n: a for n, a in vars(found).items() if a is not None})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    with np.load(tmp_path / "found.npz") as actual:
        assert_same(Assignment(**actual), result.predict(IMAGES))


def test_run_folder_is_taken_for_its_model(plain: Result, tmp_path: Path) -> None:
    save(tmp_path / "run" / "model", plain)
    assert load(tmp_path / "run").model == plain.model


def test_double_precision(tmp_path: Path, key: jax.Array) -> None:
    path = tmp_path / "model"
    with jax.enable_x64(True):
        result = KMeans(2, num_restarts=1).fit(IMAGES.astype(np.float64), key=key)
        assert result.prototypes.dtype == np.float64
        save(path, result)
        loaded = load(path)
        assert_same(loaded.predict(IMAGES), result.predict(IMAGES))
    with pytest.raises(ValueError, match="jax_enable_x64"):
        load(path)


def test_single_precision_is_read_in_double(plain: Result, tmp_path: Path) -> None:
    save(tmp_path / "model", plain)
    with jax.enable_x64(True):
        loaded = load(tmp_path / "model")
        assert loaded.prototypes.dtype == np.float64
        clusters = loaded.predict(IMAGES).clusters
    np.testing.assert_array_equal(clusters, plain.predict(IMAGES).clusters)


def test_existing_path_is_refused_and_kept(saved: Path, plain: Result) -> None:
    before = names(saved.parent)
    with pytest.raises(ValueError, match="overwrite"):
        save(saved, plain)
    assert names(saved.parent) == before
    assert load(saved).model == plain.model


def test_overwrite_replaces_a_model_and_nothing_else(
    saved: Path, result: Result, tmp_path: Path
) -> None:
    save(saved, result, overwrite=True)
    assert load(saved).model == result.model
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear", "utf-8")
    with pytest.raises(ValueError, match="never replaced"):
        save(tmp_path / "other", result, overwrite=True)
    assert (tmp_path / "other" / "letter.txt").read_text("utf-8") == "dear"
    with pytest.raises(ValueError, match="is a file"):
        save(tmp_path / "other" / "letter.txt", result, overwrite=True)
    with pytest.raises(ValueError, match="empty"):
        save("", result)


def test_nothing_is_left_of_a_save_that_fails(
    plain: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("diffclust.storage.checkpoint.json.dumps", fail)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "deep" / "model", plain)
    assert names(tmp_path) == []


def test_a_class_of_ones_own_fits_and_is_loaded_with_the_model(tmp_path: Path) -> None:
    class Derived(KMeans):
        def family(self) -> UnitNormImages:
            return UnitNormImages()

    images = np.random.default_rng(0).uniform(size=(8, 3, 3, 1)).astype(np.float32)
    model = Derived(2, num_restarts=1)
    result = model.fit(images, key=jax.random.key(0))
    norms = np.linalg.norm(result.prototypes.reshape(2, -1), axis=1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
    save(tmp_path / "model", result)
    again = load(tmp_path / "model", like=model)
    np.testing.assert_array_equal(again.predict(images).distances, result.predict(images).distances)
    with pytest.raises(ValueError, match="one of the user's own; give the model as like="):
        load(tmp_path / "model")
    with pytest.raises(ValueError, match="is Derived, and like= is KMeans"):
        load(tmp_path / "model", like=KMeans(2))


def test_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(ValueError, match="is a file"):
        load(tmp_path / "file")
    with pytest.raises(ValueError, match=r"holds no model.*model\.json"):
        load(tmp_path)


def test_newer_format(saved: Path) -> None:
    edit(saved, format=3, diffclust="9.0")
    with pytest.raises(ValueError, match="format 3, written by diffclust 9.0.*newer"):
        load(saved)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "x"},
        {"method": "no-means"},
        {"settings": {"num_clusters": 0}},
        {"settings": {"num_clusters": 3}},
        {"settings": {"colour": 3}},
        {"settings": None},
        {"sample_shape": [4, 4, 1]},
        {"status": "tired"},
        {"arrays": {}},
        {"arrays": {"prototype": {"shape": [2], "dtype": "object", "crc32": 0}}},
    ],
    ids=str,
)
def test_damaged_description(saved: Path, changes: dict[str, object]) -> None:
    edit(saved, **changes)
    with pytest.raises(ValueError, match="is damaged") as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_description_that_is_no_json(saved: Path) -> None:
    for text in ("", "{", "[]", "3"):
        (saved / "model.json").write_text(text, "utf-8")
        with pytest.raises(ValueError, match="is damaged"):
            load(saved)


def test_damaged_arrays(saved: Path) -> None:
    files = [path for path in (saved / "arrays").rglob("*") if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged") as caught:
        load(saved)
    assert "\n" not in str(caught.value)


def test_missing_arrays(saved: Path) -> None:
    (saved / "arrays").rename(saved.parent / "elsewhere")
    with pytest.raises(ValueError, match="is damaged"):
        load(saved)


def test_an_interruption_is_no_damage(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = checkpoint._checkpointer

    def interrupted() -> object:
        # As extension modules do that are being imported.
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error
        return opened()

    monkeypatch.setattr(checkpoint, "_checkpointer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(saved)


def test_settings_of_every_model_are_json() -> None:
    for model in MODELS.values():
        settings = json.loads(json.dumps(model(3).settings()))
        tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
        assert model.from_settings(tuples) == model(3)


def test_a_full_disk_is_told_of_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = KMeans(2, num_restarts=1).fit(blobs(12), key=jax.random.key(0))

    def full(*_: object, **__: object) -> None:
        raise ValueError("RESOURCE_EXHAUSTED: Error writing [os_error_code='28']")

    monkeypatch.setattr(orbax.checkpoint.Checkpointer, "save", full)
    with pytest.raises(
        OSError, match=r"no model can be saved in .*full' \(No space left on device"
    ):
        save(tmp_path / "full", result)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_another_model_json_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "model.json").write_text('{"class_name": "Sequential"}')
    (folder / "notes.txt").write_text("mine")
    result = KMeans(2, num_restarts=1).fit(np.eye(8).reshape(4, 4, 4), key=jax.random.key(0))
    with pytest.raises(ValueError, match="net"):
        save(folder, result, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"


def test_arrays_of_any_numbers_are_kept(plain: Result, tmp_path: Path) -> None:
    extras = {"flags": np.array([True, False]), "counts": np.arange(3, dtype=np.uint8)}
    save(
        tmp_path / "m",
        dataclasses.replace(plain, outcome=dataclasses.replace(plain.outcome, extras=extras)),
    )
    for name, array in load(tmp_path / "m").outcome.extras.items():
        np.testing.assert_array_equal(array, extras[name])
        assert array.dtype == extras[name].dtype


def test_a_model_that_was_being_replaced_is_named(saved: Path) -> None:
    saved.rename(saved.with_name(f".{saved.name}.0a1b2c3d.old"))
    with pytest.raises(
        ValueError, match=rf"being replaced: rename '.*\.{saved.name}\.0a1b2c3d\.old'"
    ):
        load(saved)
