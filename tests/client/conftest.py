"""Starts the real server binary once for all tests of this folder.

COHORT_BINARY      the server, default build/release/cohort
COHORT_TEST_MODEL  what it serves, default smollm2
"""

import os
import pathlib
import re
import subprocess
import threading
import time

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COHORT = os.environ.get("COHORT_BINARY", str(ROOT / "build/release/cohort"))
START_SECONDS = 120


class Server:
    """A server process of its own; `url` is where it says to listen."""

    def __init__(self, model=os.environ.get("COHORT_TEST_MODEL", "smollm2"), *arguments):
        self.process = subprocess.Popen(
            [COHORT, "serve", str(model), "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = []
        self.url = None
        self.listening = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self.listening.wait(START_SECONDS)
        if self.url is None:
            self.process.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.output))
        match = re.fullmatch(r"http://(?:\[(.+)\]|([^:]+)):(\d+)", self.url)
        self.host, self.port = match.group(1) or match.group(2), int(match.group(3))

    def _read(self):
        for line in self.process.stdout:
            self.output.append(line)
            match = re.search(r"listening on (http://\S+)", line)
            if match:
                self.url = match.group(1)
                self.listening.set()
        self.listening.set()

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture(scope="session")
def server():
    server = Server()
    yield server
    assert server.process.poll() is None, "the server died:\n" + "".join(server.output)
    assert server.stop() == 0


@pytest.fixture(scope="session")
def client(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
    deadline = time.monotonic() + START_SECONDS
    while True:  # the address is printed before the model is loaded
        response = client._client.get(server.url + "/health")
        if response.status_code == 200:
            return client
        assert time.monotonic() < deadline, response.text
        time.sleep(0.1)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id
