"""`diffclust sweep`: tries settings, chooses one without labels, and writes why."""

import contextlib
import dataclasses
import functools
import json
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diffclust._validation import cluster_count
from diffclust.analysis import check_evidence
from diffclust.cli import commands, runs
from diffclust.cli.choice import Choice, Fitter, choose, fits_of_graphs
from diffclust.cli.options import HAVING_GRIDS, Fit, Sweep, parse_grid
from diffclust.cli.samples import check_samples, inputs_of, load_samples, sample_arguments
from diffclust.cli.summary import console, text_table
from diffclust.data import Collection
from diffclust.methods import METHODS, plural
from diffclust.models import AbstractModel
from diffclust.plotting import criterion_chart, criterion_curve
from diffclust.progress_bar import ProgressBar
from diffclust.report.page import document, section, svg_icon, table
from diffclust.report.sections import prototype_row
from diffclust.report.text import SCORES, count, duration, escape, integer, number
from diffclust.storage import checkpoint

CHOSEN = "chosen"
"""Folder of the run that was chosen, within that of the sweep."""

_ICON = svg_icon("0 0 8 8", '<path fill="none" stroke="#2f6690" d="M1 1Q2 6 7 7"/>')

_MOST_PROTOTYPES = 40

_MOST_ROWS = 30

_MOST_TRIALS = 100

_OWN = ("clusters", "grids")
"""Options that say what is tried; all others are those of the fits."""

_TRIED = (*_OWN, "settings", "as_published", "chunk_size")
"""What a finished sweep is compared by, beside what was read."""

_READ = (
    *("source", "split", "limit", "size", "pad", "channels", "mask", "weights"),
    *("labels", "label_pattern", "skip_bad", *runs.OF_RECORDINGS, *runs.OF_TPS),
)
"""Options that say what was read."""


def fits_of(options: Sweep) -> list[Fit]:
    """Lists the fits that a sweep runs.

    Args:
        options: The command's options.

    Returns:
        At least two, in ascending order.

    Raises:
        ValueError: If they are none, too few or too many, or not for this method.
    """
    counts = _counts(options.clusters)
    base = {name: value for name, value in vars(options).items() if name not in _OWN}
    if options.grids is None:
        if len(counts) < 2:
            raise ValueError(
                f"-k must be at least two numbers, such as 2-12 or 2,4,8, not {options.clusters!r};"
                " for one use 'diffclust fit'"
            )
        return [Fit(clusters=count, **base) for count in counts]
    if options.method not in HAVING_GRIDS:
        raise ValueError(f"{options.method} has no landmark grids; leave out --grids")
    if "landmarks" in options.settings:
        raise ValueError("give either --grids or --landmarks, not both")
    if len(counts) != 1:
        raise ValueError(f"with --grids, -k must be one number, not {options.clusters!r}")
    texts = options.grids.split(",")
    grids = {parse_grid(text, "grids", "3,5,7x5 (rows x columns)") for text in texts}
    if len(grids) < 2:
        raise ValueError(
            f"--grids must be at least two grids, such as 3,5,7, not {options.grids!r}"
        )
    fit = Fit(clusters=counts[0], **base)
    return [
        dataclasses.replace(fit, settings={**options.settings, "landmarks": grid})
        for grid in sorted(grids, key=lambda grid: (grid[0] * grid[1], grid))
    ]


