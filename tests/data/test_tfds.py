"""A tiny set as TensorFlow Datasets would have prepared it, written and read without TensorFlow."""

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image

from diffclust.data import DataError, load, load_tfds

try:
    import tensorflow_datasets as tfds
except ImportError:
    pytest.skip("no tensorflow-datasets is installed", allow_module_level=True)

RNG = np.random.default_rng(0)
PIXELS = {
    "train": RNG.integers(0, 256, (10, 8, 6), dtype=np.uint8),
    "test": RNG.integers(0, 256, (4, 8, 6), dtype=np.uint8),
}


def png(pixels: np.ndarray) -> bytes:
    Image.fromarray(pixels).save(content := io.BytesIO(), format="PNG")
    return content.getvalue()


def prepare(root, name="tiny/plain", *, splits=None, features=None, file_format="array_record"):
    """Records, `features.json` and `dataset_info.json` where TensorFlow Datasets puts them."""
    from array_record.python.array_record_module import ArrayRecordWriter
    from tensorflow_datasets.proto import tf_example_pb2

    dataset = name.partition("/")[0]
    folder = root / name / "1.0.0"
    folder.mkdir(parents=True)
    image = tfds.features.Image(shape=(None, None, None))
    classes = tfds.features.ClassLabel(names=["cat", "dog", "eel"])
    features = features or {"image": image, "label": classes}
    tfds.features.FeaturesDict(features).save_config(str(folder))
    described = []
    for split, files in (splits or PIXELS).items():
        path = folder / f"{dataset}-{split}.array_record-00000-of-00001"
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for i, content in enumerate(files):
            record = tf_example_pb2.Example()
            values = record.features.feature
            content = content if isinstance(content, bytes) else png(content)
            for key, feature in features.items():
                if isinstance(feature, tfds.features.ClassLabel):
                    values[key].int64_list.value.append(-1 if split == "unlabelled" else i % 3)
                else:
                    values[key].bytes_list.value.append(content)
            writer.write(record.SerializeToString())
        writer.close()
        described.append(
            {
                "name": split,
                "shardLengths": [str(len(files))],
                "numBytes": str(path.stat().st_size),
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
        )
    info = {"name": dataset, "version": "1.0.0", "fileFormat": file_format, "splits": described}
    if "/" in name:
        info["configName"] = name.partition("/")[2]
    (folder / "dataset_info.json").write_text(json.dumps(info))
    return folder


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


def test_images_labels_and_splits(root):
    prepare(root)
    calls = []
    whole = load("tfds:tiny/plain", progress=lambda *call: calls.append(call))
    expected = np.concatenate([PIXELS["train"], PIXELS["test"]])
    np.testing.assert_allclose(whole.images[..., 0], expected / 255, rtol=1e-6)
    assert whole.images.shape == (14, 8, 6, 1)
    assert whole.label_names == ("cat", "dog", "eel")
    np.testing.assert_array_equal(whole.labels, [*(i % 3 for i in range(10)), 0, 1, 2, 0])
    assert whole.name == "tiny/plain"
    assert calls == [(i, 14) for i in range(1, 15)]
    assert "tensorflow" not in sys.modules
    for split in PIXELS:
        part = load("tfds:tiny/plain:1.0.0", split=split)
        np.testing.assert_allclose(part.images[..., 0], PIXELS[split] / 255, rtol=1e-6)
    drawn = load("tfds:tiny/plain", limit=5, seed=2, size=4, channels=3)
    assert drawn.images.shape == (5, 4, 4, 3)
    np.testing.assert_array_equal(drawn.indices, whole.limit(5, seed=2).indices)
    np.testing.assert_array_equal(drawn.labels, whole.labels[drawn.indices])


def test_sixteen_bits_and_other_names(root):
    deep = np.array([[0, 256], [32768, 65535]], np.uint16)
    features = {
        "photo": tfds.features.Image(shape=(2, 2, 1), dtype=np.uint16),
        "kind": tfds.features.ClassLabel(num_classes=3),
    }
    prepare(root, "deep", splits={"train": [deep] * 2}, features=features)
    result = load_tfds("deep")
    np.testing.assert_allclose(result.images[0, ..., 0], deep / 65535, rtol=1e-6)
    assert result.label_names == ("0", "1", "2")


def test_sets_without_labels_and_with_other_splits(root):
    prepare(root, "part", splits={"unlabelled": PIXELS["test"]})
    result = load_tfds("part")
    assert len(result) == 4
    assert result.labels is None
    with pytest.raises(DataError, match="has no split 'test': it has 'unlabelled'; use split"):
        load_tfds("part", split="test")


def test_bad_records_are_named_and_skipped_when_asked(root):
    files = [*PIXELS["test"], b"no picture", b""]
    prepare(root, "bad", splits={"train": files})
    with pytest.raises(
        DataError, match=r"2 of 6 images in 'tfds:bad' .*: record 4 \(not a PNG.*record 5 \(empty"
    ):
        load_tfds("bad")
    result = load_tfds("bad", skip_bad=True)
    assert result.skipped == ("record 4", "record 5")
    np.testing.assert_array_equal(result.labels, [0, 1, 2, 0])


def test_several_sizes(root):
    prepare(root, "sizes", splits={"train": [PIXELS["test"][0], PIXELS["test"][1].T.copy()]})
    with pytest.raises(DataError, match="record 0 is 6x8 and record 1 is 8x6 .*--size"):
        load_tfds("sizes")
    assert load_tfds("sizes", size=5).images.shape == (2, 5, 5, 1)


def test_sets_that_are_not_there(root, monkeypatch):
    remedy = r"pip install '\.\[tfds-prepare\]' and tfds build mnist --file_format=array"
    with pytest.raises(DataError, match=rf"'tfds:mnist' is not in .* holds no sets; .*{remedy}"):
        load("tfds:mnist")
    prepare(root)
    for name in ("nothing", "tiny", "tiny/other", "tiny/plain:9.9.9"):
        with pytest.raises(DataError, match="is not in .* which holds 'tiny'") as raised:
            load(f"tfds:{name}")
        assert "\n" not in str(raised.value)
    for name in ("", "../tiny", "tiny/../tiny", "tiny\nplain", "tiny/plain:1", "a b"):
        with pytest.raises(DataError, match="is no name of a set") as raised:
            load(f"tfds:{name}")
        assert "\n" not in str(raised.value)
    # Without the variable it is the folder in the home.
    monkeypatch.delenv("TFDS_DATA_DIR")
    monkeypatch.setenv("HOME", str(root / "home"))
    with pytest.raises(DataError, match="home/tensorflow_datasets"):
        load("tfds:mnist")


def test_sets_that_are_not_fit(root):
    prepare(root, "old", file_format="tfrecord")
    with pytest.raises(DataError, match="prepared in another format than array_record"):
        load_tfds("old")
    prepare(root, "words", features={"text": tfds.features.Text()}, splits={"train": [b"a"]})
    with pytest.raises(DataError, match="has no images: its features are 'text'"):
        load_tfds("words")
    image = tfds.features.Image(shape=(8, 6, 1))
    prepare(root, "pairs", features={"left": image, "right": image})
    with pytest.raises(DataError, match=r"several images \('left', 'right'\)"):
        load_tfds("pairs")
    floats = tfds.features.Image(shape=(8, 6, 1), dtype=np.float32)
    prepare(root, "floats", features={"image": floats})
    with pytest.raises(DataError, match="images of float32"):
        load_tfds("floats")


def test_damaged_sets(root):
    folder = prepare(root, "torn")
    (shard,) = folder.glob("*train*")
    whole = shard.read_bytes()
    for content in (b"", whole[: len(whole) // 2], bytes(len(whole))):
        shard.write_bytes(content)
        with pytest.raises(DataError, match="cannot be read") as raised:
            load_tfds("torn")
        assert "\n" not in str(raised.value)
    shard.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        load_tfds("torn")
    for name in ("dataset_info.json", "features.json"):
        text = (folder / name).read_text()
        (folder / name).write_text(text[:40])
        with pytest.raises(DataError) as raised:
            load_tfds("torn")
        assert "\n" not in str(raised.value)
        (folder / name).write_text(text)


def test_without_tensorflow_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets.core.read_only_builder", None)
    with pytest.raises(
        DataError,
        match="needs tensorflow-datasets, .* pip install array-record tensorflow-datasets",
    ):
        load("tfds:mnist")
