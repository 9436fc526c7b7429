"""Text and numbers for people, harmless in HTML."""

import html
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from diffclust.methods import plural

SCORES = {"acc": "accuracy", "nmi": "NMI", "ari": "ARI"}
"""Scores against labels, by their names in a summary."""

CHANGES = {"refills": "tiny clusters refilled", "moves": "clusters split and others removed"}
"""What happens to clusters between gradient steps, by the names of an outcome's figures."""


def escape(text: object) -> str:
    """Text that is safe as HTML, in attributes too; see `plain`.

    Args:
        text: Anything.

    Returns:
        The text.
    """
    return html.escape(plain(text), quote=True)


def plain(text: object) -> str:
    """Text on one line, all of it visible.

    Line breaks, control characters, marks that turn the direction of writing, and the undecodable
    bytes of file names are written as escapes: they would break the line or hide what follows.

    Args:
        text: Anything.

    Returns:
        The text.
    """
    return "".join(
        c
        if c.isprintable() or unicodedata.category(c) == "Zs"
        else c.encode("unicode_escape").decode()
        for c in str(text)
    )


def number(value: float, *, digits: int = 4) -> str:
    """A number with a few significant digits.

    Args:
        value: The number; NaN stands for one that does not exist.
        digits: How many, unless it is so large that its whole digits are more.

    Returns:
        Such as `0.01234`, `12 345`, `∞` or `–`; zeros at the end are kept, so that numbers in a
        row are equally precise.
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    rounded = float(f"{value:.{digits}g}") + 0.0  # -0.0 becomes 0.0
    if 1000 <= abs(rounded) < 1e15:
        return integer(round(value))
    return f"{rounded:#.{digits}g}".removesuffix(".").replace("-", "−")


def integer(value: int) -> str:
    """An integer, its thousands set apart by narrow spaces.

    Args:
        value: The number.

    Returns:
        Such as `12 345`.
    """
    return f"{value:,}".replace(",", "\u202f").replace("-", "−")


def percent(share: float) -> str:
    """A share in per cent.

    Args:
        share: Between 0 and 1.

    Returns:
        Such as `12.3 %`, with a space that does not break.
    """
    return f"{100 * share:.1f}\u00a0%"


def duration(seconds: float) -> str:
    """A span of time.

    Args:
        seconds: Its length.

    Returns:
        Such as `3.2 s`, `4 min 10 s` or `2 h 5 min`.
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count(n: int, one: str) -> str:
    """A number of things.

    Args:
        n: How many.
        one: The word for one of them.

    Returns:
        Such as `1 image` or `1 797 images`.
    """
    return f"{integer(n)}\u00a0{one if n == 1 else plural(one)}"


_STEADY = 0.8
"""Stability below which clusters are uncertain; of plain groups it is above 0.9."""

_LOOK_AT_FRAMES = (
    "Of images see whether the registered ones show the object in the middle, and nothing else; if "
    "not, say how it differs from the background (--ground), or try another --register. Among "
    "clutter or on textures, DTI clustering with --register auto may be better."
)

_FRAMES = {
    "found": "background removed",
    "kept": "background kept",
    "unregistered": "no registration",
}


def describe_frames(figures: Mapping[str, Any]) -> str:
    """Says how stable PSSC's clusters of registered images are, and in which frames that was tried.

    Args:
        figures: Figures of a fit, by name.

    Returns:
        The stabilities in words, with a warning if all are below 0.8; nothing where none is known.
    """
    found = {w: figures.get(f"stability_{name}") for name, w in _FRAMES.items()}
    found = {w: value for w, value in found.items() if value is not None}
    if "registered_stability" in figures:
        most = figures["registered_stability"]
        words = f"PSSC's clusters of up to 1,000 registered images have a stability of {most:.2f}"
    elif found:
        most, each = max(found.values()), (f"{w} {value:.2f}" for w, value in found.items())
        words = f"it is doubtful whether the background is plain; stability: {', '.join(each)}"
    else:
        return ""
    # Spectral methods say it of their own stability.
    is_told = most >= _STEADY or "stability" in figures
    return words if is_told else f"{words}. So registration may not have helped. {_LOOK_AT_FRAMES}"


def describe_empty(counts: Sequence[int] | np.ndarray, noun: str) -> str:
    """Says that clusters of a fit are empty, and what follows.

    Args:
        counts: Number of samples of each cluster.
        noun: What a sample is called.

    Returns:
        A sentence, or nothing where no cluster is empty.
    """
    empty = len(counts) - np.count_nonzero(counts)
    if not empty:
        return ""
    return (
        f"{empty} of {len(counts)} clusters {'is' if empty == 1 else 'are'} empty: ask for fewer; "
        f"or there may be fewer different {plural(noun)} than clusters"
    )


def unsteady(stability: float) -> str:
    """Says what follows from a low stability.

    Args:
        stability: A mean adjusted Rand index; of plain groups it is above 0.9.

    Returns:
        A warning below 0.8, else nothing.
    """
    if stability >= _STEADY:
        return ""
    return (
        "These clusters are uncertain: slightly other settings of the graph give others. Look at "
        "the least certain samples of each cluster in the report, and at those that are alike and "
        f"yet apart. {_LOOK_AT_FRAMES}"
    )
