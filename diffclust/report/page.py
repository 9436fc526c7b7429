"""The HTML page as a whole: its head, its style and script, and its sections."""

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources

from diffclust._version import __version__
from diffclust.report.text import escape


def document(title: str, body: str, *, icon: str, body_class: str = "") -> str:
    """A whole page that needs no network and, by its own policy, gets none.

    Args:
        title: Its title, any text.
        body: HTML of what it shows.
        icon: A small picture that stands for it, a `data:` URI.
        body_class: CSS classes of the page.

    Returns:
        A whole HTML document.
    """
    style, script = _asset("style.css"), _asset("script.js")
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
        f'<body class="{body_class}">\n{body}\n'
        f"<footer>Made by diffclust {__version__}. This file holds everything it shows "
        'and loads nothing from elsewhere.</footer>\n<output class="tooltip" hidden></output>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("diffclust.report").joinpath(name).read_text("utf-8")


def section(name: str, heading: str, body: str, controls: str = "") -> str:
    """A part of a page.

    Args:
        name: Its id.
        heading: Its heading, HTML.
        body: HTML below it.
        controls: HTML beside the heading.

    Returns:
        HTML.
    """
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
