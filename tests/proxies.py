"""Be the proxy of a company's network, good or bad, and a server behind it with a certificate of its own.

with Proxy(("127.0.0.1", server.port)) as proxy:   # every host is that server
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from .programs import require

SILENT, CLOSING = "silent", "closing"
VARIABLES = tuple(
    name
    for each in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    for name in (each, each.lower())
)


class Proxy:
    """Tunnels and forwards to one address. Instead, it is `SILENT`, `CLOSING` after its answer, or answers a status."""

    def __init__(self, to: tuple[str, int] = ("127.0.0.1", 9), does: str = "") -> None:
        self._to, self._does = to, does
        self.asked: list[str] = []
        """The first lines of requests."""
        self.answers = threading.Event()
        """Cleared, it keeps its answers back."""
        self.answers.set()
        self.signed: list[str] = []
        """The values of `Proxy-Authorization`."""
        self._sockets: list[socket.socket] = []
        self._ends = threading.Lock()
        self._has_ended = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.answers.set()
        with self._ends:
            self._has_ended = True
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._keep(self._listener.accept()[0])
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _keep(self, opened: socket.socket) -> socket.socket:
        """Have a socket closed at the end. Raises `OSError` after it."""
        with self._ends:
            if not self._has_ended:
                self._sockets.append(opened)
                return opened
        opened.close()
        raise OSError

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            said = b""
            while b"\r\n\r\n" not in said:
                piece = client.recv(65536)
                if not piece:
                    return
                said += piece
            lines = said.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
            self.asked.append(lines[0])
            self.signed += [each.partition(": ")[2] for each in lines if each.lower().startswith("proxy-auth")]
            if self._does == SILENT:
                return
            self.answers.wait()
            if self._does not in ("", CLOSING):
                client.sendall(f"HTTP/1.1 {self._does}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            elif lines[0].startswith("CONNECT"):
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                said = b""
            if self._does:
                client.shutdown(socket.SHUT_RDWR)
                return
            said = re.sub(rb"^(\w+) http://[^/]+", rb"\1 ", said)
            server = self._keep(socket.create_connection(self._to))
            server.sendall(said)
            threading.Thread(target=_pump, args=(server, client), daemon=True).start()
            _pump(client, server)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def make_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """Return the files of a self-signed certificate for a host, and of its key."""
    certificate, key = folder / f"{host}.pem", folder / f"{host}.key"
    subprocess.run(
        [require("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


class SecureServer:
    """Answers "there" over TLS to every request, as the host `corp.test`, until the end of its block."""

    def __init__(self, folder: Path, said: bytes = b"there", kind: str = "text/plain") -> None:
        self.certificate, key = make_certificate(folder, "corp.test")
        asked = self.asked = list[str]()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_POST = do_GET

            def log_message(self, format: str, *about: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)

        class Server(ThreadingHTTPServer):
            def get_request(self) -> tuple[socket.socket, Any]:
                plain, client = self.socket.accept()
                try:
                    return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), client
                except OSError:  # the client has gone already
                    plain.close()
                    raise

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that does not trust it

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = ("127.0.0.1", int(self._server.server_address[1]))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()
