import sys
import types
from pathlib import Path

import numpy as np
import pytest

from diffclust.data import DataError, check_series, load_series
from diffclust.data.landmarks import table_of

SERIES = np.random.default_rng(0).normal(size=(4, 9, 2)).astype(np.float32)


def test_npz(tmp_path: Path) -> None:
    cut = SERIES.copy()
    cut[1, 6:] = np.nan
    np.savez(tmp_path / "walks.npz", series=cut, labels=np.array(["b", "a", "b", "a"]))
    result = load_series(tmp_path / "walks.npz")
    np.testing.assert_array_equal(result.series, cut)
    assert (result.name, result.label_names) == ("walks", ("a", "b"))
    np.testing.assert_array_equal(result.labels, [1, 0, 1, 0])
    few = result.take([2, 1])
    np.testing.assert_array_equal(few.indices, [2, 1])
    np.testing.assert_array_equal(few.series, cut[[2, 1]])
    given = load_series(tmp_path / "walks.npz", labels=[3, 3, 1, 1])
    np.testing.assert_array_equal(given.labels, [1, 1, 0, 0])


def test_csv_with_rows_of_different_lengths(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2,3\n4,5\n6,,8,\n")
    result = load_series(tmp_path / "a.csv").series[..., 0]
    nan = np.nan
    np.testing.assert_array_equal(result, [[1, 2, 3], [4, 5, nan], [6, nan, 8]])


def test_the_first_column_of_a_tsv_holds_the_classes(tmp_path: Path) -> None:
    """As the UCR archive stores series, with NaN after the end of shorter ones."""
    (tmp_path / "Walks_TRAIN.tsv").write_text("-1\t0.5\t2\t3e-1\n1\t4\t5\tNaN\n")
    assert table_of(tmp_path / "Walks_TRAIN.tsv") == "series"
    result = load_series(tmp_path / "Walks_TRAIN.tsv")
    np.testing.assert_allclose(result.series[..., 0], [[0.5, 2, 0.3], [4, 5, np.nan]])
    np.testing.assert_array_equal(result.labels, [0, 1])
    assert result.label_names == ("-1", "1")


def test_ts_is_read_by_aeon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.ts").write_text("@data\n1,2,3:one\n")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "aeon.datasets", None)
        with pytest.raises(DataError, match=r"'\.\[series\]'"):
            load_series(tmp_path / "a.ts")
    # As aeon 1.6 gives series of different lengths: a list, channels first.
    reader = types.ModuleType("aeon.datasets")
    cases = [SERIES[0].T, SERIES[1, :5].T]
    reader.load_from_ts_file = lambda path: (cases, np.array(["x", "y"]))
    monkeypatch.setitem(sys.modules, "aeon.datasets", reader)
    result = load_series(tmp_path / "a.ts")
    np.testing.assert_array_equal(result.series[0], SERIES[0])
    assert np.isnan(result.series[1, 5:]).all()
    assert result.label_names == ("x", "y")


@pytest.mark.parametrize(
    ("size", "cases", "values"),
    [
        ("@equalLength true\n@seriesLength 3", ["1,2,3", "3,2,1"], [[[1, 2, 3]], [[3, 2, 1]]]),
        (
            "@equalLength false\n@dimensions 2",
            ["1,2,3:0,1,0", "3,2:1,0"],
            [[[1, 2, 3], [0, 1, 0]], [[3, 2, np.nan], [1, 0, np.nan]]],
        ),
    ],
    ids=["one channel", "two channels"],
)
def test_a_ts_file_as_aeon_reads_it(
    tmp_path: Path, size: str, cases: list[str], values: list[list[list[float]]]
) -> None:
    pytest.importorskip("aeon.datasets", reason="no aeon")
    kind = "true" if "dimensions" not in size else "false"
    head = f"@problemName Walks\n@timestamps false\n@missing false\n@univariate {kind}\n{size}\n"
    lines = [f"{case}:{label}\n" for case, label in zip(cases, ("up", "down"), strict=True)]
    (tmp_path / "a.ts").write_text(f"{head}@classLabel true up down\n@data\n{''.join(lines)}")
    result = load_series(tmp_path / "a.ts")
    np.testing.assert_array_equal(result.series, np.asarray(values).transpose(0, 2, 1))
    np.testing.assert_array_equal(result.labels, [1, 0])
    assert result.label_names == ("down", "up")


@pytest.mark.parametrize("labels", [[], [0.5, 1.5]], ids=["none", "targets"])
def test_a_ts_file_may_have_no_classes(
    tmp_path: Path, labels: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As aeon returns them."""
    read = types.SimpleNamespace(load_from_ts_file=lambda _: (np.ones((2, 1, 3)), labels))
    monkeypatch.setitem(sys.modules, "aeon", types.SimpleNamespace(datasets=read))
    monkeypatch.setitem(sys.modules, "aeon.datasets", read)
    (tmp_path / "a.ts").write_text("")
    result = load_series(tmp_path / "a.ts")
    assert result.series.shape == (2, 3, 1)
    assert result.labels is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((3,)), "must have shape"),
        ([], "must have shape|numbers"),
        (np.full((2, 5), np.inf), "infinities"),
        (np.full((2, 5), np.nan), "fewer than two values at index"),
        ([["a", "b"]], "must hold numbers"),
    ],
)
def test_what_is_no_series_is_refused(values: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_series(values)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"a.csv' does not exist; give .* \(.npz, .csv, .tsv, .ts\)"
    ):
        load_series(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"is a folder; give the path of a file of series"):
        load_series(tmp_path)
    (tmp_path / "a.dat").write_text("1\t2\n")
    with pytest.raises(DataError, match=r"a.dat' is of no kind .*; give a file of .npz, .csv"):
        load_series(tmp_path / "a.dat")
    (tmp_path / "a.tsv").write_text("1\t2\t3\n0.5\t2\t3\n")
    with pytest.raises(DataError, match=r"holds 0.5, .* the class, an integer; .* as .csv"):
        load_series(tmp_path / "a.tsv")
    np.savez(tmp_path / "a.npz", other=SERIES)
    with pytest.raises(DataError, match="no key 'series'"):
        load_series(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"PK no")
    with pytest.raises(DataError, match=r"neither \.npy nor \.npz inside"):
        load_series(tmp_path / "b.npz")
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-9])
    with pytest.raises(DataError, match="cannot be read as"):
        load_series(tmp_path / "b.npz")
    np.save(tmp_path / "array.npy", np.ones((3, 9)))
    (tmp_path / "array.npy").rename(tmp_path / "b.npz")
    with pytest.raises(DataError, match=r"single array .* np\.savez\(path, series=series\)"):
        load_series(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", series=SERIES, labels=np.arange(3))
    with pytest.raises(DataError, match="labels"):
        load_series(tmp_path / "c.npz")


def test_tables_from_spreadsheets(tmp_path: Path) -> None:
    file = tmp_path / "sheet.csv"
    file.write_bytes(b"\xef\xbb\xbf0.5;;2\r\n1;nan;3\r\n;;\r\n")
    assert table_of(file) == "series"
    series = load_series(file).series[..., 0]
    np.testing.assert_array_equal(series, np.float32([[0.5, np.nan, 2], [1, np.nan, 3]]))
    # A series of which nothing is known counts; what follows the last one does not.
    file.write_text("1,2,3\n,,\n4,5,6\n,,\n")
    with pytest.raises(DataError, match="fewer than two values at index 1"):
        load_series(file)
    for missing in ("null", "None", "N/A", "na"):
        file.write_text(f"1,{missing},3\n4,5,6\n")
        assert table_of(file) == "series"
    file.write_text("\u22121,2,3\n4,inf,6\n", "utf-8")
    assert table_of(file) == "series"
    for text, hint in (("1,5;2,5;3", "write a decimal point"), ("1_0,2,3", "correct it")):
        file.write_text(f"{text}\n4,5,6\n")
        with pytest.raises(DataError, match=f"must be a number: got .*{hint}"):
            load_series(file)
    file.write_text(",t0,t1\n0,4,5\n")
    with pytest.raises(DataError, match="begins with a header .'', 't0', 't1'.*; remove it"):
        load_series(file)
    # As pandas writes them: with row names, or with a header alone, which may be a series.
    file.write_text(",0,1,2\n0,4,5,6\n1,7,8,8\n")
    with pytest.raises(DataError, match="counts 0, 1, 2, .* as a header does; write .*index=False"):
        load_series(file)
    file.write_text(",0,1\n0,4,5\n")
    with pytest.raises(DataError, match="counts 0, 1, 2, .* as a header does"):
        load_series(file)
    # The first series may lack its first value.
    file.write_text(",0,1,2\n0.5,4,5,6\n")
    assert np.isnan(load_series(file).series[0, 0, 0])
    file.write_text("0,1,2\n4,5,6\n7,8,8\n")
    with pytest.warns(match="counts 0, 1, 2, .* if it is a header, write the table without"):
        assert len(load_series(file)) == 3
    file.write_text("1,2,3\n4,x,6\n")
    with pytest.raises(DataError, match="value 2 of line 2 of .* must be a number: got 'x'"):
        load_series(file)


def test_digits_that_single_precision_would_lose_are_refused() -> None:
    waves = np.sin(np.linspace(0, 6, 20))[None] * np.array([[1.0], [2.0]])
    constant = np.full((1, 20), 0.1) + 1e-17 * waves[:1]
    assert check_series(np.concatenate([waves + 1e4, constant])).dtype == np.float32
    for lost in (waves + 1e8, 1e-23 * waves, 1e25 * waves):
        with pytest.raises(DataError, match="would lose their digits in float32 at index 0, 1"):
            check_series(lost)
    with pytest.raises(DataError, match="must hold numbers .not complex ones"):
        check_series(waves + 1j)


def test_longer_series_end_with_missing_values(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    np.savez(tmp_path / "a.npz", series=values)
    longer = load_series(tmp_path / "a.npz", length=8).series[..., 0]
    np.testing.assert_array_equal(longer, np.pad(values, ((0, 0), (0, 3)), constant_values=np.nan))
    assert load_series(tmp_path / "a.npz", length=2).series.shape == (3, 5, 1)
