"""All distances among some samples."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.distances.base import AbstractDissimilarity


@eqx.filter_jit
def pairwise(
    dissimilarity: AbstractDissimilarity, samples: PyTree, others: PyTree = None
) -> Float[Array, "n m"]:
    """The dissimilarity of every sample to every other, row by row.

    Args:
        dissimilarity: Of one sample and one other.
        samples: Samples with a leading axis.
        others: What they are compared to, with a leading axis; the samples themselves where it is
            not given.

    Returns:
        One row for each sample. Nothing larger than a row of pairs is alive at once.
    """
    against = samples if others is None else others

    def row(sample: PyTree) -> Float[Array, " m"]:
        return jax.vmap(lambda other: dissimilarity(sample, other))(against)

    return jnp.asarray(jax.lax.map(row, samples))
