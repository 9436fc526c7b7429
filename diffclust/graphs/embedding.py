"""Spectral embeddings of neighbour graphs, and of bipartite graphs with few representatives."""

import dataclasses
import warnings

import jax
import numpy as np
import scipy
from jaxtyping import Bool, Float

from diffclust import _validation
from diffclust._random import numpy_generator
from diffclust.graphs.affinity import Graph
from diffclust.linalg import flip_signs, leading_eigenvectors, one_blas_thread
from diffclust.types import Key

_LEAST_EIGENVALUE = 1e-3
"""The smallest eigenvalue by which vectors are divided."""

_DENSE = 1500
"""Up to this many samples the full eigenproblem is solved, which cannot fail to converge."""

_LEAST = np.finfo(np.float64).tiny
"""The smallest affinity, or sum of affinities, that counts: inverses of smaller ones overflow."""

_ASYMMETRY = 1e-3
"""Differences from the transpose, as a share of the largest affinity, that rounding may cause:
those of squared distances in single precision from norms and products are some 1e-4."""

_WEAK = 1e-5
"""Normalised weight below which an edge joins next to nothing."""


@dataclasses.dataclass(frozen=True, eq=False)
class SpectralEmbedding:
    """Samples as rows of eigenvectors, with what is needed to embed new samples.

    Attributes:
        eigenvalues: Leading eigenvalues of the normalised graph, descending, a few more than there
            are vectors.
        vectors: One row of unit length per sample; a row of zeros for a sample without any
            affinity.
        basis: The references' eigenvectors, scaled such that `extend` reproduces them.
    """

    eigenvalues: Float[np.ndarray, " values"]
    vectors: Float[np.ndarray, "n vectors"]
    basis: Float[np.ndarray, "references vectors"]

    @staticmethod
    def of_basis(
        eigenvalues: Float[np.ndarray, " values"], basis: Float[np.ndarray, "references vectors"]
    ) -> "SpectralEmbedding":
        """An embedding without the embedded samples, with which new ones can be embedded.

        Args:
            eigenvalues: The eigenvalues of the embedding.
            basis: The basis of the embedding.

        Returns:
            The embedding; its vectors have no rows.
        """
        return SpectralEmbedding(eigenvalues, basis[:0], basis)

    def leading(self, num_vectors: int) -> Float[np.ndarray, "references vectors"]:
        """The references' rows in only some of the leading eigenvectors.

        Args:
            num_vectors: Number of vectors; an embedding with this many vectors has the same rows.

        Returns:
            One row of unit length per reference; a row of zeros for one without any affinity.
        """
        walk = self.basis * _divisor(self.eigenvalues, self.basis.shape[1])
        return normalised_rows(walk[:, :num_vectors])

    def diffused(self, num_vectors: int, power: float) -> "SpectralEmbedding":
        """The embedding by some leading vectors, each multiplied by a power of its eigenvalue.

        Args:
            num_vectors: Number of vectors.
            power: Number of steps of the random walk; 0 leaves the vectors unchanged.

        Returns:
            The embedding of the references, with rows scaled to unit length afterwards.

        References:
            Coifman and Lafon (2006), Diffusion maps, Sec. 2.
        """
        scale = np.maximum(self.eigenvalues[: self.basis.shape[1]], 0.0) ** power
        basis = (self.basis * scale)[:, :num_vectors]
        vectors = SpectralEmbedding.of_basis(self.eigenvalues, basis).leading(num_vectors)
        return SpectralEmbedding(self.eigenvalues, vectors, basis)

    def extend(self, affinities: Graph) -> Float[np.ndarray, "m vectors"]:
        """Rows of new samples by Nyström's formula, y = D⁻¹ A v / λ, scaled to unit length.

        Vectors with eigenvalues below 0.001 are left out: a new sample can be close to its own copy
        among the references, unlike the graph's samples, and a negative λ would flip its sign.

        Args:
            affinities: Affinities of new samples to the references, `(m, references)`; these are
                the embedded samples, or the representatives of a transfer cut.

        Returns:
            One row per sample; a row of zeros for a sample without any affinity.

        Raises:
            ValueError: If the number of columns is not the number of references.

        References:
            Bengio et al. (2004), Out-of-sample extensions for LLE, Isomap, MDS, eigenmaps, and
            spectral clustering, Eq. 5.
        """
        if affinities.shape[1] != len(self.basis):
            raise ValueError(
                f"affinities must have one column for each of the {len(self.basis)} references; "
                f"got shape {affinities.shape}"
            )
        return normalised_rows(weighted_means(affinities, self.basis * self._extends))

    @property
    def _extends(self) -> Bool[np.ndarray, " vectors"]:
        return self.eigenvalues[: self.basis.shape[1]] > _LEAST_EIGENVALUE

    def as_extended(
        self, points: Float[np.ndarray, "points vectors"]
    ) -> Float[np.ndarray, "points vectors"]:
        """Maps points of the embedding, such as centres, to where `extend` puts similar samples.

        Args:
            points: Points of the embedding.

        Returns:
            The points without the vectors that `extend` leaves out, rescaled to their original
            length.
        """
        if self._extends.all():
            return points
        length = np.linalg.norm(points, axis=1, keepdims=True)
        return normalised_rows(points * self._extends) * length


