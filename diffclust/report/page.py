"""The HTML page as a whole: its head, its style and script; sections, tables and pictures."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from urllib.parse import unquote

import numpy as np
from PIL.Image import Dither, Image

from diffclust._version import __version__
from diffclust.plotting.pictures import as_picture, data_uri, displayable, picture_uri
from diffclust.report.text import escape

_ENCODINGS = ((96, None), (72, None), (72, 64), (56, 64), (40, 64), (28, 64))
"""Longest side and number of colours (None for all of them), tried until the pictures fit."""

_NUM_TRIED = 12
"""Pictures that stand for all others when their size in bytes is estimated."""

_DIALOG = (
    '<dialog class="large"><div class="bar"><p></p><div><button type="button" value="-1">Previous'
    '</button> <button type="button" value="1">Next</button> <button type="button" value="0">Close'
    '</button></div></div><div class="views"></div></dialog>\n'
)
"""A sample at full size, and buttons for those beside it."""


def document(
    kind: str,
    title: str,
    header: str,
    sections: Iterable[str],
    *,
    icon: str,
    css_classes: Iterable[str] = (),
    files: str = "",
) -> str:
    """A complete page that needs no network and, by its own policy, gets none.

    Args:
        kind: What wrote it, such as `"report"`.
        title: Its title, any text.
        header: HTML at its head: a heading and what stands below it.
        sections: What it shows, HTML; empty ones are left out.
        icon: A small picture that stands for it, a `data:` URI.
        css_classes: CSS classes of the page.
        files: A folder beside the page that it may load files from, as a URL; nothing for none.

    Returns:
        A complete HTML document.
    """
    style, script = (
        resources.files("diffclust.report").joinpath(name).read_text("utf-8")
        for name in ("style.css", "script.js")
    )
    main = "\n".join(filter(None, sections))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The browser itself then refuses the network, and any script but this one. Firefox knows files
    # of one's own by their scheme, and a second policy that has to hold as well lets none but this
    # script load others.
    local, end = "", "nothing from elsewhere"
    if files:
        local = " 'self' file:"
        end = f"nothing but what is asked for from <code>{escape(unquote(files))}</code> beside it"
    policies = [
        f"default-src 'none'; img-src data:{local}; media-src data:{local}; style-src "
        f"'unsafe-inline'; script-src 'sha256-{digest}'{local}; base-uri 'none'; form-action 'none'"
    ]
    policies += [f"script-src 'sha256-{digest}' 'strict-dynamic'"] * bool(files)
    metas = "".join(
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n' for policy in policies
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'{metas}<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n"
        f'<link rel="icon" type="{icon[5 : icon.index(";")]}" href="{icon}">\n'
        f"<style>\n{style}</style>\n</head>\n"
        f'<body class="{" ".join(css_classes)}" data-files="{escape(files)}">\n<header>\n'
        f'<p class="eyebrow">diffclust {kind}</p>'
        f"\n{header}</header>\n<main>\n{main}\n</main>\n"
        f"<footer>Made by diffclust {__version__}. This file holds everything it shows and loads "
        f'{end}.</footer>\n<output class="tooltip" hidden></output>\n{_DIALOG}'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def svg_icon(box: str, drawing: str) -> str:
    """A small picture that stands for a page.

    Args:
        box: SVG's `viewBox`.
        drawing: The shapes, SVG.

    Returns:
        A `data:` URI.
    """
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}">{drawing}</svg>'
    return data_uri(svg.encode(), "image/svg+xml")


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


def contents(headings: Mapping[str, str]) -> str:
    """Links to the sections of a page.

    Args:
        headings: HTML by the id of the section.

    Returns:
        HTML.
    """
    links = "".join(f'<a href="#{name}">{heading}</a>' for name, heading in headings.items())
    return f'<nav aria-label="Contents">{links}</nav>'


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


def shaded_table(
    header: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]], axes: tuple[str, str]
) -> str:
    """A table of shares, each row with a name before it.

    Args:
        header: Names of the columns, HTML.
        rows: Name, any text, and cells (see `shaded_cell`) of each row.
        axes: What the rows are and what the columns are, any text.

    Returns:
        HTML.
    """
    names = [f'<th scope="col">{name}</th>' for name in header]
    of_rows, of_columns = map(escape, axes)
    listed = (f'<th scope="row">{escape(name)}</th>{"".join(cells)}' for name, cells in rows)
    head = f'<td></td><th class="axis" colspan="{len(names)}">{of_columns}</th></tr><tr>'
    return _table("confusion", f'{head}<th class="axis">{of_rows}</th>{"".join(names)}', listed)


def _table(css_class: str, head: str, rows: Iterable[str]) -> str:
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return (
        f'<div class="across"><table class="{css_class}"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def shaded_cell(share: float, text: str, *css_classes: str) -> str:
    """A cell of a table, the stronger in colour the greater the share.

    Args:
        share: Between 0 and 1.
        text: What stands in it, HTML.
        *css_classes: CSS classes of the cell.

    Returns:
        HTML.
    """
    named = f' class="{" ".join(css_classes)}"' if css_classes else ""
    return f'<td{named} style="--share:{100 * share:.0f}%">{text}</td>'


def titled_svg(box: str, title: str, content: str) -> str:
    """A drawing with a tooltip.

    Args:
        box: SVG's `viewBox`.
        title: What is shown where somebody points at it, HTML.
        content: SVG of what is inside.

    Returns:
        An SVG element.
    """
    return f'<svg viewBox="{box}" role="img"><title>{title}</title>{content}</svg>'


def svg_definitions(content: str) -> str:
    """SVG that takes no room, for drawings to refer to.

    Args:
        content: Elements with ids, perhaps none.

    Returns:
        An SVG element; nothing without content.
    """
    if not content:
        return ""
    return (
        f'<svg class="stock" width="0" height="0" aria-hidden="true"><defs>{content}</defs></svg>\n'
    )


def data_uris(
    images: Sequence[np.ndarray], *, most_bytes: int, own_range: bool = False
) -> list[str]:
    """Images as PNG `data:` URIs, no larger together than a report can hold.

    Large images are made smaller, to 96 pixels at most and further until all of them fit; small
    ones stay as they are, pixel for pixel.

    Args:
        images: At least one, of shape `(height, width, channels)`.
        most_bytes: About how long all URIs may be together.
        own_range: Stretch each image's intensities to its own range.

    Returns:
        One URI for each image.
    """
    pictures = [as_picture(displayable(image, own_range=own_range)) for image in images]
    tried = pictures[:: -(-len(pictures) // _NUM_TRIED)]
    most = most_bytes * len(tried) / len(pictures)
    side, colours = next(
        (way for way in _ENCODINGS if sum(len(_small_uri(one, *way)) for one in tried) <= most),
        _ENCODINGS[-1],
    )
    return [_small_uri(picture, side, colours) for picture in pictures]


def _small_uri(picture: Image, side: int, colours: int | None) -> str:
    small = picture.copy()
    small.thumbnail((side, side))
    if colours is not None and small.mode == "RGB":
        small = small.quantize(colours, dither=Dither.NONE)
    return picture_uri(small, optimize=True)
