"""A proxy on loopback before a server's socket, which misbehaves as networks do: it stalls, drops, cuts, loses answers.

Owns connections and bytes; understands of the protocol only what a COMMIT and its answer look like.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any

COMMIT = b"COMMIT\0"
_SO_ATTACH_FILTER = 26


class _Link:
    """One client's connection and its counterpart to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._reader, self.writer = proxy, reader, writer
        self.open = asyncio.Event()
        self.open.set()
        self._committing = self._marked = False
        self._pumps: list[asyncio.Task[None]] = []

    def end(self) -> None:
        for pump in self._pumps:
            pump.cancel()

    def drop(self) -> None:
        """Attach a filter that keeps no byte of any packet: the kernel then neither takes nor acknowledges what comes."""
        self.open.clear()
        refuse_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
        program = struct.pack("HL", 1, ctypes.addressof(refuse_all))
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    async def run(self) -> None:
        try:
            there, back = await asyncio.open_unix_connection(self._proxy.target)
        except OSError:
            self.writer.close()
            return
        try:
            self._pumps = [asyncio.create_task(self._up(back)), asyncio.create_task(self._down(there))]
            await asyncio.wait(self._pumps, return_when=asyncio.FIRST_COMPLETED)
            self.end()
            await asyncio.gather(*self._pumps, return_exceptions=True)
        finally:
            back.close()
            self.writer.close()

    async def _up(self, back: asyncio.StreamWriter) -> None:
        while data := await self._reader.read(65536):
            await self.open.wait()
            self._marked |= self._proxy.victim in data
            self._committing = COMMIT in data
            back.write(data)
            await back.drain()

    async def _down(self, there: asyncio.StreamReader) -> None:
        while data := await there.read(65536):
            await self.open.wait()
            if self._committing and COMMIT in data:
                if self._marked and self._proxy.answers_to_lose > 0:
                    self._proxy.answers_to_lose -= 1
                    return  # committed, and nobody will know
                self._committing = self._marked = False
            self.writer.write(data)
            await self.writer.drain()


class Proxy:
    """Serves from entering to leaving; its methods may be called from any thread."""

    def __init__(self, target: Path) -> None:
        self.target, self.port = str(target), 0
        self.answers_to_lose, self.victim = 0, b""
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def stall(self) -> int:
        """Forward nothing more on the connections there are: what is sent is acknowledged and never answered."""
        return self._each(lambda link: link.open.clear())

    def go_on(self) -> int:
        """Forward again, also what had come meanwhile."""
        return self._each(lambda link: link.open.set())

    def drop(self) -> int:
        """Lose every packet on the connections there are, both ways, without a word: not even receipt is acknowledged."""
        return self._each(_Link.drop)

    def cut(self) -> int:
        """Reset the connections there are."""
        return self._each(lambda link: link.writer.transport.abort())

    def lose_answers(self, count: int, *, to: bytes) -> None:
        """Let the next `count` transactions that contain the bytes `to` commit, and cut instead of saying so."""
        self.victim, self.answers_to_lose = to, count

    def _each(self, act: Callable[[_Link], object]) -> int:
        async def all_of_them() -> int:
            for link in list(self._links):
                act(link)
            return len(self._links)

        count: int = self._do(all_of_them())
        return count

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for link in self._links:
            link.end()
        await asyncio.gather(*others, return_exceptions=True)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)
