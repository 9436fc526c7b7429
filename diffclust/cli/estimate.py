"""What a fit will take, printed before it begins: on request, and where it will take long."""

import dataclasses
import hashlib
import json
import os
import sys
from pathlib import Path

import jax
import numpy as np

from diffclust._version import __version__
from diffclust.cli.options import Fit
from diffclust.cli.progress_bar import ProgressBar
from diffclust.data import Collection
from diffclust.estimate import Estimate, StageCost, estimate
from diffclust.models import AbstractModel
from diffclust.storage.staging import staged_file

_LONG = 60.0
"""A fit of more seconds than that is announced."""

_FEW_PIXELS = 4_000_000
"""Methods on graphs have to be rehearsed as a whole; on fewer pixels that would be a good part of
them, and they take no more than a minute or two."""

_REMEDY = "try a smaller --limit, --size or --chunk-size"


def describe_fit(options: Fit, model: AbstractModel, dataset: Collection, bar: ProgressBar) -> str:
    """What a fit would take, for `--dry-run`.

    Args:
        options: What was asked for.
        model: The model.
        dataset: The samples.
        bar: Shows that the fit is rehearsed.

    Returns:
        A line for the terminal.

    Raises:
        ValueError: If there is not enough memory.
    """
    cost = _rehearse(options, model, dataset, bar, short=0.0)
    if cost.shortage is not None:
        raise ValueError(f"{cost.shortage}; {_REMEDY}")
    _keep(options, model, dataset, cost)
    return (
        f"{model.method} of {len(dataset)} {dataset.noun}s in {model.num_clusters} clusters would "
        f"take {cost.describe()} (dry run: nothing was written)"
    )


def announce_long_fit(
    options: Fit, model: AbstractModel, dataset: Collection, bar: ProgressBar
) -> None:
    """Says on stderr what a fit will take that will take long.

    Estimates are kept beside the compiled programs, so that the same fit starts at once when it is
    started again.

    Args:
        options: What was asked for.
        model: The model.
        dataset: The samples.
        bar: Shows that the fit is rehearsed.

    Raises:
        ValueError: If there is not nearly enough memory.
    """
    small = int(np.prod(dataset.samples.shape)) < _FEW_PIXELS
    if options.resume or (small and model.descriptor.solver == "graph"):
        return
    cost = _kept(options, model, dataset)
    if cost is None:
        cost = _rehearse(options, model, dataset, bar, short=_LONG)
        _keep(options, model, dataset, cost)
    if cost.shortage is not None:
        # An estimate is good to a factor of two: only what cannot be is refused.
        if cost.is_hopeless:
            raise ValueError(f"{cost.shortage}; {_REMEDY}")
        print(f"warning: {cost.shortage}; {_REMEDY}", file=sys.stderr, flush=True)
    if cost.seconds > _LONG:
        print(f"this will take {cost.describe()}", file=sys.stderr, flush=True)


def _rehearse(
    options: Fit, model: AbstractModel, dataset: Collection, bar: ProgressBar, *, short: float
) -> Estimate:
    bar.show("rehearsing")
    # Another key than the fit's: a rehearsal shall not look like it.
    key = jax.random.fold_in(jax.random.key(options.seed), 1)
    return estimate(model, dataset.samples, key=key, chunk_size=options.chunk_size, short=short)


def _file_of(options: Fit, model: AbstractModel, dataset: Collection) -> Path | None:
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


def _kept(options: Fit, model: AbstractModel, dataset: Collection) -> Estimate | None:
    file = _file_of(options, model, dataset)
    try:
        about = {} if file is None else json.loads(file.read_text("utf-8"))
        stages = tuple(StageCost(**stage) for stage in about.pop("stages"))
        return Estimate(stages, **about)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(options: Fit, model: AbstractModel, dataset: Collection, cost: Estimate) -> None:
    file = _file_of(options, model, dataset)
    if file is None:
        return
    try:
        # Whole or not at all: another process may be reading it.
        with staged_file(file, overwrite=True) as written:
            written.write_text(json.dumps(dataclasses.asdict(cost)), "utf-8")
    except (OSError, ValueError):
        return