def weighted_means(
    affinities: Graph, values: Float[np.ndarray, "references vectors"]
) -> Float[np.ndarray, "n vectors"]:
    """D⁻¹ A v: every sample's mean over its references, weighted by affinity.

    Args:
        affinities: Sparse, non-negative.
        values: One row per reference.

    Returns:
        One row per sample; zeros for a sample without any affinity.
    """
    return (affinities @ values) * safe_inverse(degrees(affinities))[:, None]


def degrees(graph: Graph, axis: int = 1) -> Float[np.ndarray, " n"]:
    """Sums of a sparse matrix.

    Args:
        graph: Sparse, non-negative.
        axis: 1 sums over columns, 0 over rows.

    Returns:
        The sums, in double precision.
    """
    return np.asarray(graph.sum(axis=axis), np.float64).ravel()


def safe_inverse(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """1 / x, or 0 if x is not positive, or so small that 1 / x is infinite.

    Args:
        values: Any numbers.

    Returns:
        Their inverses.
    """
    counts = values >= _LEAST
    return np.where(counts, 1.0 / np.where(counts, values, 1.0), 0.0)


def normalised_rows(vectors: Float[np.ndarray, "n vectors"]) -> Float[np.ndarray, "n vectors"]:
    """Rows scaled to unit length; rows of zeros are unchanged.

    Args:
        vectors: Any matrix.

    Returns:
        The scaled rows.

    References:
        Ng, Jordan and Weiss (2002), On spectral clustering, step 4.
    """
    # Divided by the largest entry first: the squares of a dangling sample's entries could
    # underflow.
    largest = np.abs(vectors).max(axis=1)
    scaled = vectors * safe_inverse(largest)[:, None]
    return scaled * safe_inverse(np.linalg.norm(scaled, axis=1))[:, None]


def spectral_embedding(
    graph: Graph, num_vectors: int, *, key: Key, num_extra: int = 5, tolerance: float = 1e-6
) -> SpectralEmbedding:
    """The leading eigenvectors of D^(-1/2) W D^(-1/2), rows scaled to unit length.

    Args:
        graph: Symmetric, non-negative affinities W. The graph need not be connected: every
            component has its own vector, those of largest volume first. If there are more
            components than vectors, samples in the others have rows of zeros.
        num_vectors: Number of vectors; fewer if there are not as many samples.
        key: Random key that draws the initial vector of the iteration.
        num_extra: Number of eigenvalues beyond those of the vectors, for the eigengap.
        tolerance: Relative accuracy of the eigenvalues; the accuracy of the vectors is its square
            root.

    Returns:
        The embedding.

    Raises:
        ValueError: If the graph is not a symmetric, finite, non-negative matrix.

    References:
        Ng, Jordan and Weiss (2002), On spectral clustering, steps 2 to 4.
    """
    graph = checked_graph(graph)
    _validation.count(num_vectors, "num_vectors")
    count = graph.shape[0]
    num_returned = min(num_vectors, count)
    wanted = min(num_returned + num_extra, count)
    degree = degrees(graph)
    root = np.sqrt(safe_inverse(degree))
    scaling = scipy.sparse.diags_array(root)
    normalised = scipy.sparse.csr_array(scaling @ graph @ scaling)
    # Every connected component has the eigenvalue 1 and a known vector. An iteration from a single
    # vector may miss all but one of these, so it is used only for the others.
    parts = _component_vectors(graph, degree)[:, :wanted]
    values, vectors = np.ones(parts.shape[1]), parts.toarray()
    if wanted > parts.shape[1]:
        further = _remaining_eigenvectors(
            normalised, degree, parts, wanted - parts.shape[1], key, tolerance
        )
        values = np.concatenate([values, further[0]])
        vectors = np.concatenate([vectors, further[1]], axis=1)
    vectors = flip_signs(vectors[:, :num_returned])
    # Random-walk eigenvectors: a sample's row is the mean of its neighbours' rows divided by λ.
    walk = vectors * root[:, None]
    basis = walk / _divisor(values, num_returned)
    return SpectralEmbedding(values, normalised_rows(walk), basis)


def _divisor(values: np.ndarray, count: int) -> np.ndarray:
    """The leading eigenvalues, with those near zero replaced."""
    leading = values[:count]
    return np.where(np.abs(leading) > _LEAST_EIGENVALUE, leading, _LEAST_EIGENVALUE)


def checked_graph(graph: Graph) -> Graph:
    """A graph in double precision.

    Args:
        graph: Symmetric affinities.

    Returns:
        The same graph.

    Raises:
        ValueError: If the graph is not a symmetric, finite, non-negative matrix.
    """
    if not scipy.sparse.issparse(graph) or graph.shape[0] != graph.shape[1] or not graph.shape[0]:
        raise ValueError(
            "graph must be a square sparse matrix of affinities, at least 1×1; got "
            f"{type(graph).__name__} of shape {np.shape(graph)}"
        )
    graph = scipy.sparse.csr_array(graph, dtype=np.float64)
    if graph.nnz and not (np.isfinite(graph.data).all() and graph.data.min() >= 0):
        raise ValueError("graph must hold finite affinities, none of them negative")
    if graph.nnz and abs(graph - graph.T).max() > _ASYMMETRY * graph.data.max():
        raise ValueError("graph must be symmetric; give the mean of it and its transpose")
    if not (counts := graph.data >= _LEAST).all():
        # Zeros that are stored join no components. The copy leaves the caller's matrix alone.
        graph = graph.copy()
        graph.data *= counts
        graph.eliminate_zeros()
    return graph


def _component_vectors(graph: Graph, degree: Float[np.ndarray, " n"]) -> "scipy.sparse.csc_array":
    """Unit vectors D^(1/2) 1 of the connected components, those of largest volume first."""
    from scipy.sparse.csgraph import connected_components

    count, part = connected_components(graph, directed=False)
    volume = np.bincount(part, degree, minlength=count)
    entries = np.sqrt(degree * safe_inverse(volume)[part])
    vectors = scipy.sparse.csc_array((entries, (np.arange(len(part)), part)))
    order = np.argsort(-volume, kind="stable")
    return vectors[:, order[volume[order] > 0]]


def _remaining_eigenvectors(
    matrix: Graph,
    degree: Float[np.ndarray, " n"],
    known: "scipy.sparse.csc_array",
    wanted: int,
    key: Key,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, descending, and their vectors, excluding the known vectors.

    Where groups are joined by next to nothing, their eigenvalues agree to many digits, and an
    iteration from a single vector finds only some of them. It is repeated beside what was found,
    for as long as the groups prove by `_least_values` that eigenvalues are missing.
    """
    count = matrix.shape[0]
    if count <= _DENSE or 4 * wanted >= count:
        # The known ones are shifted beyond the other end, -1, which bipartite components have.
        dense = matrix.toarray() - 3.0 * (known @ known.T).toarray()
        return leading_eigenvectors(dense, wanted)
    values, vectors = np.empty(0), np.empty((count, 0))
    least = _least_values(matrix, degree, known.shape[1] + wanted)[known.shape[1] :]
    for _ in range(wanted):
        found = _iterated(matrix, known, vectors, wanted, key, tolerance)
        values = np.concatenate([values, found[0]])
        order = np.argsort(-values, kind="stable")[:wanted]
        values, vectors = values[order], np.concatenate([vectors, found[1]], axis=1)[:, order]
        if (values[: len(least)] >= least - 2.0 * tolerance).all():
            break
        key = jax.random.fold_in(key, 1)
    return values, vectors


def _least_values(
    matrix: Graph, degree: Float[np.ndarray, " n"], most: int
) -> Float[np.ndarray, " values"]:
    """Numbers that the leading eigenvalues are not below, descending, by the min-max theorem.

    Those of the matrix between the vectors D^(1/2) 1 of its parts, which weak edges join.
    """
    strong = matrix.copy()
    strong.data[strong.data < _WEAK] = 0.0
    strong.eliminate_zeros()
    vectors = _component_vectors(strong, degree)
    between = scipy.sparse.csr_array(vectors.T @ matrix @ vectors)
    leading = np.argsort(-between.diagonal(), kind="stable")[:most]
    return np.linalg.eigvalsh(between[leading][:, leading].toarray())[::-1]


def _iterated(
    matrix: Graph,
    known: "scipy.sparse.csc_array",
    found: np.ndarray,
    wanted: int,
    key: Key,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues without those of known and found vectors, from a random vector."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, lobpcg

    across = known.T.tocsr()

    def multiply(x: np.ndarray) -> np.ndarray:
        return matrix @ x - 2.0 * (known @ (across @ x)) - 2.0 * (found @ (found.T @ x))

    count = matrix.shape[0]
    deflated = LinearOperator(matrix.shape, multiply, matmat=multiply, dtype=np.float64)
    start = np.asarray(jax.random.normal(key, (count,)), np.float64)
    try:
        with one_blas_thread():
            return eigsh(deflated, wanted, which="LA", v0=start, ncv=4 * wanted + 1, tol=tolerance)
    except ArpackError:
        # A block method: slower and less accurate, but it always returns something.
        rng = numpy_generator(key)
        block = np.concatenate([start[:, None], rng.normal(size=(count, wanted - 1))], axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return lobpcg(deflated, block, largest=True, tol=tolerance, maxiter=500)[:2]


def eigengap(eigenvalues: Float[np.ndarray, " values"], num_clusters: int) -> float:
    """λ_K - λ_(K+1): how clearly the graph falls into exactly K parts.

    Args:
        eigenvalues: Leading eigenvalues, descending.
        num_clusters: K.

    Returns:
        The gap; zero if λ_(K+1) is unknown.

    References:
        von Luxburg (2007), A tutorial on spectral clustering, Sec. 8.3.
    """
    if not 1 <= num_clusters < len(eigenvalues):
        return 0.0
    return float(eigenvalues[num_clusters - 1] - eigenvalues[num_clusters])


def transfer_cut(affinities: Graph, num_vectors: int) -> SpectralEmbedding:
    """The leading eigenvectors of the bipartite graph between samples and representatives.

    Ā = Aᵀ D_X⁻¹ A is a graph of the representatives only. Its eigenvectors, D_Y^(-1/2) Ā D_Y^(-1/2)
    w = λ w, are lifted to the samples by D_X⁻¹ A D_Y^(-1/2) w, which up to a factor √λ are those of
    the bipartite graph. The paper's Eqs. 7 and 8 as printed divide by D_Y twice, and the paper's
    eigenvectors have one entry per representative and are never lifted; U-SPEC and its published
    code do the same as this function, and scale the rows to unit length.

    Args:
        affinities: A, `(n, representatives)`, non-negative.
        num_vectors: Number of vectors; fewer if there are not as many representatives.

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
    num_returned = min(num_vectors, count)
    # Five more eigenvalues, for the eigengap.
    wanted = min(num_returned + 5, count)
    transitions = scipy.sparse.diags_array(safe_inverse(degrees(affinities))) @ affinities
    root = np.sqrt(safe_inverse(degrees(affinities, axis=0)))
    small = (affinities.T @ transitions).toarray() * root[:, None] * root[None, :]
    values, vectors = leading_eigenvectors(0.5 * (small + small.T), wanted)
    vectors = flip_signs(vectors[:, :num_returned])
    # The eigenvalues of the bipartite graph are the square roots of these.
    divisor = np.sqrt(np.maximum(values[:num_returned], 1e-6))
    basis = vectors * root[:, None] / divisor
    return SpectralEmbedding(values, normalised_rows(weighted_means(affinities, basis)), basis)
