"""What the page asks for and does: clusters, their samples, edits, exports; without any HTTP."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from diffclust.methods import plural
from diffclust.review.edits import Labelling, Review, parse_edit, to_json
from diffclust.review.samples import ReviewSamples
from diffclust.review.storage import ReviewFile

_PAGE_SIZE = 120
"""Samples that are shown at once."""

_NUM_COVER = 4
"""Samples that stand for a cluster, the first ones in the first order."""

Orders = Mapping[str, np.ndarray]
Exports = Mapping[str, Callable[[Review], str]]


class StaleError(Exception):
    """An edit of an old revision: somebody else has changed the review since it was read."""


class Reviewer:
    """A review that several threads may read and edit; every edit is saved before it counts.

    Attributes:
        title: What the run is called.
        samples: Its samples.
    """

    title: str
    samples: ReviewSamples

    def __init__(
        self, title: str, samples: ReviewSamples, file: ReviewFile, orders: Orders, exports: Exports
    ) -> None:
        """Reads the review.

        Args:
            title: What the run is called.
            samples: Its samples.
            file: Where edits are kept.
            orders: By name, a number for each sample, by which samples can be ordered.
            exports: By name, what writes the labels somewhere and says where.

        Raises:
            ValueError: If the file is of another run, or damaged.
            OSError: If it cannot be read.
        """
        self.title, self.samples, self._file = title, samples, file
        self._review, self._orders, self._exports = file.read(), orders, exports
        self._editing, self._exporting = threading.RLock(), threading.Lock()

    def review(self) -> Review:
        """The review now, also where another process has changed it."""
        with self._editing:
            if self._file.has_changed():
                self._review = self._file.read()
            return self._review

    def state(self) -> dict[str, Any]:
        """The revision, what would be undone, all clusters, and what can be done."""
        review, order = self.review(), np.argsort(next(iter(self._orders.values())), kind="stable")
        labelling = review.labelling
        by_cluster = order[np.argsort(labelling.clusters[order], kind="stable")]
        sizes = np.bincount(labelling.clusters, minlength=max(labelling.names) + 1)
        clusters = [
            {"id": k, "name": name, "size": int(sizes[k]), "cover": members[:_NUM_COVER].tolist()}
            for k, members in enumerate(np.split(by_cluster, np.cumsum(sizes)[:-1]))
            if (name := labelling.names.get(k)) is not None
        ]
        return {
            "title": self.title,
            "noun": self.samples.noun,
            "nouns": plural(self.samples.noun),
            "revision": review.revision,
            "undo": [to_json(edit) for edit in review.edits[-1:]],
            "doubtful": int(labelling.doubtful.sum()),
            "clusters": clusters,
            "orders": list(self._orders),
            "exports": list(self._exports),
        }

    def members(self, cluster: int | None, order: str, page: int) -> dict[str, Any]:
        """The samples of a cluster, one page of them.

        Args:
            cluster: The cluster; None for all samples that are marked as doubtful.
            order: Which of the orders.
            page: Number of the page, from 0.

        Returns:
            The samples, how many there are on all pages, and how many on one.

        Raises:
            LookupError: If there is no such cluster or order.
        """
        labelling = self.review().labelling
        if order not in self._orders or (cluster is not None and cluster not in labelling.names):
            raise LookupError("there is no such cluster or order")
        chosen = labelling.doubtful if cluster is None else labelling.clusters == cluster
        members = np.flatnonzero(chosen)
        members = members[np.argsort(self._orders[order][members], kind="stable")]
        shown = members[page * _PAGE_SIZE : (page + 1) * _PAGE_SIZE]
        return {"samples": self._shown(shown, labelling), "total": len(members), "page": _PAGE_SIZE}

    def similar(self, sample: int) -> dict[str, Any]:
        """The samples that are most like one.

        Args:
            sample: Its position.

        Returns:
            The samples, itself first, and what was compared.

        Raises:
            LookupError: If there is no such sample.
        """
        nearest = self.samples.nearest(sample, _PAGE_SIZE)
        shown = self._shown(nearest, self.review().labelling)
        return {"samples": shown, "compared": self.samples.compared}

    def _shown(self, positions: np.ndarray, labelling: Labelling) -> list[dict[str, Any]]:
        return [
            {
                "id": i,
                "name": self.samples.names[i],
                "cluster": int(labelling.clusters[i]),
                "doubtful": bool(labelling.doubtful[i]),
            }
            for i in positions.tolist()
        ]

    def edit(self, revision: int, content: Any) -> dict[str, Any]:
        """Does an edit and saves it.

        Args:
            revision: The revision that it is an edit of.
            content: The edit as JSON; or `{"kind": "split", "cluster": 3}`, which moves the smaller
                of the two groups that K-means finds in a cluster to a new one.

        Returns:
            The state after it.

        Raises:
            StaleError: If there is another revision by now.
            LookupError: If it is of a sample or cluster that is not there.
            ValueError: If it is no edit, or makes no sense.
            OSError: If it cannot be saved; then nothing was done.
        """
        if isinstance(content, dict) and content.get("kind") == "split":
            content = self._split(content.get("cluster"))
        edit = parse_edit(content)
        return self._change(revision, lambda review: review.edited(edit))

    def undo(self, revision: int) -> dict[str, Any]:
        """Undoes the last edit and saves that.

        Args:
            revision: The revision that is asked to be undone.

        Returns:
            The state after it.

        Raises:
            StaleError: If there is another revision by now.
            ValueError: If there is nothing to undo.
            OSError: If it cannot be saved; then nothing was done.
        """
        return self._change(revision, Review.undone)

    def _change(self, revision: int, change: Callable[[Review], Review]) -> dict[str, Any]:
        # Between reading and writing no other thread, and no other process, changes the review.
        with self._editing, self._file.locked():
            review = self.review()
            if revision != review.revision:
                raise StaleError("this was changed elsewhere in the meantime; look again")
            changed = change(review)
            self._file.write(changed)
            self._review = changed
            return self.state()

    def _split(self, cluster: Any) -> dict[str, Any]:
        """A split as the move that it comes to, found without holding others up."""
        if type(cluster) is not int:
            raise ValueError("a split names a cluster by its number")
        labelling = self.review().labelling
        if cluster not in labelling.names:
            raise LookupError(f"there is no cluster {cluster}")
        members = np.flatnonzero(labelling.clusters == cluster)
        moved = members[self.samples.halves(members)]
        return {"kind": "move", "samples": moved.tolist(), "to": None}

    def export(self, name: Any) -> dict[str, Any]:
        """Writes the labels.

        Args:
            name: In which form.

        Returns:
            What was written, and where.

        Raises:
            LookupError: If there is no such form.
            ValueError: If samples of this kind cannot be written so.
            OSError: If it cannot be written.
        """
        if not isinstance(name, str) or name not in self._exports:
            raise LookupError("there is no such export")
        with self._exporting:
            return {"message": self._exports[name](self.review())}
