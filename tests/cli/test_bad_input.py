"""Whatever is wrong with the input: one clear line, exit status 2, and nothing half-written."""

import csv
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

import diffclust
from diffclust.cli import main
from diffclust.models import Result
from tests.models.cuts import quick_aligner

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with six good images in `good.npy`, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    np.save("good.npy", images())
    return tmp_path


def images(count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 256, (count, 8, 8), dtype=np.uint8)


def floats() -> np.ndarray:
    return images().astype(np.float32) / 255


def save(path: str, pixels: np.ndarray) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def photos() -> None:
    for number, pixels in enumerate(images(3)):
        save(f"photos/{number}.png", pixels)


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file with its content, and every folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command that must be refused; gives its message."""
    before = snapshot(Path.cwd())
    capsys.readouterr()
    status = main(arguments)
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert snapshot(Path.cwd()) == before
    return err


def fit(source: str, *options: str) -> list[str]:
    """A fit of two clusters into `out`; options that come later win."""
    return ["fit", source, "--method", "kmeans", "-k", "2", "--out", "out", *options]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-k", "0"], "-k must be at least 1, not 0"),
        (["-k=-3"], "-k must be at least 1, not -3"),
        (["-k", "7"], "images is 6, too few for 7 clusters"),
        (["-k", "many"], "cannot parse -k/--k: 'many' is no integer; see"),
        (["--tolerance", "few"], "'few' is no number"),
        (
            ["--register", "no"],
            "'--register'. Choose one of 'auto', 'none', 'place', 'upright'; see",
        ),
        (["--register", "None"], "None is no value of --register; leave it out for its default"),
        (["--limit", "0"], "limit must be at least 1"),
        (["--limit", "1"], "images is 1, too few for 2 clusters"),
        (["--seed", "-1"], "--seed must be between 0 and"),
        (["--size", "0"], "size must be at least 1 pixel"),
        (["--size", "999999"], "size must be at most 89,478,485 pixels in all: got 999999x999999"),
        (["--size", "big"], "--size must be like 28 or 28x32"),
        (["--split", "test"], "has no split 'test'"),
        (["--chunk-size", "0"], "chunk_size must be at least 1, not 0"),
        (["--max-passes", "0"], "max_passes must be at least 1, not 0"),
        (["--restarts", "-2"], "num_restarts must be at least 1, not -2"),
        (["--tolerance", "nan"], "tolerance must be at least 0, not nan"),
        (["--tolerance", "inf"], "tolerance must be finite, not inf"),
        (["--method", "magic"], "'ai-kmeans'"),
        (["--landmarks", "6x6"], "kmeans has no option --landmarks"),
        (["--no-unit-norm"], "kmeans has no option --no-unit-norm"),
        (["--method", "di-kmeans", "--landmarks", "6x"], "--landmarks must be like 6 or 6x4"),
        (["--method", "di-kmeans", "--landmarks", "1x6"], "at least 2 each"),
        (["--method", "di-kmeans", "--landmarks", "9"], "8×8 pixels are smaller than the landmark"),
        (["--method", "di-kmeans", "--bending-penalty", "-1"], "bending_penalty must be at least"),
        (["--channels", "2"], "channels"),
        (["--rate", "8000"], "rate is for a folder of recordings"),
        (["--weights", "good.npy"], "must be one number for each sample"),
        (["--colour", "red"], "--colour"),
        (["--as-published"], "kmeans has no settings as published; leave out --as-published"),
    ],
    ids=" ".join,
)
def test_settings(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    assert message in refuse(capsys, *fit("good.npy", *options))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "fit, predict, "),
        (["fits"], "fits"),
        (["fit"], "diffclust fit --help"),
        (["fit", "good.npy"], "-k K"),
        (["demo", "--seed", "x"], "'x'"),
        (["demo", "--seed", "-5"], "--seed must be between"),
        (["fit", "--method", "magic", "--help"], "no method 'magic'; choose one of kmeans, "),
        (["export", "run", "--out", "a.csv"], "registration,prototypes,"),
        (["fit", "a.png", "-k", "2", "b.png"], "and 'b.png' is another one; give the folder that"),
        (["predict", "run", "a", "b", "--out", "new"], "'b' is another one; give the folder that"),
        (["fit", "a", "--sizes", "8", "b", "-k", "2"], "Unrecognized options: --sizes, 8, b;"),
        # Only the command's own options are proposed; sweep has --grids.
        (["fit", "a", "-k", "2", "--grid", "3"], "error: Unrecognized options: --grid, 3; see"),
        (["fit", "a", "-k", "2", "--sizes", "3"], "; Perhaps you meant: --size; see diffclust fit"),
        (["--out", "x", "fit", "a", "-k", "2"], "error: Unrecognized options: --out, x; "),
        (["fit", "a", "--size", "-k", "2"], "'--size'. Expected 1 value; see"),
    ],
    ids=str,
)
def test_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    error = refuse(capsys, *arguments)
    assert message in error
    assert ",," not in error  # where a list is broken into lines


def no_numbers() -> None:
    array = floats()
    array[1, 0, 0], array[4, 3, 2] = np.nan, np.inf
    np.save("bad.npy", array)


def limited_no_numbers() -> None:
    array = np.concatenate([floats()] * 10)
    array[:] = np.nan
    np.save("bad.npy", array)


def blank() -> None:
    array = floats()
    array[[2, 5]] = 0
    np.save("bad.npy", array)


def blank_file() -> None:
    photos()
    save("photos/void.png", np.zeros((8, 8), np.uint8))


def needs_pickle() -> None:
    np.savez("bad.npz", x=np.array([{"a": 1}], dtype=object))


def damaged_archive() -> None:
    np.savez("bad.npz", x=images())
    content = Path("bad.npz").read_bytes()
    Path("bad.npz").write_bytes(content[: len(content) // 2])


def not_an_image() -> None:
    photos()
    Path("photos/letter.png").write_text("Dear all", "utf-8")


def truncated() -> None:
    photos()
    content = Path("photos/1.png").read_bytes()
    Path("photos/1.png").write_bytes(content[: len(content) // 2])


def mixed_sizes() -> None:
    photos()
    save("photos/large.png", np.ones((9, 8), np.uint8))


def empty_folder() -> None:
    Path("photos").mkdir()


def other_files() -> None:
    Path("photos").mkdir()
    Path("photos/letter.txt").write_text("Dear all", "utf-8")


def bomb() -> None:
    """A PNG of 60,000 × 60,000 pixels, or so it says."""
    photos()

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    Path("photos/bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def one_picture() -> None:
    save("one.png", images()[0])


def animated() -> None:
    photos()
    first, second = (Image.fromarray(pixels) for pixels in images(2))
    first.save("photos/moving.gif", save_all=True, append_images=[second])


def wide() -> None:
    photos()
    save("photos/wide.png", np.ones((1, 30_000), np.uint8))


def encrypted() -> None:
    """The zip's flags say so, in both places where they stand."""
    np.savez("bad.npz", x=images())
    content = bytearray(Path("bad.npz").read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    Path("bad.npz").write_bytes(content)


def damaged_idx() -> None:
    Path("train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b" + bytes(20))


def names_that_break_lines() -> None:
    photos()
    Path("photos/a\nb'\"<script>.png").touch()
    Path(os.fsdecode(b"photos/\xff\xfe.jpg")).touch()


def loop_of_links() -> None:
    Path("photos/deeper").mkdir(parents=True)
    Path("photos/deeper/up").symlink_to(Path("photos").absolute(), target_is_directory=True)
    Path("photos/self.png").symlink_to("self.png")


def named_pipe() -> None:
    photos()
    os.mkfifo("photos/pipe.png")


def recordings(**more: np.ndarray) -> None:
    soundfile = pytest.importorskip("soundfile", reason="no soundfile is installed")
    Path("sounds").mkdir()
    for name, wave in {"good": np.sin(np.arange(800)), **more}.items():
        soundfile.write(f"sounds/{name}.wav", wave, 8000)


def silence() -> None:
    recordings(silence=np.zeros(800))


def header_without_sound() -> None:
    recordings(nothing=np.zeros(0))


def one_recording() -> None:
    recordings()


def both_kinds() -> None:
    recordings()
    save("sounds/cover.png", images()[0])


@pytest.mark.parametrize(
    ("make", "source", "method", "messages"),
    [
        (no_numbers, "bad.npy", "kmeans", ["NaN or infinity", "indices 1, 4"]),
        (limited_no_numbers, "bad.npy", "kmeans", ["NaN", "0, 1, 2, 3, 4 and 55 more"]),
        (blank, "bad.npy", "di-kmeans", ["2 of 6 images are blank", "index 2, 5;"]),
        (blank, "bad.npy", "ai-kmeans", ["2 of 6 images are blank", "index 2, 5;"]),
        (blank_file, "photos", "di-kmeans", ["1 of 4 images are blank", "void.png"]),
        (needs_pickle, "bad.npz", "kmeans", ["pickle"]),
        (damaged_archive, "bad.npz", "kmeans", ["bad.npz", "damaged"]),
        (not_an_image, "photos", "kmeans", ["1 of 4", "letter.png", "not a PNG", "--skip-bad"]),
        (truncated, "photos", "kmeans", ["1 of 3", "1.png", "--skip-bad"]),
        (mixed_sizes, "photos", "kmeans", ["8x8", "8x9", "--size"]),
        (empty_folder, "photos", "kmeans", ["no images"]),
        (other_files, "photos", "kmeans", ["no images", ".txt"]),
        (bomb, "photos", "kmeans", ["bomb.png", "a decompression bomb"]),
        (wide, "photos", "kmeans", ["30000x1", "8x8", "--size"]),
        (animated, "photos", "kmeans", ["1 of 4", "moving.gif", "animated"]),
        (encrypted, "bad.npz", "kmeans", ["bad.npz", "encrypted"]),
        (damaged_idx, "train-images-idx3-ubyte.gz", "kmeans", ["cannot be unpacked"]),
        (names_that_break_lines, "photos", "kmeans", ["2 of 5", r"\nb", "<script>", r"\udcff"]),
        (loop_of_links, "photos", "kmeans", ["1 of 1", "self.png", "symbolic links"]),
        (silence, "sounds", "kmeans", ["1 of 2 recordings", "silence.wav", "silent"]),
        (header_without_sound, "sounds", "kmeans", ["nothing.wav", "a header without sound"]),
        (one_recording, "sounds/good.wav", "kmeans", ["single recording"]),
        (one_recording, "sounds", "kmeans", ["recordings is 1, too few for 2 clusters"]),
        (both_kinds, "sounds", "kmeans", ["images and recordings"]),
        (photos, "tfds:../mnist", "kmeans", ["'tfds:../mnist' is no name of a set"]),
        (one_picture, "one.png", "kmeans", ["single image"]),
        (named_pipe, "photos", "kmeans", ["1 of 4", "pipe.png", "no regular file"]),
        (photos, "nowhere", "kmeans", ["nowhere", "does not exist"]),
        (photos, "", "kmeans", ["source must not be empty"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_sources(
    capsys: pytest.CaptureFixture[str],
    make: Callable[[], None],
    source: str,
    method: str,
    messages: list[str],
) -> None:
    make()
    error = refuse(capsys, *fit(source, "--method", method))
    assert not [message for message in messages if message not in error], error


def test_nothing_is_left_without_what_is_blank(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("blank.npy", np.zeros((4, 8, 8), np.uint8))
    error = refuse(capsys, *fit("blank.npy", "--skip-bad"))
    assert "all 4 images that can be read are blank, so --skip-bad leaves none" in error


def test_indices_are_the_sources_under_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("blank.npy", np.zeros((50, 8, 8), np.uint8))
    error = refuse(capsys, *fit("blank.npy", "--method", "di-kmeans", "--limit", "2"))
    chosen = diffclust.data.load("blank.npy", limit=2).indices
    assert chosen is not None
    assert f"index {chosen[0]}, {chosen[1]};" in error


def run_in(folder: str, **summary: object) -> None:
    Path(folder).mkdir()
    Path(folder, "summary.json").write_text(json.dumps(summary), "utf-8")


def test_out_that_holds_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    run_in("out", method="kmeans")
    # Before anything is read: there is no such source.
    error = refuse(capsys, *fit("nowhere"))
    assert "'out' holds another run" in error
    assert "--overwrite" in error


def test_a_sweep_is_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    run_in("out", method="kmeans", command="sweep", chosen="3")
    assert "only a sweep replaces" in refuse(capsys, *fit("good.npy", "--overwrite"))
    export = ("export", "out", "--what", "prototypes", "--out", "exported")
    assert "give its run, 'out/chosen'" in refuse(capsys, *export)
    run_in("unclear", method="kmeans", command="sweep", chosen=None)
    assert "it had no clear choice" in refuse(capsys, "export", "unclear", *export[2:])


@pytest.mark.parametrize("content", ["", "[]", '{"weather": "fine"}'])
def test_out_that_holds_something_else_is_never_replaced(
    capsys: pytest.CaptureFixture[str], content: str
) -> None:
    Path("out").mkdir()
    Path("out/thesis.tex").write_text("Dear all", "utf-8")
    Path("out/summary.json").write_text(content, "utf-8")
    for options in ([], ["--overwrite"]):
        assert "never replaced" in refuse(capsys, *fit("good.npy", *options))


def test_out_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").touch()
    assert "'file' is a file" in refuse(capsys, *fit("good.npy", "--out", "file"))
    assert "Not a directory" in refuse(capsys, *fit("good.npy", "--out", "file/run"))
    assert "must not be empty" in refuse(capsys, *fit("good.npy", "--out", ""))
    assert "mount point" in refuse(capsys, *fit("good.npy", "--out", "/", "--overwrite"))
    assert ": " in refuse(capsys, *fit("good.npy", "--out", "x" * 250))


def test_out_that_holds_what_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    run_in("out", method="kmeans")
    np.save("out/images.npy", images())
    error = refuse(capsys, *fit("out/images.npy", "--overwrite"))
    assert "'out/images.npy', which is read" in error
    error = refuse(capsys, "predict", "out", "good.npy", "--out", "out", "--overwrite")
    assert "'out', which is read" in error


def test_failed_overwrite_keeps_the_old_run(capsys: pytest.CaptureFixture[str]) -> None:
    run_in("out", method="kmeans")
    assert "images is 6" in refuse(capsys, *fit("good.npy", "-k", "9", "--overwrite"))


@pytest.fixture(scope="module")
def fitted(key: object) -> Result:
    return diffclust.KMeans(2, num_restarts=1, max_passes=1).fit(images(), key=key)


def test_models(capsys: pytest.CaptureFixture[str], fitted: Result) -> None:
    def predict(model: str, source: str = "good.npy") -> str:
        return refuse(capsys, "predict", model, source, "--out", "out")

    assert "'nowhere' does not exist" in predict("nowhere")
    assert "is a file" in predict("good.npy")
    Path("empty").mkdir()
    assert "holds no model" in predict("empty")

    diffclust.save("model", fitted)
    description = Path("model/model.json")
    text = description.read_text("utf-8")
    assert "'nowhere.npy' is no file" in predict("model", "nowhere.npy")
    description.write_text(text[:100], "utf-8")
    assert "is damaged" in predict("model")
    description.write_text(text.replace('"format": 2', '"format": 99'), "utf-8")
    assert "install a newer one" in predict("model")


def test_a_model_of_recordings_is_given_no_pictures(
    capsys: pytest.CaptureFixture[str], fitted: Result
) -> None:
    diffclust.save("model", fitted)
    Path("model/summary.json").write_text('{"method": "kmeans", "source": {"rate": 8000}}')
    photos()
    error = refuse(capsys, "predict", "model", "photos", "--out", "out")
    assert "'model' was fitted to recordings, and 'photos' holds none" in error


@pytest.mark.slow
def test_blank_images_are_refused_by_predict_too(
    capsys: pytest.CaptureFixture[str], key: jax.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diffclust.AffineInvariantKMeans, "aligner", quick_aligner)
    model = diffclust.AffineInvariantKMeans(2, num_restarts=1, max_passes=1, split_merge=False)
    diffclust.save("model", model.fit(images(), key=key))
    blank()
    error = refuse(capsys, "predict", "model", "bad.npy", "--out", "out")
    assert "index 2, 5;" in error


def test_a_process_ends_with_status_2_and_one_line(workplace: Path) -> None:
    damaged_archive()
    code = "import sys; from diffclust.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *fit("bad.npz")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: 'bad.npz' cannot be read")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in workplace.iterdir()) == ["bad.npz", "good.npy"]


def test_odd_names_are_written_as_they_are(workplace: Path) -> None:
    """Names with line breaks, quotes, tags and bytes that are no Unicode."""
    names = [b"a\nb.png", b"c'\".png", b"<script>alert(1)<", b"\xff\xfe,.png"]
    for name, pixels in zip(names, images(4), strict=True):
        folder = os.fsdecode(b"photos/" + name)
        save(os.path.join(folder, "one.png"), pixels)
    assert main([*fit("photos", "--restarts", "1", "--maps", "0")]) == 0
    with Path("out/assignments.csv").open(
        encoding="utf-8", errors="surrogateescape", newline=""
    ) as file:
        rows = list(csv.DictReader(file))
    written = sorted(os.fsencode(row["path"]) for row in rows)
    assert written == sorted(b"photos/" + name + b"/one.png" for name in names)
    report = Path("out/report.html").read_text("utf-8")
    assert "<script>alert" not in report
    # Each folder holds one image, and is a class.
    assert json.loads(Path("out/summary.json").read_text("utf-8"))["n"] == 4
