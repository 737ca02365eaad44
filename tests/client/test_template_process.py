"""A model whose chat template is hostile: its requests fail, and nothing else does."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

import openai
import pytest

from conftest import COHORT, ROOT, Server

LLAMA = ROOT / "tests" / "goldens" / "llama"
SECONDS_OF_A_RENDER = 5

# Does what the last message says.
TEMPLATE = """{% set deed = messages[-1].content %}{% set n = namespace(a=[1]) %}
{%- if deed == "crash" %}{% set n.a = n %}{{ n }}
{%- elif deed == "nest" %}{% for i in range(99999) %}{% set n.a = [[[n.a]]] %}{% endfor %}
{%- elif deed == "hang" %}{% for i in range(64) %}{% set n.a = n.a + n.a %}{% endfor %}{{ n.a }}
{%- endif %}{% for m in messages %}{{ m.content }}{% endfor %}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "hostile"
    shutil.copytree(LLAMA, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def server(folder):
    server = Server(folder)
    yield server
    if server.process.poll() is None:
        server.process.kill()
    server.process.wait(60)


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)


def chat(server, text):
    return client_of(server).chat.completions.create(
        model="hostile", max_tokens=4, temperature=0, messages=[{"role": "user", "content": text}])


def refusal(server, deed):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(server, deed)
    return caught.value.body["message"]


def health(server):
    return client_of(server)._client.get(server.url + "/health").status_code


def workers_of(server):
    """The processes that the server started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == server.process.pid:
                found.append(int(stat.parent.name))
    return found


def is_running(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(happened, seconds):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_only_the_requests_of_a_hostile_template_fail(server):
    answer = chat(server, "hello").choices[0].message.content
    for deed in ("crash", "nest", "crash"):
        assert refusal(server, deed) == "the chat template was stopped: it crashed"
        assert health(server) == 200
        assert chat(server, "hello").choices[0].message.content == answer
    assert server.process.poll() is None


def test_a_template_that_hangs_holds_up_no_other_endpoint(server):
    hanging = subprocess.Popen(
        ["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", f"{server.url}/v1/chat/completions",
         "-H", "Content-Type: application/json",
         "-d", '{"model": "hostile", "messages": [{"role": "user", "content": "hang"}]}'],
        stdout=subprocess.PIPE, text=True)
    begin = time.monotonic()
    while hanging.poll() is None:
        assert health(server) == 200
        done = client_of(server).completions.create(model="hostile", prompt="hello", max_tokens=2)
        assert done.usage.completion_tokens > 0
        time.sleep(0.2)
    assert hanging.stdout.read() == "400"
    assert time.monotonic() - begin < SECONDS_OF_A_RENDER + 3
    assert chat(server, "hello").choices


def test_the_process_of_a_template_ends_with_the_server(server):
    worker, = workers_of(server)
    server.process.kill()
    server.process.wait(60)
    wait_until(lambda: not is_running(worker), 5)


def test_a_template_that_runs_for_ever_ends_without_its_server(server):
    worker, = workers_of(server)
    with contextlib.suppress(openai.APIError):
        client_of(server).with_options(timeout=1).chat.completions.create(
            model="hostile", messages=[{"role": "user", "content": "hang"}])
    server.process.kill()
    server.process.wait(60)
    wait_until(lambda: not is_running(worker), 3 * SECONDS_OF_A_RENDER)


def test_a_signal_from_the_terminal_reaches_only_the_server(server):
    worker, = workers_of(server)
    assert os.getpgid(worker) != os.getpgid(server.process.pid)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(30) == 0
    wait_until(lambda: not is_running(worker), 5)


def test_a_chat_at_the_terminal_goes_on_without_the_turn_that_failed(folder):
    def run(*lines):
        return subprocess.run(
            [COHORT, "run", folder, "--temperature", "0", "--max-tokens", "8"], text=True,
            capture_output=True, timeout=120, input="".join(line + "\n" for line in lines))

    plain, failed = run("hello", "more"), run("hello", "crash", "more")
    assert plain.returncode == failed.returncode == 0
    assert failed.stdout == plain.stdout != ""
    assert "cohort: error: the chat template was stopped: it crashed\n" in failed.stderr
