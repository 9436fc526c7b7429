"""Image sets of TensorFlow Datasets that were prepared before, read without TensorFlow."""

import io
import os
import re
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from diffclust._validation import reason_of, some
from diffclust.data.arrays import LoadOptions, LoadSettings
from diffclust.data.dataset import DataError, Dataset, FileError
from diffclust.data.folder import Listing, gather
from diffclust.data.pictures import quiet_decoding, read_picture

PREFIX = "tfds:"
"""What a source begins with that is such a set."""

DATA_DIR = "TFDS_DATA_DIR"
"""The environment variable that names the folder of prepared sets."""

_SET_NAME = re.compile(r"[A-Za-z]\w*(/\w[\w.+-]*)?(:[0-9*]+\.[0-9*]+\.[0-9*]+)?", re.ASCII)


def load_tfds(name: str, **settings: Unpack[LoadSettings]) -> Dataset:
    """Load an image set of TensorFlow Datasets from the folder where it was prepared.

    Nothing is downloaded. The set must lie in the format `array_record` in the folder that
    TFDS_DATA_DIR names, or in `~/tensorflow_datasets`. Its feature `image`, or its only feature
    of images, is read; likewise `label`, or its only class label.

    Args:
        name: The set, perhaps with a configuration and a version: `mnist`, `emnist/letters`,
            `emnist/letters:3.1.0`.
        **settings: As for `load`; a set that has neither of the two splits is read whole.

    Returns:
        The images in the order of the records, with labels unless some have none.

    Raises:
        DataError: If tensorflow-datasets is not installed, the set is not there, is of another
            format or has no such split or images, some images cannot be read (and `skip_bad` is
            False), sizes differ (and `size` is None), or a setting is out of range.
    """
    options = LoadOptions(**settings)
    builder = _builder(name)
    image, label = _image_and_label(name, builder.info.features)
    records = _open_records(name, builder, image, options.split)
    indices = options.draw(len(records))
    codes = np.full(len(indices), -1, np.int64)

    def decode(position: int) -> np.ndarray:
        try:
            record = records[int(indices[position])]
            content, code = record[image], -1 if label is None else int(record[label])
        # A damaged file fails in as many ways as there are layers below.
        except Exception as error:
            raise FileError(reason_of(error)) from error
        if not isinstance(content, bytes):
            raise FileError("damaged")
        codes[position] = code
        return read_picture(io.BytesIO(content), options.target)

    names = [f"record {index}" for index in indices]
    listing = Listing(range(len(indices)), names, repr(PREFIX + name))
    with quiet_decoding():
        images, kept = gather(decode, listing, options)
    # Sets with a part that is not labelled mark it by -1.
    has_labels = label is not None and bool(np.all(codes[kept] >= 0))
    return Dataset(
        images=images,
        labels=codes[kept] if has_labels else None,
        label_names=tuple(builder.info.features[label].names) if has_labels else None,
        name=name,
        skipped=tuple(names[i] for i in np.delete(np.arange(len(names)), kept)),
        indices=indices[kept],
    )


def _builder(name: str) -> Any:
    """Returns the builder of a prepared set; neither its own code nor a network is needed."""
    if not _SET_NAME.fullmatch(name):
        raise DataError(
            f"{PREFIX + name!r} is no name of a set; give one such as tfds:emnist/letters:3.1.0."
        )
    try:
        from tensorflow_datasets.core.read_only_builder import builder_from_files
    except ImportError as error:
        raise DataError(
            f"'{PREFIX}{name}' needs tensorflow-datasets, which is not installed ({error}); "
            "pip install array-record tensorflow-datasets."
        ) from error
    folder = os.path.expanduser(os.environ.get(DATA_DIR) or "~/tensorflow_datasets")
    try:
        builder = builder_from_files(name, data_dir=folder)
    except Exception as error:
        entries = Path(folder).glob("[!.]*/")
        known = sorted(entry.name for entry in entries if entry.name != "downloads")
        holds = some(map(repr, known)) or "no sets"
        raise DataError(
            f"'{PREFIX}{name}' is not in {folder!r}, which holds {holds}; "
            f"{_how_to_prepare(name)}, or set {DATA_DIR} to where it is."
        ) from error
    if builder.info.file_format is None or builder.info.file_format.value != "array_record":
        raise DataError(
            f"'{PREFIX}{name}' was prepared in another format than array_record, which only "
            f"TensorFlow can read; {_how_to_prepare(name)}."
        )
    return builder


def _how_to_prepare(name: str) -> str:
    return (
        f"prepare it once with pip install '.[tfds-prepare]' and tfds build "
        f"{name.partition(':')[0]} --file_format=array_record"
    )


def _image_and_label(name: str, features: Any) -> tuple[str, str | None]:
    """Returns the names of the features that hold the image and the class."""
    import tensorflow_datasets as tfds

    # In sorted order, for what is written has none.
    kinds = dict(sorted(features.items())) if hasattr(features, "items") else {}
    images = [key for key, kind in kinds.items() if type(kind) is tfds.features.Image]
    labels = [key for key, kind in kinds.items() if isinstance(kind, tfds.features.ClassLabel)]
    image = "image" if "image" in images else images[0] if len(images) == 1 else None
    label = "label" if "label" in labels else labels[0] if len(labels) == 1 else None
    if image is None:
        what = f"several images ({some(map(repr, images))})" if images else "no images"
        raise DataError(
            f"'{PREFIX}{name}' has {what}: its features are {some(map(repr, kinds)) or 'unnamed'}; "
            f"give a set with one image a record."
        )
    dtype = np.dtype(kinds[image].np_dtype)
    if dtype not in (np.uint8, np.uint16):
        raise DataError(
            f"'{PREFIX}{name}' has images of {dtype}, not of 8 or 16 bits; np.savez them in [0, 1]."
        )
    return image, label


def _open_records(name: str, builder: Any, image: str, split: str) -> Any:
    """Returns the records of a split, in which images are still encoded."""
    import tensorflow_datasets as tfds

    splits = [key for key, value in builder.info.splits.items() if value.num_examples]
    parts = [part for part in ("train", "test") if part in splits] or splits
    if split != "all":
        parts = [part for part in splits if part == split]
    if not parts:
        raise DataError(
            f"'{PREFIX}{name}' has no split {split!r}: it has {some(map(repr, splits)) or 'none'}; "
            f"use split 'all', or prepare the set again."
        )
    try:
        records = builder.as_data_source(
            split="+".join(parts), decoders={image: tfds.decode.SkipDecoding()}
        )
        len(records)
    except Exception as error:
        raise DataError(
            f"'{PREFIX}{name}' cannot be read ({reason_of(error)}); it is damaged: "
            f"{_how_to_prepare(name)}."
        ) from error
    return records
