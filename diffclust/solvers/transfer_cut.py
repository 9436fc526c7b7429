"""U-SPEC: spectral clustering of any number of samples through a few representatives."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import scipy
from jaxtyping import Float

from diffclust import _validation
from diffclust.features._rows import checked_rows
from diffclust.solvers.lloyd_run import Stopping
from diffclust.solvers.point_clusters import centres_by_kmeans
from diffclust.solvers.progress import Callback, ignore
from diffclust.solvers.spectral import (
    SpectralEmbedding,
    averaged,
    degrees,
    inverse,
    signed,
    unit_rows,
)
from diffclust.solvers.split_merge import SplitMerge
from diffclust.types import Key

if TYPE_CHECKING:
    # At run time they are imported when they are first used.
    import scipy.linalg
    import scipy.sparse


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
    candidates = checked_rows(np.asarray(features)[np.sort(drawn)], "features")
    if len(candidates) <= num_representatives:
        return candidates
    first = np.sort(rng.choice(len(candidates), size=num_representatives, replace=False))
    return centres_by_kmeans(
        candidates,
        num_representatives,
        key=key,
        num_restarts=1,
        stopping=Stopping(max_passes, 1e-3),
        split_merge=SplitMerge(rounds=0),
        start=candidates[first],
        callback=callback,
    )


def transfer_cut(
    affinities: "scipy.sparse.csr_array", num_vectors: int, *, num_extra: int = 5
) -> SpectralEmbedding:
    """The leading eigenvectors of the bipartite graph between samples and representatives.

    Ā = Aᵀ D_X⁻¹ A is a graph of the representatives alone. Its eigenvectors,
    D_Y^(-1/2) Ā D_Y^(-1/2) w = λ w, are lifted to the samples by D_X⁻¹ A D_Y^(-1/2) w, which up to
    a factor √λ are the bipartite graph's own. The paper's Eqs. 7 and 8 as they are printed divide
    by D_Y twice, and its eigenvectors have one entry a representative and are never lifted; U-SPEC
    and its published code do what is done here, and scale the rows to unit length.

    Args:
        affinities: A, `(n, representatives)`, non-negative.
        num_vectors: How many; fewer where there are not as many representatives.
        num_extra: Eigenvalues beyond the vectors', for the eigengap.

    Returns:
        The embedding of the samples; its `extend` takes affinities of new samples to the
        representatives.

    Raises:
        ValueError: If the affinities are not a finite, non-negative matrix.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Eqs. 6 to 8; Li, Wu and Chang (2012), Segmentation
        using superpixels, Sec. 3.2; Huang et al. (2019), Ultra-scalable spectral clustering,
        Sec. 3.1.3.
    """
    if not scipy.sparse.issparse(affinities) or 0 in affinities.shape:
        raise ValueError(
            "affinities must be a sparse matrix of shape (n, representatives); got "
            f"{type(affinities).__name__} of shape {np.shape(affinities)}"
        )
    if not (np.isfinite(affinities.data).all() and (affinities.data >= 0).all()):
        raise ValueError("affinities must be finite, none of them negative")
    _validation.count(num_vectors, "num_vectors")
    affinities = scipy.sparse.csr_array(affinities, dtype=np.float64)
    count = affinities.shape[1]
    kept = min(num_vectors, count)
    wanted = min(kept + num_extra, count)
    shares = scipy.sparse.diags_array(inverse(degrees(affinities))) @ affinities
    root = np.sqrt(inverse(degrees(affinities, axis=0)))
    small = (affinities.T @ shares).toarray() * root[:, None] * root[None, :]
    values, vectors = scipy.linalg.eigh(
        0.5 * (small + small.T), subset_by_index=(count - wanted, count - 1)
    )
    values, vectors = values[::-1], signed(vectors[:, ::-1][:, :kept])
    # The bipartite graph's eigenvalues are the roots of these.
    divisor = np.sqrt(np.maximum(values[:kept], 1e-6))
    basis = vectors * root[:, None] / divisor
    return SpectralEmbedding(values, unit_rows(averaged(affinities, basis)), basis)