def _counts(text: str) -> list[int]:
    """Reads `"2-12"`, `"2,4,8"` or `"2-4,8"`."""
    matches = [re.fullmatch("([0-9]{1,6})(?:-([0-9]{1,6}))?", p.strip()) for p in text.split(",")]
    counts: set[int] = set()
    for match in matches:
        if None in matches or match is None:
            raise ValueError(f"-k must be like 2-12 or 2,4,8, not {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"-k must go up, as in {last}-{first}, not {match[0]!r}")
        counts |= {*range(first, last + 1)[: _MOST_TRIALS + 1]}
    if len(counts) > _MOST_TRIALS:
        raise ValueError(f"-k must be at most {_MOST_TRIALS} numbers; give fewer, as in 2,4,8")
    return sorted(counts)


def sweep(options: Sweep) -> None:
    """Tries settings and writes a folder with a report, a curve, a table and the chosen run.

    Args:
        options: The command's options.

    Raises:
        ValueError: If it cannot be done.
        FitError: If a fit breaks down.
        OSError: If something cannot be read or written.
    """
    commands.check_options(options)
    fits = fits_of(options)
    models = [commands.make_model(fit) for fit in fits]
    by_grid = options.grids is not None
    for model in models if by_grid else ():
        check_evidence(model)
    if options.dry_run:
        with ProgressBar() as bar:
            dataset = load_samples(fits[0], models[0], bar)
            _check(models if by_grid else models[-1:], dataset, sample_arguments(fits[0], dataset))
            print(_describe(fits, models, dataset, bar, refits=not by_grid))
        return
    out = Path(options.out)
    if options.resume and not options.overwrite and runs.is_run(out, "sweep"):
        finished = runs.summary_of(out)
        found = {**finished, **finished.get("source", {}), **finished.get("tried", {})}
        runs.refuse_other(repr(options.out), found, _asked(options))
        left = runs.partial_folder(out.absolute())
        runs.refuse_newer(out, filter(Path.is_dir, left.glob("*")))
        # It may have been broken off while these were removed.
        shutil.rmtree(left, ignore_errors=True)
        print(f"{options.out} holds a finished sweep; there is nothing to go on with")
        return
    inputs, replace = inputs_of(fits[0]), options.overwrite
    with (
        runs.new_run(options.out, overwrite=replace, inputs=inputs, command="sweep") as folder,
        ProgressBar(models[0].num_restarts) as bar,
        contextlib.ExitStack() as stack,
    ):
        dataset = load_samples(fits[0], models[0], bar)
        fitter = Fitter(fits, dataset, bar, stack)
        try:
            with runs.interruption_says(runs.GO_ON):
                _check(models if by_grid else models[-1:], dataset, fitter.arguments)
                choice = choose(fits, fitter, by_grid=by_grid)
                bar.show("writing the report")
                _write(folder, choice, dataset, options, bar)
        except BaseException:
            if not fitter.has_fits:
                shutil.rmtree(fitter.folder, ignore_errors=True)
            raise
    with runs.interruption_says(f"{options.out} is complete; --resume removes what is beside it"):
        shutil.rmtree(fitter.folder)
        if options.resume or replace:
            runs.remove_staged(out.absolute())
        _print(options, choice)


def _check(
    models: Sequence[AbstractModel], dataset: Collection, arguments: Mapping[str, Any]
) -> None:
    """Refuses what the largest fits cannot cluster, before hours are spent on the small ones."""
    for model in models:
        check_samples(model, dataset, warn=False)  # who loaded them was warned
    if (weight := arguments.get("sample_weight")) is not None:
        positive = f"{plural(dataset.noun)} of positive weight"
        cluster_count(models[-1].num_clusters, int(np.count_nonzero(weight)), positive)


def _asked(options: Sweep) -> dict[str, Any]:
    """The options, as they are read from JSON."""
    return json.loads(json.dumps(vars(options)))


def _describe(
    fits: Sequence[Fit],
    models: Sequence[AbstractModel],
    dataset: Collection,
    bar: ProgressBar,
    *,
    refits: bool,
) -> str:
    """Estimates what a sweep would take from its first and its last fit."""
    by_graph = models[0].descriptor.selection == "eigengap"
    # One for each graph, and that of the K that is chosen.
    number = len(fits_of_graphs(fits)) + 1 if by_graph else len(fits)
    cost = commands.short_fit(models[-1], dataset)
    if cost is not None:
        cost += " each"
    else:
        ends = [commands.rehearse_fit(fits[i], models[i], dataset, bar) for i in (0, -1)[by_graph:]]
        mean = np.mean([(cost.least, cost.most) for cost in ends], axis=0)
        least, most = (duration(number * seconds) for seconds in mean)
        cost = f"{least} to {most}"
    if refits and models[0].descriptor.solver == "lloyd":
        cost += ", and second fits for the stability"
    samples = f"{len(dataset)} {plural(dataset.noun)}"
    return (
        f"{number} fits by {models[0].method} of {samples} would take {cost} "
        "(dry run: nothing was written)"
    )


def _write(
    folder: Path, choice: Choice, dataset: Collection, options: Sweep, bar: ProgressBar
) -> None:
    figure = criterion_curve(**choice.curve(), label=choice.measure)
    figure.savefig(folder / "curve.png", format="png", dpi=150)
    columns, scores = _columns(choice, str, "{:.3f}".format, str)
    columns["chosen"] = [str(int(trial is choice.chosen)) for trial in choice.trials]
    columns |= scores
    runs.write_table(folder / "sweep.csv", columns, zip(*columns.values(), strict=True))
    if choice.chosen is not None:
        result, fitted, chosen = choice.chosen.result, choice.chosen.options, folder / CHOSEN
        assert result is not None
        result = commands.with_movement(result, fitted, dataset, bar)
        chosen.mkdir()
        checkpoint.save(chosen / "model", result)
        commands.write_run(chosen, result, dataset, fitted)
    (folder / "report.html").write_text(sweep_page(choice, dataset, options), "utf-8")
    summary = {
        "method": options.method,
        "command": "sweep",
        "n": len(dataset),
        "swept": choice.swept,
        "criterion": choice.criterion,
        "values": {trial.name: trial.value for trial in choice.trials},
        "chosen": None if choice.chosen is None else choice.chosen.name,
        "reason": choice.reason,
        "seed": options.seed,
        "source": {name: getattr(options, name) for name in _READ},
        "tried": {name: _asked(options)[name] for name in _TRIED},
        "peak_memory_mb": runs.peak_memory_mb(),
        **runs.environment(),
    }
    runs.write_summary(folder, summary)


_MEANINGS = {
    "silhouette": "Silhouette: how much nearer samples are to their own cluster than to the next; "
    "1 for clusters far apart, 0 where they touch.",
    "stability": "Stability: how alike fits of other seeds, or of single graphs, are, as an "
    "adjusted Rand index; 1 where all agree.",
}

Columns = dict[str, list[str]]
Format = Callable[[float], str]


def _columns(
    choice: Choice, value: Format, seconds: Format = str, score: Format = "{:.3f}".format
) -> tuple[Columns, Columns]:
    """Columns of texts by their names, and those of the scores, if there are any."""
    trials = choice.trials
    outcomes = [trial.result and trial.result.outcome for trial in trials]
    columns = {
        choice.swept: [trial.name for trial in trials],
        choice.measure: [value(trial.value) for trial in trials],
        "loss": [value(outcome.loss) if outcome else "" for outcome in outcomes],
        "seconds": [seconds(outcome.seconds) if outcome else "" for outcome in outcomes],
    }
    names = next((trial.scores for trial in trials if trial.scores), ())
    for name in ("silhouette", "stability"):
        values = [getattr(trial, name) for trial in trials]
        if not np.isnan(values).all():
            columns[name] = ["" if math.isnan(each) else score(each) for each in values]
    scores = {n: [score(t.scores[n]) if t.scores else "" for t in trials] for n in names}
    return columns, scores


def _marked(choice: Choice, columns: Columns) -> Columns:
    """Adds a column that marks the chosen trial."""
    return columns | {"": ["chosen" if trial is choice.chosen else "" for trial in choice.trials]}


def _named(scores: Columns) -> Columns:
    """The scores by the names of `SCORES`."""
    return {SCORES.get(name, name): texts for name, texts in scores.items()}


def _print(options: Sweep, choice: Choice) -> None:
    screen = console()
    columns, scores = _columns(choice, "{:.6g}".format)
    hidden = {"loss", "seconds"} - {choice.measure}
    shown = {name: column for name, column in columns.items() if name not in hidden}
    screen.print(text_table(_marked(choice, shown | _named(scores))))
    screen.print(choice.reason)
    if scores:
        screen.print("(the choice never saw the labels)")
    places = {"report": "report.html", **({"run": CHOSEN} if choice.chosen else {})}
    for what, name in places.items():
        screen.print(f"{what}: {Path(options.out) / name}", markup=False, soft_wrap=True)


def sweep_page(choice: Choice, dataset: Collection, options: Sweep) -> str:
    """A sweep as one self-contained HTML page: the curve, the choice and why, all prototypes.

    Args:
        choice: What was tried and chosen.
        dataset: The samples.
        options: The command's options.

    Returns:
        A complete HTML document.
    """
    by_clusters, chosen = choice.swept == "clusters", choice.chosen
    what = "numbers of clusters" if by_clusters else "landmark grids"
    heading, link = "The choice", ""
    if chosen is not None:
        named = f"{escape(chosen.name)} landmarks"
        heading = f"Chosen: {count(chosen.options.clusters, 'cluster') if by_clusters else named}"
        link = (
            f'<p class="note"><a href="{CHOSEN}/report.html">The report of the chosen run</a></p>'
        )
    measure = choice.measure
    chart = f"<h3>{escape(measure[0].upper() + measure[1:])} against {escape(choice.swept)}</h3>"
    chart += criterion_chart(**choice.curve(), measure=measure)
    reason = f"<p>{escape(choice.reason)}</p>{link}"
    columns, scores = _columns(choice, functools.partial(number, digits=5), duration)
    shown = {{"seconds": "time"}.get(name, name): texts for name, texts in columns.items()}
    notes = [_MEANINGS[name] for name in _MEANINGS if name in columns]
    notes += ["The choice never saw the labels."] if scores else []
    note = f'<p class="note">{" ".join(notes)}</p>' if notes else ""
    rows = _prototype_rows(choice)
    sections = [
        section("choice", heading, f'<div class="run"><div>{chart}</div><div>{reason}</div></div>'),
        section(
            "trials", "All that was tried", table(_marked(choice, shown | _named(scores))) + note
        ),
        *[section("prototypes", "Prototypes", f'<div class="starts">{rows}</div>')] * bool(rows),
    ]
    header = (
        f'<h1>{escape(dataset.name)}</h1><p class="lead">{integer(len(choice.trials))} {what} '
        f"tried with {escape(METHODS[options.method].title)} on "
        f"{count(len(dataset), dataset.noun)}, seed {options.seed}.</p>"
    )
    is_image = METHODS[options.method].sample_kind == "image"
    classes = ["pixels"] if is_image and dataset.samples.shape[1] <= 64 else []
    title = f"{dataset.name}, {what}"
    return document("sweep", title, header, sections, icon=_ICON, css_classes=classes)


def _prototype_rows(choice: Choice) -> str:
    """The prototypes of the trials, where they are images and not too many."""
    rows = []
    for trial in choice.trials:
        fit, mark = trial.result, "chosen" if trial is choice.chosen else ""
        if fit and fit.sample_kind == "image" and len(fit.prototypes) <= _MOST_PROTOTYPES:
            rows.append(prototype_row(f"{choice.swept}: {trial.name}", mark, fit.prototypes))
    return "".join(rows[:_MOST_ROWS])
