"""Weights of samples from a file, and on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from diffclust.cli import main
from diffclust.data import DataError, load, load_weights


def test_weights_follow_the_samples(tmp_path):
    np.save(tmp_path / "w.npy", np.arange(1797))
    drawn = load("digits", limit=9, seed=3)
    assert drawn.indices is not None
    np.testing.assert_array_equal(load_weights(tmp_path / "w.npy", drawn.indices), drawn.indices)


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
    import diffclust

    (mean,) = diffclust.load("run").prototypes
    expected = np.average(images / 255, axis=0, weights=weights)
    np.testing.assert_allclose(mean[..., 0], expected, rtol=1e-5)
    assert json.loads(Path("run/summary.json").read_text())["source"]["weights"] == "weights.npy"
    capsys.readouterr()
    for options, message in (
        (["--weights", "none.npy"], "'none.npy' is no file"),
        (["--weights", "images.npy"], "must be one number for each sample"),
        (["--method", "pssc"], "pssc takes no --weights; leave it out"),
    ):
        assert main([*command, *options, "--out", "other"]) == 2
        assert message in capsys.readouterr().err
        assert not Path("other").exists()
