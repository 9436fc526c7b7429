"""What tells one model from another: types, settings and numbers of its parts."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from diffclust.image_source import checksum
from diffclust.models.settings import AbstractSettings
from diffclust.parallel import Data
from diffclust.solvers import Start


def types_of(part: eqx.Module) -> str:
    """The type of a module, followed by those of its submodules in brackets."""
    fields = (getattr(part, field.name) for field in dataclasses.fields(part))
    inner = ", ".join(types_of(each) for each in fields if isinstance(each, eqx.Module))
    return f"{type(part).__name__}({inner})" if inner else type(part).__name__


def parts_outside_files(model: AbstractSettings) -> list[str]:
    """The fields that a file cannot hold: compositions, optimisers."""
    return [f.name for f in dataclasses.fields(model) if not f.metadata.get("in_files", True)]


def own_settings(model: AbstractSettings) -> dict[str, Any]:
    """The settings of a user's own model that a file can hold."""
    names = {field.name for field in dataclasses.fields(model)} - {*parts_outside_files(model)}
    return {name: v for name in sorted(names) if _is_plain(v := getattr(model, name))}


def composition_values(model: AbstractSettings) -> dict[str, Any]:
    """The numbers, words, functions' names and array checksums of a user's own model, by name."""
    parts = parts_outside_files(model)

    def of(part: Any, name: str) -> Iterator[tuple[str, Any]]:
        if isinstance(part, eqx.Module) and (
            name in parts or not isinstance(part, AbstractSettings)
        ):
            for field in dataclasses.fields(part):
                # An optimiser's functions are optax's own, and matter while it is fitted alone.
                if field.name != "optimizer":
                    yield from of(getattr(part, field.name), f"{name}.{field.name}")
        elif isinstance(part, tuple) and _is_plain(part):
            yield name, json.loads(json.dumps(part))
        elif isinstance(part, tuple):
            types = [types_of(each) for each in part if isinstance(each, eqx.Module)]
            if len(types) == len(part):
                yield name, f"({', '.join(types)})"
            for place, each in enumerate(part):
                yield from of(each, f"{name}.{place}")
        elif isinstance(part, jax.Array | np.ndarray | float):
            # In single precision, whatever the process that writes or reads has.
            array = np.asarray(_numbers_of(part), np.float32)
            yield name, float(array.item()) if array.size == 1 else checksum(array)
        elif isinstance(part, bool | int | str):
            yield name, part
        elif hasattr(part, "__qualname__"):
            yield name, part.__qualname__

    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    own = [item for item in fields.items() if item[0] in parts or isinstance(item[1], eqx.Module)]
    return dict(pair for name, part in own for pair in of(part, name))


LATER = {"bias_correction": "fit", "curriculum_start": "identity", "variance_curriculum": False}
"""Settings that states of earlier versions do not name, and what these did."""


def identity_of(model: AbstractSettings, data: Data, start: Start) -> dict[str, Any]:
    """What tells a fit from others, in types that JSON can hold; all processes must ask.

    Args:
        model: The model.
        data: The samples as they were given, and their weights.
        start: What the fit starts from.

    Returns:
        The type of the model with those of its parts, its settings and the values of its parts by
        name, and checksums of the samples, the weights and the start.
    """
    settings = {
        name: value
        for name, value in model.settings().items()
        if _is_plain(value) and (name, value) not in LATER.items()
    }
    named = json.loads(json.dumps(settings, default=lambda number: number.item()))
    count = data.own.stop - data.own.start
    weight = np.ones(count) if data.weight is None else data.weight
    return {
        "model": types_of(model),
        "settings": named | composition_values(model),
        "precision": str(data.description.dtype),
        "samples": data.checksum(),
        "weights": data.checksum(np.asarray(weight, float)),
        "start": [checksum(leaf) for leaf in jax.tree.leaves(start)[1:]],
    }


def _numbers_of(part: jax.Array | np.ndarray | float) -> Any:
    """An array as it is, and the numbers of a random key."""
    if isinstance(part, jax.Array) and jnp.issubdtype(part.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(part)
    return part


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
