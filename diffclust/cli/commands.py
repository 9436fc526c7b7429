"""`diffclust fit`, `predict` and `demo`, and what a fit will take."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from diffclust import _validation, analysis, metrics
from diffclust._version import __version__
from diffclust.cli import runs, samples
from diffclust.cli.distributed import Processes
from diffclust.cli.options import Demo, Fit, Predict, Sweep
from diffclust.cli.summary import print_summary
from diffclust.data import Collection, Recordings, load_mask
from diffclust.estimate import Estimate, StageCost, estimate
from diffclust.image_source import ImageSource, checksum
from diffclust.methods import ALIGNING, METHODS, Method, plural
from diffclust.models import MODELS, AbstractModel, Result
from diffclust.models.selection import counted, predicted
from diffclust.parallel import Data
from diffclust.parallel.processes import broadcast_one_to_all, raise_everywhere
from diffclust.plotting import Film, save_prototypes
from diffclust.progress_bar import ProgressBar
from diffclust.report import write_report
from diffclust.report.sections import check_map_samples
from diffclust.review.formats import read_cluster_labels, safe_cell
from diffclust.solvers import Callback, Progress
from diffclust.solvers.result import ignore
from diffclust.storage import checkpoint
from diffclust.storage.staging import staged_file

_LARGEST_SEED = 2**32 - 1
"""Larger ones need JAX's double precision."""

_SOURCE_OPTIONS = (
    *("source", "split", "limit", "pad", "labels", "label_pattern"),
    *runs.OF_RECORDINGS,
    *runs.OF_TPS,
)
"""Options that say what was read, which a summary keeps."""

_OF_FITS = ("size", "channels", "mask", "weights", "start")
"""Those that a prediction does not have."""

_LONG_FIT_SECONDS = 60.0
"""A fit that takes longer, in seconds, is announced."""

_SMALL_GRAPH_PIXELS = 16_000_000
"""Methods on graphs are rehearsed as a whole. With fewer pixels than this a fit takes a minute or
two, of which a rehearsal would be a large part: that of 12,000 MNIST digits as much as PSSC."""

_SHORT_FIT_WORK = 1e8
"""Values of all samples times clusters, restarts and passes. Descent takes about 20 s for as many;
only longer fits are rehearsed before they begin."""

_REMEDY = "try a smaller --limit, --size or --chunk-size"


def fit(options: Fit, *, command: str = "fit") -> None:
    """Clusters images, shapes or series and writes a run.

    Several processes that were given the same command fit together; process 0 writes.

    Args:
        options: The command's options.
        command: The command that the summary names. A run of another command than `fit` is only
            replaced by a run of the same command.

    Raises:
        ValueError: If it cannot be done, here or in another process.
        FitError: If the fit breaks down.
        OSError: If something cannot be read or written.
    """
    check_options(options)
    processes = Processes(options)
    with contextlib.ExitStack() as stack:
        folder = states = None
        with raise_everywhere(processes.mesh):
            model, methods = make_model(options), _methods_to_compare(options)
            bar = ProgressBar(model.num_restarts)
            if options.dry_run:
                dataset = samples.load_samples(options, model, stack.enter_context(bar))
                samples.sample_arguments(options, dataset)
                print(describe_fit(options, model, dataset, bar))
                return
            if processes.is_first:
                states = runs.SavedStates(options, model)
            if states is not None and not states.is_done():
                kind = None if command == "fit" else command
                inputs, replace = samples.inputs_of(options), options.overwrite
                run = runs.new_run(options.out, overwrite=replace, inputs=inputs, command=kind)
                folder = stack.enter_context(run)
                stack.enter_context(states.locked())
                stack.enter_context(bar)
        if not broadcast_one_to_all(folder is not None, processes.mesh):
            if states is not None:
                states.remove()
                print(f"{options.out} holds a finished run; there is nothing to go on with")
            return
        result, dataset, about = _fit(options, model, methods, processes, states, bar, stack)
        with raise_everywhere(processes.mesh):
            summary: dict[str, Any] = {}
            if folder is not None:
                bar.show("writing the report" if not options.no_report else "writing")
                checkpoint.save(folder / "model", result)
                more = {**processes.describe(), "asked": model.settings()}
                about |= {"command": command, "more": more}
                summary = write_run(folder, result, dataset, options, **about)
    if states is not None:
        with runs.after_writing(options.out):
            states.remove()
            print_summary(options.out, result, dataset, summary)


