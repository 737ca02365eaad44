"""Answers that outlive the server, as clients see it: a retry under the same id gets the whole answer."""

import contextlib
import hashlib
import json
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

import openai
import pytest

from test_limits import metrics_of, prompt_of
from test_serve_process import COHORT, LLAMA, get, serving

TOKENS = 1800
EVERY = 50


def with_checkpoints(folder):
    return serving(LLAMA, "--ssd-cache", folder, "--generation-checkpoint", EVERY, "--context-tokens", 2048)


def ask(server, prompt, request_id, key="none", **fields):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=120)
    headers = {"X-Request-Id": request_id} if request_id else {}
    fields = {"max_tokens": TOKENS, "temperature": 1, "seed": 7, **fields}
    extra = {"ignore_eos": True, "repetition_penalty": 1.1}
    return client.completions.create(model="llama", prompt=prompt, extra_headers=headers, extra_body=extra, **fields)


def kill_in_the_middle(folder, prompt, request_id, **fields):
    """Kills a server when the first checkpoint is there, long before the last token.

    Returns the seed of the answer."""
    with with_checkpoints(folder) as server:
        chunks = []

        def read():
            with contextlib.suppress(Exception):  # the server was killed
                for chunk in ask(server, prompt, request_id, stream=True, **fields):
                    chunks.append(chunk)

        reader = threading.Thread(target=read)
        reader.start()
        deadline = time.monotonic() + 60
        while not (chunks and list(folder.rglob("*.kv"))):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        server.process.kill()
        server.process.wait()
        reader.join()
        assert chunks and not any(c.choices[0].finish_reason for c in chunks)
        return chunks[0].seed


def text_of(answer):
    return answer.choices[0].text


def with_next_token(record, token):
    """A file of a checkpoint whose last token is another one, with all checksums right."""
    length = int.from_bytes(record[12:16], "little")
    head = json.loads(record[16:16 + length])
    about, generation = head["about"], head["about"]["generation"]
    ids = [int(about["ids"][i:i + 8], 16) for i in range(0, len(about["ids"]), 8)]
    answer = [*ids[generation["promptTokens"]:], token]
    generation["next"] = token
    said = f"{generation['key']}\0{generation['fingerprint']}\0".encode()
    said += struct.pack("<Q", generation["seed"]) + struct.pack(f"<{len(answer)}i", *answer)
    generation["checksum"] = hashlib.sha256(said).hexdigest()
    text = json.dumps(head).encode()
    text += b" " * (-(16 + len(text)) % 64)
    whole = record[:12] + len(text).to_bytes(4, "little") + text + record[16 + length:-64]
    return whole + hashlib.sha256(whole).hexdigest().encode()


@pytest.mark.parametrize("token", [400, 2**31 - 1])
def test_a_checkpoint_with_tokens_that_the_model_lacks_is_not_believed(tmp_path, token):
    prompt = prompt_of(31, 100)
    kill_in_the_middle(tmp_path, prompt, "mine")
    for file in tmp_path.rglob("*.kv"):
        file.write_bytes(with_next_token(file.read_bytes(), token))
    for file in tmp_path.glob("index.sqlite*"):
        file.unlink()
    with with_checkpoints(tmp_path) as server:
        assert ask(server, prompt, "mine", max_tokens=TOKENS).usage.completion_tokens == TOKENS
        assert get(server.url + "/stats")[1]["resumed_answers"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_killed_server_goes_on_with_the_answer(tmp_path, stream):
    prompt = prompt_of(31, 100)
    with serving(LLAMA, "--context-tokens", 2048) as server:
        whole = ask(server, prompt, None)
    assert whole.usage.completion_tokens == TOKENS
    kill_in_the_middle(tmp_path, prompt, "mine")
    with with_checkpoints(tmp_path) as server:
        again = ask(server, prompt, "mine", stream=stream,
                    **({"stream_options": {"include_usage": True}} if stream else {}))
        if stream:
            chunks = list(again)
            text, usage = "".join(text_of(c) for c in chunks if c.choices), chunks[-1].usage
        else:
            text, usage = text_of(again), again.usage
        assert text == text_of(whole)
        assert usage.completion_tokens == TOKENS
        assert usage.prompt_tokens == usage.prompt_tokens_details.cached_tokens == len(prompt)
        assert get(server.url + "/stats")[1]["resumed_answers"] == 1
        generated = metrics_of(server)["cohort_generated_tokens_total"][""]
        assert generated <= TOKENS - EVERY and (TOKENS - generated) % EVERY == 0


def test_without_a_seed_the_retry_has_the_first_one(tmp_path):
    prompt = prompt_of(32, 60)
    seed = kill_in_the_middle(tmp_path, prompt, "mine", seed=None)
    with with_checkpoints(tmp_path) as server:
        again = ask(server, prompt, "mine", seed=None)
        assert again.seed == seed
        assert text_of(again) == text_of(ask(server, prompt, None, seed=seed))


def test_others_are_answered_anew(tmp_path):
    prompt = prompt_of(33, 60)
    kill_in_the_middle(tmp_path, prompt, "mine", key="a key")
    with with_checkpoints(tmp_path) as server:
        def resumed():
            return get(server.url + "/stats")[1]["resumed_answers"]

        fresh = [ask(server, prompt, None, key="a key"), ask(server, prompt, "mine", key="another key"),
                 ask(server, prompt, "another", key="a key")]
        assert resumed() == 0
        whole = ask(server, prompt, "mine", key="a key")
        assert resumed() == 1
        assert {text_of(answer) for answer in fresh} == {text_of(whole)}
    kill_in_the_middle(tmp_path / "b", prompt, "mine", key="a key")
    with with_checkpoints(tmp_path / "b") as server:
        assert ask(server, prompt, "mine", key="a key", max_tokens=40).usage.completion_tokens == 40
        assert resumed() == 0


def test_checkpoints_need_a_folder():
    run = subprocess.run([COHORT, "serve", str(LLAMA), "--port", "0", "--generation-checkpoint", "8"],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode != 0 and "--ssd-cache" in run.stderr


def test_a_head_names_a_session():
    with serving(LLAMA) as server:
        def status(headers, **fields):
            body = {"prompt": "a", "max_tokens": 1, **fields}
            request = urllib.request.Request(server.url + "/v1/completions", data=json.dumps(body).encode(),
                                             headers={"Content-Type": "application/json", **headers})
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:
                    return reply.status, ""
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)["error"]["message"]

        assert status({"x-session-affinity": "a", "session_id": "b"})[0] == 200
        assert status({}, session_id="a", prompt_cache_key="a")[0] == 200
        code, message = status({}, session_id="a", prompt_cache_key="b")
        assert code == 400 and "session_id and prompt_cache_key differ" in message
