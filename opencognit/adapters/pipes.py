"""A child's three pipes on the event loop: feeds one, reads two. Knows nothing of processes, limits of time, or runs.

Memory is bounded whatever comes: at most one chunk per stream is in hand, and the next one is read only when the
receiver has taken it, so that a full pipe slows the child down and not the node.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Awaitable, Callable
from typing import IO

from opencognit.textclean import REPLACEMENT, decode, head_and_tail, join_head_and_tail

CHUNK_BYTES = 64 * 1024
SMALL_BYTES = 1024
"""A chunk below this may be one of very many: past `BURST` of them in a row the reader waits for more to come."""
BURST = 16
PACE_S = 0.02
LONGEST_CHARACTER = 4
LAST_WORDS_BYTES = 1024 * 1024
"""How much is still read after `finish`: a full pipe's worth. Only a process that nobody could kill has more."""

Receiver = Callable[[bytes], Awaitable[None]]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _wake, waiter)
    try:
        await waiter
    finally:
        loop.remove_writer(fd)


async def feed(pipe: IO[bytes], data: bytes) -> None:
    """Write `data` and close the pipe. A child that does not read it, or is gone already, is no error."""
    os.set_blocking(pipe.fileno(), False)
    left = memoryview(data)
    try:
        while left:
            try:
                left = left[os.write(pipe.fileno(), left[:CHUNK_BYTES]) :]
                await asyncio.sleep(0)
            except BlockingIOError:
                await _writable(pipe.fileno())
    except (BrokenPipeError, ConnectionResetError):
        return
    finally:
        pipe.close()


class Reader:
    """Reads one pipe and hands over each chunk before it takes the next."""

    def __init__(self, pipe: IO[bytes], receive: Receiver) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._fd, self._receive = pipe.fileno(), receive
        self._loop = asyncio.get_running_loop()
        self._hurried: asyncio.Future[None] = self._loop.create_future()
        self._waiter: asyncio.Future[None] | None = None
        self._finishing = False
        self._small_in_a_row = 0

    def hurry(self) -> None:
        """Wait no longer for small chunks to add up: the child has exited, what is there is all."""
        _wake(self._hurried)

    def finish(self) -> None:
        """Take what is in the pipe now, and then end, even where somebody still holds it open."""
        self._finishing = True
        self.hurry()
        if self._waiter is not None:
            _wake(self._waiter)

    async def pump(self) -> None:
        """Read to the end of the file, or until the pipe is empty after `finish`."""
        last_words = LAST_WORDS_BYTES
        while last_words > 0:
            chunk = self._read()
            if chunk == b"" or (chunk is None and self._finishing):
                return
            if chunk is None:
                await self._readable()
                continue
            if self._finishing:
                last_words -= len(chunk)
            await self._receive(chunk)
            await self._pace(len(chunk))

    def _read(self) -> bytes | None:
        """Return a chunk, b"" at the end, or None when nothing is there yet."""
        try:
            return os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return None

    async def _readable(self) -> None:
        self._waiter = self._loop.create_future()
        self._loop.add_reader(self._fd, _wake, self._waiter)
        try:
            await self._waiter
        finally:
            self._loop.remove_reader(self._fd)

    async def _pace(self, size: int) -> None:
        self._small_in_a_row = self._small_in_a_row + 1 if size < SMALL_BYTES else 0
        if self._small_in_a_row > BURST and not self._hurried.done():
            await asyncio.wait((self._hurried,), timeout=PACE_S)
        else:
            await asyncio.sleep(0)


class Transcript:
    """Keeps the head and the tail of a stream, and decodes it as it comes: UTF-8, what is not becomes U+FFFD, so does NUL."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = max(limit_bytes, 2)
        self._head_limit = (self._limit + 1) // 2
        self._tail_limit = self._limit - self._head_limit
        self._head, self._tail = bytearray(), bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.total_bytes = 0

    def take(self, chunk: bytes) -> str:
        """Keep what belongs to head and tail, and return the chunk as text; half a character waits for its rest."""
        self.total_bytes += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
        if len(chunk) > room:
            self._tail += chunk[max(room, 0) :]
            if len(self._tail) > 2 * self._tail_limit:
                del self._tail[: -self._tail_limit]
        return self._decode(chunk)

    def rest(self) -> str:
        """Return what the decoder still held back when the stream ended."""
        return self._decode(b"", final=True)

    def _decode(self, chunk: bytes, *, final: bool = False) -> str:
        return self._decoder.decode(chunk, final).replace("\0", REPLACEMENT)

    @property
    def left_out_bytes(self) -> int:
        return max(self.total_bytes - len(self._head) - self._tail_limit, 0)

    def text(self) -> str:
        """Return the whole stream, or its head and tail around a line that says how much is missing between them.

        At most the limit, also for noise, of which each byte becomes a character of three.
        """
        head, tail = bytes(self._head), bytes(self._tail[-self._tail_limit :])
        if not self.left_out_bytes:
            return head_and_tail(decode(head + tail), self._limit)
        if len(decode(head).encode()) > len(head) + LONGEST_CHARACTER:
            head = decode(head).encode()[: self._head_limit]
        if len(decode(tail).encode()) > len(tail) + LONGEST_CHARACTER * 3:
            tail = decode(tail).encode()[-self._tail_limit :]
        return join_head_and_tail(head, tail, self.left_out_bytes)
