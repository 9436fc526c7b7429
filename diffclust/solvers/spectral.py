"""Spectral embeddings of neighbour graphs, and what a cut of a graph costs."""

import dataclasses
import warnings
from typing import TYPE_CHECKING

import jax
import numpy as np
import scipy
from jaxtyping import Float, Int

from diffclust import _validation
from diffclust.types import Key

if TYPE_CHECKING:
    # At run time they are imported when they are first used.
    import scipy.linalg
    import scipy.sparse

_DENSE = 1500
"""Up to this many samples the eigenproblem is solved in full: no iteration can fail."""


@dataclasses.dataclass(frozen=True, eq=False)
class SpectralEmbedding:
    """Samples as rows of eigenvectors, and what it takes to place new samples among them.

    Attributes:
        eigenvalues: Leading eigenvalues of the normalised graph, descending, some more of them
            than there are vectors.
        rows: One row of unit length a sample; a row of zeros for a sample without any affinity.
        basis: The references' eigenvectors, divided by what makes `extend` reproduce them.
    """

    eigenvalues: Float[np.ndarray, " values"]
    rows: Float[np.ndarray, "n vectors"]
    basis: Float[np.ndarray, "references vectors"]

    @property
    def num_vectors(self) -> int:
        """Eigenvectors kept, at most as many as were asked for."""
        return self.rows.shape[1]

    def extend(self, affinities: "scipy.sparse.csr_array") -> Float[np.ndarray, "m vectors"]:
        """Rows of new samples by Nyström's formula: y = D⁻¹ A v / λ, scaled to unit length.

        Args:
            affinities: Affinities of new samples to the references, `(m, references)`: to the
                samples that were embedded, or to the representatives of a transfer cut.

        Returns:
            Their rows; a row of zeros for a sample without any affinity.

        Raises:
            ValueError: If the affinities have another number of columns.

        References:
            Bengio et al. (2004), Out-of-sample extensions for LLE, Isomap, MDS, eigenmaps, and
            spectral clustering, Eq. 5.
        """
        if affinities.shape[1] != len(self.basis):
            raise ValueError(
                f"affinities must have one column for each of the {len(self.basis)} references; "
                f"got shape {affinities.shape}"
            )
        return unit_rows(averaged(affinities, self.basis))


def averaged(
    affinities: "scipy.sparse.csr_array", values: Float[np.ndarray, "references vectors"]
) -> Float[np.ndarray, "n vectors"]:
    """D⁻¹ A v: every sample's mean over its references, weighted by affinity.

    Args:
        affinities: Sparse, non-negative.
        values: One row a reference.

    Returns:
        One row a sample; zeros for a sample without any affinity.
    """
    return (affinities @ values) * inverse(degrees(affinities))[:, None]


def degrees(graph: "scipy.sparse.csr_array", axis: int = 1) -> Float[np.ndarray, " n"]:
    """Sums of a sparse matrix.

    Args:
        graph: Sparse, non-negative.
        axis: 1 sums over columns, 0 over rows.

    Returns:
        The sums, in double precision.
    """
    return np.asarray(graph.sum(axis=axis), np.float64).ravel()


def inverse(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """1 / x, and 0 where x is not positive.

    Args:
        values: Any numbers.

    Returns:
        Their inverses.
    """
    return np.where(values > 0, 1.0 / np.where(values > 0, values, 1.0), 0.0)


def unit_rows(vectors: Float[np.ndarray, "n vectors"]) -> Float[np.ndarray, "n vectors"]:
    """Rows scaled to unit length; rows of zeros stay.

    Args:
        vectors: Any matrix.

    Returns:
        The scaled rows.

    References:
        Ng, Jordan and Weiss (2002), On spectral clustering, step 4.
    """
    # By the largest entry first: the squares of a dangling sample's entries could underflow.
    largest = np.abs(vectors).max(axis=1)
    scaled = vectors * inverse(largest)[:, None]
    return scaled * inverse(np.linalg.norm(scaled, axis=1))[:, None]


def signed(vectors: Float[np.ndarray, "n vectors"]) -> Float[np.ndarray, "n vectors"]:
    """Columns with the sign that makes their entry of largest magnitude positive.

    Args:
        vectors: Any matrix.

    Returns:
        The columns, some of them negated.
    """
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1.0, 1.0)


