"""Which K or grid is chosen, and when none is."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from sklearn.metrics import adjusted_rand_score

from diffclust.analysis import (
    clusters_of_leading,
    elbow,
    grounds_of_evidence,
    grounds_of_gaps,
    grounds_of_losses,
)
from diffclust.data import load_digits
from diffclust.models import ProjectedScatteringSpectralClustering
from diffclust.solvers import kmeans

MODEL = ProjectedScatteringSpectralClustering(
    3, num_removed=(1, 2), num_neighbours=(5,), num_dimensions=20, num_restarts=4
)


def test_an_elbow_deeper_than_without_clusters_is_chosen() -> None:
    counts = list(range(2, 8))
    clear = grounds_of_losses(counts, [100.0, 50.0, 10.0, 9.0, 8.0, 7.0])
    assert (clear.best, clear.is_clear) == (2, True)
    assert "K = 2 begins it and cannot be chosen; begin at 1" in clear.reason
    assert "begin at" not in grounds_of_losses([1, 2, 3, 4], [100.0, 10.0, 9.0, 8.0]).reason
    smooth = grounds_of_losses(counts, [1.0 / k for k in counts])
    assert not smooth.is_clear
    assert smooth.reason.startswith("No clear choice. At K = ")
    assert grounds_of_losses([2, 3], [2.0, 1.0]).best is None


def test_the_gap_that_is_clearly_widest_is_chosen() -> None:
    gaps = {1: 0.9, 2: 0.1, 3: 0.4, 4: 0.05, 5: 0.2}
    result = grounds_of_gaps([2, 3, 4, 5], [gaps] * 4)
    assert (result.best, result.is_clear) == (1, True)
    assert "number 3 and the next is 0.4, and the widest other 0.2" in result.reason
    # A K between those tried is a rival, too, and so is the next best if it is nearly as wide.
    assert not grounds_of_gaps([2, 4, 5], [gaps] * 3).is_clear
    assert not grounds_of_gaps([2, 3, 4, 5], [gaps | {5: 0.3}] * 4).is_clear
    # Beyond the end there may be a wider one.
    assert not grounds_of_gaps([2, 3], [gaps] * 2).is_clear


def test_gaps_of_different_graphs_are_on_no_common_scale() -> None:
    """Removing more directions widens all gaps of a graph: that is no ground for its K."""
    few = {1: 0.5, 2: 0.01, 3: 0.04, 4: 0.01, 5: 0.01, 6: 0.01}
    more = {1: 0.5, 2: 0.2, 3: 0.25, 4: 0.2, 5: 0.2, 6: 0.24}
    counts, own = [2, 3, 4, 5, 6, 7], [few, few, few, more, more, more]
    result = grounds_of_gaps(counts, own)
    # As one curve the widest would be that of 6, and no clear one.
    assert (counts[result.best or 0], result.is_clear) == (3, True)
    assert "compared within one graph" in result.reason
    # Each graph may name another number: then there is no choice.
    both = grounds_of_gaps(counts, [few, few, few, *[more | {6: 0.9}] * 3])
    assert not both.is_clear
    assert "Several graphs name one: 3, 6." in both.reason


def test_evidence_at_the_end_or_by_a_hair_is_no_choice() -> None:
    names = ["3×3", "4×4", "5×5"]
    assert grounds_of_evidence(names, [1.0, 9.0, 2.0]).is_clear
    end = grounds_of_evidence(names, [1.0, 2.0, 9.0])
    assert (end.best, end.is_clear) == (2, False)
    assert "try finer grids" in end.reason
    hair = grounds_of_evidence(names, [1.0, 9.0, 8.9])
    assert (hair.best, hair.is_clear) == (1, False)
    assert hair.reason.startswith("No clear choice.")


@pytest.mark.slow
def test_clusters_of_fewer_need_no_other_fit() -> None:
    digits, key = load_digits(), jax.random.key(0)
    chosen = np.flatnonzero(np.isin(digits.labels, (0, 4, 6)))[:60]
    model = dataclasses.replace(MODEL, num_clusters=4, num_removed=(0,), num_angles=2)
    fit = model.fit(digits.images[chosen], key=key)
    clusters = clusters_of_leading(fit, 3, key=key)
    assert clusters is not None
    assert adjusted_rand_score(clusters.assignments, digits.labels[chosen]) > 0.9
    with pytest.raises(ValueError, match="at most the 4 of the fit, not 5"):
        clusters_of_leading(fit, 5, key=key)
    # Samples that weigh nothing draw no cluster.
    weight = np.where(digits.labels[chosen] == 6, 1e-9, 1.0)
    extras = {**fit.outcome.extras, "weight": weight}
    weighed = dataclasses.replace(fit, outcome=dataclasses.replace(fit.outcome, extras=extras))
    clusters = clusters_of_leading(weighed, 2, key=key)
    assert clusters is not None
    kept = weight == 1.0
    assert adjusted_rand_score(clusters.assignments[kept], digits.labels[chosen][kept]) > 0.9


@pytest.mark.slow
def test_representatives_have_no_clusters_of_samples() -> None:
    """Though there are as many of them."""
    images, key = load_digits().images[:60], jax.random.key(0)
    model = dataclasses.replace(
        MODEL, affinity="representatives", num_removed=(0,), num_angles=2, num_representatives=60
    )
    fit = model.fit(images, key=key)
    assert len(fit.outcome.extras["basis"]) == len(images)
    assert clusters_of_leading(fit, 2, key=key) is None


def farthest_below_chord(ks: np.ndarray, losses: np.ndarray) -> int:
    """The corner of the lower convex hull that is farthest, at right angles, from the chord."""
    points = np.stack([(ks - ks[0]) / np.ptp(ks), losses / np.ptp(losses)], axis=1)
    chord = points[-1] - points[0]
    corners = sorted(ConvexHull(points).vertices.tolist())
    sides = [
        float(np.cross(np.append(chord, 0), np.append(points[i] - points[0], 0))[2])
        / float(np.linalg.norm(chord))
        for i in corners
    ]
    return int(ks[corners[int(np.argmin(sides))]])


@pytest.mark.parametrize("seed", range(8))
def test_elbow_is_the_corner_farthest_below_the_chord(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ks = np.sort(rng.choice(np.arange(2, 60), size=12, replace=False))
    losses = np.cumsum(rng.exponential(size=12) * np.linspace(0.2, 4, 12))[::-1].copy()
    expected = farthest_below_chord(ks, losses)
    assert elbow(ks.tolist(), losses.tolist()) == expected
    # Neither units nor the order of the K matter.
    shuffled = rng.permutation(12)
    assert elbow(ks[shuffled].tolist(), (7.0 * losses - 1e3)[shuffled].tolist()) == expected


def test_elbow_of_two_lines_is_where_they_meet() -> None:
    ks = np.arange(2, 21)
    losses = np.where(ks < 10, 100.0 - 10.0 * (ks - 2), 20.0 - (ks - 10))
    assert elbow(ks.tolist(), losses.tolist()) == 10
    # A failed run of more clusters does not make fewer the better.
    losses[-3:] = 90.0
    assert elbow(ks.tolist(), losses.tolist()) == 10


def test_no_elbow() -> None:
    assert elbow([2, 3], [2.0, 1.0]) is None
    assert elbow([], []) is None
    assert elbow([2, 4, 6, 8], [0.4, 0.3, 0.2, 0.1]) is None
    assert elbow([2, 4, 6], [9.0, 8.5, 1.0]) is None
    assert elbow([2, 4, 6], [1.0, 1.0, 1.0]) is None


@pytest.mark.parametrize(
    ("ks", "losses", "message"),
    [
        ([1, 2], [1.0], "every K needs one loss"),
        ([1, 1], [2.0, 1.0], "once only"),
        ([1, 2], [2.0, float("nan")], "finite"),
    ],
)
def test_elbow_refuses_what_is_no_curve(ks: list[int], losses: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        elbow(ks, losses)


def test_an_elbow_is_compared_with_that_of_flat_data() -> None:
    counts = np.arange(2, 8)
    smooth = np.max((1 / 2 - 1 / counts) / (1 / 2 - 1 / 7) - (counts - 2) / 5)
    assert smooth == pytest.approx(0.3)
    for exponent, share in ((0.9, 30), (1.0, 30), (1.2, 33), (2.0, 42)):
        result = grounds_of_losses(counts.tolist(), (counts**-exponent).tolist())
        assert not result.is_clear
        assert f"without any clusters would have up to {share}%" in result.reason
    # Three clusters, of which each then falls into parts as a line does.
    losses = np.where(counts < 3, 1.0, 0.1 * (3.0 / counts) ** 2)
    assert grounds_of_losses(counts.tolist(), losses.tolist()).is_clear
    # Likelihoods have losses of either sign.
    assert not grounds_of_losses(counts.tolist(), (counts**-2.0 - 0.5).tolist()).is_clear


@pytest.mark.slow
def test_no_number_of_clusters_of_a_line_is_a_clear_choice() -> None:
    line = np.linspace(0.0, 1.0, 400, dtype=np.float32)[:, None]
    counts = list(range(1, 9))
    losses = [float(kmeans(line, k, key=jax.random.key(0)).loss) for k in counts]
    assert not grounds_of_losses(counts, losses).is_clear


def test_evidence_within_a_twentieth_of_the_range_is_no_choice() -> None:
    # The next may lie within 5 % of the range, here 10: no clear choice at 0.4, one at 0.6.
    names = ["3×3", "4×4", "5×5"]
    assert not grounds_of_evidence(names, [0.0, 10.0, 9.6]).is_clear
    assert grounds_of_evidence(names, [0.0, 10.0, 9.4]).is_clear
    assert not grounds_of_evidence(names, [1.0, 1.0, 1.0]).is_clear
