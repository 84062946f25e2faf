# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One gRPC call on a connection that is open: HTTP/2 and the frame that gRPC puts around a message.

An HTTP client does not do, as it hides the trailers, and there the outcome stands.
"""

from __future__ import annotations

import ssl
import struct
import time
import typing as t
from urllib.parse import unquote

from ...core.errors import ApiError, BadShape, LostAnswer, lazy

if t.TYPE_CHECKING:
    from h2 import config, connection, events, exceptions
else:
    config, connection, events, exceptions = (lazy(f"h2.{name}") for name in ("config", "connection", "events", "exceptions"))

LARGEST = 4 * 2**20  # bytes of an answer
_FIRST_WORD = 1.0  # seconds
_PREFIX = 5  # bytes before each message
_GOAWAY, _HEAD, _LONGEST_GOAWAY = 7, 9, 1024  # type of an HTTP/2 frame; bytes: of each frame's head, and of what is taken for one
STATUS = {
    0: "ok", 1: "cancelled", 2: "unknown", 3: "invalid_argument", 4: "deadline_exceeded", 5: "not_found", 6: "already_exists",
    7: "permission_denied", 8: "resource_exhausted", 9: "failed_precondition", 10: "aborted", 11: "out_of_range",
    12: "unimplemented", 13: "internal", 14: "unavailable", 15: "data_loss", 16: "unauthenticated",
}  # fmt: skip


_WANTED = ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE")  # alerts of a server that asked for a certificate and got none


class CertificateWanted(ApiError):
    """The other side talks to those only who have a client certificate."""

    kind = "auth"


class GrpcError(ApiError):
    """The other side said no. ``code`` is one of the words of STATUS."""

    kind = "grpc"


class Stream(t.Protocol):
    """A connected TLS socket."""

    def sendall(self, data: bytes, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...

    def settimeout(self, seconds: float, /) -> None: ...


def unary(sock: Stream, authority: str, path: str, message: bytes, seconds: float) -> bytes:
    """Send one message and return the one that answers it, all within ``seconds``. ``authority`` is host:port, ``path`` is
    /package.Service/Method.

    Raises GrpcError for a refusal, CertificateWanted (TLS 1.3 says so only after the first message), LostAnswer when the connection
    ends or falls silent before the outcome came, BadShape for an answer that is not gRPC.
    """
    call = _Call(sock, authority, path, message, time.monotonic() + seconds)
    messages = call.answers()
    if len(messages) != 1:
        raise call.shape("it does not hold one plain message")
    return messages[0]


def stream(
    sock: Stream, authority: str, path: str, message: bytes, seconds: float, metadata: t.Sequence[tuple[str, str]] = ()
) -> list[bytes]:
    """The same for a call that is answered by any number of messages and then ends. ``metadata`` are further headers, such as Talos's
    ``node``: which node an endpoint is to ask."""
    return _Call(sock, authority, path, message, time.monotonic() + seconds, metadata).answers()


class _Call:
    def __init__(
        self,
        sock: Stream,
        authority: str,
        path: str,
        message: bytes,
        until: float,
        metadata: t.Sequence[tuple[str, str]] = (),
    ) -> None:
        self._sock, self._authority, self._path, self._until, self._metadata = sock, authority, path, until, metadata
        self._rest = memoryview(struct.pack(">BI", 0, len(message)) + message)
        self._wire = connection.H2Connection(config=config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self._stream = 0
        self._frames = _Frames()
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._ended = False

    def answers(self) -> list[bytes]:
        try:
            return self._talk()
        except ssl.SSLError as error:
            if any(word in (error.reason or "") for word in _WANTED):
                raise CertificateWanted(f"{self._authority} asks for a client certificate.", service="talos") from error
            raise self._lost(f"the connection was closed ({error.reason or 'TLS'})") from error
        except OSError as error:
            raise self._lost("it fell silent" if isinstance(error, TimeoutError) else str(error.strerror)) from error

    def _talk(self) -> list[bytes]:
        wire = self._wire
        wire.initiate_connection()
        self._stream = wire.get_next_available_stream_id()
        wire.send_headers(
            self._stream,
            [
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", self._authority),
                (":path", self._path),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("user-agent", "tgp-gpu"),
                *self._metadata,
            ],
        )
        self._listen_first()
        self._send()
        while not self._ended:
            self._wait()
            self._take(self._sock.recv(65536))
            self._send()
        return self._outcome()

    def _listen_first(self) -> None:
        """A server that wants a certificate says so before anything else and hangs up. What we sent meanwhile would make the system
        drop that word, so it is waited for; Talos's server speaks first in any case, and one that does not costs a second."""
        self._wait(_FIRST_WORD)
        try:
            first = self._sock.recv(65536)
        except TimeoutError:
            return
        self._take(first)

    def _take(self, data: bytes) -> None:
        if not data:
            raise self._lost("the connection was closed")
        for event in _received(self._wire, self._frames.without_goodbye(data, self._stream), self._path):
            self._note(event)

    def _send(self) -> None:
        """As much of the message as the other side's windows take now."""
        wire = self._wire
        while self._rest and not self._ended:
            room = min(wire.local_flow_control_window(self._stream), wire.max_outbound_frame_size, len(self._rest))
            if room <= 0:
                break
            wire.send_data(self._stream, bytes(self._rest[:room]), end_stream=room == len(self._rest))
            self._rest = self._rest[room:]
        pending = wire.data_to_send()
        if pending:
            self._wait()
            self._sock.sendall(pending)

    def _wait(self, most: float = 3600.0) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(min(left, most))

    def _note(self, event: t.Any) -> None:
        if isinstance(event, (events.ResponseReceived, events.TrailersReceived)):
            self._headers.update(t.cast("list[tuple[str, str]]", event.headers))
        elif isinstance(event, events.DataReceived):
            self._body += event.data
            if len(self._body) > LARGEST:
                raise self.shape(f"it is larger than {LARGEST // 2**20} MiB")
            self._wire.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, events.StreamEnded):
            self._ended = True
        elif isinstance(event, events.StreamReset) and event.stream_id == self._stream:
            if event.error_code == 0 and "grpc-status" in self._headers:
                self._ended = True  # the outcome is known: it only wants no more of what we send
            else:
                raise self._lost(f"the stream was reset (HTTP/2 error {int(event.error_code)})")
        elif isinstance(event, events.ConnectionTerminated) and event.error_code:
            raise self._lost(f"the connection was given up (HTTP/2 error {int(event.error_code)})")

    def _outcome(self) -> list[bytes]:
        http = self._headers.get(":status", "")
        status = self._headers.get("grpc-status", "")
        if not status.isascii() or not status.isdigit():
            raise self.shape(f"it has HTTP status {http or 'none'} and no outcome of gRPC")
        if int(status):
            word = STATUS.get(int(status), f"status {status}")
            message = unquote(self._headers.get("grpc-message", "")).strip()
            raise GrpcError(
                f"{self._authority} refused {self._path.rpartition('/')[2]} ({word}){': ' + message if message else ''}",
                service="talos",
                code=word,
                said=message,
            )
        return self._messages()

    def _messages(self) -> list[bytes]:
        """What the body holds: a byte (0: not compressed), a length, a message, and so on."""
        messages, at = [], 0
        while at < len(self._body):
            head = self._body[at : at + _PREFIX]
            end = at + _PREFIX + (struct.unpack(">I", head[1:])[0] if len(head) == _PREFIX and not head[0] else len(self._body))
            if end > len(self._body):
                raise self.shape("it does not hold plain messages")
            messages.append(bytes(self._body[at + _PREFIX : end]))
            at = end
        return messages

    def shape(self, why: str) -> BadShape:
        return BadShape(f"The answer of {self._authority} to {self._path} is not of the documented form: {why}.", service="talos")

    def _lost(self, why: str) -> ApiError:
        return LostAnswer(f"{self._authority} took {self._path} and did not answer: {why}.", service="talos")


