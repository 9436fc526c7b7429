"""Representatives of many samples, through which U-SPEC cuts a graph."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from diffclust import _validation
from diffclust.features.moments import checked_features
from diffclust.solvers.moves import Moves
from diffclust.solvers.progress import Callback, ignore
from diffclust.solvers.rows import as_images, kmeans_of_rows
from diffclust.solvers.run import Stopping
from diffclust.types import Key


def representatives(
    features: Any,
    num_representatives: int = 1000,
    *,
    key: Key,
    num_candidates: int = 9000,
    max_passes: int = 10,
    callback: Callback = ignore,
) -> Float[np.ndarray, "p features"]:
    """Representatives by hybrid selection: random candidates, then their k-means centres.

    Args:
        features: Anything array-like of shape `(n, features)`; only the candidates are looked at.
        num_representatives: p; fewer where there are not as many samples.
        key: Random key.
        num_candidates: p', drawn without replacement; at most all samples.
        max_passes: Most passes of the k-means, which starts from random candidates. There is no
            need to go on: a representative that is a little off its cell's mean serves as well.
        callback: Told of every chunk.

    Returns:
        The representatives.

    Raises:
        ValueError: If an argument is not what it should be.

    References:
        Huang et al. (2019), Ultra-scalable spectral clustering, Sec. 3.1.1; Villar-Corrales and
        Morgenshtern, PSSC, Sec. 3.3, p = 1000 and p' = 9000.
    """
    if getattr(features, "ndim", 2) != 2 or not len(features):
        raise ValueError(
            f"features must have shape (n, features), n at least 1; got {np.shape(features)}"
        )
    _validation.positive(num_representatives, "num_representatives")
    _validation.positive(num_candidates, "num_candidates", least=num_representatives)
    count = len(features)
    rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
    drawn = rng.choice(count, size=min(num_candidates, count), replace=False)
    candidates = checked_features(np.asarray(features)[np.sort(drawn)], "features")
    if len(candidates) <= num_representatives:
        return candidates
    first = np.sort(rng.choice(len(candidates), size=num_representatives, replace=False))
    return kmeans_of_rows(
        candidates,
        num_representatives,
        key=key,
        num_restarts=1,
        stopping=Stopping(max_passes, 1e-3),
        moves=Moves(rounds=0),
        start=("prototypes", jnp.asarray(as_images(candidates[first]))),
        callback=callback,
    )
