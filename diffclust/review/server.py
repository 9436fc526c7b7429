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
from urllib.parse import parse_qs, urlsplit

from diffclust.review.reviewer import Reviewer, StaleError

LARGEST_BODY = 2**20
"""Bytes of a request; the numbers of more than 100,000 samples."""

_SECONDS = 30.0
"""After which a connection that sends nothing is closed."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FILES = {
    "/script.js": ("text/javascript", "script.js"),
    "/style.css": ("text/css", "style.css"),
    "/report.css": ("text/css", "../report/style.css"),
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class RequestError(Exception):
    """A request that is refused, with the status that says why."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        """Names status and reason.

        Args:
            status: The status of the answer.
            message: The reason, in a line.
        """
        super().__init__(message)
        self.status = status


class ReviewServer(http.server.ThreadingHTTPServer):
    """Serves a review on 127.0.0.1, at a port that is free.

    Attributes:
        reviewer: What answers.
        host: Address and port.
        address: What opens the page; it holds the token.
        token: What tells who may open the page.
        cookie: The cookie that the token is exchanged for.
    """

    reviewer: Reviewer
    host: str
    address: str
    token: str
    cookie: str
    daemon_threads = True

    def __init__(self, reviewer: Reviewer) -> None:
        """Takes a port; `serve_forever` serves.

        Args:
            reviewer: What answers.
        """
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reviewer, self.host = reviewer, f"127.0.0.1:{self.server_port}"
        self.token, port = secrets.token_urlsafe(24), self.server_port
        self.address = f"http://{self.host}/?token={self.token}"
        # Browsers send the cookies of one port of a host to all others.
        self.cookie = f"diffclust-review-{port}={secrets.token_urlsafe(24)}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of browsers that have gone, and shows a fault of ours.

        Args:
            request: The connection.
            client_address: Where it is from.
        """
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: ReviewServer
    protocol_version = "HTTP/1.1"
    timeout = _SECONDS

    def version_string(self) -> str:
        """What the server calls itself."""
        return "diffclust"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: addresses may hold the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuses what is no HTTP request, or of another method, like everything else."""
        del explain
        self._send_json({"error": message or HTTPStatus(code).phrase}, HTTPStatus(code), close=True)

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
            return
        except RequestError as error:
            status, message = error.status, str(error)
        except StaleError as error:
            status, message = HTTPStatus.CONFLICT, str(error)
        except LookupError as error:
            status, message = HTTPStatus.NOT_FOUND, str(error)
        except (ValueError, RecursionError) as error:
            status, message = HTTPStatus.BAD_REQUEST, str(error)
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            full = error.errno in _FULL
            status = HTTPStatus.INSUFFICIENT_STORAGE if full else HTTPStatus.INTERNAL_SERVER_ERROR
            message = f"nothing was changed: it cannot be written ({error.strerror or error})"
        # After a refusal, what is left of the request's body would be taken for the next request.
        self._send_json({"error": " ".join(message.split())}, status, close=True)

    def _get(self) -> None:
        address = urlsplit(self.path)
        path, query = address.path, {k: v[-1] for k, v in parse_qs(address.query).items()}
        self._check_host()
        if path == "/" and "token" in query:
            if not _equal(query["token"], self.server.token):
                raise RequestError(HTTPStatus.FORBIDDEN, "this is not the address that was printed")
            self._send_page(with_cookie=True)
            return
        self._check_cookie()
        reviewer = self.server.reviewer
        if path == "/":
            self._send_page()
        elif path in _FILES:
            kind, name = _FILES[path]
            self._send(_file(name), f"{kind}; charset=utf-8")
        elif path == "/state":
            self._send_json(reviewer.state())
        elif path == "/members":
            cluster = None if query.get("cluster") == "doubtful" else _number(query, "cluster")
            order, page = query.get("order", "margin"), _number(query, "page")
            self._send_json(reviewer.members(cluster, order, page))
        elif path == "/similar":
            self._send_json(reviewer.similar(_number(query, "sample")))
        elif path in ("/picture", "/sound"):
            reviewer.check_sample(sample := _number(query, "sample"))
            if path == "/sound":
                self._send(reviewer.samples.sound(sample), "audio/flac")
            else:
                kind, content = reviewer.samples.picture(sample)
                # The address holds the session, so that another run's are not taken for these.
                self._send(content, kind, {"Cache-Control": "private, max-age=86400, immutable"})
        else:
            raise RequestError(HTTPStatus.NOT_FOUND, "there is nothing at this address")

    def _post(self) -> None:
        self._check_host()
        self._check_cookie()
        if self.headers.get("Origin") != f"http://{self.server.host}":
            raise RequestError(HTTPStatus.FORBIDDEN, "this request is from elsewhere")
        content, reviewer = self._body(), self.server.reviewer
        revision = content.get("revision")
        if self.path == "/export":
            self._send_json(reviewer.export(content.get("format")))
        elif self.path not in ("/edit", "/undo"):
            raise RequestError(HTTPStatus.NOT_FOUND, "there is nothing at this address")
        elif type(revision) is not int:
            raise RequestError(HTTPStatus.BAD_REQUEST, "an edit names the revision it is made of")
        elif self.path == "/edit":
            self._send_json(reviewer.edit(revision, content.get("edit")))
        else:
            self._send_json(reviewer.undo(revision))

    def _check_host(self) -> None:
        if self.headers.get_all("Host") != [self.server.host]:
            raise RequestError(HTTPStatus.FORBIDDEN, "this server has another name")

    def _check_cookie(self) -> None:
        """Refuses whoever has not opened the address with the token, and pages of other origins."""
        cookies = ";".join(self.headers.get_all("Cookie", [])).split(";")
        known = any(_equal(cookie.strip(), self.server.cookie) for cookie in cookies)
        site = self.headers.get("Sec-Fetch-Site", "none")
        if not known or site not in ("same-origin", "none"):
            message = "open the address that was printed, with its token"
            raise RequestError(HTTPStatus.FORBIDDEN, message)

    def _body(self) -> dict[str, Any]:
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not re.fullmatch("[0-9]{1,18}", lengths[0], re.ASCII):
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "give the length of the request once")
        if int(lengths[0]) > LARGEST_BODY:
            message = f"a request has at most {LARGEST_BODY} bytes; change fewer samples at once"
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        if self.headers.get_content_type() != "application/json":
            raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request is application/json")
        content = json.loads(self.rfile.read(int(lengths[0])).decode("utf-8"))
        if not isinstance(content, dict):
            raise ValueError("a request is a JSON object")
        return content

    def _send_page(self, *, with_cookie: bool = False) -> None:
        more = {}
        if with_cookie:
            more["Set-Cookie"] = f"{self.server.cookie}; Path=/; HttpOnly; SameSite=Strict"
        self._send(_file("page.html"), "text/html; charset=utf-8", more)

    def _send_json(
        self, content: Any, status: HTTPStatus = HTTPStatus.OK, *, close: bool = False
    ) -> None:
        more = {"Connection": "close"} if close else {}
        self._send(json.dumps(content).encode(), "application/json", more, status)

    def _send(
        self,
        content: bytes,
        kind: str,
        more: dict[str, str] | None = None,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(content))}
        headers |= {"Cache-Control": "no-store", **_HEADERS, **(more or {})}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _file(name: str) -> bytes:
    return resources.files("diffclust.review").joinpath(name).read_bytes()


def _equal(given: str, expected: str) -> bool:
    """Whether two texts are equal, in a time that does not tell where they differ."""
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _number(query: dict[str, str], name: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", query.get(name, ""), re.ASCII):
        raise RequestError(HTTPStatus.NOT_FOUND, f"{name} must be a number")
    return int(query[name])
