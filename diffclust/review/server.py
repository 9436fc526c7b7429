"""The page's server: for this machine and this person alone.

It listens on 127.0.0.1 at a free port. Whoever opens the address with its token is given a cookie,
which everything else asks for. A request must name the server as its host, and one that changes
something must come from the page itself; so neither other sites nor names that resolve to this
machine get anything. GET changes nothing. Samples are named by their numbers, files never.
"""

import errno
import http.server
import json
import re
import secrets
import sys
from collections.abc import Callable
from http import HTTPStatus
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from diffclust.review.reviewer import Reviewer, StaleError

LARGEST_BODY = 2**20
"""Bytes of a request; the numbers of more than 100,000 samples."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; media-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CACHED = {"Cache-Control": "private, max-age=86400, immutable"}
"""Of pictures: their address holds the session, so that another run's are not taken for these."""

_FILES = {
    "/": ("text/html; charset=utf-8", "page.html"),
    "/script.js": ("text/javascript; charset=utf-8", "script.js"),
    "/style.css": ("text/css; charset=utf-8", "style.css"),
    "/report.css": ("text/css; charset=utf-8", "../report/style.css"),
}
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STATUS = {StaleError: 409, LookupError: 404, ValueError: 400, RecursionError: 400}


class RefusedError(Exception):
    """A request that is refused, with the status and a line that says why."""


class ReviewServer(http.server.ThreadingHTTPServer):
    """Serves what a `Reviewer` answers, at the address that `address` has, with its token."""

    daemon_threads = True

    def __init__(self, reviewer: Reviewer) -> None:
        """Takes a port that is free; `serve_forever` serves.

        Args:
            reviewer: What answers.
        """
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reviewer, self.host = reviewer, f"127.0.0.1:{self.server_port}"
        self.token = secrets.token_urlsafe(24)
        self.address = f"http://{self.host}/?token={self.token}"
        # Browsers send the cookies of one port of a host to all others.
        self.cookie = f"diffclust-review-{self.server_port}={secrets.token_urlsafe(24)}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of browsers that have gone, and shows a fault of ours.

        Args:
            request: The connection.
            client_address: Where it is from.
        """
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    """A handler of one connection."""

    server: ReviewServer
    protocol_version, server_version, sys_version = "HTTP/1.1", "diffclust", ""
    timeout = 30.0  # seconds, after which a connection that sends nothing is closed

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: addresses may hold the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuses a request; nothing that follows it on the connection is read."""
        del explain
        # What is left of the request's body would be taken for the next request.
        content = json.dumps({"error": " ".join((message or HTTPStatus(code).phrase).split())})
        self._send("application/json", content.encode(), {"Connection": "close"}, code)

    def do_GET(self) -> None:
        """Answers what changes nothing."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Answers what may change something."""
        self._answer(self._post)

    def _answer(self, answer: Callable[[], None]) -> None:
        """Answers, or says in a line why not."""
        try:
            answer()
        except RefusedError as error:
            self.send_error(*error.args)
        except tuple(_STATUS) as error:
            kind = next(kind for kind in _STATUS if isinstance(error, kind))
            self.send_error(_STATUS[kind], str(error))
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            reason = f"nothing was changed: it cannot be written ({error.strerror or error})"
            if error.errno == errno.ENOENT and error.filename is not None:
                reason = (
                    f"nothing was changed: {str(error.filename)!r} is gone; if it is elsewhere "
                    "now, start the review again with --source"
                )
            self.send_error(507 if error.errno in _DISK_FULL else 500, reason)

    def _get(self) -> None:
        address, reviewer = urlsplit(self.path), self.server.reviewer
        path, query = address.path, dict(parse_qsl(address.query))
        given = query.get("token") if path == "/" else None
        self._check_origin(with_cookie=given is None)
        if path in _FILES:
            kind, name = _FILES[path]
            more = {"Set-Cookie": f"{self.server.cookie}; Path=/; HttpOnly; SameSite=Strict"}
            known = given is None or _equal(given, self.server.token)
            _require(known, 403, "this is not the address that was printed")
            content = resources.files("diffclust.review").joinpath(name).read_bytes()
            self._send(kind, content, {} if given is None else more)
        elif path == "/state":
            self._send_json(reviewer.state())
        elif path == "/members":
            cluster = None if query.get("cluster") == "doubtful" else _number(query, "cluster")
            page = _number(query, "page")
            self._send_json(reviewer.members(cluster, query.get("order", ""), page))
        elif path == "/similar":
            self._send_json(reviewer.similar(_number(query, "sample")))
        elif path == "/picture":
            self._send(*reviewer.samples.picture(_number(query, "sample")), _CACHED)
        elif path == "/sound":
            self._send("audio/flac", reviewer.samples.sound(_number(query, "sample")))
        else:
            raise LookupError("there is nothing at this address")

    def _post(self) -> None:
        self._check_origin()
        content, reviewer = self._body(), self.server.reviewer
        revision = content.get("revision")
        if self.path == "/export":
            self._send_json(reviewer.export(content.get("format")))
        elif self.path not in ("/edit", "/undo"):
            raise LookupError("there is nothing at this address")
        elif type(revision) is not int:
            raise ValueError("an edit names the revision it is made of")
        elif self.path == "/edit":
            self._send_json(reviewer.edit(revision, content.get("edit")))
        else:
            self._send_json(reviewer.undo(revision))

    def _check_origin(self, *, with_cookie: bool = True) -> None:
        """Refuses other names of this machine, pages elsewhere, and who never had the token."""
        known = self.headers.get_all("Host") == [self.server.host]
        if with_cookie:
            cookies = ";".join(self.headers.get_all("Cookie", [])).split(";")
            known &= any(_equal(cookie.strip(), self.server.cookie) for cookie in cookies)
            known &= self.headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none")
        if self.command == "POST":
            known &= self.headers.get("Origin") == f"http://{self.server.host}"
        _require(known, 403, "open the address that was printed, with its token")

    def _body(self) -> dict[str, Any]:
        """The object that a request holds; one that is too large is not read."""
        lengths = self.headers.get_all("Content-Length", [])
        known = len(lengths) == 1 and _is_number(lengths[0], 18)
        _require(known, 411, "give the length of the request once")
        message = f"a request has at most {LARGEST_BODY} bytes; change fewer samples at once"
        _require(int(lengths[0]) <= LARGEST_BODY, 413, message)
        is_json = self.headers.get_content_type() == "application/json"
        _require(is_json, 415, "a request is application/json")
        content = json.loads(self.rfile.read(int(lengths[0])).decode("utf-8"))
        _require(isinstance(content, dict), 400, "a request is an object")
        return content

    def _send_json(self, content: Any) -> None:
        self._send("application/json", json.dumps(content).encode())

    def _send(
        self, kind: str, content: bytes, more: dict[str, str] | None = None, status: int = 200
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(content))}
        for name, value in {**headers, **_HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _require(holds: bool, status: int, message: str) -> None:
    if not holds:
        raise RefusedError(status, message)


def _equal(given: str, expected: str) -> bool:
    """Whether two texts are equal, in a time that does not tell where they differ."""
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _is_number(text: str, digits: int) -> bool:
    return re.fullmatch(f"[0-9]{{1,{digits}}}", text) is not None


def _number(query: dict[str, str], name: str) -> int:
    _require(_is_number(query.get(name, ""), 9), 404, f"{name} must be a number")
    return int(query[name])
