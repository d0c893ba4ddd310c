"""An S3 endpoint that strikes: a proxy before a real one, which mistreats its n-th HTTP request. So the retries of the clients take part.

| denied        | 403 instead of the request                                                                                   |
| error         | 500 instead of the request                                                                                   |
| busy          | 503 SlowDown instead of the request                                                                          |
| conflict      | 409 ConditionalRequestConflict to a conditional PUT                                                          |
| reset         | the connection breaks before the request is done                                                             |
| lost          | the connection breaks after the request is done                                                              |
| torn          | the connection breaks in the middle of the answer                                                            |
| slow          | the request is done at once, but its answer comes after the client's time-out                                |
| late          | no answer, and the request is done when the client has given up (`do_what_is_late`)                          |
| short         | half of the bytes, as if they were all                                                                       |
| gone          | 404, although the object is there                                                                            |
| stale         | from here on listings show the bucket as it was three changes ago                                            |
| down          | the connection breaks from here on; `down after`: this request is done                                       |
| revoked after | the request is done, but the connection breaks, and from here on everything but deleting is forbidden        |

With `always` in front of it the strike also hits what the client sends when it tries the same once more.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import parse_qs, unquote, urlsplit

_REPEATED = ("error", "busy", "conflict", "reset", "lost", "torn", "slow", "late")
STRIKES = ("denied", *_REPEATED, *(f"always {strike}" for strike in _REPEATED), "short", "gone", "stale", "down", "down after", "revoked after")
_UNRELIABLE = ("error", "busy", "reset", "lost", "torn", "late")
"""What happens to a store that keeps its promises."""
_ANSWERS = {
    "denied": (403, "AccessDenied"),
    "error": (500, "InternalError"),
    "busy": (503, "SlowDown"),
    "conflict": (409, "ConditionalRequestConflict"),
    "gone": (404, "NoSuchKey"),
}
_OWN_HEADERS = ("connection", "content-length", "date", "server", "transfer-encoding")
_MEMBER = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)


@dataclass(frozen=True)
class Request:
    """An HTTP request of a client."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.target}"

    @property
    def is_listing(self) -> bool:
        return self.method == "GET" and "list-type" in parse_qs(urlsplit(self.target).query)

    @property
    def key(self) -> str:
        """Bucket and key."""
        return unquote(urlsplit(self.target).path).strip("/")

    @property
    def is_conditional(self) -> bool:
        return self.method == "PUT" and any(name.lower() == "if-none-match" for name in self.headers)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


class StrikingEndpoint:
    """`arm` says what happens to which request; `requests` is what was asked for since then, in order."""

    def __init__(self, endpoint: str, timeout: float) -> None:
        """`timeout`: how long clients wait for an answer."""
        self._timeout = timeout
        self._host = urlsplit(endpoint).netloc
        self._local = threading.local()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.arm("denied", 0)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def arm(self, strike: str, at: int, random: Random | None = None, chance: float = 0.0) -> None:
        """`at`: the number of the request that is hit, counted from 1; 0: none. With `random` every request is struck with this chance, and
        what is late is done at some later time."""
        with self._lock:
            self.strike, self.at, self._random, self._chance = strike, at, random, chance
            self.requests: list[str] = []
            self.struck: str | None = None
            self._late: list[Request] = []
            self._changed: list[str] = []
            self._is_late = threading.Event()

    def calm(self) -> None:
        """No strikes from here on."""
        self.at, self._random = 0, None

    def do_what_is_late(self) -> None:
        while self._late:
            self.forward(self._late.pop(0))

    def serve(self, request: Request) -> tuple[Answer | None, int | None]:
        """The answer, and how many bytes of its body are sent before the connection breaks; None: all, and it stays."""
        strike = self._strike(request)
        again = strike.removeprefix("always ")
        if again in _ANSWERS:
            return _error(*_ANSWERS[again]), None
        match again:
            case "reset" | "down":
                return None, 0
            case "lost" | "down after" | "revoked after":
                self.forward(request)
                return None, 0
            case "late":
                if not self._late or self._random is not None:
                    self._late.append(request)
                self._is_late.wait(2 * self._timeout)
                return None, 0
            case "slow":
                answer = self.forward(request)
                self._is_late.wait(2 * self._timeout)
                return answer, None
        answer = self.forward(request)
        if again == "torn":
            return answer, len(answer.body) // 2
        if again == "short":
            return Answer(answer.status, answer.headers, answer.body[: len(answer.body) // 2]), None
        if self.strike == "stale" and 0 < self.at <= len(self.requests) and request.is_listing:
            return self._stale(request, answer), None
        return answer, None

    def _strike(self, request: Request) -> str:
        """What happens to a request; empty: nothing."""
        with self._lock:
            self.requests.append(str(request))
            number = len(self.requests)
            if request.method in ("PUT", "POST", "DELETE"):
                self._changed.append(request.key)
            if self._random is not None:
                if self._late and self._random.random() < 0.1:
                    self.forward(self._late.pop(self._random.randrange(len(self._late))))
                return self._random.choice(_UNRELIABLE) if self._random.random() < self._chance else ""
            if not 0 < self.at <= number:
                return ""
            if self.strike.startswith("down"):
                return self.strike if number == self.at else "down"
            if self.strike == "revoked after" and number > self.at:
                return "" if request.method == "DELETE" else "denied"
            if number == self.at and self._is_fit(request):
                self.struck = str(request)
                return self.strike
            return self.strike if self.strike.startswith("always") and str(request) == self.struck else ""

    def _is_fit(self, request: Request) -> bool:
        """Whether a store may answer this request so."""
        return request.is_conditional if self.strike.endswith("conflict") else self.strike != "gone" or request.method in ("GET", "HEAD")

    def _stale(self, request: Request, answer: Answer) -> Answer:
        bucket = request.key.encode()
        unseen = {key.encode() for key in self._changed[-3:]}
        body = _MEMBER.sub(lambda member: b"" if bucket + b"/" + member[1] in unseen else member[0], answer.body)
        return Answer(answer.status, answer.headers, body)

    def forward(self, request: Request) -> Answer:
        """What the real endpoint answers."""
        for attempt in (1, 2):
            connection: HTTPConnection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = HTTPConnection(self._host, timeout=30)
                connection.connect()
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                connection.request(request.method, request.target, request.body, request.headers)
                answer = connection.getresponse()
                body = answer.read()
                return Answer(answer.status, answer.getheaders(), body)
            except (HTTPException, OSError):  # a connection that was idle for too long
                connection.close()
                self._local.connection = None
                if attempt == 2:
                    raise
        raise AssertionError


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are what this is for."""


def _handler(endpoint: StrikingEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def handle_expect_100(self) -> bool:
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()
            return True

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("expect", "connection")}
            answer, sent = endpoint.serve(Request(self.command, self.path, headers, body))
            if answer is None:
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            head = {name.lower(): value for name, value in answer.headers}
            for name, value in answer.headers:
                if name.lower() not in _OWN_HEADERS:
                    self.send_header(name, value)
            length = head.get("content-length", "0") if self.command == "HEAD" else str(len(answer.body))
            if answer.status not in (204, 304):
                self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[:sent])
            self.wfile.flush()
            if sent is not None:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Silent."""

    serve: Callable[[Handler], None] = Handler._serve
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", serve)
    return Handler


def _error(status: int, code: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>struck</Message></Error>'
    return Answer(status, [("Content-Type", "application/xml")], body.encode())
