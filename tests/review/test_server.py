"""The review's server: who is let in, what is refused, and that nothing brings it down."""

import errno
import http.client
import json
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from diffclust.review.server import LARGEST_BODY, ReviewServer
from tests.review.made import CLUSTERS, COUNT, EVIL, fitted, reviewer_of


@pytest.fixture(scope="module")
def result_and_data() -> Any:
    return fitted()


class Client:
    """A browser, as far as the server can tell."""

    def __init__(self, server: ReviewServer) -> None:
        self.server, self.cookie, self.headers = server, server.cookie, {}

    def send(
        self, method: str, path: str, body: Any = None, **headers: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of the answer; a header that is None is left out."""
        connection = http.client.HTTPConnection(*self.server.server_address[:2], timeout=20)
        sent: dict[str, str | None] = {"Host": self.server.host, "Cookie": self.cookie}
        if method == "POST":
            sent |= {"Origin": f"http://{self.server.host}", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if content is not None and "Content-Length" not in sent:
            sent["Content-Length"] = str(len(content))
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(content)
        answer = connection.getresponse()
        result = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return result

    def get(self, path: str, **headers: str | None) -> tuple[int, Any]:
        status, _, content = self.send("GET", path, **headers)
        return status, json.loads(content)

    def post(self, path: str, body: Any = None, **headers: str | None) -> tuple[int, Any]:
        status, _, content = self.send("POST", path, body, **headers)
        return status, json.loads(content)

    def edit(self, revision: int, **edit: Any) -> tuple[int, Any]:
        return self.post("/edit", {"revision": revision, "edit": edit})


@pytest.fixture
def client(result_and_data: Any, tmp_path: Path) -> Iterator[Client]:
    with ReviewServer(reviewer_of(*result_and_data, tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield Client(server)
        server.shutdown()
        thread.join()


def saved(client: Client) -> tuple[int, int]:
    """Revision and number of edits."""
    review = client.server.reviewer.review()
    return review.revision, len(review.edits)


def test_the_token_is_exchanged_for_a_strict_cookie(client: Client) -> None:
    server = client.server
    assert server.address.startswith(f"http://{server.host}/?token=")
    assert server.server_address[0] == "127.0.0.1"
    path = server.address.removeprefix(f"http://{server.host}")
    status, headers, page = client.send("GET", path, Cookie=None)
    assert status == 200
    assert b'src="script.js"' in page
    assert server.token.encode() not in page
    assert headers["Set-Cookie"] == f"{server.cookie}; Path=/; HttpOnly; SameSite=Strict"
    # Another browser may open the same address, also from a link on another page.
    assert client.send("GET", path, Cookie=None, Sec_Fetch_Site="cross-site")[0] == 200
    assert server.token not in server.cookie


@pytest.mark.parametrize("token", ["", "wrong", "é", "%ff", "x" * 60_000])
def test_a_wrong_token_is_refused(client: Client, token: str) -> None:
    path = f"/?token={token}" if token.isascii() else "/?token=%C3%A9"
    status, headers, content = client.send("GET", path, Cookie=None)
    assert status == 403
    assert "Set-Cookie" not in headers
    assert b"<" not in content


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/state",
        "/script.js",
        "/members?cluster=0&page=0&order=nearest+first",
        "/picture?sample=0",
        "/similar?sample=0",
        "/nothing",
    ],
)
def test_nothing_without_the_cookie_or_for_other_origins(client: Client, path: str) -> None:
    name = client.cookie.split("=")[0]
    for cookie in (None, "", f"{name}=", f"{name}=wrong", client.cookie[:-1], f"{client.cookie}x"):
        assert client.get(path, Cookie=cookie)[0] == 403
    port = client.server.server_port
    for host in (None, f"localhost:{port}", "127.0.0.1", "evil.example", f"evil.example:{port}"):
        assert client.get(path, Host=host)[0] == 403
    for site in ("cross-site", "same-site"):
        assert client.get(path, Sec_Fetch_Site=site)[0] == 403
    known = client.send("GET", path, Cookie=f"other=1; {client.cookie}", Sec_Fetch_Site="none")
    assert known[0] == (404 if path == "/nothing" else 200)


@pytest.mark.parametrize("path", ["/edit", "/undo", "/export"])
def test_only_the_page_itself_changes_anything(client: Client, path: str) -> None:
    edit = {"kind": "name", "cluster": 0, "name": "x"}
    body = {"revision": 0, "edit": edit, "format": "Names"}
    host = client.server.host
    for origin in (None, "null", f"https://{host}", "http://evil.example", f"http://{host}.evil"):
        assert client.post(path, body, Origin=origin)[0] == 403
    assert client.post(path, body, Cookie=None)[0] == 403
    assert client.post(path, body, Host="evil.example")[0] == 403
    assert client.post(path, body, Sec_Fetch_Site="same-site")[0] == 403
    assert client.post(path, body, Content_Type="text/plain")[0] == 415
    assert client.get(f"{path}?revision=0")[0] == 404
    assert saved(client) == (0, 0)


def test_every_answer_has_the_headers_that_shut_others_out(client: Client) -> None:
    answers = [
        client.send("GET", "/"),
        client.send("GET", "/picture?sample=0"),
        client.send("GET", "/state", Cookie=None),
        client.send("POST", "/edit", {}),
        client.send("DELETE", "/state"),
        client.send("GET", "/style.css"),
    ]
    assert [status for status, *_ in answers] == [200, 200, 403, 400, 501, 200]
    for _, headers, _ in answers:
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Python" not in headers["Server"]


def test_samples_are_known_by_number(client: Client) -> None:
    status, headers, content = client.send("GET", f"/picture?sample={COUNT - 1}")
    assert (status, headers["Content-Type"]) == (200, "image/png")
    assert content.startswith(b"\x89PNG")
    for sample in (str(COUNT), "-1", "", "1.0", "0x1", "٣", "../0", "000.png", "9" * 30):
        quoted = sample.encode().hex("%")
        assert client.get(f"/picture?sample=%{quoted}" if quoted else "/picture?sample=")[0] == 404
    for path in (
        "/sound?sample=0",
        "/similar?sample=99999",
        "/members?cluster=9&page=0&order=as+they+came",
    ):
        assert client.get(path)[0] == 404
    for path in ("/../review.json", "/review.json", "/%2e%2e/script.js", "//script.js/..", "/page"):
        assert client.get(path)[0] == 404


def test_clusters_and_their_samples(client: Client, result_and_data: Any) -> None:
    result, _ = result_and_data
    state = client.get("/state")[1]
    assert [one["size"] for one in state["clusters"]] == result.counts.tolist()
    largest = int(result.counts.argmax())
    members = np.flatnonzero(result.assignments == largest)
    query = f"/members?cluster={largest}&page=0"
    actual = client.get(f"{query}&order=nearest+first")[1]
    nearest = members[np.argsort(result.distances[members], kind="stable")]
    assert [one["id"] for one in actual["samples"]] == nearest.tolist()
    assert state["clusters"][largest]["cover"] == nearest[:4].tolist()
    actual = client.get(f"{query}&order=as+they+came")[1]
    assert [one["id"] for one in actual["samples"]] == members.tolist()
    margins = [
        result.margins[one["id"]]
        for one in client.get(f"{query}&order=least+certain+first")[1]["samples"]
    ]
    assert margins == sorted(margins)
    assert client.get(f"{query[:-1]}5&order=as+they+came")[1]["samples"] == []
    assert client.get(f"{query}&order=size")[0] == client.get(query)[0] == 404
    # What a name holds is text, whatever it looks like.
    everything = [
        client.get(f"/members?cluster={k}&page=0&order=nearest+first")[1]["samples"]
        for k in range(CLUSTERS)
    ]
    assert EVIL.split("/")[-1] in {
        one["name"].split("/")[-1] for part in everything for one in part
    }


def test_more_like_one(client: Client, result_and_data: Any) -> None:
    _, dataset = result_and_data
    result = client.get("/similar?sample=7")[1]
    images = dataset.images.reshape(COUNT, -1)
    distances = np.linalg.norm(images - images[7], axis=1)
    order = [one["id"] for one in result["samples"]]
    assert order[0] == 7
    # Images of 8 x 8 are compared as they are.
    np.testing.assert_allclose(distances[order], np.sort(distances), rtol=1e-5)
    assert "pixels" in result["compared"]


def test_edits_count_up_and_are_undone(client: Client) -> None:
    status, state = client.edit(0, kind="name", cluster=1, name="<i>cat</i>")
    assert (status, state["revision"]) == (200, 1)
    assert state["clusters"][1]["name"] == "<i>cat</i>"
    assert state["undo"] == [{"kind": "name", "cluster": 1, "name": "<i>cat</i>"}]
    state = client.edit(1, kind="mark", samples=[3, 5], doubtful=True)[1]
    assert state["doubtful"] == 2
    result = client.get("/members?cluster=doubtful&page=0&order=as+they+came")[1]
    assert [(one["id"], one["doubtful"]) for one in result["samples"]] == [(3, True), (5, True)]
    state = client.edit(2, kind="move", samples=[3], to=None)[1]
    assert [one["size"] for one in state["clusters"]][-1] == 1
    state = client.edit(3, kind="merge", clusters=[0, CLUSTERS], into=1)[1]
    assert [one["id"] for one in state["clusters"]] == [1, 2]
    for revision in range(4, 8):
        status, state = client.post("/undo", {"revision": revision})
        assert (status, state["revision"]) == (200, revision + 1)
    assert [one["name"] for one in state["clusters"]] == [""] * CLUSTERS
    assert client.post("/undo", {"revision": 8}) == (400, {"error": "there is nothing to undo"})


def test_a_cluster_is_split_in_two(client: Client, result_and_data: Any) -> None:
    result, dataset = result_and_data
    largest = int(result.counts.argmax())
    status, state = client.edit(0, kind="split", cluster=largest)
    assert status == 200
    sizes = [one["size"] for one in state["clusters"]]
    assert sizes[-1] + sizes[largest] == result.counts[largest]
    assert 0 < sizes[-1] <= sizes[largest]
    # Each is nearer to the mean of its part.
    clusters = client.server.reviewer.review().labelling.clusters
    images = dataset.images.reshape(COUNT, -1)
    parts = [clusters == largest, clusters == CLUSTERS]
    means = np.stack([images[part].mean(axis=0) for part in parts])
    nearest = np.square(images[:, None] - means).sum(axis=2).argmin(axis=1)
    for number, part in enumerate(parts):
        assert set(nearest[part]) == {number}
    for cluster, status in ((99, 404), ("0", 400), (None, 400), ([0], 400), (True, 400)):
        assert client.edit(1, kind="split", cluster=cluster)[0] == status
    assert (
        client.edit(1, kind="move", samples=[int(np.flatnonzero(parts[0])[0])], to=None)[0] == 200
    )
    status, reply = client.edit(2, kind="split", cluster=CLUSTERS + 1)
    assert (status, "no two kinds" in reply["error"]) == (400, True)


def test_two_browsers(client: Client) -> None:
    assert client.edit(0, kind="name", cluster=0, name="one")[0] == 200
    other = Client(client.server)
    status, reply = other.edit(0, kind="name", cluster=0, name="two")
    assert status == 409
    assert "changed elsewhere" in reply["error"]
    assert other.post("/undo", {"revision": 0})[0] == 409
    assert other.edit(0, kind="split", cluster=0)[0] == 409
    assert other.get("/state")[1]["clusters"][0]["name"] == "one"
    assert saved(client) == (1, 1)


def test_of_many_at_once_one_succeeds(client: Client) -> None:
    statuses: list[int] = []

    def name(number: int) -> None:
        statuses.append(client.edit(0, kind="name", cluster=0, name=str(number))[0])

    threads = [threading.Thread(target=name, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [409] * 7
    assert saved(client) == (1, 1)


def test_two_processes_share_one_file(client: Client, result_and_data: Any, tmp_path: Path) -> None:
    other = reviewer_of(*result_and_data, tmp_path)
    other.edit(0, {"kind": "name", "cluster": 0, "name": "theirs"})
    assert client.edit(0, kind="name", cluster=0, name="ours")[0] == 409
    assert client.get("/state")[1]["clusters"][0]["name"] == "theirs"
    assert client.edit(1, kind="name", cluster=0, name="ours")[0] == 200
    assert other.review().edits[-1].name == "ours"  # pyright: ignore


def test_edits_outlive_the_server(client: Client, result_and_data: Any, tmp_path: Path) -> None:
    client.edit(0, kind="name", cluster=0, name="kept")
    assert reviewer_of(*result_and_data, tmp_path).state()["clusters"][0]["name"] == "kept"


def test_a_full_disk_changes_nothing(client: Client, tmp_path: Path) -> None:
    client.edit(0, kind="name", cluster=0, name="before")
    before = (tmp_path / "review.json").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        status, reply = client.edit(1, kind="name", cluster=0, name="after")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 507
    assert reply["error"] == "nothing was changed: it cannot be written (File too large)"
    assert saved(client) == (1, 1)
    assert (tmp_path / "review.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["review.json"]
    assert client.edit(1, kind="name", cluster=0, name="after")[0] == 200


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_failed_save_changes_nothing(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    client.edit(0, kind="name", cluster=0, name="before")
    before = (tmp_path / "review.json").read_bytes()

    def fail(*_: object) -> None:
        raise OSError(code, "cannot write")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        for path in ("/edit", "/undo"):
            edit = {"kind": "name", "cluster": 0, "name": "after"}
            status, reply = client.post(path, {"revision": 1, "edit": edit})
            assert status == (507 if code == errno.ENOSPC else 500)
            assert "nothing was changed" in reply["error"]
    assert saved(client) == (1, 1)
    assert (tmp_path / "review.json").read_bytes() == before
    assert client.edit(1, kind="name", cluster=0, name="after")[0] == 200


def test_exports_are_asked_for_by_name(client: Client) -> None:
    client.edit(0, kind="name", cluster=0, name="cat")
    assert client.post("/export", {"format": "Names"}) == (200, {"message": "cat, , "})
    for name in ("names", "../x", "", None, 5, ["Names"]):
        assert client.post("/export", {"format": name})[0] == 404


def test_a_huge_request_is_refused_unread(client: Client) -> None:
    for length in (LARGEST_BODY + 1, 10**15):
        # Only the head is sent: an answer comes all the same.
        status, reply = client.post("/edit", Content_Length=str(length))
        assert status == 413
        assert str(LARGEST_BODY) in reply["error"]
    for length in (None, "-1", "x", "1e3", "٣".encode().decode("latin-1"), "9" * 30):
        assert client.post("/edit", Content_Length=length)[0] == 411
    status, reply = client.post("/edit", b" " * LARGEST_BODY)
    assert status == 400
    many = {"revision": 0, "edit": {"kind": "move", "samples": [0] * 300_000, "to": 0}}
    assert len(json.dumps(many)) < LARGEST_BODY
    assert client.post("/edit", many)[0] == 200


def test_huge_heads_are_refused(client: Client) -> None:
    assert client.get(f"/{'x' * 100_000}")[0] == 414
    more = {f"X-{i}": "x" for i in range(200)}
    assert client.get("/state", **more)[0] == 431
    assert client.get("/state", X="x" * 100_000)[0] == 431
    assert client.get("/state")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"revision": "0"}',
        b'{"revision": true}',
        b'{"revision": 0.0}',
        b'{"revision": ' + b"9" * 5_000 + b"}",
        b'{"revision": 0, "edit": {"kind": "name", "cluster": 0, "name": "\\ud800"}}',
        b'{"revision": 0, "edit": {"kind": "name", "cluster": NaN, "name": ""}}',
    ],
)
def test_what_is_no_edit_is_refused(client: Client, body: bytes) -> None:
    status, reply = client.post("/edit", body)
    assert status == 400
    assert "\n" not in reply["error"]
    assert saved(client) == (0, 0)


def test_unknown_samples_and_clusters_are_404(client: Client) -> None:
    for edit in (
        {"kind": "move", "samples": [COUNT], "to": 0},
        {"kind": "move", "samples": [0], "to": 99},
        {"kind": "mark", "samples": [-1], "doubtful": True},
        {"kind": "name", "cluster": 99, "name": ""},
    ):
        assert client.edit(0, **edit)[0] == 404
    assert saved(client) == (0, 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = ("kind", "cluster", "clusters", "into", "samples", "to", "name", "doubtful")
KINDS = st.sampled_from(["name", "merge", "move", "mark", "split"])
ANY_EDIT = st.fixed_dictionaries(
    {"kind": KINDS}, optional={field: st.integers(-1, 70) | JSON for field in FIELDS[1:]}
)


def test_no_request_brings_it_down(client: Client) -> None:
    """300 requests of any edits, bodies, addresses and bytes: each is answered."""
    statuses = []

    @hypothesis.settings(max_examples=150)
    @hypothesis.given(
        st.sampled_from(["/edit", "/undo", "/export", "/x"]),
        st.fixed_dictionaries({"revision": st.integers(0, 3) | JSON, "edit": ANY_EDIT | JSON}),
    )
    def post(path: str, body: dict) -> None:
        statuses.append(client.post(path, body)[0])

    @hypothesis.settings(max_examples=75)
    @hypothesis.given(
        st.sampled_from(["members", "picture", "similar", "sound", "", "?token", "*"]),
        st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), max_size=30),
    )
    def get(path: str, query: str) -> None:
        statuses.append(client.send("GET", f"/{path}?{query}")[0])

    @hypothesis.settings(max_examples=75)
    @hypothesis.given(st.binary(max_size=200), st.booleans())
    def noise(content: bytes, begins: bool) -> None:
        head = b"POST /edit HTTP/1.1\r\n" if begins else b""
        with socket.create_connection(client.server.server_address[:2], timeout=20) as connection:
            connection.sendall(head + content)
            # Gone at once, without waiting for an answer.
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    for check in (post, get, noise):
        check()
    assert set(statuses) <= {200, 400, 403, 404, 409}
    assert len(statuses) >= 200
    assert client.get("/state")[0] == 200


def test_whoever_sends_nothing_is_sent_away(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffclust.review.server._Handler.timeout", 0.2)
    with socket.create_connection(client.server.server_address[:2], timeout=20) as connection:
        connection.sendall(b"GET /state HTTP/1.1\r\n")
        assert connection.recv(100) == b""
    assert client.get("/state")[0] == 200
