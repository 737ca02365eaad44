"""bench/traffic.py must see every token, whichever way the bytes of a stream arrive."""

import asyncio
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from traffic import Answer, Unusable  # noqa: E402

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"text":"a","finish_reason":null}],"usage":null}\n\n'
END = (b'data: {"choices":[{"text":"","finish_reason":"length"}],"usage":null}\n\n'
       b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}\n\ndata: [DONE]\n\n')


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Double:
    """A server that answers with given writes, a moment apart."""

    def __init__(self, *writes):
        self.writes = writes

    async def __aenter__(self):
        self.listener = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = self.listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.listener.close()

    async def answer(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for data in self.writes:
            writer.write(data)
            await asyncio.sleep(0.02)
        writer.close()


class TrafficTest(unittest.IsolatedAsyncioTestCase):
    async def answer_of(self, *writes):
        async with Double(*writes) as server:
            answer = Answer(server, "once", 4)
            await answer.task
            return answer

    async def test_tokens_are_counted_when_they_come_one_by_one(self):
        answer = await self.answer_of(HEAD, *[chunk(TOKEN)] * 4, chunk(END) + b"0\r\n\r\n")
        self.assertEqual(answer.usage, {"prompt": 3, "completion": 4})
        self.assertEqual(len(answer.arrivals), 4)
        gaps = answer.gaps(answer.arrivals[1] + 0.001, answer.arrivals[2] - 0.001)
        self.assertEqual(len(gaps), 1)
        self.assertGreater(gaps[0], 0.015)

    async def test_tokens_are_counted_when_writes_join_and_split_them(self):
        whole = HEAD + chunk(TOKEN * 3) + chunk(TOKEN) + chunk(END) + b"0\r\n\r\n"
        answer = await self.answer_of(whole[:120], whole[120:])
        self.assertEqual(len(answer.arrivals), 4)
        self.assertEqual(answer.usage["completion"], 4)

    async def test_a_stream_that_shows_few_of_its_tokens_is_no_measurement(self):
        with self.assertRaisesRegex(Unusable, "2 events"):
            await self.answer_of(HEAD, chunk(TOKEN) * 2, chunk(END) + b"0\r\n\r\n")

    async def test_a_refusal_is_shown(self):
        with self.assertRaisesRegex(Unusable, "400: no"):
            await self.answer_of(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno")


if __name__ == "__main__":
    unittest.main()
