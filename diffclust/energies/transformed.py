"""Energies of images: a distance after a transform of sample or prototype, plus penalties."""

from collections.abc import Callable
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust import _validation as check
from diffclust.distances import (
    AbstractBatchedDistance,
    AbstractDissimilarity,
    AbstractDistance,
    DiagonalGaussian,
    SquaredEuclidean,
)
from diffclust.energies.base import AbstractPairEnergy, AbstractSampleEnergy, BoundEnergy
from diffclust.linalg import safe_sqrt
from diffclust.masks import as_mask, mask_weights
from diffclust.prototypes import (
    AbstractPrototypeFamily,
    Clusters,
    GaussianImages,
    MeanImages,
    UnitNormSeries,
    exemplar_of,
)
from diffclust.sampling import gaussian_window, low_pass, pixel_grid
from diffclust.transforms import (
    AbstractSequence,
    AbstractSpatialTransform,
    AbstractTransform,
    bind_spatial_variance,
)
from diffclust.types import Image, Params, Sample, Scalar

PixelWeights = Literal["uniform", "jacobian"]
BoundTransform = Callable[[Params, Sample], Sample]
"""A transform for samples of one size: moves a sample by params."""


class AbstractTransformedEnergy(AbstractPairEnergy):
    """An energy whose params are those of a transform, with the deformation as penalties."""

    transform: eqx.AbstractVar[AbstractTransform]
    distance: eqx.AbstractVar[AbstractDissimilarity]

    @property
    def is_distance(self) -> bool:
        """Whether `distance` is a distance."""
        return self.distance.is_distance

    @property
    def num_params(self) -> int:
        """The number of params of the transform."""
        return self.transform.num_params

    @property
    def num_penalties(self) -> int:
        """The number of parts of the transform's deformation."""
        return len(self.transform.deformation_terms)

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """The affine embedding of the transform."""
        return self.transform.affine_embedding

    def penalties(self, params: Params) -> Float[Array, " terms"]:
        return self.transform.deformation(params)

    def _bound_transform(self, sample: Sample) -> BoundTransform:
        """The transform, bound to the size of a sample."""
        if self.num_params and self.transform.spatial is not None and sample.ndim != 3:
            raise ValueError(
                "images that are moved must be (height, width, channels), each of them: got "
                f"{sample.shape}; images[..., None] adds a channel to grey ones"
            )
        return self.transform.bind(*sample.shape[:2])


