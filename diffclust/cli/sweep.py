"""`diffclust sweep`: tries settings, chooses one without labels, and writes why."""

import base64
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from diffclust.cli.commands import check_options, make_model, write_run
from diffclust.cli.compare import SCORES, html_table
from diffclust.cli.options import Sweep
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.runs import environment, new_run, peak_memory_mb, write_summary, write_table
from diffclust.cli.samples import check_samples, inputs_of, load_samples
from diffclust.cli.summary import text_table
from diffclust.cli.sweep_choice import Choice, choose, fits_of
from diffclust.data import Collection
from diffclust.methods import METHODS
from diffclust.plotting import criterion_chart, criterion_curve
from diffclust.report.comparisons import prototype_row
from diffclust.report.page import document
from diffclust.report.text import count, duration, escape, number, whole
from diffclust.storage import checkpoint

CHOSEN = "chosen"
"""Folder of the run that was chosen, within that of the sweep."""

_ICON = (
    "data:image/svg+xml;base64,"
    + base64.b64encode(
        b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><path fill="none" '
        b'stroke="#2f6690" d="M1 1Q2 6 7 7"/></svg>'
    ).decode()
)

_MOST_PROTOTYPES = 40

_MOST_ROWS = 30


def sweep(options: Sweep) -> None:
    """Tries settings and writes a folder with a report, a curve, a table and the chosen run.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done.
        FitError: If a fit breaks down.
        OSError: If something cannot be read or written.
    """
    check_options(options)
    fits = fits_of(options)
    models = [make_model(fit) for fit in fits]
    by_grid = options.grids is not None
    with (
        new_run(
            options.out,
            overwrite=options.overwrite,
            inputs=inputs_of(fits[0]),
            command="sweep",
        ) as folder,
        ProgressBar(models[0].num_restarts) as bar,
    ):
        dataset = load_samples(fits[0], models[0], bar)
        # Before hours are spent on the small ones.
        for model in models if by_grid else models[-1:]:
            check_samples(model, dataset)
        choice = choose(fits, dataset, bar, by_grid=by_grid)
        bar.show("writing")
        _write(folder, choice, dataset, options)
    _print(options, choice)


def _write(folder: Path, choice: Choice, dataset: Collection, options: Sweep) -> None:
    figure = criterion_curve(**choice.curve(), label=choice.measure)
    figure.savefig(folder / "curve.png", format="png", dpi=150)
    columns, scores = _columns(choice, str, "{:.3f}".format, str)
    columns["chosen"] = [str(int(trial is choice.chosen)) for trial in choice.trials]
    columns |= scores
    write_table(folder / "sweep.csv", [*columns], zip(*columns.values(), strict=True))
    if choice.chosen is not None:
        result, chosen = choice.chosen.result, folder / CHOSEN
        assert result is not None
        chosen.mkdir()
        checkpoint.save(chosen / "model", result)
        write_run(chosen, result, dataset, choice.chosen.options)
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
        "source": {name: getattr(options, name) for name in ("source", "split", "limit")},
        "peak_memory_mb": peak_memory_mb(),
        **environment(),
    }
    write_summary(folder, summary)


