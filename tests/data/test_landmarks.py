"""Landmarks from files, and their checks."""

from pathlib import Path

import numpy as np
import pytest

from diffclust.data import (
    DataError,
    LandmarkSet,
    check_landmarks,
    load_landmarks,
)
from diffclust.data.landmarks import table_of


def shapes(n: int = 5, k: int = 4, d: int = 2) -> np.ndarray:
    return np.round(np.random.default_rng(0).normal(size=(n, k, d)), 4)


def write(folder, name: str, text: str, **settings: str):
    path = folder / name
    path.write_bytes(text.encode(**settings))
    return path


def table(points: np.ndarray, names=None, marks=None, extra=None) -> str:
    """Long rows of some shapes."""
    axes = ["x", "y", "z"][: points.shape[2]]
    lines = [",".join(["shape", "landmark", *axes, *(extra or {})])]
    for i, shape in enumerate(points):
        for j, point in enumerate(shape):
            more = [str(column[i]) for column in (extra or {}).values()]
            name, mark = (names or range(99))[i], (marks or range(1, 99))[j]
            lines.append(",".join([str(name), str(mark), *map(str, point), *more]))
    return "\n".join(lines) + "\n"


def tps(points: np.ndarray, keys: list[str], head: str = "LM") -> str:
    blocks = []
    for shape, lines in zip(points, keys, strict=True):
        rows = "".join(" ".join(f"{value:.4f}" for value in point) + "\n" for point in shape)
        blocks.append(f"{head}={len(shape)}\n{rows}{lines}\n")
    return "".join(blocks)


def test_the_rats(data_dir):
    rats = load_landmarks(data_dir / "rats.npz", labels="age_days")
    assert rats.landmarks.shape == (144, 8, 2)
    assert rats.landmarks.dtype == np.float64
    assert sorted(rats.columns) == ["age_days", "individual"]
    assert rats.label_names is not None
    assert rats.labels is not None
    assert set(rats.label_names) == {"7", "14", "21", "30", "40", "60", "90", "150"}
    assert [rats.label_names[code] for code in rats.labels[:3]] == ["7", "14", "21"]
    assert rats.name == "rats"
    assert load_landmarks(data_dir / "rats.npz").labels is None


def test_npz(tmp_path):
    points = shapes()
    np.savez(
        tmp_path / "a.npz",
        landmarks=points.astype(np.float32),
        y=np.array([3.0, 1.0, 1.0, 3.0, 2.0]),
        names=np.array(list("abcde")),
        landmark_names=np.array(["tip", "left", "right", "end"]),
        site=np.array(list("nnsss")),
        about=np.array("a note"),
    )
    result = load_landmarks(tmp_path / "a.npz")
    np.testing.assert_array_equal(result.landmarks, points.astype(np.float32))
    np.testing.assert_array_equal(result.labels, [2, 0, 0, 2, 1])
    assert result.label_names == ("1", "2", "3")
    assert result.names == tuple("abcde")
    assert result.landmark_names == ("tip", "left", "right", "end")
    assert sorted(result.columns) == ["site", "y"]
    by_site = load_landmarks(tmp_path / "a.npz", labels="site", name="mine")
    np.testing.assert_array_equal(by_site.labels, [0, 0, 1, 1, 1])
    assert by_site.name == "mine"
    np.testing.assert_array_equal(
        load_landmarks(tmp_path / "a.npz", labels=[1, 1, 0, 0, 0]).labels, [1, 1, 0, 0, 0]
    )
    np.savez(tmp_path / "b.npz", points)
    assert load_landmarks(tmp_path / "b.npz").names == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize("d", [2, 3])
def test_csv(tmp_path, d):
    points = shapes(3, 11, d)
    text = table(points, ["b", "a", "c"], extra={"label": ["x", "y", "x"], "age": [7, 14, 7]})
    result = load_landmarks(write(tmp_path, "s.csv", text))
    np.testing.assert_array_equal(result.landmarks, points)
    assert result.names == ("b", "a", "c")
    assert result.landmark_names == tuple(str(i) for i in range(1, 12))
    np.testing.assert_array_equal(result.labels, [0, 1, 0])
    np.testing.assert_array_equal(result.columns["age"], [7, 14, 7])
    assert load_landmarks(tmp_path / "s.csv", labels="age").label_names == ("7", "14")


