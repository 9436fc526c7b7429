"""The HTML that says how the drawings of the clusters are to be read."""

from diffclust.models import Result
from diffclust.report.drawings import drawing, row_names
from diffclust.report.gallery import Gallery
from diffclust.report.samples import has_grids
from diffclust.report.terms import Terms, stage_meaning
from diffclust.report.text import escape

_DENSITY = (
    "<p>The −log density is the negative logarithm of the joint density of an image and its "
    "cluster, mixture weight included: the smaller, the better the fit, and it may well be below "
    "zero.{certainty}</p>"
)
_CERTAINTY = (
    " The responsibility is how probable it is, under the mixture, that the image is its cluster's."
)


def how_to_read(result: Result, gallery: Gallery, limited_to: int | None) -> str:
    """One sample as an example, with what each of its pictures is.

    Args:
        result: The fitted model.
        gallery: What is shown.
        limited_to: Samples a group where that is fewer than were asked for, else None.

    Returns:
        HTML.
    """
    terms = gallery.terms
    shown = next((view.groups[0] for view in gallery.views if view.groups), None)
    sample = None if shown is None else gallery.samples[int(shown.positions[0])]
    density = ""
    if terms.is_mixture:
        density = _DENSITY.format(certainty="" if terms.certainty == "margin" else _CERTAINTY)
    hover = f'<p class="soft">{_hover(terms, limited_to)}</p>'
    if sample is None or (sample.aligned is None and not sample.stages):
        subject = f"A {escape(terms.method)}" if terms.is_mixture else escape(terms.method)
        why = (
            f"{subject} compares images pixel by pixel, as they are. It "
            "aligns nothing, so there are no aligned versions to show."
        )
        return f'<div class="how"><div>{why}{density}{hover}</div></div>'
    example = drawing(gallery, sample, "how")
    if sample.stages:
        example = f'<div class="pair">{row_names(gallery)}{example}</div>'
    items = _moved(terms) if sample.stages else _aligned(result, terms)
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


def _hover(terms: Terms, limited_to: int | None) -> str:
    told = ["index", "file", terms.short, terms.certainty]
    limit = (
        f" With so many clusters, each group shows {limited_to}." if limited_to is not None else ""
    )
    return f"Point at an image, or tap it, for its {', '.join(told[:-1])} and {told[-1]}.{limit}"


def _aligned(result: Result, terms: Terms) -> list[str]:
    """What the pictures are of a method that moves images."""
    compared = ": this is what is compared" if terms.by_prototypes else ""
    items = [
        "The image as it came.",
        f"The image aligned to the prototype of its cluster{compared}.",
    ]
    if has_grids(result):
        items.append(
            "The image again, with the grid along which its aligned version was read. A straight, "
            "regular grid means that nothing had to move."
        )
    return items


def _moved(terms: Terms) -> list[str]:
    """What the pictures are of a method that moves prototypes."""
    first, *others = terms.stages
    items = [
        "The image as it came.",
        f"The prototype of its cluster{', the mean of a Gaussian' if terms.is_mixture else ''}.",
        f"The same after <code>{escape(first)}</code>: {stage_meaning(first)}.",
        *(f"After <code>{escape(name)}</code> as well: {stage_meaning(name)}." for name in others),
    ]
    items[-1] += " This is what is compared with the image."
    return items
