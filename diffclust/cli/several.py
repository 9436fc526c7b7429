"""`diffclust fit` by several processes: each reads its share, process 0 writes and speaks."""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from diffclust.cli.commands import check_seed, make_model, summarise, tell_skipped, write_files
from diffclust.cli.findings import show_findings
from diffclust.cli.options import Fit
from diffclust.cli.pictures import Pictures
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.run_folder import new_run
from diffclust.cli.samples import given_with, inputs_of
from diffclust.cli.shares import read_share
from diffclust.cli.unfinished import Unfinished
from diffclust.data import Collection
from diffclust.parallel import data_mesh, start_processes
from diffclust.parallel.processes import ProcessError, gathered_bytes, together
from diffclust.solvers.progress import ignore
from diffclust.storage import checkpoint
from diffclust.storage.snapshots import SharedSnapshots

_LAST = 2.0
"""Seconds that process 0, without which the others would end in disorder, outlives an error."""


def fit_together(options: Fit) -> None:
    """Clusters images or shapes with other processes that were given the same command.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done, here or in another process.
        FitError: If the fit breaks down.
        OSError: If something cannot be read or written.
    """
    sharing = options.sharing
    sharing.check()
    check_seed(options.seed)
    for name in ("dry_run", "compare_with"):
        if getattr(options, name):
            shown = name.replace("_", "-")
            raise ValueError(f"--{shown} is for one process; leave it out, or --processes")
    _speak_for_all()
    start_processes(
        sharing.coordinator,
        sharing.processes,
        sharing.process_id,
        timeout=sharing.process_timeout,
    )
    mesh = data_mesh()
    with contextlib.ExitStack() as stack:
        folder = unfinished = bar = None
        summary: dict[str, Any] = {}
        with together(mesh):
            model = make_model(options)
            pictures = Pictures(options, model)
            if jax.process_index() == 0:
                unfinished = Unfinished(options, model)
                if not unfinished.is_done():
                    inputs = inputs_of(options)
                    folder = stack.enter_context(
                        new_run(options.out, overwrite=options.overwrite, inputs=inputs)
                    )
                    bar = stack.enter_context(ProgressBar(model.num_restarts))
        if not gathered_bytes(b"" if folder is None else b"1")[0]:
            if unfinished is not None:
                unfinished.remove()
                print(f"{options.out} holds a finished run; there is nothing to go on with")
            return
        own, whole = read_share(options, model, mesh, bar)
        with together(mesh):
            given = given_with(options, whole)
        settings = _settings(options, own, whole, given)
        extra: dict[str, Any] = {}
        with together(mesh):
            if unfinished is not None:
                extra = stack.enter_context(unfinished.snapshots(whole, given))
        if gathered_bytes(b"1" if "snapshots" in extra else b"")[0]:
            settings["snapshots"] = SharedSnapshots(extra.get("snapshots"), mesh)
        watch = ignore if bar is None else pictures.watching(bar)
        result = model.fit(own.samples, callback=watch, mesh=mesh, **settings)
        with together(mesh):
            if folder is not None and bar is not None:
                bar.show("writing")
                summary = summarise(options, whole, result, "fit", result.summary())
                summary |= {"processes": jax.process_count(), "devices": mesh.size}
                checkpoint.save(folder / "model", result)
                write_files(folder, result, whole, summary, options, title=None, pictures=pictures)
    if unfinished is not None:
        unfinished.remove()
        tell_skipped(whole)
        show_findings(options.out, result, whole, summary)


def _speak_for_all() -> None:
    """Leaves the terminal to this command: gloo writes to the standard output whom it has met."""
    sys.stdout.flush()
    own = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def _settings(
    options: Fit, own: Collection, whole: Collection, given: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """What the fit is given beside the samples."""
    assert own.indices is not None
    assert whole.indices is not None
    here = np.searchsorted(whole.indices, own.indices)
    return {
        "key": jax.random.key(options.seed),
        "chunk_size": options.chunk_size,
        **{name: array[here] for name, array in given.items()},
    }


def leave(error: BaseException, message: str | None, status: int) -> None:
    """Ends this process at once: the others notice, and end too, rather than wait for it.

    Args:
        error: What ended the command.
        message: It in a line; None for a traceback.
        status: The exit status.
    """
    number = jax.process_index()
    if isinstance(error, jax.errors.JaxRuntimeError) and message is None:
        reason = " ".join(str(error).split())[:160]
        message = (
            "another process has ended, or cannot be reached any more; its own message says why, "
            f"and --resume goes on from the last saved state ({reason})"
        )
    # What another process has told, process 0 tells for all.
    if message is None:
        traceback.print_exception(error)
    elif number == 0 or not isinstance(error, ProcessError):
        where = f"process {number}: " if number else ""
        print(f"error: {where}{' '.join(message.split())}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    sys.stderr.flush()
    if number == 0:
        time.sleep(_LAST)
    os._exit(status)
