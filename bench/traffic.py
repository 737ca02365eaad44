"""A server process and requests to it, on one event loop that costs next to no CPU.

Plain sockets: a client library spends more on parsing an event than the small model on a token.
"""

import asyncio
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

from machine import fail

START_SECONDS = 120
TICKS = os.sysconf("SC_CLK_TCK")
TOKEN = re.compile(rb'"finish_reason":\s*null')  # of every event but the last of an answer
USAGE = re.compile(rb'"(prompt|completion)_tokens":\s*(\d+)')


class Unusable(Exception):
    """An answer that nothing can be measured on."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process of its own; `command` gets `--port N`."""

    def __init__(self, command):
        self.port = free_port()
        self.log = tempfile.TemporaryFile("w+")
        command = [*map(str, command), "--port", str(self.port)]
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        except FileNotFoundError:
            fail(f"{command[0]} is not there; `make build` builds cohort")

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without the server
        asyncio.run(self.wait_until_ready())
        return self

    def __exit__(self, kind, *_):
        if kind not in (None, SystemExit) and self.has_died():
            fail(f"`{self.process.args[0]}` died, status {self.process.returncode}:\n{self.tail()}")
        self.stop()

    def has_died(self):
        """Asked when a connection has broken, which is seen a little before the death that broke it."""
        try:
            return self.process.wait(1) is not None
        except subprocess.TimeoutExpired:
            return False

    async def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                status, _ = await fetch(self.port, "GET", "/health")
                if status == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)
        self.process.kill()
        fail(f"`{self.process.args[0]}` did not start:\n{self.tail()}")

    def tail(self):
        """The end of what it printed."""
        self.log.seek(0)
        return self.log.read()[-2000:]

    def stop(self):
        """Ends the server, gently if it can be; returns its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS  # its own and of the children it waited for


class Exchange:
    """One request on a connection of its own. To close it early is to disconnect."""

    async def open(self, port, method, path, body=None, sent_share=1.0):
        """Connects and sends; with a share below 1 only the beginning of it."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        payload = b"" if body is None else json.dumps(body).encode()
        head = (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n").encode()
        message = head + payload
        self.writer.write(message[:int(len(message) * sent_share)])
        return self

    async def status(self):
        """Reads the head of the answer."""
        while True:
            head = await self.reader.readuntil(b"\r\n\r\n")
            status = int(head.split(None, 2)[1])
            if status != 100:  # "Continue": cohort asks so whether the client is still there
                break
        self.chunked = b"transfer-encoding: chunked" in head.lower()
        return status

    async def pieces(self):
        """Yields the body as it arrives, one piece for each piece that the server wrote."""
        while not self.chunked:
            piece = await self.reader.read(1 << 16)
            if not piece:
                return
            yield piece
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]

    async def rest(self):
        return b"".join([piece async for piece in self.pieces()])

    def close(self, reset=False):
        if reset:
            self.writer.transport.abort()
        else:
            self.writer.close()


async def fetch(port, method, path, body=None):
    """Status and JSON of one exchange."""
    exchange = await Exchange().open(port, method, path, body)
    try:
        return await exchange.status(), json.loads(await exchange.rest())
    finally:
        exchange.close()


class Answer:
    """A greedy streamed answer of a fixed length, and when its tokens came."""

    def __init__(self, server, prompt, tokens):
        self.server = server
        self.body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                     "stream_options": {"include_usage": True}, "cache_prompt": False}
        self.arrivals = []  # seconds, one for each token
        self.usage = {}
        self.task = asyncio.create_task(self.receive())
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # one message is enough

    async def receive(self):
        self.sent = time.perf_counter()
        exchange = await Exchange().open(self.server.port, "POST", "/v1/completions", self.body)
        try:
            status = await exchange.status()
            if status != 200:
                raise Unusable(f"the server answered {status}: {(await exchange.rest())[:500].decode()}")
            async for piece in exchange.pieces():
                now = time.perf_counter()
                self.arrivals += [now] * len(TOKEN.findall(piece))
                for name, count in USAGE.findall(piece):
                    self.usage[name.decode()] = int(count)
            self.ended = time.perf_counter()
        finally:
            exchange.close()
        # A token may show no text, but gaps between few events would say little of tokens.
        if len(self.arrivals) < 0.9 * self.usage.get("completion", 0):
            raise Unusable(f"{len(self.arrivals)} events for {self.usage} tokens: gaps would mean nothing")

    def gaps(self, begin, end):
        """Seconds between tokens, of those waits that touch the time from begin to end."""
        return [after - before for before, after in zip(self.arrivals, self.arrivals[1:])
                if after > begin and before < end]


async def until_tokens(answers, count):
    """Returns when each of the answers has so many tokens."""
    while any(len(answer.arrivals) < count for answer in answers):
        for answer in answers:
            if answer.task.done():
                answer.task.result()
                raise Unusable(f"an answer ended after {len(answer.arrivals)} tokens, before {count}")
        await asyncio.sleep(0.01)


async def all_of(answers):
    """The answers, when all have ended."""
    await asyncio.gather(*(answer.task for answer in answers))
    return answers
