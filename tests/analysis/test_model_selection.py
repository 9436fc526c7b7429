import dataclasses

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from diffclust.analysis import clusters_of_leading, validation_curve
from diffclust.data import load_digits
from diffclust.models import ProjectedScatteringSpectralClustering
from diffclust.plotting import validation_curves

MODEL = ProjectedScatteringSpectralClustering(
    3, num_removed=(1, 2), num_neighbours=(5,), num_dimensions=20, num_restarts=4
)


def three_digits() -> np.ndarray:
    digits = load_digits()
    chosen = np.flatnonzero(np.isin(digits.labels, (0, 4, 6)))[:120]
    return digits.images[chosen]


@pytest.mark.slow
def test_nothing_is_cut_up_to_the_number_of_groups() -> None:
    # With three groups the leading directions tell them apart: none is removed.
    model = dataclasses.replace(MODEL, num_removed=(0,))
    rows = validation_curve(model, three_digits(), (5, 2, 3, 4), key=jax.random.key(0))
    assert [(row.num_removed, row.num_clusters) for row in rows] == [
        (n, k) for n in (None, 0) for k in (2, 3, 4, 5)
    ]
    cuts = [row.normalised_cut for row in rows[:4]]
    np.testing.assert_allclose(cuts[:2], 0.0, atol=1e-9)
    assert 0.01 < cuts[2] < cuts[3]
    assert rows[0].eigengap < 1e-9 < rows[1].eigengap
    assert all(row.stability == 1.0 for row in rows)


@pytest.mark.slow
def test_single_graphs_and_their_mean() -> None:
    rows = validation_curve(MODEL, three_digits(), (2, 3), key=jax.random.key(0))
    assert [row.num_removed for row in rows] == [None, None, 1, 1, 2, 2]
    for mean, *single in zip(rows[:2], rows[2:4], rows[4:], strict=True):
        assert mean.stability == pytest.approx(np.mean([row.stability for row in single]))


@pytest.mark.slow
def test_same_as_the_fit() -> None:
    images = three_digits()
    (row,) = (
        row
        for row in validation_curve(MODEL, images, (3,), key=jax.random.key(0))
        if row.num_removed is None
    )
    fitted = MODEL.fit(images, key=jax.random.key(0))
    assert row.normalised_cut == pytest.approx(fitted.loss, rel=0.1)
    assert row.eigengap == pytest.approx(fitted.outcome.figures["eigengap"], rel=1e-3)


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
    # As U-SPEC has it, of some representatives alone.
    extras = {**fit.outcome.extras, "basis": fit.outcome.extras["basis"][:20]}
    few = dataclasses.replace(fit, outcome=dataclasses.replace(fit.outcome, extras=extras))
    assert clusters_of_leading(few, 2, key=key) is None


@pytest.mark.parametrize("counts", [(), (0,), (500,)])
def test_refuses(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="clusters"):
        validation_curve(MODEL, three_digits(), counts, key=jax.random.key(0))


@pytest.mark.slow
def test_curves_show_every_graph() -> None:
    rows = validation_curve(MODEL, three_digits(), (2, 3), key=jax.random.key(0))
    figure = validation_curves(rows)
    assert [len(panel.lines) for panel in figure.axes] == [3, 3, 3]
    shown = figure.axes[1].lines[0].get_ydata()
    np.testing.assert_array_equal(shown, [row.normalised_cut for row in rows[:2]])