def _fit(
    options: Fit,
    model: AbstractModel,
    methods: list[str],
    processes: Processes,
    states: runs.SavedStates | None,
    bar: ProgressBar,
    stack: contextlib.ExitStack,
) -> tuple[Result, Collection, dict[str, Any]]:
    """Fits; returns the result, all samples, and further arguments of the report."""
    own, dataset = processes.load_samples(options, model, bar)
    with raise_everywhere(processes.mesh):
        arguments, saved = samples.sample_arguments(options, dataset), None
    if processes.mesh is None:
        announce_long_fit(options, model, dataset, bar)
    with raise_everywhere(processes.mesh):
        if states is not None:
            saved = stack.enter_context(states.snapshots())
    film, others, key = None if options.no_report else Film(), None, jax.random.key(options.seed)
    # The fit is given the samples and nothing else: it never sees labels.
    result = model.fit(
        own.samples,
        key=key,
        chunk_size=options.chunk_size,
        callback=_callback(dataset, bar, film) if processes.is_first else ignore,
        snapshots=processes.snapshots(saved),
        mesh=processes.mesh,
        **processes.local_arguments(arguments, own, dataset),
    )
    if methods:
        weight, follow = arguments.get("sample_weight"), bar.following()
        others = analysis.fit_from_common_start(
            result, dataset.samples, methods, key=key, sample_weight=weight, callback=follow
        )
    if processes.mesh is None:
        result = with_movement(result, options, dataset, bar)
    return result, dataset, {"film": film, "others": others}


def with_movement(result: Result, options: Fit, dataset: Collection, bar: ProgressBar) -> Result:
    """Adds figures of how far alignment moved the samples.

    Args:
        result: The fit.
        options: The command's options.
        dataset: The samples.
        bar: The progress bar.

    Returns:
        The fit with these figures.
    """
    bar.show("comparing with no movement and with K-means")
    key, given = jax.random.key(options.seed), samples.sample_arguments(options, dataset)
    moved = analysis.movement(result, dataset.samples, key=key, **given)
    outcome = dataclasses.replace(result.outcome, figures={**result.outcome.figures, **moved})
    return dataclasses.replace(result, outcome=outcome)


def _callback(dataset: Collection, bar: ProgressBar, film: Film | None) -> Callback:
    """The callback of a fit; for images that do not fit into memory it also trims memory."""
    callbacks: list[Callback] = [bar] if film is None else [bar, film]
    if isinstance(dataset.samples, ImageSource):
        callbacks.insert(0, samples.MemoryTrimmer())

    def call_all(progress: Progress) -> None:
        for callback in callbacks:
            callback(progress)

    return call_all


def _methods_to_compare(options: Fit) -> list[str]:
    """The methods whose prototypes are laid beside those of the fit."""
    if options.compare_with is None:
        return []
    methods = [name.strip() for name in options.compare_with.split(",")]
    if options.method not in analysis.COMPARABLE:
        having = ", ".join(analysis.COMPARABLE)
        raise ValueError(f"--compare-with is for {having}, not for {options.method}; leave it out")
    if options.no_report:
        raise ValueError("--compare-with is shown in the report; leave out --no-report")
    if options.start is not None:
        raise ValueError("--compare-with begins with seeds of its own; leave out --start")
    others = [name for name in analysis.COMPARABLE if name != options.method]
    if len(set(methods)) != len(methods) or not set(methods) <= set(others):
        raise ValueError(
            f"--compare-with takes {' or '.join(others)} with {options.method}, once each, not "
            f"{options.compare_with!r}"
        )
    return methods


