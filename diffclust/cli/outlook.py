"""What a fit will take, told before it begins: on request, and where it will take long."""

import dataclasses
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

from diffclust._version import __version__
from diffclust.cli.options import Fit
from diffclust.cli.progress_bar import ProgressBar
from diffclust.data import Collection
from diffclust.estimate import Estimate, StageCost, estimate
from diffclust.models import AbstractModel
from diffclust.models.scattering import AbstractScatteringModel

_LONG = 60.0
"""A fit of more seconds than that is announced."""

_FEW_PIXELS = 4_000_000
"""Staged methods have to be rehearsed as a whole; on fewer pixels that would be a good part of
them, and they take no more than a minute or two."""

_REMEDY = "try a smaller --limit, --size or --chunk-size"


def would_take(options: Fit, model: AbstractModel, dataset: Collection, bar: ProgressBar) -> str:
    """What a fit would take, for `--dry-run`.

    Args:
        options: What was asked for.
        model: The model.
        dataset: The samples.
        bar: Says that it is being found out.

    Returns:
        A line for the terminal.

    Raises:
        ValueError: If there is not enough memory.
    """
    bar.show("rehearsing")
    found = _estimate(options, model, dataset, short=0.0)
    if found.shortage is not None:
        raise ValueError(f"{found.shortage}; {_REMEDY}")
    _remember(options, model, dataset, found)
    return (
        f"{model.method} of {len(dataset)} {dataset.noun}s in {model.num_clusters} clusters would "
        f"take {found.describe()} (dry run: nothing was written)"
    )


def tell_if_long(options: Fit, model: AbstractModel, dataset: Collection, bar: ProgressBar) -> None:
    """Says on stderr what a fit will take that will take long.

    What was found out is kept beside the compiled programs, so that the same fit starts at once
    when it is started again.

    Args:
        options: What was asked for.
        model: The model.
        dataset: The samples.
        bar: Says that it is being found out.

    Raises:
        ValueError: If there is not nearly enough memory.
    """
    small = int(np.prod(dataset.samples.shape)) < _FEW_PIXELS
    if options.resume or (small and isinstance(model, AbstractScatteringModel)):
        return
    found = _recall(options, model, dataset)
    if found is None:
        bar.show("rehearsing")
        found = _estimate(options, model, dataset, short=_LONG)
        _remember(options, model, dataset, found)
    if found.shortage is not None:
        # An estimate is good to a factor of two: only what cannot be is refused.
        if found.is_hopeless:
            raise ValueError(f"{found.shortage}; {_REMEDY}")
        print(f"warning: {found.shortage}; {_REMEDY}", file=sys.stderr, flush=True)
    if found.seconds > _LONG:
        print(f"this will take {found.describe()}", file=sys.stderr, flush=True)


def _estimate(options: Fit, model: AbstractModel, dataset: Collection, *, short: float) -> Estimate:
    # Another key than the fit's: a rehearsal shall not look like it.
    key = jax.random.fold_in(jax.random.key(options.seed), 1)
    return estimate(model, dataset.samples, key=key, chunk_size=options.chunk_size, short=short)


def _place(options: Fit, model: AbstractModel, dataset: Collection) -> Path | None:
    """The file that keeps the estimate of this fit; None where programs are not kept either."""
    folder = jax.config.values.get("jax_compilation_cache_dir")
    if not folder or "://" in folder:
        return None
    device = jax.devices()[0]
    what = [
        __version__,
        jax.__version__,
        model.method,
        model.settings(),
        options.chunk_size,
        [*dataset.samples.shape],
        str(np.dtype(dataset.samples.dtype)),
        device.device_kind,
        os.cpu_count(),
    ]
    name = hashlib.sha256(json.dumps(what, default=str).encode()).hexdigest()[:32]
    return Path(folder) / "diffclust-estimates" / f"{name}.json"


def _recall(options: Fit, model: AbstractModel, dataset: Collection) -> Estimate | None:
    place = _place(options, model, dataset)
    try:
        told = {} if place is None else json.loads(place.read_text("utf-8"))
        stages = tuple(StageCost(**stage) for stage in told.pop("stages"))
        return Estimate(stages, **told)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(options: Fit, model: AbstractModel, dataset: Collection, found: Estimate) -> None:
    place = _place(options, model, dataset)
    if place is None:
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: another process may be reading it.
        with tempfile.NamedTemporaryFile(
            "w", dir=place.parent, suffix=".tmp", delete=False, encoding="utf-8"
        ) as file:
            json.dump(dataclasses.asdict(found), file)
        os.replace(file.name, place)
    except OSError:
        return
