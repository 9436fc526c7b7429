"""A sweep as one self-contained HTML page: the curve, the choice and why, prototypes of each."""

import base64

from diffclust.cli.run_options import Sweep
from diffclust.cli.sweeping import Choice, Trial
from diffclust.data import Collection
from diffclust.plotting import criterion_chart
from diffclust.report.comparisons import prototype_row
from diffclust.report.page import document
from diffclust.report.text import count, duration, escape, number, whole

_SCORES = {"acc": "accuracy", "nmi": "NMI", "ari": "ARI"}

_ICON = (
    "data:image/svg+xml;base64,"
    + base64.b64encode(
        b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><path fill="none" '
        b'stroke="#2f6690" d="M1 1Q2 6 7 7"/></svg>'
    ).decode()
)

_MOST_PROTOTYPES = 40

_MOST_ROWS = 30


def sweep_page(choice: Choice, dataset: Collection, options: Sweep) -> str:
    """The page.

    Args:
        choice: What was tried and chosen.
        dataset: The samples.
        options: What was asked for.

    Returns:
        A whole HTML document.
    """
    what = "numbers of clusters" if choice.swept == "clusters" else "landmark grids"
    fitted = next(trial.result for trial in choice.trials if trial.result is not None)
    method = fitted.model.descriptor.title
    link = (
        '<p class="note"><a href="chosen/report.html">The report of the chosen run</a></p>'
        if choice.chosen is not None
        else ""
    )
    chart = criterion_chart(
        [trial.position for trial in choice.trials],
        [trial.value for trial in choice.trials],
        names=[trial.name for trial in choice.trials],
        chosen=None if choice.chosen is None else choice.chosen.position,
        axis=choice.swept,
        measure=choice.measure,
    )
    body = (
        f'<header><p class="eyebrow">diffclust sweep</p><h1>{escape(dataset.name)}</h1>'
        f'<p class="lead">{whole(len(choice.trials))} {what} tried with {escape(method)} on '
        f"{count(len(dataset), dataset.noun)}, seed {options.seed}.</p></header>\n<main>\n"
        f'<section id="choice"><div class="bar"><h2>{_heading(choice)}</h2></div>'
        f'<div class="run"><div>{chart}</div><div><p>{escape(choice.reason)}</p>{link}</div></div>'
        f'</section>\n<section id="trials"><div class="bar"><h2>All that was tried</h2></div>'
        f"{_table(choice)}</section>\n{_rows(choice)}</main>"
    )
    height = dataset.samples.shape[1] if dataset.samples.ndim == 4 else 0
    return document(
        f"{dataset.name}, {what}", body, icon=_ICON, body_class="pixels" if 0 < height <= 64 else ""
    )


def _heading(choice: Choice) -> str:
    if choice.chosen is None:
        return "Nothing was chosen"
    if choice.swept == "clusters":
        return f"Chosen: {count(choice.chosen.options.clusters, 'cluster')}"
    return f"Chosen: {escape(choice.chosen.name)} landmarks"


def _table(choice: Choice) -> str:
    scores = next((list(trial.scores) for trial in choice.trials if trial.scores), [])
    heads = [choice.swept, choice.measure]
    heads += [] if choice.measure == "loss" else ["loss"]
    heads += ["time", *(_SCORES.get(name, name) for name in scores), ""]
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    rows = []
    for trial in choice.trials:
        outcome = None if trial.result is None else trial.result.outcome
        cells = [trial.name, number(trial.value, digits=5)]
        if choice.measure != "loss":
            cells.append("" if outcome is None else number(outcome.loss, digits=5))
        cells.append("" if outcome is None else duration(outcome.seconds))
        cells += [f"{trial.scores[name]:.3f}" if trial.scores else "" for name in scores]
        cells.append("chosen" if trial is choice.chosen else "")
        rows.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>\n")
    note = '<p class="note">The choice never saw the labels.</p>' if scores else ""
    return (
        f'<div class="across"><table class="table"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{''.join(rows)}</tbody></table></div>{note}"
    )


def _rows(choice: Choice) -> str:
    shown = [trial for trial in choice.trials if _is_shown(trial)][:_MOST_ROWS]
    if not shown:
        return ""
    rows = []
    for trial in shown:
        assert trial.result is not None
        name = f"{choice.swept}: {trial.name}"
        told = "chosen" if trial is choice.chosen else ""
        rows.append(prototype_row(name, told, trial.result.prototypes))
    return (
        '<section id="prototypes"><div class="bar"><h2>Prototypes</h2></div>'
        f'<div class="starts">{"".join(rows)}</div></section>\n'
    )


def _is_shown(trial: Trial) -> bool:
    result = trial.result
    return (
        result is not None
        and result.prototypes.ndim == 4
        and len(result.prototypes) <= _MOST_PROTOTYPES
    )
