"""The handwritten digits that scikit-learn bundles."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from diffclust.data.dataset import Dataset


def load_digits() -> Dataset:
    """Load 1,797 handwritten digits of 8×8 grey pixels, 10 classes, without any download.

    Returns:
        Images float32 `[1797, 8, 8, 1]`, scaled from 0..16 to [0, 1], with labels.

    References:
        E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI, 1998 (test part).
    """
    images, labels = _read()
    return Dataset(
        images=(images[..., None] / 16.0).astype(np.float32),
        labels=labels.astype(np.int64),
        label_names=tuple(str(label) for label in range(10)),
        name="digits",
    )


def _read() -> tuple[Float[np.ndarray, "n height width"], Int[np.ndarray, " n"]]:
    # Importing scikit-learn takes longer than everything else before the first step.
    spec = importlib.util.find_spec("sklearn")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            with gzip.open(path, "rt") as file:
                table = np.loadtxt(file, delimiter=",")
            return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    from sklearn import datasets

    bunch = datasets.load_digits()
    return bunch.images, bunch.target
