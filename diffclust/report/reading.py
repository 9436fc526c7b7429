"""The HTML that says how the drawings of the clusters are to be read."""

from diffclust.report.gallery import Gallery
from diffclust.report.terms import Terms
from diffclust.report.text import escape

_DENSITY = (
    "<p>The −log density is the negative logarithm of {what}: the smaller, the better the fit, and "
    "it may well be below zero.{certainty}</p>"
)
_JOINT = "the joint density of an image and its cluster, mixture weight included"
_CERTAINTY = (
    " The responsibility is how probable it is, under the mixture, that the image is its cluster's."
)


def how_to_read(gallery: Gallery, limited_to: str | None) -> str:
    """One sample as an example, with what each of its pictures is.

    Args:
        gallery: What is shown.
        limited_to: Why groups show fewer samples than were asked for, and how many; else None.

    Returns:
        HTML.
    """
    terms, painter = gallery.terms, gallery.painter
    groups = [group for view in gallery.views for group in view.groups]
    shown = next((group for group in groups if group.kind in ("nearest", "all")), None)
    items = painter.reading()
    density = _density(terms)
    hover = f'<p class="soft">{_hover(terms, limited_to)}</p>'
    if shown is None or not items:
        subject = f"A {escape(terms.method)}" if terms.is_mixture else escape(terms.method)
        why = (
            f"{subject} compares images pixel by pixel, as they are. It "
            "aligns nothing, so there are no aligned versions to show."
        )
        return f'<div class="how"><div>{why}{density}{hover}</div></div>'
    example = gallery.drawing(int(shown.positions[0]), "how")
    if names := painter.row_names():
        example = f'<div class="pair">{names}{example}</div>'
    portraits = (
        ""
        if terms.by_prototypes
        else "<p>Prototypes did not decide. Each is the mean of the aligned images of its finished "
        f"cluster. The distance is that to the cluster's centre in the {terms.place}, and the "
        "margin is how much farther the next centre is.</p>"
    )
    listed = "".join(f"<li>{item}</li>" for item in items)
    return (
        f'<div class="how">{example}<div><ol>{listed}</ol>{portraits}{density}{hover}</div></div>'
    )


def _density(terms: Terms) -> str:
    if not terms.is_density:
        return ""
    what = _JOINT if terms.is_mixture else f"the density of a {terms.noun} in its cluster"
    certainty = _CERTAINTY if terms.certainty == "responsibility" else ""
    return _DENSITY.format(what=what, certainty=certainty)


def _hover(terms: Terms, limited_to: str | None) -> str:
    place = "file" if terms.noun == "image" else "name"
    told = ["index", place, terms.short, terms.certainty]
    article = "an" if terms.noun[0] in "aeiou" else "a"
    limit = "" if limited_to is None else f" {limited_to}"
    return (
        f"Point at {article} {terms.noun}, or tap it, for its {', '.join(told[:-1])} and "
        f"{told[-1]}.{limit}"
    )
