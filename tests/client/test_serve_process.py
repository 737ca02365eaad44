"""The server as a process: start, signals, ports, names, memory."""

import contextlib
import json
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest

from conftest import COHORT, ROOT, Server

LLAMA = ROOT / "tests" / "goldens" / "llama"
HELLO = [{"role": "user", "content": "Say hello."}]


@contextlib.contextmanager
def serving(model=LLAMA, *arguments):
    server = Server(model, *arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(60)


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


def chat(server, model=None, **options):
    client = client_of(server)
    model = model or client.models.list().data[0].id
    options = {"max_tokens": 8, "temperature": 0, **options}
    return client.chat.completions.create(model=model, messages=HELLO, **options)


def get(url):
    """Status and JSON of a GET; (None, None) if nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except urllib.error.URLError:
        return None, None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def path_of(alias):
    return pathlib.Path(subprocess.run([COHORT, "pull", alias], capture_output=True, text=True,
                                       check=True).stdout.strip())


def memory_kb(process, field):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(field)


# Signals

def open_stream(server, tokens):
    stream = chat(server, stream=True, max_tokens=tokens, extra_body={"ignore_eos": True},
                  stream_options={"include_usage": True})
    chunks = iter(stream)
    return [next(chunks), next(chunks), next(chunks)], chunks


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_answers_end_and_exits_0(number):
    with serving() as server:
        chunks, rest = open_stream(server, 1500)
        server.process.send_signal(number)
        chunks += rest
        assert chunks[-1].usage.completion_tokens == 1500
        assert chunks[-2].choices[0].finish_reason == "length"
        assert server.process.wait(30) == 0
    assert get(server.url + "/health") == (None, None)


def test_a_second_signal_ends_at_once():
    with serving() as server:
        open_stream(server, 1900)
        server.process.terminate()
        time.sleep(0.1)
        begin = time.monotonic()
        server.process.terminate()
        assert server.process.wait(30) == 128 + signal.SIGTERM
        assert time.monotonic() - begin < 2


def test_the_drain_is_bounded():
    with serving("smollm2", "--drain-timeout-s", "1") as server:
        _, rest = open_stream(server, 1900)
        begin = time.monotonic()
        server.process.terminate()
        chunks = []
        with pytest.raises(openai.APIError, match="shutting down") as caught:
            chunks.extend(rest)
        assert caught.value.code == "server_draining"
        assert all(chunk.usage is None for chunk in chunks), "a cut answer looks whole"
        assert server.process.wait(30) == 0
        assert time.monotonic() - begin < 10


def loading_server(*arguments):
    """A server that is loading a model, and its address."""
    port = free_port()
    process = subprocess.Popen([COHORT, "serve", "gemma3-270m", "--port", str(port), *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while (state := get(url + "/health")) == (None, None):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    return process, url, state


def test_health_says_loading_then_ok():
    process, url, state = loading_server()
    try:
        assert state == (503, {"status": "loading"})
        status, models = get(url + "/v1/models")
        assert status == 200 and models["data"][0]["id"] == "gemma3-270m"
        deadline = time.monotonic() + 120
        while (now := get(url + "/health")) != (200, {"status": "ok"}):
            assert now == (503, {"status": "loading"}) and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_a_signal_while_loading_ends_at_once():
    process, _, state = loading_server("--threads", "1")
    assert state == (503, {"status": "loading"})
    begin = time.monotonic()
    process.terminate()
    assert process.wait(60) == 0
    assert time.monotonic() - begin < 1
    assert "listening" not in process.stdout.read()


def test_a_server_whose_terminal_is_gone_still_drains():
    with serving() as server:
        chat(server)
    process = subprocess.Popen([COHORT, "serve", LLAMA, "--port", "0"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    url = process.stdout.readline().split()[-1]
    process.stdout.close()
    process.stderr.close()
    assert get(url + "/health") == (200, {"status": "ok"})
    process.terminate()
    assert process.wait(30) == 0


# Addresses and names

def test_a_port_in_use_is_a_clear_error():
    with serving() as server:
        done = subprocess.run([COHORT, "serve", LLAMA, "--port", str(server.port)],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert done.stderr.startswith(f"cohort: error: cannot listen on 127.0.0.1:{server.port}")
        assert done.stderr.count("\n") == 1
        assert get(server.url + "/health")[0] == 200


def test_the_printed_curl_works():
    with serving() as server:
        deadline = time.monotonic() + 30
        while not any("messages" in line for line in server.output):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        text = "".join(server.output)
        command = text[text.index("curl "):].rstrip()
        done = subprocess.run(command + " -sS", shell=True, capture_output=True, text=True, timeout=60)
        assert json.loads(done.stdout)["object"] == "chat.completion", done


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::1"])
def test_host(host):
    if host == "::1":
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
            except OSError:
                pytest.skip("this machine has no IPv6 loopback")
    with serving(LLAMA, "--host", host) as server:
        assert server.port > 0
        assert get(server.url + "/health") == (200, {"status": "ok"})


def test_a_host_that_is_not_here_is_a_clear_error():
    for host in ("192.0.2.1", "no.such.host.invalid"):
        done = subprocess.run([COHORT, "serve", LLAMA, "--host", host, "--port", "0"],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert done.stderr.startswith(f"cohort: error: cannot listen on {host}:0")


def test_served_names_are_the_only_ones():
    with serving(LLAMA, "--served-model-name", "first", "--served-model-name", "second") as server:
        models = client_of(server).models.list().data
        assert [model.id for model in models] == ["first", "second"]
        for name in ("first", "second"):
            assert chat(server, name).model == name
        with pytest.raises(openai.NotFoundError):
            chat(server, "llama")
        assert '"model": "first"' in "".join(server.output)


# Keys

def test_who_has_no_key_is_not_let_in():
    with serving(LLAMA, "--api-key", "first", "--api-key", "second") as server:
        for key in "first", "second":
            client = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
            assert client.models.list().data[0].id == "llama"
        stranger = openai.OpenAI(base_url=server.url + "/v1", api_key="third", max_retries=0)
        with pytest.raises(openai.AuthenticationError) as caught:
            stranger.completions.create(model="llama", prompt="a", max_tokens=1)
        assert caught.value.code == "invalid_api_key"
        for path in "/metrics", "/stats", "/v1/models", "/debug/traces", "/nothing":
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(server.url + path, timeout=10)
            assert refused.value.code == 401
            assert refused.value.headers["WWW-Authenticate"] == "Bearer"
        assert not any("first" in line for line in server.output)


@pytest.mark.parametrize("option", [
    "--api-key=", "--api-key=two words", "--api-key=a,b", "--api-key=--port", "--allowed-host=",
    "--allowed-host=name:9000", "--allowed-host=*.lan", "--allowed-origin=chat.example",
    "--allowed-origin=https://chat.example/",
])
def test_what_could_never_match_is_refused_at_start(option):
    done = subprocess.run([COHORT, "serve", str(LLAMA), "--port", "0", option], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode != 0
    assert option.split("=")[0] in done.stderr


# Models

def test_a_folder_is_served_with_its_template_and_context():
    with serving(LLAMA) as server:
        model, = client_of(server).models.list().data
        assert model.id == "llama"
        assert model.context_length == 2048
        answer = chat(server)
        assert answer.usage.completion_tokens > 0
    with serving(LLAMA, "--context-tokens", "64") as server:
        assert client_of(server).models.list().data[0].context_length == 64
        with pytest.raises(openai.BadRequestError) as caught:
            chat(server, max_tokens=64)
        assert caught.value.code == "context_length_exceeded"
        whole = chat(server, max_tokens=None, extra_body={"ignore_eos": True})
        assert whole.usage.total_tokens == 64


def test_a_gguf_file_is_served_under_its_name(tmp_path):
    file = tmp_path / "my-model.gguf"
    file.symlink_to(path_of("smollm2"))
    with serving(file) as server:
        assert client_of(server).models.list().data[0].id == "my-model"
        assert chat(server).choices[0].message.content


def test_a_model_without_template_says_so():
    with serving("gemma3-270m", "--max-tokens", "4") as server:
        with pytest.raises(openai.BadRequestError, match="chat-template"):
            chat(server)
        model = client_of(server).models.list().data[0].id
        done = client_of(server).completions.create(model=model, prompt="The capital of France is",
                                                    temperature=0)
        assert done.usage.completion_tokens == 4


def test_a_model_whose_weights_are_no_numbers_says_so(tmp_path):
    folder = tmp_path / "llama"
    shutil.copytree(LLAMA, folder)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    data = 8 + int.from_bytes(weights[:8], "little")
    begin, end = json.loads(weights[8:data])["model.norm.weight"]["data_offsets"]
    weights[data + begin:data + end] = b"\xff" * (end - begin)  # NaN
    (folder / "model.safetensors").write_bytes(weights)
    with serving(folder) as server:
        said = "the model produced no finite logits: its weights may be damaged"
        with pytest.raises(openai.InternalServerError, match=said) as caught:
            chat(server)
        assert caught.value.type == "server_error"
        with pytest.raises(openai.APIError, match=said):
            list(chat(server, stream=True))
        assert get(server.url + "/health") == (200, {"status": "ok"})


def test_two_servers_share_one_model():
    with serving("smollm2") as one, serving("smollm2") as two:
        assert one.port != two.port
        answers = {chat(server).choices[0].message.content for server in (one, two, one)}
        assert len(answers) == 1


def test_silent_connections_keep_nobody_out():
    with serving() as server, contextlib.ExitStack() as silent:
        least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        silent.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (least, most))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(least, min(most, 4096)), most))
        for _ in range(1200):  # the server holds 1,024 of them
            silent.enter_context(socket.create_connection((server.host, server.port)))
        assert get(server.url + "/health") == (200, {"status": "ok"})
        assert chat(server).choices[0].message.content


def test_the_model_may_be_deleted_once_it_is_loaded(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(LLAMA, folder)
    with serving(folder) as server:
        before = chat(server).choices[0].message.content
        shutil.rmtree(folder)
        assert chat(server).choices[0].message.content == before


@pytest.mark.parametrize("model, most", [
    ("smollm2", 1.3),
    ("gemma3-270m", 1.6),  # the scales of K-quants are kept as f32; 262,144 tokens take 80 MB
])
def test_memory_is_little_more_than_the_model(model, most):
    """Of the process's own: the pages of programs and libraries are shared with others."""
    file_bytes = path_of(model).stat().st_size
    with serving(model) as server:
        own, shared, peak = (memory_kb(server.process, field) * 1024
                             for field in ("RssAnon", "RssFile", "VmHWM"))
    print(f"{model}: file {file_bytes / 1e6:.1f} MB, own {own / 1e6:.1f} MB, shared "
          f"{shared / 1e6:.1f} MB, peak while loading {peak / 1e6:.1f} MB")
    assert own <= most * file_bytes
    assert shared <= 30e6  # the mapped model file is not among it
    assert peak <= 2 * file_bytes


@pytest.mark.parametrize("model, bytes_per_token", [("smollm2", 30 * 2 * 3 * 64 * 2)])
def test_memory_of_answers_is_bounded(model, bytes_per_token):
    with serving(model) as server:
        client = client_of(server)
        before = memory_kb(server.process, "RssAnon") * 1024
        for _ in range(3):
            done = client.completions.create(model=model, prompt=[65] * 512, max_tokens=16,
                                             temperature=0, extra_body={"ignore_eos": True})
        after = memory_kb(server.process, "RssAnon") * 1024
    cache = bytes_per_token * done.usage.total_tokens
    print(f"{model}: 528 tokens took {(after - before) / 1e6:.1f} MB, {cache / 1e6:.1f} MB of it KV")
    assert after - before <= cache + 256e6  # activations, up to what the allocator keeps for reuse


# /stats

def test_stats_say_what_is_held():
    with serving("smollm2") as server:
        chat(server)
        deadline = time.monotonic() + 30
        while True:  # the row goes after the last token was sent
            status, stats = get(server.url + "/stats")
            assert status == 200
            if stats["rows"] == 0 and stats["prefix_cache"]["entries"] == 1:
                break
            assert time.monotonic() < deadline, stats
            time.sleep(0.02)
    kv, prefixes = stats.pop("kv"), stats.pop("prefix_cache")
    assert stats.pop("ssd_cache") is None
    assert set(stats) == {"rows", "waiting", "parked", "preemptions", "iterations", "failed_forwards",
                          "resumed_answers"}
    assert (stats["rows"], stats["waiting"], stats["failed_forwards"]) == (0, 0, 0)
    assert prefixes.keys() == {"entries", "bytes", "hits", "misses", "evictions", "cached_tokens"}
    assert 0 < kv["used_bytes"] <= prefixes["bytes"], "only what is kept for the next turn"
    assert stats["iterations"] > 0
    assert set(kv) == {"scheme", "by_request", "used_bytes", "held_bytes", "schemes"}
    assert kv["scheme"] == "bf16" and kv["by_request"] is False
    fit = subprocess.run([COHORT, "fit", "smollm2", "--json"], capture_output=True, check=True)
    fits = json.loads(fit.stdout)["schemes"]
    for scheme in fits:
        scheme.pop("context_tokens", None), scheme.pop("rows_of_whole_context", None)
    assert kv["schemes"] == fits


def test_stats_of_a_running_answer_count_its_memory():
    with serving("smollm2") as server:
        _, rest = open_stream(server, 500)
        _, stats = get(server.url + "/stats")
        assert stats["rows"] == 1
        assert 0 < stats["kv"]["used_bytes"] <= stats["kv"]["held_bytes"]
        assert list(rest)[-1].usage.completion_tokens == 500
