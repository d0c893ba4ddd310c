"""Moto's S3 with conditional requests that are atomic, run by the Python that has moto: `python moto_server.py PORT [WRITTEN]`.

Moto serves every request in a thread of its own and looks whether an object is there before it stores one, so two threads can both be first.
Here one request at a time changes anything. `WRITTEN` is a file that gets the port when requests are answered; port 0 chooses a free one.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class OneChangeAtATime:
    """A WSGI application around another one."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(environ, start_response)
        if environ.get("CONTENT_LENGTH"):  # a slow sender must not keep the others waiting
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        with self._lock:
            return list(self._application(environ, start_response))


class QuietHandler(MotoRequestHandler):
    """Does not print every request."""

    def log_request(self, *_: Any) -> None:
        pass


def main(port: int, written: str | None) -> None:
    server = make_server(
        "127.0.0.1", port, OneChangeAtATime(DomainDispatcherApplication(create_backend_app)), True, request_handler=QuietHandler
    )
    if written is not None:
        with open(f"{written}.new", "w", encoding="ascii") as file:
            file.write(str(server.port))
        os.rename(f"{written}.new", written)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