class TransformedDistance(AbstractTransformedEnergy, AbstractSampleEnergy):
    """distance(T(params, sample), prototype) + Σ weights · deformation(params).

    The penalty weights belong to the cluster (`Clusters.penalty`), zero for no penalty: the larger
    the weight, the smaller the warps. Without penalties, a flexible transform turns every digit
    into every other.

    Attributes:
        transform: The transform of the sample.
        distance: The distance measured after the transform.
        pixel_weights: `"uniform"` is the papers' Eq. 3; `"jacobian"` weights each pixel by ½ (1 +
            |det ∂warp|): the two terms are the integrals over the prototype's and over the sample's
            canvas. As long as nothing bright leaves it, the energy of a map then equals that of its
            inverse with sample and prototype exchanged, up to resampling. The minimum over splines
            is not symmetric, as the inverse of a spline is not a spline.
        mask: Which pixels count, as `diffclust.masks.as_mask` takes it, both of samples and of what
            they are compared with; None for all. A sample's hidden pixels move with it, and its
            visible part counts as much as if nothing had been moved under the mask. Make hidden
            pixels black first, as the models do: between pixels their values are read, too.
        missing: Whether samples may hold NaN for values that were not observed, such as those
            beyond the end of shorter series. They move with the sample and do not count.

    References:
        Cosentino et al., DI K-means, Eq. 3 and App. 7.1 (3).
    """

    transform: AbstractTransform
    distance: AbstractDistance = SquaredEuclidean()
    pixel_weights: PixelWeights = eqx.field(static=True, default="uniform", kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    missing: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self):
        """Refuses other parts, and pixel weights for transforms that are not coordinate maps."""
        check.part(self.transform, AbstractTransform, "transform")
        check.part(self.distance, AbstractDissimilarity, "distance")
        check.one_of(self.pixel_weights, get_args(PixelWeights), "pixel_weights")
        if self.missing and (self.mask is not None or self.pixel_weights != "uniform"):
            raise ValueError("missing values leave no choice of mask or pixel_weights; omit these")
        if self.missing and self.num_params == 0:
            raise ValueError(
                "missing values need a transform with params, such as TimeWarp; the aligner "
                "NoAlignment leaves it at rest"
            )
        if self.transform.spatial is not None:
            return
        kind = type(self.transform).__name__
        if self.pixel_weights == "jacobian":
            raise ValueError(f"pixel_weights='jacobian' needs a spatial transform, not {kind}")
        if self.mask is not None:
            raise ValueError(f"a mask needs a spatial transform, not {kind}")

    @property
    def spatial_transform(self) -> AbstractSpatialTransform | None:
        """The transform, if it is a coordinate map."""
        return self.transform.spatial

    @property
    def family(self) -> AbstractPrototypeFamily | None:
        """The distance's family; means for the squared Euclidean distance."""
        if type(self.distance) is SquaredEuclidean:
            return UnitNormSeries() if self.missing else MeanImages()
        return self.distance.family

    def bind(self, sample: Sample, *, scale: float = 1.0) -> BoundEnergy:
        apply = self._bound_transform(sample)

        def energy(params: Params, sample: PyTree, cluster: Clusters) -> Scalar:
            weight = self._weight(params, sample, apply)
            moved = self._moved(params, sample, apply)
            distance = self.distance(moved, cluster.prototype, weight)
            return scale * distance + jnp.dot(cluster.penalty, self.penalties(params))

        return energy

    def aligned(self, params: Params, sample: Sample) -> Sample:
        # Values that were not observed are zero.
        if self.num_params == 0:
            return sample
        return self._moved(params, sample, self._bound_transform(sample))

    def _moved(self, params: Params, sample: Sample, apply: BoundTransform) -> Sample:
        if not self.missing:
            return apply(params, sample)
        share = _share_seen(params, sample, apply)
        # Between an observed value and a missing one, only the observed value is read.
        moved = apply(params, jnp.where(_seen(sample) > 0, sample, 0.0))
        return moved / jnp.where(share > 0, share, 1.0)

    def pixel_weight(self, params: Params, sample: Sample) -> Array | None:
        if self.num_params == 0:
            # The same for all samples, so that means can ignore it.
            return None
        return self._weight(params, sample, self._bound_transform(sample))

    def _weight(self, params: Params, sample: Sample, apply: BoundTransform) -> Array | None:
        if self.missing:
            share, seen = _share_seen(params, sample, apply), _seen(sample)
            # If next to nothing observed is read, the sample is compared as if it had not moved.
            share = jnp.where(jnp.sum(share) > 1e-6 * jnp.sum(seen), share, seen)
            total = jnp.sum(share)
            return share * (jnp.sum(seen) / jnp.where(total > 0, total, 1.0))
        weight = None
        if self.pixel_weights == "jacobian":
            assert isinstance(self.transform, AbstractSpatialTransform)
            grid = pixel_grid(sample.shape[0], sample.shape[1], params.dtype)
            area = jnp.abs(self.transform.jacobian_determinant(params, grid))
            weight = 0.5 * (1.0 + area)[..., None]
        if self.mask is None:
            return weight
        # Of hidden pixels, not visible ones: beyond the canvas a transform reads zero, not hidden.
        root = self._root(self.mask, sample)
        both = root * (1.0 - apply(params, 1.0 - root))
        # If next to nothing is visible in both, they are compared as if neither had moved.
        both = jnp.where(jnp.sum(both) > 1e-6 * jnp.sum(root**2), both, root**2)
        seen = both * (jnp.sum(root**2) / jnp.sum(both))
        return seen if weight is None else weight * seen

    def _root(self, mask: str, sample: Image) -> Array:
        """Square roots of the mask's weights."""
        return jnp.asarray(mask_weights(mask, *sample.shape[:2]) ** 0.5, dtype=sample.dtype)

    def unaligned(self, sample: Sample, clusters: Clusters) -> Float[Array, " clusters"]:
        # Deformations are zero at the identity.
        if self.missing:
            seen = _seen(sample)
            filled = jnp.where(seen > 0, sample, 0.0)
            return _to_all(self.distance, filled, clusters.prototype, seen)
        if self.mask is None:
            return _to_all(self.distance, sample, clusters.prototype, None)
        root = self._root(self.mask, sample)
        if type(self.distance) is SquaredEuclidean:
            return self.distance.to_all(sample * root, clusters.prototype * root[None])
        return _to_all(self.distance, sample, clusters.prototype, root**2)

    def correlated(
        self,
        grid: Float[Array, "points params"],
        sample: Sample,
        clusters: Clusters,
        part: int | None = None,
    ) -> Float[Array, "points clusters"] | None:
        """Energies on a whole grid, from inner products that the transform computes by FFT.

        ‖T x - c‖² = ‖T x‖² - 2 ⟨T x, c⟩ + ‖c‖².

        Args:
            grid: Params, one vector per row.
            sample: One sample.
            clusters: All clusters.
            part: The index of the one transform of a sequence that the grid is for, if all others
                are at the identity; None for the whole transform.

        Returns:
            The energies, as exact as the transform's `bind_correlation`; None if it has none, or if
            the distance is not the squared Euclidean one with uniform pixel weights.
        """
        transform, moving = self.transform, grid
        if part is not None:
            assert isinstance(transform, AbstractSequence)
            split, transform = transform.split, transform.transforms[part]
            moving = jax.vmap(lambda params: split(params)[part])(grid)
        squared = type(self.distance) is SquaredEuclidean and self.mask is None and not self.missing
        if not squared or self.pixel_weights != "uniform":
            return None
        correlate = transform.bind_correlation(*sample.shape[:2])
        if correlate is None:
            return None
        prototypes = clusters.prototype
        if transform.norms_correlate:
            norm = correlate(moving, sample**2, jnp.ones_like(sample)[None])
        else:
            apply = transform.bind(*sample.shape[:2])
            norm = jax.lax.map(lambda params: jnp.sum(apply(params, sample) ** 2), moving)[:, None]
        product = correlate(moving, sample, prototypes)
        norms = jnp.sum(prototypes**2, axis=tuple(range(1, prototypes.ndim)))
        penalty = jax.vmap(self.penalties)(grid) @ clusters.penalty.T
        return norm - 2.0 * product + norms[None] + penalty

    def coarser(self, sample: PyTree, factor: int, *, sigma: float | None = None) -> PyTree:
        """Filters along all axes except the channels."""
        return _coarser(sample, factor, sigma, _low_pass_of_seen if self.missing else low_pass)


