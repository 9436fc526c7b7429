"""PSSC, Figs. 2 and 3 and Table 1: what the geometry of scattering space looks like.

    python -m experiments.pssc_geometry.run [--seed 0] [--quick] [--out FIGURE.png]
        [--limit 10000] [--source ...]

Spectra of MNIST's test digits in image and in scattering space, and how many principal directions
hold half of the variance; principal angles between the leading five directions of the digits 0 and
2 (of a source, the first kind and the third); two elongated clusters before and after the
projection onto the orthogonal complement.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from diffclust.data import load
from diffclust.features import fit_principal_directions, principal_angles, project_features
from diffclust.features.orthogonal_complement import features_of
from diffclust.metrics import accuracy
from diffclust.models import ProjectedScatteringSpectralClustering
from diffclust.solvers import kmeans
from experiments.harness import SOURCE, arguments, datasets, finish

NEARLY_ZERO = 1e-4
"""Share of the variance up to which an eigenvalue counts as nearly zero."""


def space(images, labels, domain):
    """Spectrum of all images, what it says, and angles between the leading directions of kinds."""
    if domain == "image":
        features = images.reshape(len(images), -1)
    else:
        map_ = ProjectedScatteringSpectralClustering(10).feature_map(*images.shape[1:3])
        features = np.concatenate(list(features_of(map_, images)))
    spectrum = np.asarray(fit_principal_directions(features, normalisation="none").eigenvalues)
    bases = [
        fit_principal_directions(
            features[labels == kind], num_directions=5, normalisation="none"
        ).basis
        for kind in np.unique(labels)[[0, 2]]
    ]
    angles = np.degrees(np.asarray(principal_angles(*bases)))
    share = spectrum / spectrum.sum()
    figures = {
        "directions_for_half_of_variance": int(np.searchsorted(np.cumsum(share), 0.5) + 1),
        # Further eigenvalues, of more features than samples, are zero.
        "nearly_zero": round(1 - int(np.sum(share > NEARLY_ZERO)) / features.shape[1], 4),
        "angles_0_and_2": angles.round(1).tolist(),
    }
    return spectrum, figures


def two_clusters(seed):
    """Two elongated clusters: accuracy of k-means on them, and after POC with n = 1."""
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], 300)
    points = rng.normal(size=(600, 2)) * [6.0, 0.6]
    points[:, 1] += 4.0 * labels
    turn = np.pi / 6
    points = points @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    points = points.astype(np.float32)
    before = kmeans(points, 2, key=jax.random.key(seed)).assignments
    complement = fit_principal_directions(points, normalisation="none").complement(1)
    projected = project_features(complement, points)
    after = kmeans(projected, 2, key=jax.random.key(seed)).assignments
    return points, projected, before, after, labels


def draw(path, spectra, toy):
    import matplotlib.pyplot as plt

    points, projected, before, after, _ = toy
    figure, axes = plt.subplots(1, 4, figsize=(16, 3.6), layout="constrained")
    for domain, spectrum in spectra.items():
        axes[0].plot(spectrum[:200] / spectrum.sum(), label=domain)
    axes[0].set(yscale="log", xlabel="principal direction", ylabel="share of variance")
    axes[0].set_title("spectra (Fig. 2)")
    axes[0].legend()
    axes[1].scatter(*points.T, s=4, c=before, cmap="coolwarm")
    axes[1].set_title("k-means (Fig. 3)")
    axes[2].scatter(*points.T, s=4, c=after, cmap="coolwarm")
    axes[2].set_title("POC, then k-means")
    axes[3].hist([projected[after == c, 0] for c in (0, 1)], bins=40, stacked=True)
    axes[3].set_title("projected samples")
    figure.savefig(path, dpi=120)


def main():
    args = arguments(
        __doc__,
        out={"default": None, "help": "draw the figures into this file"},
        limit={"type": int, "default": 10000, "help": "most images, drawn"},
        **SOURCE,
    )
    if args.quick:
        args.limit = 500
    named = functools.partial(load, "mnist", split="test", limit=args.limit, seed=args.seed)
    [(name, data, _)] = datasets(args, lambda _: named(), ["mnist-test"])
    figures, spectra = {"experiment": "pssc_geometry", "set": name, "n": len(data)}, {}
    for domain in ("image", "scattering"):
        spectra[domain], figures[domain] = space(data.images, data.labels, domain)
        print(domain, figures[domain], flush=True)
    toy = two_clusters(args.seed)
    figures["two elongated clusters"] = {
        "kmeans_acc": round(accuracy(toy[4], toy[2]), 4),
        "poc_kmeans_acc": round(accuracy(toy[4], toy[3]), 4),
    }
    if args.out:
        draw(args.out, spectra, toy)
    figures["paper"] = {
        "directions_for_half_of_variance": {"image": 50, "scattering": 4},
        "nearly_zero": {"scattering": "more than 0.95"},
        "angles": {
            "image": [63.0, 63.8, 65.5, 68.7, 69.5],
            "scattering": [36.2, 36.9, 44.2, 60.9, 66.5],
        },
    }
    assert jnp.isfinite(spectra["image"]).all()
    finish(figures)


if __name__ == "__main__":
    main()
