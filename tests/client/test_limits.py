"""Memory for keys and values, the queue and its limits, and who goes first in it."""

import contextlib
import pathlib
import random
import re
import threading
import time
import urllib.request

import openai
import pytest

from test_serve_process import LLAMA, client_of, get, serving
from test_watch import parse_metrics


def metrics_of(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=10) as reply:
        return {name: samples for name, (_, samples) in parse_metrics(reply.read().decode()).items()}


def gauge(server, name):
    return metrics_of(server)[name][""]


def eventually(holds, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def prompt_of(seed, tokens):
    return random.Random(seed).choices(range(300), k=tokens)


def complete(server, prompt, key="none", headers=None, **options):
    """A greedy completion of token ids, to its very end."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=120)
    extra = {"ignore_eos": True, **options.pop("extra_body", {})}
    return client.completions.create(model=server.name, prompt=prompt, temperature=0,
                                     extra_headers=headers, extra_body=extra, **options)


def test_prompts_that_are_far_too_long_keep_nobody_out():
    """Each would take seconds to tokenize to its end, and hundreds of megabytes."""
    with serving(LLAMA) as server:
        client = client_of(server)
        failures = []

        def flood():
            try:
                client.completions.create(model="llama", prompt="1" * 2_000_000)
            except openai.BadRequestError as failure:
                failures.append(failure.code)

        floods = [threading.Thread(target=flood) for _ in range(24)]
        for thread in floods:
            thread.start()
        slowest = 0
        while any(thread.is_alive() for thread in floods):
            begin = time.monotonic()
            client.completions.create(model="llama", prompt="a", max_tokens=1)
            slowest = max(slowest, time.monotonic() - begin)
        assert slowest < 10
        for thread in floods:
            thread.join()
        assert failures == ["context_length_exceeded"] * len(floods)
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        assert int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) < 500_000


class Waiting:
    """Requests on threads of their own, in the order in which they were answered."""

    def __init__(self, server):
        self.server = server
        self.threads = []
        self.done = []
        self.failed = []

    def submit(self, name, *arguments, **options):
        """Returns when it waits in the server's queue."""
        before = gauge(self.server, "cohort_waiting_requests")
        self.threads.append(threading.Thread(target=self._run, args=(name, arguments, options)))
        self.threads[-1].start()
        eventually(lambda: gauge(self.server, "cohort_waiting_requests") == before + 1)

    def _run(self, name, arguments, options):
        try:
            complete(self.server, *arguments, **options)
            self.done.append(name)
        except openai.APIError as error:
            self.failed.append(error)

    def join(self):
        for thread in self.threads:
            thread.join(120)
        assert not self.failed
        return self.done


@contextlib.contextmanager
def occupied(server):
    """The only row of the server is somebody's who goes away in the end."""
    stream = complete(server, prompt_of(0, 5), key="occupant", max_tokens=1900, stream=True,
                      extra_body={"cache_prompt": False})
    next(iter(stream))
    try:
        yield
    finally:
        stream.close()
    eventually(lambda: gauge(server, "cohort_rows") <= 1)


# Memory for keys and values

@pytest.fixture(scope="module")
def cramped():
    with serving(LLAMA, "--kv-memory-mb", "1", "--kv-dtype", "f32") as server:  # 1,024 tokens
        server.name = "llama"
        yield server
        assert get(server.url + "/health") == (200, {"status": "ok"})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt, max_tokens, param, said", [
    (1500, 5, "prompt", "the prompt's 1500 tokens and 5 of an answer"),
    (1024, None, "prompt", "the prompt's 1024 tokens and 1 of an answer"),
    (100, 1500, "max_tokens", "the prompt's 100 tokens and 1500 of an answer"),
])
def test_what_memory_can_never_hold_is_413(cramped, prompt, max_tokens, param, said, stream):
    before = metrics_of(cramped)
    with pytest.raises(openai.APIStatusError, match=said) as caught:
        complete(cramped, prompt_of(1, prompt), max_tokens=max_tokens, stream=stream)
    assert caught.value.status_code == 413
    assert "it holds 1024 tokens" in caught.value.message
    assert caught.value.param == param
    assert caught.value.code == "context_length_exceeded"
    assert metrics_of(cramped)["cohort_prompt_tokens_total"] == before["cohort_prompt_tokens_total"]


def test_an_answer_without_a_limit_bends_to_the_memory_there_is(cramped):
    answer = complete(cramped, prompt_of(2, 1000), max_tokens=None)
    assert answer.usage.total_tokens == 1024
    assert answer.choices[0].finish_reason == "length"


