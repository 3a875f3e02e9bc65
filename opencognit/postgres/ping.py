"""Asks a server whether it takes connections, by the wire protocol itself: the keeper must not load a driver for it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from opencognit.postgres.places import SOCKET_FILE

USER = DATABASE = "opencognit"
TIMEOUT_S = 2.0
_PROTOCOL = 3 << 16
_STARTUP = struct.pack("!i", _PROTOCOL) + f"user\0{USER}\0database\0{DATABASE}\0application_name\0keeper\0\0".encode()
_CANNOT_CONNECT_NOW = "57P03"  # starting, recovering or shutting down
_TOO_MANY_CONNECTIONS = "53300"  # busy, and therefore alive


class Life(StrEnum):
    READY = "ready"  # a session was opened
    STARTING = "starting"  # somebody answers, but takes no sessions at the moment
    ABSENT = "absent"  # nobody answers
    REFUSED = "refused"  # a server that will never let us in


@dataclass(frozen=True, slots=True)
class Answer:
    life: Life
    message: str = ""


def ping(socket_dir: Path) -> Answer:
    """Open a session and close it."""
    address = os.fspath(socket_dir / SOCKET_FILE)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.settimeout(TIMEOUT_S)
            wire.connect(address)
            wire.sendall(struct.pack("!i", len(_STARTUP) + 4) + _STARTUP)
            answer = _listen(wire)
            with contextlib.suppress(OSError):
                wire.sendall(b"X\0\0\0\4")
            return answer
    except TimeoutError:
        return Answer(Life.STARTING)
    except OSError:
        return Answer(Life.ABSENT)


def _listen(wire: socket.socket) -> Answer:
    while True:
        kind, length = struct.unpack("!ci", _exactly(wire, 5))
        body = _exactly(wire, length - 4)
        if kind == b"Z":
            return Answer(Life.READY)
        if kind == b"E":
            return _judge(body)


def _judge(body: bytes) -> Answer:
    fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
    code, message = fields.get(b"C", ""), fields.get(b"M", "")
    if code == _TOO_MANY_CONNECTIONS:
        return Answer(Life.READY)
    if code == _CANNOT_CONNECT_NOW:
        return Answer(Life.STARTING, message)
    return Answer(Life.REFUSED, message)


def _exactly(wire: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = wire.recv(count - len(parts))
        if not part:
            raise ConnectionResetError
        parts += part
    return parts