def test_csv_is_ordered_by_number_or_by_first_appearance(tmp_path):
    points = shapes(2, 11)
    lines = table(points).splitlines()
    shuffled = [lines[0], *np.random.default_rng(1).permutation(lines[1:]).tolist()]
    result = load_landmarks(write(tmp_path, "s.csv", "\n".join(shuffled)))
    assert result.names is not None
    order = [int(name) for name in result.names]
    np.testing.assert_array_equal(result.landmarks, points[order])
    named = load_landmarks(write(tmp_path, "n.csv", table(points[:, :3], marks=["z", "a", "m"])))
    assert named.landmark_names == ("z", "a", "m")
    np.testing.assert_array_equal(named.landmarks, points[:, :3])


@pytest.mark.parametrize(
    ("header", "landmarks"),
    [
        ("Y1,X1,y_10,x_10,y.2,x.2", ("1", "2", "10")),
        ("1.Y,1.X,10.Y,10.X,2.Y,2.X", ("1", "2", "10")),
        ("nose_y,nose_x,left ear_y,left ear_x,tail y,tail x", ("nose", "left ear", "tail")),
    ],
)
def test_csv_with_one_row_a_shape(tmp_path, header, landmarks):
    points = shapes(3, 3)
    rows = [",".join(map(str, point[:, ::-1].ravel())) for point in points]
    expected = points[:, [0, 2, 1]] if landmarks[0] == "1" else points
    plain = load_landmarks(write(tmp_path, "p.csv", "\n".join([header, *rows])))
    assert (plain.names, plain.landmark_names) == (("0", "1", "2"), landmarks)
    np.testing.assert_array_equal(plain.landmarks, expected)
    ends = [f"{header},,", f"{rows[0]},,note", f"{rows[1]},,,", rows[2]]
    ended = load_landmarks(write(tmp_path, "e.csv", "\n".join(ends)))
    assert (ended.names, dict(ended.columns)) == (plain.names, {})
    np.testing.assert_array_equal(ended.landmarks, expected)
    named = [f"{age},rat{age},{row}" for age, row in zip((7, 9, 7), rows, strict=True)]
    named[2] = named[2].replace("rat7", "rat8")
    text = "\n".join([f"age,Specimen,{header}", *named]).replace(",", "\t")
    result = load_landmarks(write(tmp_path, "n.csv", text), labels="age")
    assert (result.names, result.label_names) == (("rat7", "rat9", "rat8"), ("7", "9"))
    assert list(result.columns) == ["age"]
    np.testing.assert_array_equal(result.landmarks, expected)


def test_csv_with_one_row_a_shape_in_space_and_names_of_rows(tmp_path):
    points = shapes(2, 4, 3)
    header = '""' + "".join(f',"x{i}","y{i}","z{i}"' for i in range(4))
    rows = [
        f'"{name}",' + ",".join(map(str, p.ravel())) for name, p in zip("ab", points, strict=True)
    ]
    result = load_landmarks(write(tmp_path, "r.csv", "\n".join([header, *rows])))
    np.testing.assert_array_equal(result.landmarks, points)
    assert (result.names, dict(result.columns)) == (("a", "b"), {})


@pytest.mark.parametrize(
    ("values", "column", "classes"),
    [
        (["7", "14", "7"], np.array([7, 14, 7]), ("7", "14")),
        (["007", "7", "14"], np.array(["007", "7", "14"]), ("007", "14", "7")),
        (["1_1", "11", "1"], np.array(["1_1", "11", "1"]), ("1", "11", "1_1")),
        (["1.5", "2.5", "1.5"], np.array([1.5, 2.5, 1.5]), ("1.5", "2.5")),
        (["1.5", "nan", "1.5"], np.array([1.5, np.nan, 1.5]), ("1.5", "nan")),
        (["1.5", "1.50", "2"], np.array(["1.5", "1.50", "2"]), ("1.5", "1.50", "2")),
        (["1", "2", "inf"], np.array([1.0, 2.0, np.inf]), ("1", "2", "inf")),
        (["1" * 30, "1" * 29 + "2", "3"],) * 2 + (("1" * 30, "1" * 29 + "2", "3"),),
    ],
    ids=lambda value: "-".join(value)[:12] if isinstance(value, list) else "",
)
def test_labels_are_the_text_and_columns_keep_what_differs_apart(tmp_path, values, column, classes):
    triangle = shapes(3, 3)
    csv = write(tmp_path, "s.csv", table(triangle, extra={"label": values}))
    blocks = write(tmp_path, "s.tps", tps(triangle, [f"LABEL={value}" for value in values]))
    for path in (csv, blocks):
        result = load_landmarks(path)
        np.testing.assert_array_equal(result.columns["label"], column, strict=True)
        assert result.label_names == classes
        assert result.labels is not None
        # Nothing was joined.
        assert [classes[code] for code in result.labels] == values


