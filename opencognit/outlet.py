"""A text stream that never makes its writer wait: a reader that stops reading must not stop the company.

A thread of its own writes to the real stream; what it cannot get rid of is dropped, and said once it reads again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TextIO

WAITING = 10_000
"""So many pieces wait for the reader at most."""
GOODBYE_S = 2.0


class Outlet:
    """Looks like a text file to whoever prints to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._queue: queue.Queue[str | None] = queue.Queue(WAITING)
        self._dropped = 0
        self._thread = threading.Thread(target=self._carry, name="outlet", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Hand the text over; never waits."""
        try:
            self._queue.put_nowait(text)
        except queue.Full:
            self._dropped += 1
        return len(text)

    def flush(self) -> None:
        """Nothing to do: the thread writes as soon as the reader lets it."""

    def isatty(self) -> bool:
        return self._stream.isatty()

    def close(self) -> None:
        """Write what waits, for at most `GOODBYE_S`."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(GOODBYE_S)

    def _carry(self) -> None:
        while (text := self._queue.get()) is not None:
            try:
                if self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    text = f"[... {dropped} pieces of output were dropped: nobody read them ...]\n{text}"
                self._stream.write(text)
                if self._queue.empty():
                    self._stream.flush()
            except (OSError, ValueError):  # the reader is gone: from now on it is all for nobody
                continue
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