def predict(options: Predict) -> None:
    """Assigns images, shapes or series to the clusters of a saved model and writes a run.

    Args:
        options: The command's options.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    check_options(options)
    runs.refuse_sweep(options.model)
    options = samples.as_fitted(options)
    inputs = [options.source, options.model, *filter(None, [options.cluster_labels])]
    with (
        runs.new_run(options.out, overwrite=options.overwrite, inputs=inputs) as folder,
        ProgressBar() as bar,
    ):
        fitted, labels, note = checkpoint.load(options.model), None, ""
        if options.cluster_labels is not None:
            labels, note = read_cluster_labels(options.cluster_labels, fitted)
        dataset = samples.load_samples(options, fitted, bar)
        start = time.perf_counter()
        assignment = fitted.predict(dataset.samples, callback=bar)
        seconds = time.perf_counter() - start
        p_values = analysis.conformal_p_values(fitted, assignment)
        outcome = predicted(fitted.outcome, assignment)
        outcome = dataclasses.replace(
            outcome,
            history=(float(np.sum(assignment.distances, dtype=np.float64)),),
            restarts=(),
            seconds=seconds,
            extras={**outcome.extras, **({} if p_values is None else {"p_values": p_values})},
            figures={} if p_values is None else analysis.novelty(fitted, assignment, p_values),
        )
        result = dataclasses.replace(fitted, outcome=outcome)
        bar.show("writing the report" if not options.no_report else "writing")
        more = {
            "model": os.path.abspath(options.model),
            "model_crc32": checkpoint.prototypes_checksum(fitted),
            "cluster_labels": options.cluster_labels,
        }
        about = {"command": "predict", "more": more, "labels": labels}
        about["title"] = f"{dataset.name}, assigned by a model that was fitted before"
        summary = write_run(folder, result, dataset, options, **about)
    with runs.after_writing(options.out):
        print_summary(options.out, result, dataset, summary)
        if labels is not None:
            print(f"labels: in assignments.csv; {note}")


def demo(options: Demo) -> None:
    """Clusters the digits that scikit-learn bundles.

    Args:
        options: The command's options.

    Raises:
        ValueError: If the folder holds anything but an earlier demo.
        OSError: If something cannot be written.
    """
    given = Fit("digits", 10, **vars(options), method=ALIGNING, overwrite=True)
    fit(given, command="demo")


def make_model(options: Fit) -> AbstractModel:
    """The model that was asked for.

    Args:
        options: The command's options.

    Returns:
        A model, its own defaults in place of what was not given.

    Raises:
        ValueError: If a setting or an option means nothing to the method.
    """
    model, method = MODELS[options.method], METHODS[options.method]
    # The name in messages of the model is the field's.
    _validation.positive(options.clusters, "-k")
    settings = {"num_clusters": options.clusters, **options.settings}
    if options.as_published:
        message = "has no settings as published; leave out --as-published"
        _require_ability(method, "published", message)
        published = cast(Any, model).as_published(options.clusters, **options.settings)
        settings = {**published.settings(), **settings}
    if options.start is not None:
        _require_ability(method, "takes_start", "cannot begin with clusters; leave out --start")
        if options.settings.get("num_restarts", 1) > 1:
            raise ValueError("--start is one run from known clusters; leave out --restarts")
    if options.mask is not None:
        if method.sample_kind != "image":
            these = plural(method.words.noun)
            raise ValueError(f"{options.method} clusters {these} and takes no --mask; leave it out")
        settings["mask"] = load_mask(options.mask, samples.size_of(options))
    return model.from_settings(settings)


def _require_ability(method: Method, ability: str, message: str) -> None:
    """Refuses a method without an ability, and names those that have it."""
    if not getattr(method, ability):
        having = ", ".join(name for name, other in METHODS.items() if getattr(other, ability))
        raise ValueError(f"{method.name} {message}, or take one of {having}")


def check_options(options: Fit | Predict | Sweep) -> None:
    """Refuses numbers that nothing can be done with.

    Args:
        options: The command's options.

    Raises:
        ValueError: If the seed or the number of images on the maps is out of range.
    """
    if not 0 <= options.seed <= _LARGEST_SEED:
        raise ValueError(f"--seed must be between 0 and {_LARGEST_SEED}, not {options.seed}")
    check_map_samples(options.maps, "--maps")


def write_run(
    folder: Path,
    result: Result,
    dataset: Collection,
    options: Fit | Predict,
    *,
    command: str = "fit",
    more: Mapping[str, Any] | None = None,
    labels: Sequence[str] | None = None,
    **shown: Any,
) -> dict[str, Any]:
    """Writes what all runs have in common: table, prototypes, report and summary.

    Args:
        folder: The run's folder.
        result: The clusters.
        dataset: The samples.
        options: The command's options.
        command: The command that the summary names.
        more: Further entries of the summary.
        labels: Label of each cluster, for a column of the table; or None.
        **shown: Further arguments of the report: `title`, `film` and `others`.

    Returns:
        The summary.
    """
    scores, is_source = {}, isinstance(dataset.samples, ImageSource)
    given = samples.sample_arguments(options, dataset) if isinstance(options, Fit) else {}
    weight, own = given.get("sample_weight"), counted(result.outcome)
    if dataset.labels is not None:
        scores = metrics.scores(dataset.labels[own], result.assignments[own])
    summary = {
        **result.summary(),
        "seed": options.seed,
        "peak_memory_mb": runs.peak_memory_mb(),
        **scores,
        "command": command,
        "settings": result.model.settings(),
        "source": {
            **{name: getattr(options, name) for name in _SOURCE_OPTIONS},
            "folder": os.getcwd(),
            # Those that were found, where they were not given: new recordings are read like these.
            **(dataset.steps if isinstance(dataset, Recordings) else {}),
            **{name: getattr(options, name, None) for name in _OF_FITS},
            "sample_shape": result.sample_shape,
            "given_shape": result.given_shape,
            "landmark_names": getattr(dataset, "landmark_names", None),
            "skipped": dataset.skipped,
            # What is read as it is needed is not read once more.
            "crc32": None if is_source else checksum(dataset.samples),
            "weights_crc32": None if weight is None else checksum(weight),
        },
        **runs.environment(),
        **(more or {}),
    }
    p_values = result.outcome.extras.get("p_values")
    more_columns = {} if p_values is None else {"p_value": p_values}
    if labels is not None:
        more_columns["label"] = np.array([safe_cell(x) for x in labels])[result.assignments]
    runs.write_assignments(folder, dataset, result.outcome.assignment, **more_columns)
    save_prototypes(folder / "prototypes.png", result)
    if not options.no_report:
        samples.trim_memory()
        shown |= {"scores": scores, "seed": options.seed, "map_samples": options.maps}
        write_report(folder / "report.html", result, dataset, **shown)
    runs.write_summary(folder, summary)
    return summary


def describe_fit(options: Fit, model: AbstractModel, dataset: Collection, bar: ProgressBar) -> str:
    """Estimates what a fit would take, for `--dry-run`.

    Args:
        options: The command's options.
        model: The model.
        dataset: The samples.
        bar: The progress bar.

    Returns:
        A line for the terminal.

    Raises:
        ValueError: If there is not enough memory.
    """
    cost_text = short_fit(model, dataset)
    if cost_text is None:
        cost = rehearse_fit(options, model, dataset, bar, short=_LONG_FIT_SECONDS)
        if cost.shortage is not None:
            raise ValueError(f"{cost.shortage}; {_REMEDY}")
        _save_estimate(options, model, dataset, cost)
        cost_text = cost.describe()
    return (
        f"{model.method} of {len(dataset)} {plural(dataset.noun)} in {model.num_clusters} clusters "
        f"would take {cost_text} (dry run: nothing was written)"
    )


def short_fit(model: Any, dataset: Collection) -> str | None:
    """Names the time of a fit, in words, where a rehearsal would be a large part of it.

    Args:
        model: The model.
        dataset: The samples.

    Returns:
        The words; None where a fit may take longer than what is announced.
    """
    shape, quick = dataset.samples.shape, "about a minute at most"
    work = math.prod(shape)
    if model.descriptor.solver == "graph":
        if work < _SMALL_GRAPH_PIXELS / 16:
            return quick
        return "a few minutes at most" if work < _SMALL_GRAPH_PIXELS else None
    if model.descriptor.solver == "gradient":
        plan = model.training_plan(Data(dataset.samples).description)
        passes = plan.num_steps * plan.batch_size / shape[0]
    else:
        passes = min(25, model.max_passes)
    short = work * model.num_clusters * model.num_restarts * passes < _SHORT_FIT_WORK
    return quick if short else None


def announce_long_fit(
    options: Fit, model: AbstractModel, dataset: Collection, bar: ProgressBar
) -> None:
    """Announces on stderr how long a long fit will take.

    Estimates are kept beside the compiled programs, so that the same fit starts at once when it is
    started again.

    Args:
        options: The command's options.
        model: The model.
        dataset: The samples.
        bar: The progress bar.

    Raises:
        ValueError: If there is not nearly enough memory.
    """
    if options.resume or short_fit(model, dataset) is not None:
        return
    cost = _read_estimate(options, model, dataset)
    if cost is None:
        cost = rehearse_fit(options, model, dataset, bar, short=_LONG_FIT_SECONDS)
        _save_estimate(options, model, dataset, cost)
    if cost.shortage is not None:
        # An estimate is good to a factor of two: only what cannot be is refused.
        if cost.is_hopeless:
            raise ValueError(f"{cost.shortage}; {_REMEDY}")
        print(f"warning: {cost.shortage}; {_REMEDY}", file=sys.stderr, flush=True)
    if cost.seconds > _LONG_FIT_SECONDS:
        print(f"this will take {cost.describe()}", file=sys.stderr, flush=True)


def rehearse_fit(
    options: Fit, model: AbstractModel, dataset: Collection, bar: ProgressBar, *, short: float = 0.0
) -> Estimate:
    """Estimates what a fit will take.

    Args:
        options: The command's options.
        model: The model.
        dataset: The samples.
        bar: The progress bar.
        short: As for `estimate`.

    Returns:
        The estimate.
    """
    bar.show("estimating the time")
    # Another key than the fit's: a rehearsal shall not look like it.
    key = jax.random.fold_in(jax.random.key(options.seed), 1)
    return estimate(model, dataset.samples, key=key, chunk_size=options.chunk_size, short=short)


def _estimate_file(options: Fit, model: AbstractModel, dataset: Collection) -> Path | None:
    """The file that caches the estimate of this fit; None without a compilation cache."""
    folder = jax.config.values.get("jax_compilation_cache_dir")
    if not folder or "://" in folder:
        return None
    samples = [[*dataset.samples.shape], str(np.dtype(dataset.samples.dtype))]
    machine = [jax.devices()[0].device_kind, os.cpu_count()]
    fit = [model.method, model.settings(), options.chunk_size]
    what = [__version__, jax.__version__, *fit, *samples, *machine]
    name = hashlib.sha256(json.dumps(what, default=str).encode()).hexdigest()[:32]
    return Path(folder) / "diffclust-estimates" / f"{name}.json"


def _read_estimate(options: Fit, model: AbstractModel, dataset: Collection) -> Estimate | None:
    file = _estimate_file(options, model, dataset)
    try:
        about = {} if file is None else json.loads(file.read_text("utf-8"))
        stages = tuple(StageCost(**stage) for stage in about.pop("stages"))
        return Estimate(stages, **about)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save_estimate(options: Fit, model: AbstractModel, dataset: Collection, cost: Estimate) -> None:
    file = _estimate_file(options, model, dataset)
    if file is not None:
        # Whole or not at all: another process may be reading it.
        with contextlib.suppress(OSError, ValueError), staged_file(file, overwrite=True) as written:
            written.write_text(json.dumps(dataclasses.asdict(cost)), "utf-8")