def test_names_of_rows_and_of_bytes_are_no_columns(tmp_path):
    rows = [f'"{i}","s{i // 3}",{i % 3},{i * i},{i}' for i in range(6)]
    (tmp_path / "r.csv").write_text("\n".join(['"","shape","landmark","x","y"', *rows]))
    read = load_landmarks(tmp_path / "r.csv")
    assert (read.names, set(read.columns)) == (("s0", "s1"), set())
    kinds = [f'"k{i // 3}",' + row.split(",", 1)[1] for i, row in enumerate(rows)]
    (tmp_path / "k.csv").write_text("\n".join(['"","shape","landmark","x","y"', *kinds]))
    assert load_landmarks(tmp_path / "k.csv").columns[""].tolist() == ["k0", "k1"]
    np.testing.assert_array_equal(read.landmarks[1], [[9, 3], [16, 4], [25, 5]])
    np.savez(tmp_path / "b.npz", landmarks=read.landmarks, names=np.array([b"a", b"b"]))
    assert load_landmarks(tmp_path / "b.npz").names == ("a", "b")
    labels = np.array(["x", "y"], dtype=object)
    assert load_landmarks(tmp_path / "b.npz", labels=labels).label_names == ("x", "y")


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_csv_as_others_write_it(tmp_path, delimiter):
    points = shapes(2)
    text = table(points, ["Käfer", "b"]).replace("shape,landmark", "Shape, LANDMARK")
    text = "\n" + text.replace(",", delimiter).replace("\n", "\r\n")
    for encoding in ("utf-8-sig", "cp1252"):
        result = load_landmarks(write(tmp_path, "s.csv", text, encoding=encoding))
        np.testing.assert_array_equal(result.landmarks, points)
        assert result.names == ("Käfer", "b")


