"""Folders of recordings: formats, rates and channels, and all that can be wrong with a file."""

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from diffclust.cli import main
from diffclust.data import DataError, PaddedSize, load, load_folder, load_recordings, spectrogram
from tests.data.bad_files import check_refused_or_skipped

try:
    import soundfile
except ImportError:
    pytest.skip("no soundfile is installed", allow_module_level=True)


def tone(rate: int = 48_000, seconds: float = 1.0, hertz: float = 600.0) -> np.ndarray:
    """A tone that swells and fades."""
    time = np.arange(round(rate * seconds)) / rate
    return 0.5 * np.sin(2 * np.pi * hertz * time) * np.hanning(len(time))


def save(path, wave, rate=48_000, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, wave, rate, **options)


@pytest.fixture
def folder(tmp_path):
    for name in ("a.wav", "b.flac", "c.ogg"):
        save(tmp_path / name, tone())
    return tmp_path


def test_formats(folder):
    calls = []
    dataset = load(folder, progress=lambda *call: calls.append(call))
    assert dataset.images.shape == (3, 64, 24, 1)
    assert dataset.images.dtype == np.float32
    assert dataset.paths == tuple(str(folder / name) for name in ("a.wav", "b.flac", "c.ogg"))
    assert dataset.labels is None
    assert calls == [(1, 3), (2, 3), (3, 3)]
    expected = spectrogram(tone(), 48_000)
    for image in dataset.images[:2]:
        np.testing.assert_allclose(image[..., 0], expected, atol=0.05)
    # Vorbis drops what is not heard.
    heard = expected > 0.5
    np.testing.assert_allclose(dataset.images[2, ..., 0][heard], expected[heard], atol=0.05)


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_rates(tmp_path, rate):
    save(tmp_path / "a.wav", tone(rate), rate, subtype="FLOAT")
    result = load(tmp_path, rate=48_000).images[0, ..., 0]
    expected = spectrogram(tone(), 48_000)
    heard = expected > 0.4
    np.testing.assert_allclose(result[heard], expected[heard], atol=0.02)


def test_pictures_of_telephone_speech_are_not_half_black(tmp_path):
    """Neither above what 8 kHz can hold nor before and after short words."""
    random = np.random.default_rng(0)
    for number, seconds in enumerate((0.35, 0.4, 0.4, 3.0)):
        rate = 8000 if number else 48_000
        save(tmp_path / f"{number}.wav", random.normal(0.0, 0.1, round(rate * seconds)), rate)
    (tmp_path / "bad.wav").write_bytes(b"RIFF")
    dataset = load(tmp_path, skip_bad=True)
    assert (dataset.noun, dataset.rate, dataset.seconds) == ("recording", 8000, 1.0)
    (tmp_path / "3.wav").unlink()
    dataset = load(tmp_path, skip_bad=True)
    assert (dataset.rate, dataset.seconds) == (8000, 0.4)
    assert (dataset.images > 0.3).mean() > 0.8
    given = load(tmp_path, skip_bad=True, rate=16_000, seconds=0.5)
    assert (given.rate, given.seconds) == (16_000, 0.5)
    assert given.take([1]).rate == 16_000


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_kinds_of_numbers(tmp_path, subtype):
    save(tmp_path / "a.wav", tone(), subtype=subtype)
    expected = spectrogram(tone(), 48_000)
    heard = expected > 0.5
    result = load(tmp_path).images[0, ..., 0]
    np.testing.assert_allclose(result[heard], expected[heard], atol=0.02)


def test_channels_are_mixed(tmp_path):
    left, right = tone(hertz=300), tone(hertz=3000)
    save(tmp_path / "a.wav", np.stack([left, right], axis=1), subtype="FLOAT")
    result = load(tmp_path).images[0, ..., 0]
    np.testing.assert_allclose(result, spectrogram((left + right) / 2, 48_000), atol=1e-3)
    save(tmp_path / "a.wav", np.stack([left, -left], axis=1))
    with pytest.raises(DataError, match=r"'a.wav' \(silent"):
        load(tmp_path)


