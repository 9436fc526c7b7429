"""Functions of one sample inside programs whose arrays are sharded by the caller.

The library's own fits over several devices are in `diffclust.parallel`. What is here lets its pure
functions be called, under `vmap`, in a program of yours that shards its arrays itself.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
from jax.sharding import PartitionSpec
from jaxtyping import PyTree

F = TypeVar("F", bound=Callable[..., Any])


def with_auto_axes(function: F) -> F:
    """Lets XLA find the shardings inside a function of one sample.

    In a mesh whose axes are explicit, which `jax.make_mesh` makes by default, JAX refuses many
    operations whose sharding it cannot tell from their operands alone, gathers under `vmap` among
    them. Inside the function the axes are automatic. Elsewhere nothing changes.

    Args:
        function: A function of one sample. Its result is the same on all devices, but under `vmap`
            the mapped axis stays sharded.

    Returns:
        The same function.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        explicit = jax.sharding.get_abstract_mesh().explicit_axes
        if not explicit:
            return function(*args, **kwargs)
        arrays, static = eqx.partition((args, kwargs), eqx.is_array)
        parts = []

        def of_arrays(arrays: PyTree) -> PyTree:
            args, kwargs = eqx.combine(arrays, static)
            given, rest = eqx.partition(function(*args, **kwargs), eqx.is_array)
            parts.append(rest)
            return given

        run = jax.sharding.auto_axes(of_arrays, axes=explicit, out_sharding=PartitionSpec())
        return eqx.combine(run(arrays), parts[-1])

    return cast(F, wrapped)


def varying_like(tree: PyTree, *others: PyTree) -> Any:
    """Marks arrays as varying over the mesh axes over which other arrays vary.

    Inside `jax.shard_map` the state of a loop must have the same type before and after every step,
    but an initial state of zeros does not vary over devices. And a gradient by arrays that do not
    vary is the sum over all devices; by arrays that vary, each device has its own. Elsewhere
    nothing changes.

    Args:
        tree: The arrays, such as the initial state of a loop, or the point of a gradient.
        *others: Trees of arrays on which the loop or the gradient depends.

    Returns:
        The tree, in which all arrays vary over all of these axes.
    """
    leaves = [leaf for leaf in jax.tree.leaves((tree, others)) if eqx.is_array(leaf)]
    axes = frozenset().union(*map(_varying_axes, leaves))

    def varying(leaf: Any) -> Any:
        missing = tuple(axes - _varying_axes(leaf)) if eqx.is_array(leaf) else ()
        return jax.lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(varying, tree) if axes else tree


def _varying_axes(array: Any) -> frozenset[str]:
    kind: Any = jax.typeof(array)
    # The attribute's name depends on the version of JAX.
    return kind.vma if hasattr(kind, "vma") else kind.mat.varying