HEADER = "shape,landmark,x,y\n"
ROWS = "a,1,0,0\na,2,1,0\na,3,0,1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ROWS, r"must begin with a header .* got 'a', '1', '0', '0'; put it .* or x1, y1"),
        ("id,x,y\na,0,0\n", r"must begin with a header .* got 'id', 'x', 'y'; name them so"),
        ("id,x1,y1,x2\na,0,0,1\n", r"header of .* has 'x2' and no y of landmark '2'; give every"),
        ("id,a_x,a_y,X1,y1\na,0,0,1,1\n", r"at least 3 landmarks in at least 2 dimensions"),
        ("x1,y1,x1\n0,0,1\n", r"names 'x1' more than once"),
        ("x1,y1,x2,y2,x3,y3\n0,0,1\n", r"line 2 .* has 3 fields, and the header 6"),
        ("id,x1,y1,x2,y2,x3,y3\n" + 2 * "a,0,0,1,0,0,1\n", r"repeats landmark '1' of shape 'a'"),
        ("shape,landmark,x,y,x\n", r"names 'x' more than once"),
        (HEADER, r"holds a header and no rows"),
        (HEADER + ROWS + "b,1,0,0\nb,3,1,0\n", r"shape 'b' .* has 2 of 3 landmarks and lacks '2'"),
        (HEADER + ROWS + "a,2,3,3\n", r"line 5 .* repeats landmark '2' of shape 'a' from line 3"),
        (HEADER + ROWS + "b,1,0\n", r"line 5 .* has 3 fields, and the header 4"),
        (HEADER + ROWS + ",1,0,0\n", r"line 5 .* names no shape"),
        (HEADER + "a,1,zero,0\n", r"x of landmark '1' of shape 'a', line 2 .* got 'zero'"),
        ("shape;landmark;x;y\na;1;0,5;0\n", r"must be a number: got '0,5'; write a decimal point"),
        (HEADER + 'a,1,"0,0\n', r"is no row of a table"),
        (HEADER + ROWS.replace("1,0\n", "1,\n"), r"at 'a' \(landmarks '2' of the first"),
        (HEADER + ROWS.replace("2,1", "2,NaN"), r"1 of 1 shapes have missing, NaN or infinite"),
        (HEADER + ROWS.replace("2,1", "2,1e999"), r"at 'a' \(landmarks '2'"),
        (HEADER + "a,1,0,0\na,2,1,1\n", r"at least 3 landmarks in at least 2 dimensions"),
        (HEADER + "a,1,5,5\na,2,5,5\na,3,5,5\n", r"all lie in one point in 1 of 1 shapes, at 'a'"),
        (
            "shape,landmark,x,y,label\na,1,0,0,u\na,2,1,0,v\n",
            r"'label' must have one value for a shape: shape 'a' .* has 'u' and 'v'",
        ),
        ("\n \n", "is empty"),
        (HEADER + "a,1,\0,0\n", "is no text"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as error:
        load_landmarks(write(tmp_path, "bad.csv", text))
    assert "bad.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_tps(tmp_path):
    points = shapes(3, 5)
    keys = [f"IMAGE=c:\\skull {i}.jpg\nID=7{i}\nSCALE=0.5\nCOMMENT=Café" for i in range(3)]
    text = "# measured twice\n" + tps(points, keys).replace("LM=5", "lm = 5", 1) + '"the end"\n'
    for path in (
        write(tmp_path, "unix.tps", text),
        write(tmp_path, "windows.TPS", text.replace("\n", "\r\n"), encoding="cp1252"),
    ):
        result = load_landmarks(path)
        np.testing.assert_allclose(result.landmarks, points / 2, rtol=1e-14)
        assert result.names == ("70", "71", "72")
        np.testing.assert_array_equal(result.scales, [0.5, 0.5, 0.5])
        np.testing.assert_array_equal(result.columns["id"], [70, 71, 72])
        assert result.columns["image"][1] == r"c:\skull 1.jpg"
        assert result.columns["comment"][2] == "Café"
    plain = load_landmarks(path, use_scale=False, labels="id")
    np.testing.assert_array_equal(plain.landmarks, points)
    assert plain.scales is None
    assert plain.label_names == ("70", "71", "72")


def test_tps_in_space_and_names_from_images(tmp_path):
    points = shapes(2, 4, 3)
    text = tps(points, ["ID=0\nIMAGE=a.ply\n", "ID=0\nIMAGE=b.ply\n"], "LM3")
    result = load_landmarks(write(tmp_path, "s.tps", text))
    np.testing.assert_array_equal(result.landmarks, points)
    assert result.names == ("a.ply", "b.ply")


def test_minus_one_in_one_coordinate_is_no_missing_landmark(tmp_path):
    points = np.array([[[-1.0, 0.0], [0.0, -1.0], [-1.0, 1.0]]])
    result = load_landmarks(
        write(tmp_path, "s.tps", tps(points, ["ID=a\nSCALE=1\nSCALE=2"])), use_scale=False
    )
    np.testing.assert_array_equal(result.landmarks, points)


def test_curves_of_tps_are_refused_or_appended(tmp_path):
    points = shapes(2, 7)
    curve = "CURVES=2\nPOINTS=2\n{}\n{}\nPOINTS=1\n{}\nID={}"
    keys = [
        curve.format(*(" ".join(map(str, p)) for p in shape[4:]), i)
        for i, shape in enumerate(points)
    ]
    path = write(tmp_path, "s.tps", tps(points[:, :4], keys))
    with pytest.raises(
        DataError, match=r"shape '0' \(line 1\) .* curves; remove them.* curves='append'"
    ):
        load_landmarks(path)
    np.testing.assert_array_equal(load_landmarks(path, curves="append").landmarks, points)
    with pytest.raises(DataError, match=r"curves must be one of refuse, append: got 'drop'"):
        load_landmarks(path, curves="drop")


TRIANGLE = "LM=3\n0 0\n1 0\n0 1\nID=a\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TRIANGLE + "LM=4\n0 0\n1 0\n0 1\n1 1\nID=b\n",
            r"shape 'b' \(line 6\) .* has 4 landmarks in 2 .*'a' \(line 1\) has 3 landmarks",
        ),
        (TRIANGLE + "LM3=3\n0 0 0\n1 0 0\n0 1 0\n", r"line 6 .* in 3 dimensions, and .* in 2"),
        (TRIANGLE.replace("LM=3", "LM=4"), r"ends 1 lines of coordinates short"),
        ("LM=3\n0 0\n1 0\n", r"the shape of line 1 .* ends 1 lines of coordinates short"),
        (TRIANGLE.replace("LM=3", "LM=2"), r"line 4 .* is neither KEY=value nor coordinates"),
        (TRIANGLE.replace("1 0", "1 0 0"), r"line 3 .* must hold 2 coordinates: got '1 0 0'"),
        (TRIANGLE.replace("1 0", "1 o"), r"line 3 .* must be a number: got 'o'; correct it"),
        (TRIANGLE.replace("1 0", "NA NA"), r"at 'a' \(landmarks 1 of the first"),
        (
            TRIANGLE.replace("1 0", "-1 -1"),
            r"landmark 1 \(counted from 0\) of shape 'a' .* missing: in a \.tps file -1 -1 ",
        ),
        (
            "LM3=3\n0 0 0\n1 0 0\n-1.0 -1.0 -1.0\nID=b\nLM3=3\n-1 -1 -1\n1 0 0\n0 1 0\nID=c\n",
            r"landmark 2 .* of shape 'b' .* missing, and so are 1 more: .* -1 -1 -1 means that",
        ),
        (TRIANGLE.replace("1 0", "1,2"), r"must hold 2 coordinates.* got '1,2'; .* for commas"),
        (TRIANGLE.replace("1 0", "1,2 0"), r"got '1,2'; write a decimal point, not a comma"),
        (TRIANGLE + "SCALE=2\nSCALE=2\n", r"shape 'a' .* repeats SCALE=: got '2; 2'; keep one"),
        (TRIANGLE.replace("LM=3", "LM=three"), r"LM= in line 1 .* number of points: got 'three'"),
        ("ID=a\n" + TRIANGLE, r"line 1 .* comes before any LM="),
        ("# nothing\n", r"holds no LM= or LM3="),
        (TRIANGLE + "SCALE=2\n" + TRIANGLE, r"has no SCALE=, which 1 other .*use_scale=False"),
        (TRIANGLE + "SCALE=0\n", r"SCALE= of shape 'a' .* must be a positive number: got '0'"),
        (TRIANGLE + "SCALE=0,1\n", r"must be a number: got '0,1'; write a decimal point"),
    ],
)
def test_bad_tps_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as error:
        load_landmarks(write(tmp_path, "bad.tps", text))
    assert "bad.tps" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_file_of_landmarks(tmp_path):
    for name, message in [
        ("missing.csv", r"does not exist; give .* \(\.npz, \.csv, \.tps\)"),
        ("", "is a folder"),
        ("a.txt", r"is of no kind .* \.npz, \.csv, \.tps"),
        ("empty.tps", "is empty"),
        ("empty.npz", "is empty"),
        ("text.npz", r"neither \.npy nor \.npz inside"),
    ]:
        if name.startswith(("a.", "empty", "text")):
            write(tmp_path, name, "hello" if name[0] in "at" else "")
        with pytest.raises(DataError, match=message):
            load_landmarks(tmp_path / name)


