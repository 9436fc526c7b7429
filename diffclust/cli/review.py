"""`diffclust review`: serves the page on which clusters are named, corrected and exported."""

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from diffclust.cli import summary
from diffclust.cli.export import assign_again, distinct_paths, export_folder, save_pictures
from diffclust.cli.options import Review as ReviewOptions
from diffclust.cli.runs import SavedRun, file_names, is_run, read_run, refuse_read, write_table
from diffclust.cli.samples import reload_samples
from diffclust.data import Collection, Dataset, Recordings
from diffclust.methods import plural
from diffclust.models import Result
from diffclust.progress_bar import ProgressBar
from diffclust.review import formats
from diffclust.review.edits import Labelling, Review
from diffclust.review.reviewer import Reviewer
from diffclust.review.samples import ReviewSamples
from diffclust.review.server import ReviewServer
from diffclust.review.storage import ReviewFile
from diffclust.storage.staging import staged_file, write_json


def review(options: ReviewOptions) -> None:
    """Serves the page until it is interrupted.

    Args:
        options: The command's options.

    Raises:
        ValueError: If there is no such run, or its samples or its review cannot be read.
        OSError: If something cannot be read, or no port is free.
        KeyboardInterrupt: In the end; its message says where the edits are.
    """
    run, folder = read_run(options.run), Path(os.path.realpath(options.run))
    # What lies within a sweep is replaced with it.
    beside = folder.parent if is_run(folder.parent, "sweep") else folder
    out = Path(options.out or beside.with_name(f"{beside.name}.review"))
    refuse_read(str(out / "review.json"), ())  # a run's folder is replaced with all that is in it
    initial = Labelling.of_run(run.clusters, run.num_clusters)
    file = ReviewFile(out / "review.json", initial)
    file.read()  # before the samples, which may take long
    with ProgressBar() as bar:
        result, coordinates = run.result(), None
        if result.model.descriptor.sample_kind == "image":
            dataset = reload_samples(run, result, options.source, bar)
            if "model" not in run.summary:
                coordinates = result.outcome.extras.get("coordinates")
                # Samples that weigh nothing were not fitted, and have none.
                if coordinates is not None and len(coordinates) != len(dataset):
                    coordinates = None
        else:
            result, dataset = assign_again(run, result, options.source, bar)
        samples = ReviewSamples(result, dataset, coordinates)
    exports = _Exports(run, result, dataset, out, options.source)
    orders = {
        "nearest first": run.distances,
        "farthest first": -run.distances,
        "least certain first": run.margins,
        "as they came": run.indices,
    }
    reviewer = Reviewer(folder.name, samples, file, orders, exports.by_name())
    with ReviewServer(reviewer) as server:
        print(f"open {server.address}")
        print(f"every edit is saved in {file.path}; Ctrl-C ends", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt as interrupt:
            edited = file.path.exists()
            said = f"every edit is saved in {str(file.path)!r}" if edited else "nothing was edited"
            if type(interrupt) is not KeyboardInterrupt:  # not Ctrl-C, which is how it ends
                interrupt.args = (said,)
                raise
            print(said, flush=True)


@dataclasses.dataclass(frozen=True, eq=False)
class _Exports:
    """Writes the exports of a review into one folder; each method returns a line about it."""

    run: SavedRun
    result: Result
    dataset: Collection
    out: Path
    source: str | None

    def by_name(self) -> dict[str, Callable[[Review], str]]:
        """Lists the formats in which samples of this kind can be written."""
        exports = {"Table (CSV)": self._table, "Labels of the model's clusters": self._model}
        if isinstance(self.dataset, Dataset):
            exports |= {"Folders": self._folders, "Label Studio": self._label_studio}
            if not isinstance(self.dataset, Recordings):
                exports["FiftyOne"] = self._fiftyone
        return exports

    @property
    def _samples(self) -> str:
        return summary.plural(len(self.dataset), self.dataset.noun)

    def _table(self, review: Review) -> str:
        with staged_file(self.out / "labels.csv", overwrite=True) as path:
            header = ["index", self.run.column, "cluster", "label", "doubtful"]
            rows = formats.table_rows(review, self.run.indices, self.run.places)
            write_table(path, header, rows)
        return f"{self._samples}: {self.out / 'labels.csv'}"

    def _model(self, review: Review) -> str:
        path = self.out / "labels.json"
        content = formats.cluster_labels(review, self.result, plural(self.dataset.noun))
        with staged_file(path, overwrite=True) as written:
            write_json(written, content)
        return f"{path}, for diffclust predict --cluster-labels: {content['note']}"

    def _folders(self, review: Review) -> str:
        labels = review.labelling.labels()
        names = formats.folder_names(sorted(set(labels)))
        with self._folder("folders") as folder:
            for name in names.values():
                (folder / name).mkdir()
            self._save_samples([folder / names[label] for label in labels], numbered=False)
        folders = summary.plural(len(names), "folder")
        return f"{self._samples} in {folders}: {self.out / 'folders'}"

    def _fiftyone(self, review: Review) -> str:
        write = functools.partial(formats.fiftyone, review.labelling.labels())
        return f"a FiftyOneImageClassificationDataset: {self._dataset('fiftyone', write)}"

    def _label_studio(self, review: Review) -> str:
        labels, doubtful = review.labelling.labels(), review.labelling.doubtful.tolist()
        kind = "audio" if isinstance(self.dataset, Recordings) else "image"
        write = functools.partial(formats.label_studio, labels, doubtful=doubtful, kind=kind)
        return f"tasks and Label Studio's document root: {self._dataset('label-studio', write)}"

    def _dataset(self, what: str, write: Callable[[list[Path]], dict[str, str]]) -> Path:
        """A folder with all samples in `data`, their indices before their names, and the labels."""
        with self._folder(what) as folder:
            (folder / "data").mkdir()
            files = self._save_samples([folder / "data"] * len(self.dataset), numbered=True)
            for name, text in write([path.relative_to(folder) for path in files]).items():
                (folder / name).write_text(text, "utf-8")
        return self.out / what

    def _folder(self, what: str) -> contextlib.AbstractContextManager[Path]:
        return export_folder(self.run, what, str(self.out / what), self.source, overwrite=True)

    def _save_samples(self, folders: list[Path], *, numbered: bool) -> list[Path]:
        """Copies files into folders, one for each; what is no file is written as PNG."""
        assert isinstance(self.dataset, Dataset)
        sources, indices = self.dataset.paths, self.run.indices.tolist()
        names = [f"{i}.png" for i in indices] if sources is None else file_names(sources)
        if numbered and sources is not None:
            names = [
                f"{i}-{formats.shortened(name)}" for i, name in zip(indices, names, strict=True)
            ]
        paths = list(distinct_paths(folders, map(Path, names), indices))
        if sources is None:
            # One by one: there may be more than fit into memory.
            save_pictures(paths, (self.dataset.images[i : i + 1] for i in range(len(paths))))
        for source, path in zip(sources or (), paths, strict=False):
            shutil.copyfile(source, path)
        return paths