def test_the_middle_is_taken_and_what_is_short_is_filled_up(tmp_path):
    loud = tone(seconds=1.0)
    long = np.concatenate([0.1 * tone(seconds=2.0, hertz=90), loud, 0.1 * tone(seconds=2.0)])
    save(tmp_path / "long.wav", long, subtype="FLOAT")
    save(tmp_path / "short.wav", tone(seconds=0.5), subtype="FLOAT")
    long, short = load(tmp_path).images[..., 0]
    np.testing.assert_allclose(long, spectrogram(loud, 48_000), atol=1e-3)
    assert not short[:, :5].any()
    assert not short[:, -5:].any()
    np.testing.assert_allclose(
        short[:, 8:16], spectrogram(np.pad(tone(seconds=0.5), 12_000), 48_000)[:, 8:16], atol=1e-3
    )


def test_size_rate_and_seconds(folder):
    result = load(folder, size=(20, 30), rate=16_000, seconds=0.5, channels=3)
    assert result.images.shape == (3, 20, 30, 3)
    save(folder / "low.wav", tone(16_000), 16_000, subtype="FLOAT")
    image = load_recordings(folder, size=(20, 30), rate=16_000).images[-1, ..., 0]
    hop = -(-16_000 // 30)
    expected = spectrogram(
        np.pad(tone(16_000), (10, hop * 30 - 16_010)), 16_000, bands=20, frames=30
    )
    np.testing.assert_allclose(image, expected, atol=1e-3)
    with pytest.raises(DataError, match="leave out --pad"):
        load(folder, size=PaddedSize(20, 30))


def test_labels_splits_and_limit(tmp_path):
    for name in ("train/one/a.wav", "train/two/b.wav", "test/one/c.wav", "test/two/d.flac"):
        save(tmp_path / name, tone(8000, 0.2), 8000)
    whole = load(tmp_path, rate=8000)
    assert whole.label_names == ("one", "two")
    np.testing.assert_array_equal(whole.labels, [0, 1, 0, 1])
    assert len(load(tmp_path, split="test", rate=8000)) == 2
    drawn = load(tmp_path, limit=2, seed=3, rate=8000)
    np.testing.assert_array_equal(drawn.indices, whole.limit(2, seed=3).indices)


def silent(path):
    save(path, np.zeros(8000), 8000)


def rounding(path):
    save(path, np.random.default_rng(0).integers(-1, 2, 8000).astype(np.int16), 8000)


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("no recording")


def header(path):
    save(path, np.zeros(0), 8000)


def header_that_promises(path):
    save(path, tone(), 48_000)
    path.write_bytes(path.read_bytes()[:44])


def truncated_wav(path):
    save(path, tone(), 48_000)
    path.write_bytes(path.read_bytes()[:50_000])


def truncated_flac(path):
    save(path, tone(), 48_000, format="FLAC")
    path.write_bytes(path.read_bytes()[:9000])


def truncated_ogg(path):
    save(path, tone(), 48_000, format="OGG")
    path.write_bytes(path.read_bytes()[:3000])


def no_numbers(path):
    wave = tone()
    wave[24_000] = np.nan
    save(path, wave, subtype="FLOAT")


def odd_rate(path):
    save(path, tone(), 48_000)
    content = bytearray(path.read_bytes())
    content[24:28] = struct.pack("<I", 3)
    path.write_bytes(content)


def mp3(path):
    path.write_bytes(b"ID3\x04" + bytes(200))


def broken_link(path):
    path.symlink_to(path.parent / "nowhere.wav")


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (silent, "silent"),
        (rounding, "silent"),
        (empty, "empty"),
        (text, "not a WAV, FLAC or OGG recording"),
        (header, "a header without sound"),
        (header_that_promises, "a header without sound"),
        (truncated_wav, "truncated"),
        (truncated_flac, "lost sync"),
        (truncated_ogg, "malformed"),
        (no_numbers, "NaN or infinite"),
        (odd_rate, "sampled at 3 Hz, not between 1 and 768 kHz"),
        (mp3, "not a WAV, FLAC or OGG recording"),
        (broken_link, "No such file"),
    ],
)
def test_bad_files_are_named_and_skipped_when_asked(folder, write, reason):
    write(folder / "bad.wav")
    check_refused_or_skipped(load, folder, "bad.wav", noun="recordings", reason=reason)