def test_bad_npz_is_refused(tmp_path):
    points = shapes()
    broken = points.copy()
    broken[2, 1, 0] = np.nan
    ragged = np.array([np.ones((3, 2)), np.ones((4, 2))], dtype=object)
    for arrays, message in [
        ({"x": points, "y": np.arange(5)}, r"no key 'landmarks': it holds 'x', 'y'"),
        ({"landmarks": broken}, r"1 of 5 shapes have .* at 2 \(landmarks 1 of"),
        ({"landmarks": points[0]}, r"must be \[n, landmarks, dims\].*got \[4, 2\]; use"),
        ({"landmarks": points[:, :2]}, r"at least 3 landmarks"),
        ({"landmarks": points > 0}, r"must hold numbers: got dtype bool"),
        ({"landmarks": shapes(2, 3, 4)}, r"coordinates come last"),
        ({"landmarks": ragged}, r"needs pickle.* np\.savez\(path, landmarks=landm"),
        ({"landmarks": points, "labels": np.full(5, 0.5)}, r"must be integers or strings"),
        ({"landmarks": points, "labels": np.arange(4)}, r"one label for each of the 5 shapes"),
    ]:
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(DataError, match=message):
            load_landmarks(tmp_path / "bad.npz")
    # Names of pictures are no pictures, and labels may be a column.
    column = {"labels": np.arange(5)[:, None], "images": np.array(list("abcde"))}
    np.savez(tmp_path / "good.npz", landmarks=points, **column)
    assert table_of(tmp_path / "good.npz") == "landmarks"
    assert load_landmarks(tmp_path / "good.npz").labels.tolist() == [0, 1, 2, 3, 4]
    np.savez(tmp_path / "good.npz", landmarks=points, labels=np.array(3), label=np.arange(5))
    other = load_landmarks(tmp_path / "good.npz", labels="label")
    assert list(other.columns) == ["label"]
    np.savez(tmp_path / "good.npz", landmarks=points, images=np.zeros((5, 4, 4)))
    assert table_of(tmp_path / "good.npz") is None
    np.savez(tmp_path / "good.npz", landmarks=points, site=np.array(["a", "", "b", "c", "d"]))
    with pytest.raises(DataError, match=r"no column 'age' .* its columns are 'site'; name one"):
        load_landmarks(tmp_path / "good.npz", labels="age")
    np.savez(tmp_path / "bare.npz", landmarks=points)
    with pytest.raises(DataError, match=r"no column 'age' .*: it has no such columns\."):
        load_landmarks(tmp_path / "bare.npz", labels="age")
    with pytest.raises(DataError, match=r"column 'site' .* is empty for shape 1"):
        load_landmarks(tmp_path / "good.npz", labels="site")
    with pytest.raises(DataError, match=r"labels must hold one label for each of the 5 shapes"):
        load_landmarks(tmp_path / "good.npz", labels=[0, 1])


