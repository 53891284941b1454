"""`python -m bench.weights_server FILE`: a store that serves one file for every address, with ranges.

The kernel sends the bytes, so that the store costs the clients that are measured as little as it can. Prints its port.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    file: Path

    def do_GET(self) -> None:
        size = self.file.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, stop = (int(asked[1]), int(asked[2] or size - 1) + 1) if asked else (0, size)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(stop - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.end_headers()
        self.wfile.flush()
        with self.file.open("rb") as file:
            while start < stop:
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, stop - start)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    address_family = socket.AF_INET
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # a client that left


if __name__ == "__main__":
    _Store.file = Path(sys.argv[1])
    with _Server(("127.0.0.1", 0), _Store) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