def test_a_stream_of_unknown_length_is_no_truncated_file(folder):
    """As programs write that cannot go back to the header."""
    content = bytearray((folder / "a.wav").read_bytes())
    content[4:8] = content[40:44] = b"\xff" * 4
    (folder / "a.wav").write_bytes(content)
    images = load(folder).images
    np.testing.assert_allclose(images[0], images[1], atol=0.05)


def test_recordings_of_other_formats_are_not_passed_over(folder):
    mp3(folder / "d.mp3")
    with pytest.raises(DataError, match=r"'d.mp3' \(not a WAV, FLAC or OGG recording\)"):
        load(folder)


def test_kinds_are_not_mixed(folder, tmp_path):
    Image.new("L", (4, 4)).save(folder / "cover.png")
    with pytest.raises(DataError, match=r"holds images and recordings; put them in folders"):
        load(folder)
    assert len(load_folder(folder)) == 1
    with pytest.raises(DataError, match="is a single recording, not a folder of them"):
        load(folder / "a.wav")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 10}, "rate must be between 1000 and 192000 samples a second: got 10"),
        ({"seconds": 0.0}, "seconds must be above 0 and at most 60: got 0"),
        ({"seconds": float("nan")}, "seconds must be above 0"),
        ({"size": (4, 100_000)}, "size has too many frames, 100000, for 1 s at 48000"),
        ({"split": "test"}, "has no splits; use split 'all', or sort the recordings"),
    ],
)
def test_settings_out_of_range(folder, options, message):
    with pytest.raises(DataError, match=message):
        load(folder, **options)


def test_settings_for_what_is_no_recording(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    for source in (tmp_path, "digits", "tfds:mnist", tmp_path / "a.npy"):
        for options in ({"rate": 8000}, {"seconds": 2.0}):
            with pytest.raises(DataError, match="is for a folder of recordings, and .* is none"):
                load(source, **options)


def test_without_soundfile(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(DataError, match=r"need soundfile .*pip install soundfile"):
        load(folder)


@pytest.mark.slow
def test_predict_makes_images_as_the_fit_did(tmp_path, monkeypatch, capsys):
    """The rate and the length are those of the fit unless told otherwise."""
    monkeypatch.chdir(tmp_path)
    for i, hertz in enumerate((300, 310, 2000, 2100)):
        save(tmp_path / "in" / f"{i}.wav", tone(8000, 0.3, hertz), 8000)
    settings = ["--size", "12x8", "--rate", "8000", "--seconds", "0.3"]
    fit = ["fit", "in", "-k", "2", "--method", "kmeans", "--restarts", "1", *settings]
    assert main([*fit, "--out", "run", "--no-report"]) == 0
    assert main(["predict", "run", "in", "--out", "again", "--no-report"]) == 0
    one, two = (
        np.genfromtxt(tmp_path / run / "assignments.csv", delimiter=",", names=True)
        for run in ("run", "again")
    )
    np.testing.assert_allclose(one["distance"], two["distance"], atol=1e-5)
    assert len(set(one["cluster"][:2])) == 1
    assert len(set(one["cluster"])) == 2


def test_the_rate_is_at_most_48_khz(tmp_path: Path) -> None:
    time = np.arange(96_000) / 96_000
    soundfile.write(tmp_path / "a.wav", 0.5 * np.sin(2 * np.pi * 600 * time), 96_000)
    assert load_recordings(tmp_path).rate == 48_000