class TransformedPrototype(AbstractTransformedEnergy):
    """dissimilarity(sample, T(params, prototype)) + Σ weights · deformation(params).

    Samples are not moved, so learning empty prototypes gains nothing, and no penalty is needed if
    the params are predicted. The variances of a Gaussian are moved as by the transform's
    `AbstractTransform.bind_variance`.

    Attributes:
        transform: The transform of the prototype.
        distance: The dissimilarity measured after the transform: a distance for images, or a
            `GaussianNegativeLogLikelihood` for `GaussianImages`.
        window: Standard deviation of a Gaussian weight around the image's centre, as a fraction of
            its shorter side; None weights all pixels equally.
        mask: Which pixels of samples count, as `diffclust.masks.as_mask` takes it; None for all.
        spatial_variances: Whether a Gaussian's variances are moved only by the spatial transforms,
            as in the code of the paper's authors.
        fixed_variances: Whether no gradient reaches a Gaussian's variances.

    References:
        Monnier et al., DTI clustering, Eqs. 2, 4 and 5; Sec. 5.1 for the window (σ = 7 of 28).
    """

    transform: AbstractTransform
    distance: AbstractDissimilarity = SquaredEuclidean()
    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    spatial_variances: bool = eqx.field(static=True, default=False, kw_only=True)
    fixed_variances: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self):
        """Refuses other parts, and a window whose width is not positive."""
        check.part(self.transform, AbstractTransform, "transform")
        check.part(self.distance, AbstractDissimilarity, "distance")
        if self.window is not None and not self.window > 0.0:
            raise ValueError(f"window must be positive, or None for none; not {self.window}")

    def bind(self, sample: Image, *, scale: float = 1.0) -> BoundEnergy:
        # A cluster may have weights for more terms than the transform has. Only the first ones are
        # then used, so that a curriculum can add transforms one by one.
        weight = self.weight(sample.shape[0], sample.shape[1], sample.dtype)

        def energy(params: Params, sample: PyTree, cluster: Clusters) -> Scalar:
            distance = self.distance(sample, self.moved(params, cluster.prototype), weight)
            weights = cluster.penalty[: self.num_penalties]
            return scale * distance + jnp.dot(weights, self.penalties(params))

        return energy

    def moved(self, params: Params, prototype: PyTree) -> PyTree:
        """A prototype moved by params.

        Args:
            params: Parameters of shape `(num_params,)`.
            prototype: One prototype.

        Returns:
            An image; for `GaussianImages`, a `DiagonalGaussian`.
        """
        height, width = exemplar_of(prototype).shape[:2]
        apply = self.transform.bind(height, width)
        if not isinstance(prototype, GaussianImages):
            return apply(params, prototype)
        gaussian, bound = prototype.gaussian, self.transform.bind_variance(height, width)
        if self.spatial_variances:
            bound = bind_spatial_variance(self.transform, height, width)
        variance = bound(params, gaussian.variance)
        if self.fixed_variances:
            variance = jax.lax.stop_gradient(variance)
        return DiagonalGaussian(apply(params, gaussian.mean), variance)

    def aligned(self, params: Params, sample: Image) -> Image:
        """An image moved back onto its prototype, by the inverses of the coordinate maps.

        Args:
            params: Parameters of shape `(num_params,)`.
            sample: The image.

        Returns:
            The image where the prototype is before it is moved, with its own intensities.
        """
        return self.transform.undo(params, sample)

    def weight(self, height: int, width: int, dtype: jnp.dtype) -> Array | None:
        """The weight of each pixel.

        Args:
            height: Rows of the image.
            width: Columns of the image.
            dtype: Floating dtype.

        Returns:
            Weights `(height, width, 1)`, at most one, or None if all are one.
        """
        seen = None
        if self.mask is not None:
            seen = jnp.asarray(mask_weights(self.mask, height, width), dtype=dtype)
        if self.window is None:
            return seen
        sigma = self.window * min(height, width)
        window = gaussian_window(height, width, sigma=sigma, dtype=dtype)
        return window if seen is None else window * seen

    def unaligned(self, sample: Image, clusters: Clusters) -> Float[Array, " clusters"]:
        # Deformations are zero at the identity.
        prototypes = clusters.prototype
        if isinstance(prototypes, GaussianImages):
            prototypes = prototypes.gaussian
        weight = self.weight(sample.shape[0], sample.shape[1], sample.dtype)
        return _to_all(self.distance, sample, prototypes, weight)

    def coarser(self, sample: PyTree, factor: int, *, sigma: float | None = None) -> PyTree:
        """Filters along all axes except the channels."""
        return _coarser(sample, factor, sigma)


