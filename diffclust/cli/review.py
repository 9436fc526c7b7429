"""`diffclust review`: serves the page on which clusters are named, corrected and exported."""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from diffclust.cli.export import assign_again, distinct_paths, export_folder, save_pictures
from diffclust.cli.options import Review as ReviewOptions
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.runs import SavedRun, file_names, read_run, write_table
from diffclust.cli.samples import reload_samples
from diffclust.data import Collection, Dataset, Recordings
from diffclust.methods import plural
from diffclust.models import Result
from diffclust.review import formats
from diffclust.review.edits import Labelling, Review
from diffclust.review.reviewer import Reviewer
from diffclust.review.samples import ReviewSamples
from diffclust.review.server import ReviewServer
from diffclust.review.storage import ReviewFile
from diffclust.storage.staging import staged_file

_AT_ONCE = 256
"""Images that are in memory at once when they are written one by one."""


def review(options: ReviewOptions) -> None:
    """Serves the page until it is interrupted.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If there is no such run, or its samples or its review cannot be read.
        OSError: If something cannot be read, or no port is free.
        KeyboardInterrupt: In the end; its message says where the edits are.
    """
    run, folder = read_run(options.run), Path(os.path.realpath(options.run))
    out = folder.with_name(f"{folder.name}.review") if options.out is None else Path(options.out)
    initial = Labelling.of_run(run.clusters, run.num_clusters)
    file = ReviewFile(out / "review.json", initial)
    file.read()  # before the samples, which may take long
    with ProgressBar() as bar:
        result, coordinates = run.result(), None
        if result.model.descriptor.sample_kind == "image":
            dataset = reload_samples(run, result, options.source, bar)
            if "model" not in run.summary:
                coordinates = result.outcome.extras.get("coordinates")
        else:
            result, dataset = assign_again(run, result, options.source, bar)
        samples = ReviewSamples(result, dataset, coordinates)
    exports = _Exports(run, result, dataset, out)
    reviewer = Reviewer(
        folder.name,
        samples,
        file,
        distances=run.distances,
        margins=run.margins,
        exports=exports.by_name(),
    )
    with ReviewServer(reviewer) as server:
        print(f"open {server.address}")
        print(f"every edit is saved in {file.path}; Ctrl-C ends", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt as interrupt:
            interrupt.args = (f"every edit is saved in {str(file.path)!r}",)
            raise


@dataclasses.dataclass(frozen=True, eq=False)
class _Exports:
    """What is written of a review, into one folder; each gives a line that says what and where."""

    run: SavedRun
    result: Result
    dataset: Collection
    out: Path

    def by_name(self) -> dict[str, Callable[[Review], str]]:
        """What samples of this kind can be written as."""
        exports = {"Table (CSV)": self._table, "Labels of the model's clusters": self._model}
        if isinstance(self.dataset, Dataset):
            exports |= {"Folders": self._folders, "Label Studio": self._label_studio}
            if not isinstance(self.dataset, Recordings):
                exports["FiftyOne"] = self._fiftyone
        return exports

    @property
    def _nouns(self) -> str:
        return plural(self.dataset.noun)

    def _table(self, review: Review) -> str:
        with staged_file(self.out / "labels.csv", overwrite=True) as path:
            header = ["index", self.run.column, "cluster", "label", "doubtful"]
            rows = formats.table_rows(review, self.run.indices, self.run.places)
            write_table(path, header, rows)
        return f"{len(self.dataset)} {self._nouns}: {self.out / 'labels.csv'}"

    def _model(self, review: Review) -> str:
        path = self.out / "labels.json"
        content = formats.cluster_labels(review, self.result, self._nouns)
        with staged_file(path, overwrite=True) as written:
            written.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
        model = self.run.summary.get("model", self.run.folder)
        return (
            f"{path}: {content['note']}; use it as in: diffclust predict {model} SOURCE "
            f"--cluster-labels {path} --out DIR"
        )

    def _folders(self, review: Review) -> str:
        labels = review.labelling.labels()
        names = formats.folder_names(sorted(set(labels)))
        with self._folder("folders") as folder:
            for name in names.values():
                (folder / name).mkdir()
            self._save_samples([folder / names[label] for label in labels], numbered=False)
        return f"{len(labels)} {self._nouns} in {len(names)} folders: {self.out / 'folders'}"

    def _fiftyone(self, review: Review) -> str:
        labels = review.labelling.labels()
        with self._folder("fiftyone") as folder:
            files = self._save_data(folder)
            content = formats.fiftyone_labels(labels, files)
            (folder / "labels.json").write_text(json.dumps(content), "utf-8")
        return (
            f"a FiftyOneImageClassificationDataset of {len(labels)} images: {self.out / 'fiftyone'}"
        )

    def _label_studio(self, review: Review) -> str:
        labels, kind = review.labelling.labels(), "image"
        if isinstance(self.dataset, Recordings):
            kind = "audio"
        with self._folder("label-studio") as folder:
            files = [path.relative_to(folder) for path in self._save_data(folder)]
            doubtful = review.labelling.doubtful.tolist()
            tasks = formats.label_studio_tasks(labels, doubtful, files, kind)
            (folder / "tasks.json").write_text(json.dumps(tasks), "utf-8")
            (folder / "config.xml").write_text(formats.label_studio_config(labels, kind), "utf-8")
        return (
            f"tasks of {len(labels)} {self._nouns}: {self.out / 'label-studio'}, which is Label "
            "Studio's document root (LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT)"
        )

    def _folder(self, what: str) -> contextlib.AbstractContextManager[Path]:
        inputs = [str(self.run.folder), self.run.summary["source"]["source"]]
        out = str(self.out / what)
        return export_folder(out, what, str(self.run.folder), inputs, overwrite=True)

    def _save_data(self, folder: Path) -> list[Path]:
        """All samples in one folder `data`, each with its index before its name."""
        (folder / "data").mkdir()
        return self._save_samples([folder / "data"] * len(self.dataset), numbered=True)

    def _save_samples(self, folders: list[Path], *, numbered: bool) -> list[Path]:
        """Copies files into folders, one for each; what is no file is written as PNG."""
        assert isinstance(self.dataset, Dataset)
        sources, indices = self.dataset.paths, self.run.indices.tolist()
        names = [f"{i}.png" for i in indices] if sources is None else file_names(sources)
        if numbered and sources is not None:
            names = [f"{i}-{name}" for i, name in zip(indices, names, strict=True)]
        paths = list(distinct_paths(folders, map(Path, names), indices))
        if sources is None:
            starts = range(0, len(paths), _AT_ONCE)
            images = self.dataset.images
            save_pictures(paths, (images[i : i + _AT_ONCE] for i in starts))
        for source, path in zip(sources or (), paths, strict=False):
            shutil.copyfile(source, path)
        return paths
