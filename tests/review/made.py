"""What tests of the review have in common: a small fit, and a review of it."""

from pathlib import Path

import jax
import numpy as np

from diffclust.data import Dataset
from diffclust.models import KMeans, Result
from diffclust.review import Labelling, ReviewFile, ReviewSamples
from diffclust.review.reviewer import Reviewer
from tests.cli.commands import squares

COUNT, CLUSTERS = 60, 3
EVIL = "</title><script>document.title='broken'</script>.png"


def fitted() -> tuple[Result, Dataset]:
    """K-means of a few images, whose first one has a name that would break a careless page."""
    images = squares(COUNT)[..., None].astype(np.float32) / 255
    names = (EVIL, *(f"{i:03}.png" for i in range(1, COUNT)))
    model = KMeans(CLUSTERS, num_restarts=1, max_passes=5)
    return model.fit(images, key=jax.random.key(0)), Dataset(images, paths=names)


def reviewer_of(result: Result, dataset: Dataset, folder: Path) -> Reviewer:
    """A review that keeps its edits in a folder, with one export that says what it was given."""
    initial = Labelling.of_run(result.assignments, CLUSTERS)
    file = ReviewFile(folder / "review.json", initial)
    orders = {
        "nearest first": result.distances,
        "least certain first": result.margins,
        "as they came": np.arange(COUNT),
    }
    exports = {"Names": lambda review: ", ".join(review.labelling.names.values())}
    return Reviewer("<b>run</b>", ReviewSamples(result, dataset), file, orders, exports)
