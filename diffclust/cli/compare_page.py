"""A comparison of runs as one self-contained HTML page."""

import base64
import math
from pathlib import Path

from diffclust.cli.agreement import Comparison
from diffclust.cli.comparison_table import comparison_rows, notes
from diffclust.report.page import document
from diffclust.report.text import count, escape

_ICON = (
    "data:image/svg+xml;base64,"
    + base64.b64encode(
        b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><path fill="#2f6690" '
        b'd="M0 0h2v2H0zM2 2h2v2H2z"/></svg>'
    ).decode()
)


def comparison_page(found: Comparison) -> str:
    """The page.

    Args:
        found: The comparison.

    Returns:
        A whole HTML document.
    """
    runs = count(len(found.runs), "run")
    said = "".join(f'<p class="note">{escape(note)}</p>' for note in notes(found))
    sheets = "".join(
        f"<figure><figcaption>{i} {escape(name)}</figcaption>{sheet}</figure>"
        for i, (name, run) in enumerate(zip(found.names, found.runs, strict=True), start=1)
        if (sheet := _sheet(run.folder, name))
    )
    body = (
        f'<header><p class="eyebrow">diffclust comparison</p><h1>{runs} compared</h1></header>\n'
        f'<main>\n<section id="figures"><div class="bar"><h2>Figures</h2></div>{_table(found)}'
        f'{said}</section>\n<section id="agreement"><div class="bar"><h2>Agreement</h2></div>'
        f"{_matrix(found)}</section>\n"
        f'<section id="sheets"><div class="bar"><h2>Prototypes</h2></div><div class="sheets">'
        f"{sheets}</div></section>\n</main>"
    )
    return document(f"{runs} compared", body, icon=_ICON)


def _table(found: Comparison) -> str:
    head, rows = comparison_rows(found)
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    listed = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows
    )
    return (
        f'<div class="across"><table class="table"><thead><tr>{names}</tr></thead>'
        f"<tbody>\n{listed}</tbody></table></div>"
    )


def _matrix(found: Comparison) -> str:
    numbers = range(1, len(found.names) + 1)
    head = "".join(f"<th>{i}</th>" for i in numbers)
    rows = "".join(
        f"<tr><th>{i} {escape(name)}</th>{''.join(map(_cell, values))}</tr>\n"
        for i, name, values in zip(numbers, found.names, found.agreement.tolist(), strict=True)
    )
    return (
        f'<div class="across"><table class="confusion"><thead><tr><td></td>{head}</tr></thead>'
        f'<tbody>\n{rows}</tbody></table></div><p class="note">The adjusted Rand index between the '
        "clusters of two runs: 1 where they are the same, about 0 where they are independent. "
        "Labels play no part in it.</p>"
    )


def _cell(value: float) -> str:
    if math.isnan(value):
        return "<td>–</td>"
    dark = ' class="dark"' if value > 0.55 else ""
    return f'<td{dark} style="--share:{100 * max(value, 0.0):.0f}%">{value:.3f}</td>'


def _sheet(folder: Path, name: str) -> str:
    try:
        picture = (folder / "prototypes.png").read_bytes()
    except OSError:
        return ""
    uri = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    return f'<img src="{uri}" alt="Prototypes of {escape(name)}">'
