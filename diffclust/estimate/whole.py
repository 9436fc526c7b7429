"""The estimate of a whole fit."""

import time
from typing import Any

import jax

from diffclust import _validation
from diffclust.estimate import gradient, lloyd, memory, spectral
from diffclust.estimate.result import Estimate
from diffclust.image_source import ImageSource
from diffclust.models import AbstractGradientModel, AbstractModel
from diffclust.models.scattering import AbstractScatteringModel
from diffclust.types import Key


def estimate(
    model: AbstractModel,
    samples: Any,
    /,
    *,
    key: Key,
    chunk_size: int | None = None,
    seconds: float = 20.0,
    short: float = 0.0,
) -> Estimate:
    """How long a fit will take and how much memory, found out by a rehearsal.

    Nothing is guessed from the size of the problem alone. A small part of the samples is fitted,
    and watched; of gradient steps a few are taken. Stages are scaled up by what is known of them:
    how often, over how many chunks, with how many pairs. Only how many more passes it takes until
    more samples come to rest is an experience. What was compiled serves the fit as well, where it
    is of the same shape.

    Args:
        model: The model.
        samples: What `model.fit` would be given.
        key: Random key, `jax.random.key(seed)`.
        chunk_size: As for `model.fit`.
        seconds: A rehearsal is broken off after so many, compiling left out; the range is then
            wide.
        short: A fit that will surely take less, in seconds, is not looked at any closer, and the
            estimate is rough.

    Returns:
        The estimate.

    Raises:
        ValueError: If the samples cannot be clustered, or the chunk size is below 1.
    """
    if chunk_size is not None:
        _validation.count(chunk_size, "chunk_size")
    begun = time.perf_counter()
    array = samples if isinstance(samples, ImageSource) else model.validated(samples)
    settings = {"key": key, "chunk_size": chunk_size, "seconds": seconds}
    if isinstance(model, AbstractGradientModel):
        stages = gradient.gradient_stages(model, array, **settings, short=short)
        resident = gradient.resident_bytes(model, array)
    elif isinstance(model, AbstractScatteringModel):
        stages = spectral.spectral_stages(model, array, **settings)
        resident = spectral.resident_bytes(model, array)
    else:
        stages = lloyd.lloyd_stages(model, array, **settings, short=short)
        resident = lloyd.resident_bytes(model, array)
    working = memory.working_bytes()
    on_device = jax.default_backend() != "cpu"
    host = memory.held_bytes() + resident + (0 if on_device else working)
    return Estimate(
        stages,
        max(host, memory.peak_bytes()),
        resident + working if on_device else None,
        memory.installed_bytes(),
        memory.device_limit() if on_device else None,
        time.perf_counter() - begun,
    )
