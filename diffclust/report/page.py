"""The HTML page as a whole: its head, its style and script, its sections and tables."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from importlib import resources

from diffclust._version import __version__
from diffclust.report.text import escape

_DARK = 0.55
"""From this share on a cell is so dark that its number must be light."""


def document(
    kind: str,
    title: str,
    header: str,
    sections: Iterable[str],
    *,
    icon: str,
    css_classes: Iterable[str] = (),
) -> str:
    """A whole page that needs no network and, by its own policy, gets none.

    Args:
        kind: What wrote it, such as `"report"`.
        title: Its title, any text.
        header: HTML at its head: a heading and what stands below it.
        sections: What it shows, HTML; empty ones are left out.
        icon: A small picture that stands for it, a `data:` URI.
        css_classes: CSS classes of the page.

    Returns:
        A whole HTML document.
    """
    style, script = (
        resources.files("diffclust.report").joinpath(name).read_text("utf-8")
        for name in ("style.css", "script.js")
    )
    main = "\n".join(filter(None, sections))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The browser itself then refuses the network, and any script but this one.
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f'<link rel="icon" type="{icon[5 : icon.index(";")]}" href="{icon}">\n'
        f"<style>\n{style}</style>\n</head>\n"
        f'<body class="{" ".join(css_classes)}">\n<header>\n<p class="eyebrow">diffclust {kind}</p>'
        f"\n{header}</header>\n<main>\n{main}\n</main>\n"
        f"<footer>Made by diffclust {__version__}. This file holds everything it shows "
        'and loads nothing from elsewhere.</footer>\n<output class="tooltip" hidden></output>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def data_uri(content: bytes, kind: str) -> str:
    """A picture as a `data:` URI.

    Args:
        content: The picture's file.
        kind: Its format, such as `"png"` or `"svg+xml"`.

    Returns:
        The URI.
    """
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def svg_icon(box: str, drawing: str) -> str:
    """A small picture that stands for a page.

    Args:
        box: SVG's `viewBox`.
        drawing: The shapes, SVG.

    Returns:
        A `data:` URI.
    """
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">{drawing}</svg>'
    return data_uri(svg.encode(), "svg+xml")


def section(name: str, heading: str, body: str, controls: str = "") -> str:
    """A part of a page.

    Args:
        name: Its id.
        heading: Its heading, HTML.
        body: HTML below it.
        controls: HTML beside the heading.

    Returns:
        HTML; nothing without a body.
    """
    if not body:
        return ""
    bar = f'<div class="bar"><h2>{heading}</h2>{controls}</div>'
    return f'<section id="{name}">\n{bar}{body}\n</section>'


def figure_list(figures: Mapping[str, str]) -> str:
    """Figures in large letters, each above its name.

    Args:
        figures: Values, HTML, by name, any text.

    Returns:
        HTML.
    """
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in figures.items()
    )
    return f'<dl class="figures">{listed}</dl>'


def table(columns: Mapping[str, Iterable[str]]) -> str:
    """A table.

    Args:
        columns: Any texts, by the name of the column.

    Returns:
        HTML.
    """
    rows = zip(*columns.values(), strict=True)
    listed = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return _table("table", "".join(f"<th>{escape(name)}</th>" for name in columns), listed)


def shaded_table(header: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A table of shares, each row with a name before it.

    Args:
        header: Names of the columns, HTML.
        rows: Name, any text, and cells (see `shaded_cell`) of each row.

    Returns:
        HTML.
    """
    listed = (f"<th>{escape(name)}</th>{''.join(cells)}" for name, cells in rows)
    head = "".join(f"<th>{name}</th>" for name in header)
    return _table("confusion", f"<td></td>{head}", listed)


def _table(css_class: str, head: str, rows: Iterable[str]) -> str:
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return (
        f'<div class="across"><table class="{css_class}"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def shaded_cell(share: float, text: str, *css_classes: str) -> str:
    """A cell of a table, the darker the greater the share.

    Args:
        share: Between 0 and 1.
        text: What stands in it, HTML.
        *css_classes: CSS classes of the cell.

    Returns:
        HTML.
    """
    names = " ".join([*css_classes, *["dark"] * (share > _DARK)])
    named = f' class="{names}"' if names else ""
    return f'<td{named} style="--share:{100 * share:.0f}%">{text}</td>'
