"""Output that never makes its writer wait."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time

from opencognit.outlet import WAITING, Outlet


def test_what_is_written_arrives_in_order() -> None:
    """Closing writes what waits."""
    stream = io.StringIO()
    outlet = Outlet(stream)
    for number in range(500):
        print(number, file=outlet)
    outlet.close()
    assert stream.getvalue().split() == [str(number) for number in range(500)]


def test_a_reader_that_does_not_read_stops_nobody() -> None:
    """Far more than a pipe holds is written at once; when somebody reads again, it hears how much was dropped."""
    reading, writing = os.pipe()
    outlet = Outlet(os.fdopen(writing, "w"))
    started = time.monotonic()
    for _ in range(WAITING * 3):
        outlet.write("x" * 100 + "\n")
    spent = time.monotonic() - started
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.extend(iter(lambda: os.read(reading, 65536), b"")), daemon=True)
    reader.start()
    outlet.write("last\n")
    deadline = time.monotonic() + 20
    while b"dropped" not in b"".join(got) and time.monotonic() < deadline:
        outlet.write("more\n")
    assert b"dropped" in b"".join(got)
    assert spent < 10, "it waited for the reader"


def test_a_reader_that_has_gone_is_no_error() -> None:
    """A closed pipe loses the output and nothing else."""
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    outlet = Outlet(stream)
    os.close(reading)
    for _ in range(1000):
        outlet.write("into the void\n" * 100)
    outlet.close()
    with contextlib.suppress(BrokenPipeError):
        stream.close()