def test_many_that_fit_alone_succeed_one_after_another_and_together(cramped):
    prompts = [prompt_of(seed, 900) for seed in range(10, 18)]
    alone = [complete(cramped, prompt, max_tokens=100) for prompt in prompts]
    assert {answer.usage.completion_tokens for answer in alone} == {100}
    together = {}

    def run(i):
        together[i] = complete(cramped, prompts[i], max_tokens=100)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for i, answer in enumerate(alone):
        assert together[i].choices[0].text == answer.choices[0].text


def test_answers_that_outgrow_memory_give_way_and_go_on(cramped):
    prompts = [prompt_of(seed, 60) for seed in range(20, 24)]
    alone = [complete(cramped, prompt, max_tokens=500).choices[0].text for prompt in prompts]
    before = gauge(cramped, "cohort_preemptions_total")
    texts = {}

    def run(i):
        texts[i] = complete(cramped, prompts[i], max_tokens=500).choices[0].text

    for _ in range(10):  # until all four are there at once
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert [texts[i] for i in range(len(prompts))] == alone
        if gauge(cramped, "cohort_preemptions_total") > before:
            break
    assert gauge(cramped, "cohort_preemptions_total") > before
    eventually(lambda: gauge(cramped, "cohort_rows") == 0)
    assert gauge(cramped, "cohort_parked_rows") == 0


# How many may wait

def test_more_requests_than_may_wait_are_429():
    with serving("smollm2", "--max-rows", "1", "--max-waiting", "1") as server:
        server.name = "smollm2"
        waiting = Waiting(server)
        with occupied(server):
            waiting.submit("one", prompt_of(1, 5), max_tokens=2)
            for stream in (False, True):
                with pytest.raises(openai.RateLimitError, match="waiting already: 1, .*--max-waiting") as caught:
                    complete(server, prompt_of(2, 5), max_tokens=2, stream=stream)
                assert int(caught.value.response.headers["Retry-After"]) >= 1
                assert caught.value.type == "rate_limit_error"
            assert gauge(server, "cohort_waiting_requests") == 1
            assert get(server.url + "/health") == (200, {"status": "ok"})
        assert waiting.join() == ["one"]
        assert complete(server, prompt_of(2, 5), max_tokens=2).usage.completion_tokens == 2


def test_more_prompt_tokens_than_may_wait_are_429():
    with serving("smollm2", "--max-rows", "1", "--max-waiting-tokens", "100") as server:
        server.name = "smollm2"
        waiting = Waiting(server)
        with occupied(server):
            waiting.submit("long", prompt_of(1, 120), max_tokens=2)  # one may be longer
            with pytest.raises(openai.RateLimitError, match="120 tokens are waiting") as caught:
                complete(server, prompt_of(2, 5), max_tokens=2)
            assert int(caught.value.response.headers["Retry-After"]) >= 1
        waiting.join()
        with occupied(server):
            waiting.submit("most", prompt_of(3, 80), max_tokens=2)
            with pytest.raises(openai.RateLimitError, match="this one has 21"):
                complete(server, prompt_of(4, 21), max_tokens=2)
            waiting.submit("rest", prompt_of(5, 20), max_tokens=2)
            assert gauge(server, "cohort_waiting_tokens") == 100
        assert sorted(waiting.join()) == ["long", "most", "rest"]


# Who goes first

@pytest.fixture(scope="module")
def single():
    """A server of one row, so that the order of answers is that of the queue."""
    with serving("smollm2", "--max-rows", "1") as server:
        server.name = "smollm2"
        yield server


def test_a_clients_flood_does_not_hold_up_another(single):
    # A turn is 2,048 prompt tokens: six of these. They are the same, so that they cost no time.
    prompt = prompt_of(1, 300)
    queued = metrics_of(single)["cohort_queue_seconds"]["_count"]
    waiting = Waiting(single)
    with occupied(single):
        for _ in range(30):
            waiting.submit("flood", prompt, key="a", max_tokens=2)
        waiting.submit("other", prompt, key="b", max_tokens=2)
    done = waiting.join()
    assert len(done) == 31
    assert done.index("other") < 10
    assert metrics_of(single)["cohort_queue_seconds"]["_count"] == queued + 32


@pytest.mark.parametrize("high", [{"extra_body": {"priority": "high"}}, {"extra_body": {"priority": -1}},
                                  {"headers": {"X-Priority": "high"}}])
def test_high_priority_overtakes(single, high):
    waiting = Waiting(single)
    with occupied(single):
        waiting.submit("low", prompt_of(1, 20), max_tokens=16, extra_body={"priority": "low"})
        for _ in range(5):
            waiting.submit("normal", prompt_of(1, 20), max_tokens=16)
        waiting.submit("high", prompt_of(1, 20), max_tokens=16, **high)
    done = waiting.join()
    assert len(done) == 7
    # Threads may note two answers that came one after the other the other way round.
    assert done.index("high") <= 1 and done.index("low") >= 5, done