def spectral_embedding(
    graph: "scipy.sparse.csr_array",
    num_vectors: int,
    *,
    key: Key,
    num_extra: int = 5,
    tolerance: float = 1e-6,
) -> SpectralEmbedding:
    """The leading eigenvectors of D^(-1/2) W D^(-1/2), rows scaled to unit length.

    Args:
        graph: Symmetric, non-negative affinities W. It need not be connected: every part has a
            vector of its own, those of largest volume first; with more parts than vectors, samples
            in the others have rows of zeros.
        num_vectors: How many; fewer where there are not as many samples.
        key: Random key, of the vector that the iteration starts from.
        num_extra: Eigenvalues beyond the vectors', for the eigengap.
        tolerance: Relative accuracy of the eigenvalues; vectors are as good as its root.

    Returns:
        The embedding.

    Raises:
        ValueError: If the graph is not a square, finite, non-negative matrix.

    References:
        Ng, Jordan and Weiss (2002), On spectral clustering, steps 2 to 4.
    """
    graph = _checked(graph)
    _validation.count(num_vectors, "num_vectors")
    count = graph.shape[0]
    kept = min(num_vectors, count)
    wanted = min(kept + num_extra, count)
    degree = degrees(graph)
    root = np.sqrt(inverse(degree))
    scaling = scipy.sparse.diags_array(root)
    normalised = scipy.sparse.csr_array(scaling @ graph @ scaling)
    # Every connected part has the eigenvalue 1 and a vector that is known. An iteration that
    # starts from one vector may miss all but one of them, so it is left the others only.
    parts = _parts(graph, degree)[:, :wanted]
    values, vectors = np.ones(parts.shape[1]), parts.toarray()
    if wanted > parts.shape[1]:
        further = _further(normalised, parts, wanted - parts.shape[1], key, tolerance)
        values = np.concatenate([values, further[0]])
        vectors = np.concatenate([vectors, further[1]], axis=1)
    vectors = signed(vectors[:, :kept])
    # Random-walk eigenvectors: a sample's is the mean of its neighbours' divided by λ.
    walk = vectors * root[:, None]
    divisor = np.where(np.abs(values[:kept]) > 1e-3, values[:kept], 1e-3)
    return SpectralEmbedding(values, unit_rows(walk), walk / divisor)


def _checked(graph: "scipy.sparse.csr_array") -> "scipy.sparse.csr_array":
    if not scipy.sparse.issparse(graph) or graph.shape[0] != graph.shape[1] or not graph.shape[0]:
        raise ValueError(
            "graph must be a square sparse matrix of affinities, at least 1×1; got "
            f"{type(graph).__name__} of shape {np.shape(graph)}"
        )
    graph = scipy.sparse.csr_array(graph, dtype=np.float64)
    if graph.nnz and not (np.isfinite(graph.data).all() and graph.data.min() >= 0):
        raise ValueError("graph must hold finite affinities, none of them negative")
    return graph


def _parts(
    graph: "scipy.sparse.csr_array", degree: Float[np.ndarray, " n"]
) -> "scipy.sparse.csc_array":
    """Unit vectors D^(1/2) 1 of the connected parts, those of largest volume first."""
    from scipy.sparse.csgraph import connected_components

    count, part = connected_components(graph, directed=False)
    volume = np.bincount(part, degree, minlength=count)
    entries = np.sqrt(degree * inverse(volume)[part])
    vectors = scipy.sparse.csc_array((entries, (np.arange(len(part)), part)))
    order = np.argsort(-volume, kind="stable")
    return vectors[:, order[volume[order] > 0]]