class _Frames:
    """What came, without the goodbye of a server that ends calmly: it takes no new calls then and still answers those that it has. Talos's
    says so while it answers the call that hands it its configuration, and the library would hear nothing after it."""

    def __init__(self) -> None:
        self._kept = bytearray()  # the beginning of a frame whose kind is not known yet, or of a goodbye
        self._through = 0  # bytes of the frame at hand that go through unread

    def without_goodbye(self, data: bytes, stream: int) -> bytes:
        """``data``, later perhaps what was kept of earlier data; a goodbye counts as calm when call ``stream`` is among the answered."""
        self._kept += data
        out = bytearray()
        while self._through or len(self._kept) >= _HEAD:
            if self._through:
                part = bytes(self._kept[: self._through])
                if not part:
                    break
                out += part
                del self._kept[: len(part)]
                self._through -= len(part)
                continue
            length = _HEAD + int.from_bytes(self._kept[:3], "big")
            if self._kept[3] != _GOAWAY or length > _LONGEST_GOAWAY:
                self._through = length
            elif len(self._kept) < length:
                break
            elif self._calm(length, stream):
                del self._kept[:length]
            else:
                self._through = length
        return bytes(out)

    def _calm(self, length: int, stream: int) -> bool:
        if length < _HEAD + 8:
            return False
        last, error = struct.unpack(">II", self._kept[_HEAD : _HEAD + 8])
        return error == 0 and last & 0x7FFFFFFF >= stream


def _received(wire: connection.H2Connection, data: bytes, path: str) -> list[t.Any]:
    try:
        return list(wire.receive_data(data))
    except exceptions.ProtocolError as error:
        raise BadShape(f"What answers {path} does not speak HTTP/2: {error}.", service="talos") from error
