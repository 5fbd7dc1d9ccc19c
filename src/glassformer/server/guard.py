"""Who may ask, and how much at once: the Host and Origin of every request are checked, and the size of its body.

A page of another site can make a browser send requests here. It cannot choose their Origin, and a name of its own that leads to
this machine (DNS rebinding) shows in Host: both must be ours.
"""

import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from glassformer.server.refusal import Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
ANYWHERE = frozenset({"0.0.0.0", "::"})

POLICY = (  # what the page may load: its own files
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NOTEBOOKS = " ".join(f"{scheme}://{name}:*" for scheme in ("http", "https") for name in ("localhost", "127.0.0.1"))


class Visitors:
    """The names this server goes by: those of this machine for itself, and the host it was told to listen on.

    With `framed` the pages of notebooks on this machine may show it in a frame; what is in a frame they can neither read nor ask.
    """

    def __init__(self, host: str = "127.0.0.1", port: int | None = None, *, framed: bool = False) -> None:
        self.port = port  # None: whatever port is named, for tests
        self.framed = framed
        self.names = LOCAL | {host.lower().strip("[]")}
        self.anywhere = host in ANYWHERE
        if self.anywhere:  # the machine's own names, and its addresses: a stranger's name cannot be an address
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def knows(self, place: str) -> bool:
        """Whether `place`, such as localhost:8000, is this server."""
        try:
            parts = urlsplit(f"//{place}")
            name, port = parts.hostname, parts.port
        except ValueError:
            return False
        if name is None or parts.username is not None or parts.path or parts.query or parts.fragment:
            return False
        if self.port is not None and (80 if port is None else port) != self.port:
            return False
        return name in self.names or (self.anywhere and _is_address(name))

    def check(self, headers: dict[str, str], path: str) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.knows(host):
            sentence = f"This server answers to localhost:{self.port} and the --host it was given; it was asked as {host!r}."
            raise Refusal(403, "wrong-host", sentence, host=host)
        if origin is not None and not (origin.startswith("http://") and self.knows(origin.removeprefix("http://"))):
            raise Refusal(403, "wrong-origin", "Pages of other sites may not ask this server.")
        elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if elsewhere and path.startswith("/api/"):
            raise Refusal(403, "wrong-origin", "Pages of other sites may not ask this server.")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Stands before the application."""

    def __init__(self, app: Any, visitors: Visitors, most: int) -> None:
        self.app, self.visitors, self.most = app, visitors, most
        self.headers = raw_headers(visitors.framed)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self.visitors.check(headers, scope["path"])
            body = await self._body(headers, receive)
        except Refusal as refusal:
            return await _refuse(refusal, self.headers, send)

        async def read() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            told, body = body, None
            return {"type": "http.request", "body": told, "more_body": False}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in self.headers if pair[0] not in known)]
            await send(message)

        await self.app(scope, read, answer)

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes | None:
        """All of it, unless it is too long."""
        sentence = f"A request has at most {self.most:,} bytes."
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:12]) > self.most:
            raise Refusal(413, "too-large", sentence, limit=self.most)
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                break
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self.most:
                raise Refusal(413, "too-large", sentence, limit=self.most)
        return b"".join(parts)


def raw_headers(framed: bool) -> list[tuple[bytes, bytes]]:
    wanted = dict(HEADERS)
    if framed:
        del wanted["X-Frame-Options"]  # which knows no list of who may
        wanted["Content-Security-Policy"] = f"{POLICY}; frame-ancestors {NOTEBOOKS}"
    return [(name.lower().encode(), value.encode()) for name, value in wanted.items()]


async def _refuse(refusal: Refusal, more: list[tuple[bytes, bytes]], send: Send) -> None:
    body = json.dumps(refusal.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": body})