def _further(
    matrix: "scipy.sparse.csr_array",
    known: "scipy.sparse.csc_array",
    wanted: int,
    key: Key,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Largest eigenvalues, descending, and their vectors, without those of the known vectors."""
    count = matrix.shape[0]
    if count <= _DENSE or 4 * wanted > count:
        # The known ones are moved to the other end, -1.
        dense = matrix.toarray() - 2.0 * (known @ known.T).toarray()
        values, vectors = scipy.linalg.eigh(dense, subset_by_index=(count - wanted, count - 1))
        return values[::-1], vectors[:, ::-1]
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, lobpcg

    across = known.T.tocsr()
    deflated = LinearOperator(
        matrix.shape,
        dtype=np.float64,
        matvec=lambda x: matrix @ x - 2.0 * (known @ (across @ x)),
        matmat=lambda x: matrix @ x - 2.0 * (known @ (across @ x)),
    )
    start = np.asarray(jax.random.normal(key, (count,)), np.float64)
    try:
        values, vectors = eigsh(
            deflated, wanted, which="LA", v0=start, ncv=4 * wanted + 1, tol=tolerance
        )
    except ArpackError:
        # A block method: slower and less accurate, but it always comes back with something.
        rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
        block = np.concatenate([start[:, None], rng.normal(size=(count, wanted - 1))], axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values, vectors = lobpcg(deflated, block, largest=True, tol=tolerance, maxiter=500)[:2]
    order = np.argsort(-values, kind="stable")
    return values[order], vectors[:, order]


def eigengap(eigenvalues: Float[np.ndarray, " values"], num_clusters: int) -> float:
    """λ_K - λ_(K+1): how clearly the graph falls into K parts and no more.

    Args:
        eigenvalues: Leading eigenvalues, descending.
        num_clusters: K.

    Returns:
        The gap; zero where λ_(K+1) is not known.

    References:
        von Luxburg (2007), A tutorial on spectral clustering, Sec. 8.3.
    """
    if not 1 <= num_clusters < len(eigenvalues):
        return 0.0
    return float(eigenvalues[num_clusters - 1] - eigenvalues[num_clusters])


def normalised_cut(
    graph: "scipy.sparse.csr_array",
    assignments: Int[np.ndarray, " n"],
    *,
    num_clusters: int | None = None,
) -> float:
    """Σ cut(k) / vol(k): the share of each cluster's affinities that leave it, summed.

    Needs no labels, so that it can choose among runs.

    Args:
        graph: Symmetric, non-negative affinities.
        assignments: A cluster for each sample.
        num_clusters: K; the largest assignment and one where it is not given.

    Returns:
        A number from 0 to K; a cluster without samples or affinities counts 1, the worst.

    Raises:
        ValueError: If there is not one assignment for each sample.

    References:
        Shi and Malik (2000), Normalized cuts and image segmentation, Eq. 2; Yu and Shi (2003) for
        more than two clusters.
    """
    graph = _checked(graph)
    assignments = np.asarray(assignments)
    if assignments.shape != (graph.shape[0],):
        raise ValueError(
            f"assignments must have shape ({graph.shape[0]},), one for each sample of the graph; "
            f"got {assignments.shape}"
        )
    clusters = int(assignments.max()) + 1 if num_clusters is None else num_clusters
    volume = np.bincount(assignments, degrees(graph), minlength=clusters)
    edges = graph.tocoo()
    inside = assignments[edges.row] == assignments[edges.col]
    within = np.bincount(assignments[edges.row[inside]], edges.data[inside], minlength=clusters)
    return float(np.sum(1.0 - within * inverse(volume)))


def strongest_bridges(
    graph: "scipy.sparse.csr_array", assignments: Int[np.ndarray, " n"], *, most: int = 24
) -> Int[np.ndarray, "pairs 2"]:
    """The edges of greatest affinity between different clusters: the most ambiguous samples.

    Args:
        graph: Symmetric, non-negative affinities.
        assignments: A cluster for each sample.
        most: How many at most; every sample is in one of them at most.

    Returns:
        Pairs of samples, the strongest edge first.
    """
    edges = scipy.sparse.triu(graph, k=1).tocoo()
    across = np.flatnonzero((assignments[edges.row] != assignments[edges.col]) & (edges.data > 0))
    across = across[np.argsort(-edges.data[across], kind="stable")]
    seen: set[int] = set()
    found = []
    for edge in across:
        pair = int(edges.row[edge]), int(edges.col[edge])
        if not seen.intersection(pair):
            seen.update(pair)
            found.append(pair)
        if len(found) == most:
            break
    return np.asarray(found, np.int32).reshape(-1, 2)
