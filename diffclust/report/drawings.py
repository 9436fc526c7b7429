"""The drawings of samples: the image, what it was aligned to, and how."""

import math

from diffclust.report.gallery import Gallery
from diffclust.report.samples import Sample
from diffclust.report.terms import Terms
from diffclust.report.text import escape, number, percent

_GAP, _MARGIN = 80, 50
"""Between the pictures of a sample, and around them for what sticks out of a grid, in the units of
`SIDE`."""


def drawing(gallery: Gallery, sample: Sample, name: str) -> str:
    """A sample and how it was aligned, one picture below the other.

    Below the image are its aligned version and its warped grid, or where the prototype is moved,
    the prototype and what each transform made of it in turn.

    Args:
        gallery: What is shown.
        sample: The sample.
        name: An id that no other drawing of the page has.

    Returns:
        An SVG element.
    """
    width, height = gallery.size
    full = _full(gallery)
    parts = [f'<image id="{name}" {full} href="{sample.picture}"/>']
    total = height
    if sample.stages:
        parts.append(f'<use href="#{_unmoved(sample.cluster)}" y="{total + _GAP}"/>')
        total += _GAP + height
    for picture_after in sample.stages or filter(None, [sample.aligned]):
        parts.append(f'<image y="{total + _GAP}" {full} href="{picture_after}"/>')
        total += _GAP + height
    if sample.grid is not None:
        around = f"{width + 2 * _MARGIN} {height + 2 * _MARGIN}"
        across, down = around.split()
        parts.append(
            f'<svg x="{-_MARGIN}" y="{total + _GAP - _MARGIN}" width="{across}" height="{down}" '
            f'viewBox="{-_MARGIN} {-_MARGIN} {around}"><rect width="{width}" height="{height}"/>'
            f'<use href="#{name}" class="faint"/>'
            f'<path class="grid" d="{sample.grid}"/></svg>'
        )
        total += _GAP + height + _MARGIN
    return (
        f'<svg viewBox="{-_MARGIN} 0 {width + 2 * _MARGIN} {total}" role="img">'
        f"<title>{_facts(sample, gallery.terms)}</title>{''.join(parts)}</svg>"
    )


def row_names(gallery: Gallery) -> str:
    """Names of the rows of drawings, in a drawing of the same size, to stand beside them.

    Args:
        gallery: What is shown.

    Returns:
        HTML; nothing where no prototype is moved.
    """
    stages = gallery.terms.stages
    if not stages:
        return ""
    width, height = gallery.size
    names = ["image", "prototype", stages[0], *(f"+ {name}" for name in stages[1:])]
    texts = "".join(
        f'<text x="{width}" y="{row * (height + _GAP) + height // 2}">{escape(name)}</text>'
        for row, name in enumerate(names)
    )
    total = len(names) * (height + _GAP) - _GAP
    return (
        f'<div class="rows"><svg viewBox="{-_MARGIN} 0 {width + 2 * _MARGIN} {total}" '
        f'aria-hidden="true">{texts}</svg></div>'
    )


def unmoved_prototypes(gallery: Gallery) -> str:
    """The prototypes once, for the drawings to show them again and again.

    Args:
        gallery: What is shown.

    Returns:
        An SVG element that takes no room; nothing where no prototype is moved.
    """
    if not gallery.unmoved:
        return ""
    full = _full(gallery)
    kept = "".join(
        f'<image id="{_unmoved(cluster)}" {full} href="{uri}"/>'
        for cluster, uri in enumerate(gallery.unmoved)
    )
    return f'<svg class="stock" width="0" height="0" aria-hidden="true"><defs>{kept}</defs></svg>\n'


def picture(gallery: Gallery, sample: Sample) -> str:
    """A sample as it came.

    Args:
        gallery: What is shown.
        sample: The sample.

    Returns:
        An SVG element.
    """
    width, height = gallery.size
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img">'
        f"<title>{_facts(sample, gallery.terms)}</title>"
        f'<image {_full(gallery)} href="{sample.picture}"/></svg>'
    )


def _full(gallery: Gallery) -> str:
    width, height = gallery.size
    return f'width="{width}" height="{height}" preserveAspectRatio="none"'


def _unmoved(cluster: int) -> str:
    return f"prototype-{cluster}"


def _facts(sample: Sample, terms: Terms) -> str:
    lines = [f"index {sample.index}"]
    if sample.path is not None:
        lines.append(escape(sample.path))
    if sample.label is not None:
        lines.append(f"class {escape(sample.label)}")
    lines.append(f"{terms.short} {number(sample.distance)}")
    if sample.certainty is not None:
        lines.append(f"responsibility {percent(sample.certainty)}")
    if sample.runner_up >= 0 and math.isfinite(sample.margin):
        lines.append(f"margin {number(sample.margin)} to cluster {sample.runner_up}")
    return "\n".join(lines)
