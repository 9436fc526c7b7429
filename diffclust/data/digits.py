"""The handwritten digits that scikit-learn bundles."""

import numpy as np

from diffclust.data.dataset import Dataset


def load_digits() -> Dataset:
    """Load 1,797 handwritten digits of 8×8 grey pixels, 10 classes, without any download.

    Returns:
        Images float32 `[1797, 8, 8, 1]`, scaled from 0..16 to [0, 1], with labels.

    References:
        E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI, 1998 (test part).
    """
    from sklearn import datasets

    bunch = datasets.load_digits()
    return Dataset(
        images=(bunch.images[..., None] / 16.0).astype(np.float32),
        labels=bunch.target.astype(np.int64),
        label_names=tuple(str(name) for name in bunch.target_names),
        name="digits",
    )