def _coarser(
    sample: PyTree, factor: int, sigma: float | None, low_pass: Callable[..., Array] = low_pass
) -> PyTree:
    """Filters along all axes except the channels."""
    if sigma is None:
        sigma = 0.4 * factor if factor > 1 else 0.0
    if sigma == 0.0 and factor == 1:
        return sample
    flat = [leaf.shape for leaf in jax.tree.leaves(sample) if leaf.ndim < 2]
    if flat:
        raise ValueError(
            f"an array of shape {flat[0]} has no levels of resolution: axes come first, channels "
            "last; fit without coarse levels (coarser=1, and Descent((Stage(20),)), whose stages "
            "have no blur)"
        )
    if isinstance(sample, GaussianImages):
        # Deviations may have either sign.
        mean, variance = (
            low_pass(leaf, sigma=sigma, factor=factor)
            for leaf in (sample.mean, sample.deviation**2)
        )
        return GaussianImages(mean, safe_sqrt(variance))
    return jax.tree.map(lambda leaf: low_pass(leaf, sigma=sigma, factor=factor), sample)


def _seen(sample: Sample) -> Float[Array, "*size 1"]:
    """Weights that are one if all channels were observed, and zero otherwise."""
    return jnp.all(jnp.isfinite(sample), axis=-1, keepdims=True).astype(sample.dtype)


def _share_seen(params: Params, sample: Sample, apply: BoundTransform) -> Float[Array, "*size 1"]:
    """The observed share of what each point reads; one if the transform reads nothing there."""
    seen = _seen(sample)
    read, whole = apply(params, seen), apply(params, jnp.ones_like(seen))
    return jnp.where(whole > 0, read / jnp.where(whole > 0, whole, 1.0), 1.0)


def _low_pass_of_seen(
    sample: Sample, *, sigma: float, factor: int
) -> Float[Array, "*coarse channels"]:
    """Filters the observed values; NaN if less than half are observed."""
    seen = _seen(sample)
    present, some, every = (
        low_pass(x, sigma=sigma, factor=factor)
        for x in (jnp.where(seen > 0, sample, 0.0), seen, jnp.ones_like(seen))
    )
    whole = present * (every / jnp.where(some > 0, some, 1.0))
    return jnp.where(some > 0.5 * every, whole, jnp.nan)


def _to_all(
    distance: AbstractDissimilarity, sample: Sample, prototypes: PyTree, weight: Array | None
) -> Float[Array, " clusters"]:
    if weight is None and isinstance(distance, AbstractBatchedDistance):
        return distance.to_all(sample, prototypes)
    return jax.vmap(lambda prototype: distance(sample, prototype, weight))(prototypes)
