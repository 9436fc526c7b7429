"""Weights of samples from a file, and on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

import diffclust
from diffclust.cli import main
from diffclust.data import DataError, load, load_weights


def test_weights_follow_the_samples(tmp_path):
    np.save(tmp_path / "w.npy", np.arange(1797))
    drawn = load("digits", limit=9, seed=3)
    assert drawn.indices is not None
    np.testing.assert_array_equal(load_weights(tmp_path / "w.npy", drawn.indices), drawn.indices)


def test_weights_of_another_source_are_refused(tmp_path):
    np.save(tmp_path / "w.npy", np.ones(1798))
    drawn = load("digits", limit=9, seed=3)
    with pytest.raises(DataError, match="got 1798, of which the limit of 9 would have drawn"):
        load_weights(tmp_path / "w.npy", drawn.indices, drawn=(9, 3))
    np.save(tmp_path / "w.npy", np.ones(1797))
    assert len(load_weights(tmp_path / "w.npy", drawn.indices, drawn=(9, 3))) == 9


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((3, 2)), r"one number for each sample: got float64 \[3, 2\]"),
        (np.array(["a", "b", "c"]), "got <U1"),
        (np.ones(2), "got 2 for 3"),
        (np.ones(4), "got 4 for 3"),
        (np.array([1, -1, np.nan]), "2 are not, at 1, 2;"),
        (np.zeros(3), "positive somewhere"),
    ],
)
def test_unfit_weights(tmp_path, weights, message):
    np.save(tmp_path / "w.npy", weights)
    with pytest.raises(DataError, match=message):
        load_weights(tmp_path / "w.npy", np.arange(3), total=3)
    np.save(tmp_path / "v.npy", np.ones(3))
    with pytest.raises(DataError, match="at least 9"):
        load_weights(tmp_path / "v.npy", np.array([0, 8]))


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    """A weight of zero takes an image out of the prototypes: the mean is that of the others."""
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(0).integers(1, 256, (8, 4, 4), dtype=np.uint8)
    weights = np.array([0.0, 1, 2, 3, 0, 1, 1, 5])
    np.save("images.npy", images)
    np.save("weights.npy", weights)
    command = ["fit", "images.npy", "-k", "1", "--method", "kmeans", "--weights", "weights.npy"]
    assert main([*command, "--out", "run", "--no-report"]) == 0
    (mean,) = diffclust.load("run").prototypes
    expected = np.average(images / 255, axis=0, weights=weights)
    np.testing.assert_allclose(mean[..., 0], expected, rtol=1e-5)
    assert json.loads(Path("run/summary.json").read_text())["source"]["weights"] == "weights.npy"
    capsys.readouterr()
    for options, message in (
        (["--weights", "none.npy"], "'none.npy' is no file"),
        (["--weights", "images.npy"], "must be one number for each sample"),
    ):
        assert main([*command, *options, "--out", "other"]) == 2
        assert message in capsys.readouterr().err
        assert not Path("other").exists()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        pytest.param("scattering-kmeans", ["--removed", "0"], marks=pytest.mark.slow),
        pytest.param("pssc", ["--removed", "0"], marks=pytest.mark.slow),
        ("shape-kmeans", []),
    ],
)
def test_methods_of_all_kinds_take_them(method, options, tmp_path, monkeypatch):
    """Those of weight zero are assigned, and nothing else; of a limit, the right ones count."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    weights = np.arange(24) % 4
    if method == "shape-kmeans":
        shapes = rng.normal(size=(3, 6, 2))[np.arange(24) % 3] + 0.1 * rng.normal(size=(24, 6, 2))
        np.savez("samples.npz", landmarks=shapes)
    else:
        np.savez("samples.npz", x=rng.integers(0, 256, (24, 8, 8), dtype=np.uint8))
    np.save("weights.npy", weights)
    command = ["fit", "samples.npz", "-k", "2", "--method", method, *options, "--no-report"]
    command += ["--limit", "20", "--restarts", "1"]
    assert main([*command, "--weights", "weights.npy", "--out", "weighed"]) == 0
    np.save("ones.npy", np.ones(24))
    assert main([*command, "--weights", "ones.npy", "--out", "plain"]) == 0
    weighed, plain = diffclust.load("weighed"), diffclust.load("plain")
    assert len(weighed.assignments) == len(plain.assignments) == 20
    assert np.abs(weighed.prototypes - plain.prototypes).max() > 1e-3
