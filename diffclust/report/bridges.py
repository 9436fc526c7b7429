"""The HTML of bridges: pairs of images that are much alike and yet in different clusters."""

from diffclust.report.gallery import Gallery
from diffclust.report.selection import Bridge
from diffclust.report.text import escape


def bridge_section(gallery: Gallery, bridges: list[Bridge]) -> str:
    """Pairs of images side by side, each above its cluster.

    Args:
        gallery: What is shown; it holds the images of the pairs.
        bridges: The pairs, at least one.

    Returns:
        HTML.
    """
    known = gallery.facts[bridges[0].positions[0]].label is not None
    below = " Below each are its cluster and its class." if known else ""
    listed = "".join(f"<li>{_pair(gallery, bridge)}</li>\n" for bridge in bridges)
    return (
        '<p class="note">Images that the graph joins most strongly although they are in different '
        f"clusters, the strongest pair first: the doubtful cases.{below}</p>"
        f'<ol class="bridges">\n{listed}</ol>'
    )


def _pair(gallery: Gallery, bridge: Bridge) -> str:
    figures = []
    for position, cluster in zip(bridge.positions, bridge.clusters, strict=True):
        label = gallery.facts[position].label
        known = "" if label is None else f'<span class="soft" title="class">{escape(label)}</span>'
        figures.append(
            f'<figure class="sample">{gallery.plain(position)}<figcaption>'
            f'<span><a href="#cluster-{cluster}">cluster {cluster}</a></span>{known}'
            "</figcaption></figure>"
        )
    return "".join(figures)