def test_lines_and_points():
    points = shapes(4, 5)
    # Two landmarks in one place are fine, as long as not all are.
    points[0, 1] = points[0, 0]
    np.testing.assert_array_equal(check_landmarks(points), points)
    points[2] = np.linspace(-1, 1, 5)[:, None] * np.array([0.3, 0.7]) + 1000.0
    for dtype in (np.float32, np.float64):
        with pytest.raises(DataError, match=r"lie on one line: they do in 1 of 4 shapes, at 2;"):
            check_landmarks(points.astype(dtype))
        assert check_landmarks(points.astype(dtype), collinear="accept").dtype == np.float64
    points[1] = 0.1
    points[3] = 0.2
    with pytest.raises(DataError, match=r"in one point in 2 of 4 shapes, at 'b', 'd'"):
        check_landmarks(points, collinear="accept", shapes="abcd")
    with pytest.raises(DataError, match=r"one array .* different numbers of landmarks"):
        check_landmarks([np.ones((3, 2)), np.ones((4, 2))])
    # A thin triangle is no line.
    thin = np.array([[[0.0, 0.0], [1.0, 0.0], [0.5, 1e-4]]])
    np.testing.assert_array_equal(check_landmarks(thin), thin)


def test_take_keeps_what_is_known(tmp_path):
    points = shapes(4)
    keys = [f"ID=s{i}\nSCALE={i + 1}\nSEX={'mf'[i % 2]}" for i in range(4)]
    whole = load_landmarks(write(tmp_path, "s.tps", tps(points, keys)), labels="sex")
    part = whole.take([3, 0])
    assert part.names == ("s3", "s0")
    np.testing.assert_array_equal(part.landmarks, whole.landmarks[[3, 0]])
    np.testing.assert_array_equal(part.labels, [0, 1])
    np.testing.assert_array_equal(part.scales, [4.0, 1.0])
    np.testing.assert_array_equal(part.columns["sex"], ["f", "m"])
    np.testing.assert_array_equal(part.take([1]).indices, [0])
    assert len(whole.take(np.array([True, False, False, True]))) == 2
    with pytest.raises(DataError, match=r"labels must have one entry for each shape: got 3 for 4"):
        LandmarkSet(whole.landmarks, labels=np.arange(3), columns={"labels": np.arange(4)})
    with pytest.raises(DataError, match=r"landmarks must be float64 .*check_landmarks"):
        LandmarkSet(whole.landmarks.astype(np.float32))


def test_ids_that_some_shapes_lack_are_no_names(tmp_path: Path) -> None:
    (tmp_path / "a.tps").write_text(
        "LM=3\n0 0\n1 0\n0 1\nIMAGE=a.jpg\nLM=3\n0 0\n2 0\n0 1\nIMAGE=b.jpg\nID=7\n"
    )
    assert load_landmarks(tmp_path / "a.tps").names == ("a.jpg", "b.jpg")