def _columns(
    choice: Choice,
    value: Callable[[float], str],
    seconds: Callable[[float], str],
    score: Callable[[float], str] = "{:.3f}".format,
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Columns of texts by their names, and those of the scores, if there are any."""
    trials = choice.trials
    outcomes = [None if trial.result is None else trial.result.outcome for trial in trials]
    columns = {
        choice.swept: [trial.name for trial in trials],
        choice.measure: [value(trial.value) for trial in trials],
    }
    if choice.measure != "loss":
        columns["loss"] = ["" if outcome is None else value(outcome.loss) for outcome in outcomes]
    columns["seconds"] = [
        "" if outcome is None else seconds(outcome.seconds) for outcome in outcomes
    ]
    names = next((trial.scores for trial in trials if trial.scores), {})
    scores = {n: [score(t.scores[n]) if t.scores else "" for t in trials] for n in names}
    return columns, scores


def _print(options: Sweep, choice: Choice) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    columns, scores = _columns(choice, "{:.6g}".format, str)
    shown = {name: columns[name] for name in (choice.swept, choice.measure)} | scores
    console.print(text_table([*shown, ""], _rows(choice, shown)))
    console.print(choice.reason)
    if scores:
        console.print("(the choice never saw the labels)")
    console.print(f"report: {Path(options.out) / 'report.html'}", markup=False, soft_wrap=True)
    if choice.chosen is not None:
        console.print(f"run: {Path(options.out) / CHOSEN}", markup=False, soft_wrap=True)


def sweep_page(choice: Choice, dataset: Collection, options: Sweep) -> str:
    """A sweep as one self-contained HTML page: the curve, the choice and why, all prototypes.

    Args:
        choice: What was tried and chosen.
        dataset: The samples.
        options: What was asked for.

    Returns:
        A whole HTML document.
    """
    what = "numbers of clusters" if choice.swept == "clusters" else "landmark grids"
    method = METHODS[options.method].title
    heading, link = "Nothing was chosen", ""
    if choice.chosen is not None:
        heading = (
            count(choice.chosen.options.clusters, "cluster")
            if choice.swept == "clusters"
            else f"{escape(choice.chosen.name)} landmarks"
        )
        heading = f"Chosen: {heading}"
        link = (
            f'<p class="note"><a href="{CHOSEN}/report.html">The report of the chosen run</a></p>'
        )
    chart = criterion_chart(**choice.curve(), measure=choice.measure)
    body = (
        f'<header><p class="eyebrow">diffclust sweep</p><h1>{escape(dataset.name)}</h1>'
        f'<p class="lead">{whole(len(choice.trials))} {what} tried with {escape(method)} on '
        f"{count(len(dataset), dataset.noun)}, seed {options.seed}.</p></header>\n<main>\n"
        f'<section id="choice"><div class="bar"><h2>{heading}</h2></div>'
        f'<div class="run"><div>{chart}</div><div><p>{escape(choice.reason)}</p>{link}</div></div>'
        f'</section>\n<section id="trials"><div class="bar"><h2>All that was tried</h2></div>'
        f"{_html_trials(choice)}</section>\n{_html_prototypes(choice)}</main>"
    )
    height = dataset.samples.shape[1] if dataset.samples.ndim == 4 else 0
    return document(
        f"{dataset.name}, {what}", body, icon=_ICON, body_class="pixels" if 0 < height <= 64 else ""
    )


def _html_trials(choice: Choice) -> str:
    columns, scores = _columns(choice, functools.partial(number, digits=5), duration)
    header = ["time" if name == "seconds" else name for name in columns]
    header += [*(SCORES.get(name, name) for name in scores), ""]
    note = '<p class="note">The choice never saw the labels.</p>' if scores else ""
    return html_table(header, _rows(choice, {**columns, **scores})) + note


def _rows(choice: Choice, columns: Mapping[str, list[str]]) -> list[tuple[str, ...]]:
    """Rows for readers: the chosen trial is marked at its end."""
    marks = ["chosen" if trial is choice.chosen else "" for trial in choice.trials]
    return list(zip(*columns.values(), marks, strict=True))


def _html_prototypes(choice: Choice) -> str:
    rows = []
    for trial in choice.trials:
        prototypes = np.zeros(0) if trial.result is None else trial.result.prototypes
        if prototypes.ndim == 4 and len(prototypes) <= _MOST_PROTOTYPES:
            mark = "chosen" if trial is choice.chosen else ""
            rows.append(prototype_row(f"{choice.swept}: {trial.name}", mark, prototypes))
    if not rows:
        return ""
    return (
        '<section id="prototypes"><div class="bar"><h2>Prototypes</h2></div>'
        f'<div class="starts">{"".join(rows[:_MOST_ROWS])}</div></section>\n'
    )
