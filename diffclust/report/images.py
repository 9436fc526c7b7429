"""Images drawn for a report: prototypes, and samples beside what they were aligned to, and how."""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from diffclust.data import Dataset, Recordings
from diffclust.data.audio import height_of_pitch
from diffclust.features import local_contrast
from diffclust.methods import plural
from diffclust.models import Result, warped_prototypes
from diffclust.plotting import warped_grids
from diffclust.report.page import data_uris, svg_definitions, titled_svg
from diffclust.report.text import escape, number, percent
from diffclust.transforms import NAMES

SIDE = 1000
"""Units of a drawing along the longer side of an image."""

_GAP, _MARGIN = 80, 50
"""Between the pictures of a sample, and around them for what sticks out of a grid, in the units of
`SIDE`."""

_TICKS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Pitches that are marked beside prototypes of recordings, in kHz."""

_LETTERS = 110
"""Size of the letters beside prototypes of recordings, in the same units."""

_SMALL = 64
"""Images with no more pixels a side than this are shown pixel by pixel, larger ones smoothly."""

_MOST_BYTES = 900_000
"""Of the pictures of all samples."""

_BATCH_MULTIPLE = 64
"""Samples are moved in multiples of so many."""

_MOST_PROTOTYPE_BYTES = 120_000
"""Of one set of pictures; each is shown twice."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One image, ready to be drawn.

    Attributes:
        cluster: Its cluster.
        picture: The image as a `data:` URI.
        registered: The registered image, or None where nothing is registered.
        contrast: Its local contrast, or None where features are not taken of it.
        stages: The aligned image, or the prototype after each of the transforms that move it onto
            the image; empty where nothing is aligned.
        grid: The warped grid as an SVG path in `SIDE` units, or None where there is no map.
    """

    cluster: int
    picture: str
    registered: str | None
    contrast: str | None
    stages: tuple[str, ...]
    grid: str | None


def has_grids(result: Result) -> bool:
    """Whether the fit's alignments are maps of the images' coordinates.

    Args:
        result: A fitted model.

    Returns:
        False where nothing is aligned, or not in space, or prototypes are moved.
    """
    spatial = result.model.spatial_transform
    return spatial is not None and spatial.num_params > 0


def align_samples(
    result: Result, dataset: Dataset, positions: Sequence[int] | np.ndarray
) -> dict[int, Sample]:
    """Aligns and encodes the samples that are shown.

    Args:
        result: A fitted model.
        dataset: The data it was fitted to.
        positions: Their positions in the data set.

    Returns:
        The samples by position.
    """
    chosen = np.unique(np.asarray(positions, dtype=np.int64))
    clusters, params = result.assignments[chosen], result.outcome.assignment.params[chosen]
    images, registers = np.asarray(dataset.images[chosen]), result.model.registers
    # A round number is moved, so that the next report of a process finds its programs compiled.
    cycled = np.arange(-(-len(chosen) // _BATCH_MULTIPLE) * _BATCH_MULTIPLE) % max(len(chosen), 1)
    images, clusters, params = images[cycled], clusters[cycled], params[cycled]
    versions = [images, *([np.asarray(result.registered(images))] if registers else [])]
    if has_contrast := result.model.takes_local_contrast:
        # Drawn as five deviations from black to white.
        local = jax.vmap(local_contrast)(jnp.asarray(versions[-1]))
        versions.append(np.clip(0.5 + np.asarray(local) / 5, 0.0, 1.0))
    if result.model.descriptor.moves == "prototypes":
        versions += [
            warped_prototypes(result, clusters, params, transforms=number)
            for number in range(1, len(result.model.transform_names) + 1)
        ]
    elif params.shape[1] > 0:
        versions.append(result.align(images, params))
    # One number of channels, so that an image and its aligned version can be compared.
    channels = images.shape[3]
    versions = [
        np.broadcast_to(version, (*version.shape[:3], channels))[: len(chosen)]
        for version in versions
    ]
    uris = data_uris([image for version in versions for image in version], most_bytes=_MOST_BYTES)
    has_map = has_grids(result)
    grids = warped_grids(result, params, longest=SIDE) if has_map else [None] * len(chosen)
    samples = {}
    for i, position in enumerate(chosen.tolist()):
        picture, *others = uris[i :: len(chosen)]
        registered = others.pop(0) if registers else None
        contrast = others.pop(0) if has_contrast else None
        samples[position] = Sample(
            int(clusters[i]), picture, registered, contrast, tuple(others), grids[i]
        )
    return samples


class ImageRenderer:
    """Draws images: prototypes and samples as HTML, and explains the drawings.

    Attributes:
        icon: A small picture that stands for the page, a `data:` URI.
        css_classes: CSS classes of the page.
    """

    icon: str
    css_classes: tuple[str, ...]

    def __init__(self, result: Result, dataset: Dataset, positions: np.ndarray) -> None:
        """Aligns and encodes what is shown.

        Args:
            result: A fitted model of images.
            dataset: The images it was fitted to.
            positions: Positions of the samples that are shown.
        """
        self.descriptor, self.transforms = result.model.descriptor, result.model.transform_names
        self.recordings = dataset if isinstance(dataset, Recordings) else None
        self.registers, self.noun = result.model.registers, dataset.noun
        self.takes_local_contrast = result.model.takes_local_contrast
        height, width = self.shape = result.sample_shape[:2]
        factor = SIDE / max(self.shape)
        self.height, self.width = round(height * factor), round(width * factor)
        self.step = self.height + _GAP
        self.full = f'width="{self.width}" height="{self.height}" preserveAspectRatio="none"'
        self.samples = align_samples(result, dataset, positions)
        # Each in its own range; in the images' range where they are also shown moved onto images.
        self.prototypes = _uris(result.prototypes, own_range=True)
        self.icon = self.prototypes[0]
        classes = {
            "pixels": max(height, width) <= _SMALL,
            "tall": height > 1.5 * width,
            "wide": width > 1.5 * height,
            "staged": bool(self.transforms),
            "recordings": self.recordings is not None,
        }
        self.css_classes = tuple(name for name, holds in classes.items() if holds)
        self.untransformed = _uris(result.prototypes) if self.transforms else []
        if result.variances is not None:
            # The least variance that is added to all is the same for all, and left out.
            self.deviations = np.sqrt(result.variances)
            self.deviation_uris = _uris(self.deviations, own_range=True)
            self.weights = np.asarray(jax.nn.softmax(result.outcome.learned.objective)).tolist()

    @property
    def note(self) -> str:
        """Describes how prototypes are drawn, and what they are means of."""
        origin = ""
        if self.descriptor.is_mixture:
            origin = "is the mean of its cluster's Gaussian and "
        elif not self.descriptor.has_prototypes:
            origin = f"is the mean of its cluster's aligned {plural(self.noun)} and "
        note = f"Each {origin}is drawn in its own range of intensities."
        if self.recordings is not None:
            note += " Time runs to the right, pitch upwards; the brighter, the louder."
        return note

    def thumbnail(self, cluster: int) -> str:
        """The prototype in its own range of intensities, small, as HTML."""
        return self._picture(self.prototypes[cluster], f"Prototype of cluster {cluster}")

    def prototype(self, cluster: int) -> str:
        """The prototype at the head of its cluster, as HTML; of a mixture the deviation too."""
        if self.recordings is not None:
            return self._with_axes(cluster, self.recordings)
        if not self.descriptor.is_mixture:
            return self.thumbnail(cluster)
        deviation = self.deviations[cluster]
        picture = self._picture(self.deviation_uris[cluster], f"Deviation of cluster {cluster}")
        ends = (number(float(end), digits=2) for end in (deviation.min(), deviation.max()))
        return (
            f'<div class="pair"><figure>{self.thumbnail(cluster)}<figcaption>mean</figcaption>'
            f"</figure><figure>{picture}<figcaption>deviation<br>{' to '.join(ends)}</figcaption>"
            "</figure></div>"
        )

    def _with_axes(self, cluster: int, recordings: Recordings) -> str:
        """The prototype of recordings with ticks of pitch and time, as SVG."""
        width, height, rate = self.width, self.height, recordings.rate
        ticks, below = {}, math.inf
        for kilohertz in _TICKS:
            y = height_of_pitch(1000 * kilohertz, rate, self.shape[0])
            # Low pitches lie close together.
            if 0.0 <= y <= 1.0 and below - height * (1 - y) > _LETTERS:
                ticks[f"{kilohertz:g} kHz"], below = 1 - y, height * (1 - y)
        texts = "".join(
            f'<text x="-20" y="{height * y + 35:.0f}" text-anchor="end">{name}</text>'
            f'<path d="M-12 {height * y:.0f}H0"/>'
            for name, y in ticks.items()
        )
        texts += f'<text y="{height + 110}">0</text>'
        texts += f'<text x="{width}" y="{height + 110}">{recordings.seconds:g} s</text>'
        image = f'<image {self.full} href="{self.prototypes[cluster]}"/>'
        box = f"-530 -40 {width + 730} {height + 170}"
        drawing = titled_svg(box, f"Prototype of cluster {cluster}", image + texts)
        return drawing.replace("<svg", '<svg class="axes"', 1)

    def figures(self, cluster: int) -> dict[str, str]:
        """Figures of a cluster that only this kind of prototype has: the mixture weight."""
        if not self.descriptor.is_mixture:
            return {}
        return {"mixture weight": percent(self.weights[cluster])}

    def overlay(self) -> str:
        """Draws nothing: images in one picture would hide each other."""
        return ""

    def definitions(self) -> str:
        """SVG that drawings refer to by ids, written once: the prototypes, where they are moved."""
        images = (
            f'<image id="prototype-{cluster}" {self.full} href="{uri}"/>'
            for cluster, uri in enumerate(self.untransformed)
        )
        return svg_definitions("".join(images))

    def sample(self, position: int, name: str, tooltip: str) -> str:
        """The image, and below it its aligned version and its warped grid.

        Where the prototype is moved, the prototype and what each transform made of it in order.

        Args:
            position: Position of the sample in the data set.
            name: An id that no other drawing of the page has.
            tooltip: What is shown where somebody points at it, HTML.

        Returns:
            An SVG element.
        """
        sample, width, height, full = self.samples[position], self.width, self.height, self.full
        parts = [f'<image id="{name}" {full} href="{sample.picture}"/>']
        # The grid is laid over what was aligned.
        background = f'<use href="#{name}" class="faint"/>'
        if sample.registered is not None:
            background = f'<image class="faint" {full} href="{sample.registered}"/>'
            parts.append(f'<image y="{self.step}" {full} href="{sample.registered}"/>')
        if sample.contrast is not None:
            parts.append(f'<image y="{len(parts) * self.step}" {full} href="{sample.contrast}"/>')
        if self.transforms:
            y = len(parts) * self.step
            parts.append(f'<use href="#prototype-{sample.cluster}" y="{y}"/>')
        for picture in sample.stages:
            parts.append(f'<image y="{len(parts) * self.step}" {full} href="{picture}"/>')
        y = len(parts) * self.step
        total, box = y - _GAP, f"{width + 2 * _MARGIN}"
        if sample.grid is not None:
            down = height + 2 * _MARGIN
            parts.append(
                f'<svg x="{-_MARGIN}" y="{y - _MARGIN}" width="{box}" '
                f'height="{down}" viewBox="{-_MARGIN} {-_MARGIN} {box} {down}">'
                f'<rect width="{width}" height="{height}"/>{background}'
                f'<path class="grid" d="{sample.grid}"/></svg>'
            )
            total = y + height + _MARGIN
        return titled_svg(f"{-_MARGIN} 0 {box} {total}", tooltip, "".join(parts))

    def original(self, position: int, tooltip: str) -> str:
        """The image before any alignment, as SVG."""
        content = f'<image {self.full} href="{self.samples[position].picture}"/>'
        return titled_svg(f"0 0 {self.width} {self.height}", tooltip, content)

    def row_names(self) -> str:
        """Names of the transforms of prototypes, to stand beside drawings, as HTML."""
        if not self.transforms:
            return ""
        first, *others = self.transforms
        names = ["image", *(["registered"] if self.registers else []), "prototype", first]
        names += [f"+ {name}" for name in others]
        texts = "".join(
            f'<text x="{self.width}" y="{row * self.step + self.height // 2}">{escape(name)}</text>'
            for row, name in enumerate(names)
        )
        return (
            f'<div class="rows"><svg viewBox="{-_MARGIN} 0 {self.width + 2 * _MARGIN} '
            f'{len(names) * self.step - _GAP}" aria-hidden="true">{texts}</svg></div>'
        )

    def legend(self) -> list[str]:
        """Names the pictures below each other, as HTML; nothing where there is but one."""
        samples, items = self.samples.values(), [f"The {self.noun} as it came."]
        if self.recordings is not None:
            items = ["The recording as an image: time runs to the right, pitch upwards."]
        if self.registers:
            items.append(
                f"The {self.noun} registered: position, size, slant or background normalised."
            )
        if self.takes_local_contrast:
            items.append(
                "Its local contrast: every pixel less the mean around it, divided by the standard "
                "deviation around it. Features are taken of this."
            )
        if self.transforms:
            first, *others = self.transforms
            of_gaussian = ", the mean of a Gaussian" if self.descriptor.is_mixture else ""
            items += [
                f"The prototype of its cluster{of_gaussian}.",
                f"The same after {_named(first)}.",
                *(f"After {_named(name)} as well." for name in others),
            ]
            items[-1] += f" This is what is compared with the {self.noun}."
            return items
        if not any(sample.stages for sample in samples):
            return items if len(items) > 1 else []
        compared = ": this is what is compared" if self.descriptor.has_prototypes else ""
        items.append(f"The {self.noun} aligned to the prototype of its cluster{compared}.")
        if any(sample.grid is not None for sample in samples):
            items.append(
                f"The {self.noun} again, with the grid along which its aligned version was read. A "
                "straight, regular grid means that nothing had to move."
            )
        return items

    def _picture(self, uri: str, alt: str) -> str:
        height, width = self.shape
        return f'<img src="{uri}" width="{width}" height="{height}" alt="{alt}">'


def _uris(images: np.ndarray, *, own_range: bool = False) -> list[str]:
    return data_uris(list(images), most_bytes=_MOST_PROTOTYPE_BYTES, own_range=own_range)


def _named(transform: str) -> str:
    """The name of a transform and, of those that the library names, what it does, as HTML."""
    what = NAMES.get(transform)
    return f"<code>{escape(transform)}</code>" + ("" if what is None else f" ({what})")
