"""Arrays of a tree by name: what saved models and snapshots share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree.

    Args:
        tree: Any tree.

    Returns:
        The leaves by their paths, such as `shared.layers.0.weight`.
    """
    return {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def leaf_name(path: tuple[Any, ...]) -> str:
    """The name of a leaf.

    Args:
        path: Its path, as JAX gives it.

    Returns:
        The keys with dots between them.
    """
    return jax.tree_util.keystr(path, simple=True, separator=".")


def like_leaf(leaf: Any, array: np.ndarray) -> Any:
    """An array of the kind of another: of NumPy's, or of JAX's.

    Args:
        leaf: The other.
        array: The array.

    Returns:
        The array.
    """
    return array if isinstance(leaf, np.ndarray) else jnp.asarray(array)
