"""`diffclust sweep`: tries settings, chooses one without labels, and writes why."""

import csv
from pathlib import Path
from typing import Any

from diffclust.cli.commands import check_seed, make_model, summarise, write_files
from diffclust.cli.pictures import Pictures
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.run_folder import environment, new_run, peak_memory_mb, write_summary
from diffclust.cli.run_options import Sweep
from diffclust.cli.samples import check_samples, inputs_of, load_images, load_shapes, size_of
from diffclust.cli.sweeping import Choice, settings_of, sweep_samples
from diffclust.data import Collection
from diffclust.models import AbstractImageModel
from diffclust.storage import checkpoint

CHOSEN = "chosen"
"""Folder of the run that was chosen, within that of the sweep."""


def sweep(options: Sweep) -> None:
    """Tries settings and writes a folder with a report, a curve, a table and the chosen run.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done.
        FitError: If a fit breaks down.
        OSError: If something cannot be read or written.
    """
    check_seed(options.seed)
    settings = settings_of(options)
    models = [make_model(setting) for setting in settings]
    pictures = Pictures(settings[0])
    size = size_of(options)
    with (
        new_run(
            options.out,
            overwrite=options.overwrite,
            inputs=inputs_of(settings[0]),
            command="sweep",
        ) as folder,
        ProgressBar(models[0].num_restarts) as bar,
    ):
        dataset: Collection
        if isinstance(models[0], AbstractImageModel):
            dataset = load_images(settings[0], size, options.channels, bar)
        else:
            dataset = load_shapes(settings[0])
        # Before hours are spent on the small ones.
        for model in models if options.grids is not None else models[-1:]:
            check_samples(model, dataset)
        choice = sweep_samples(settings, dataset, bar, options.grids is not None)
        bar.show("writing")
        _write(folder, choice, dataset, options, pictures)
    _show(options, choice)


def _write(
    folder: Path, choice: Choice, dataset: Collection, options: Sweep, pictures: Pictures
) -> None:
    from diffclust.cli.sweep_page import sweep_page
    from diffclust.plotting import criterion_curve

    values = [trial.value for trial in choice.trials]
    figure = criterion_curve(
        [trial.position for trial in choice.trials],
        values,
        names=[trial.name for trial in choice.trials],
        chosen=None if choice.chosen is None else choice.chosen.position,
        axis=choice.swept,
        label=choice.measure,
    )
    figure.savefig(folder / "curve.png", format="png", dpi=150)
    _write_table(folder / "sweep.csv", choice)
    if choice.chosen is not None:
        result, chosen = choice.chosen.result, folder / CHOSEN
        assert result is not None
        chosen.mkdir()
        summary = summarise(choice.chosen.options, dataset, result, "fit", result.summary())
        checkpoint.save(chosen / "model", result)
        write_files(
            chosen, result, dataset, summary, choice.chosen.options, title=None, pictures=pictures
        )
    (folder / "report.html").write_text(sweep_page(choice, dataset, options), "utf-8")
    write_summary(folder, _summary(choice, options, len(dataset)))


def _summary(choice: Choice, options: Sweep, count: int) -> dict[str, Any]:
    return {
        "method": options.method,
        "command": "sweep",
        "n": count,
        "swept": choice.swept,
        "criterion": choice.criterion,
        "values": {trial.name: trial.value for trial in choice.trials},
        "chosen": None if choice.chosen is None else choice.chosen.name,
        "reason": choice.reason,
        "seed": options.seed,
        "source": {
            "source": options.source,
            "split": options.split,
            "limit": options.limit,
        },
        "peak_memory_mb": peak_memory_mb(),
        **environment(),
    }


def _write_table(path: Path, choice: Choice) -> None:
    scores = next((list(trial.scores) for trial in choice.trials if trial.scores), [])
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        other = [] if choice.measure == "loss" else ["loss"]
        writer.writerow([choice.swept, choice.measure, *other, "seconds", "chosen", *scores])
        for trial in choice.trials:
            outcome = None if trial.result is None else trial.result.outcome
            told = ["", ""] if outcome is None else [str(outcome.loss), f"{outcome.seconds:.3f}"]
            told = told[1 - len(other) :]
            known = [str(trial.scores[name]) if trial.scores else "" for name in scores]
            chosen = int(trial is choice.chosen)
            writer.writerow([trial.name, str(trial.value), *told, chosen, *known])


def _show(options: Sweep, choice: Choice) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    scores = next((list(trial.scores) for trial in choice.trials if trial.scores), [])
    table = Table(choice.swept, choice.measure, *scores, "", box=None, header_style="bold")
    for column in table.columns[:-1]:
        column.justify = "right"
    for trial in choice.trials:
        known = [f"{trial.scores[name]:.3f}" if trial.scores else "" for name in scores]
        mark = "chosen" if trial is choice.chosen else ""
        table.add_row(trial.name, f"{trial.value:.6g}", *known, mark)
    console.print(table)
    console.print(choice.reason)
    if scores:
        console.print("(the choice never saw the labels)")
    console.print(f"report: {Path(options.out) / 'report.html'}", markup=False, soft_wrap=True)
    if choice.chosen is not None:
        console.print(f"run: {Path(options.out) / CHOSEN}", markup=False, soft_wrap=True)
