"""Prompts that begin like earlier ones, as clients see it: usage, fields, metrics, and the same text."""

import itertools

import pytest

from test_limits import complete, eventually, metrics_of, prompt_of
from test_serve_process import HELLO, LLAMA, client_of, serving

fresh = itertools.count(1000)


@pytest.fixture(scope="module")
def llama():
    with serving(LLAMA) as server:
        server.name = "llama"
        yield server


def new_prompt(tokens=150):
    return prompt_of(next(fresh), tokens)


def cached(answer):
    return answer.usage.prompt_tokens_details.cached_tokens


def ask(server, prompt, **fields):
    return complete(server, prompt, max_tokens=20, extra_body=fields)


def test_the_same_again_is_read_once_and_answered_alike(llama):
    prompt = new_prompt()
    first, second = ask(llama, prompt), ask(llama, prompt)
    assert cached(first) == 0
    assert cached(second) == len(prompt) - 1
    assert first.usage.prompt_tokens == second.usage.prompt_tokens == len(prompt)
    assert first.usage.completion_tokens == second.usage.completion_tokens
    assert first.choices == second.choices
    again = ask(llama, prompt[:100] + new_prompt(50))
    assert cached(again) == 100


def test_what_is_not_to_be_cached_is_neither_found_nor_kept(llama):
    prompt = new_prompt()
    first = ask(llama, prompt)
    without = ask(llama, prompt, cache_prompt=False)
    assert cached(without) == 0 and without.choices == first.choices
    secret = new_prompt()
    assert cached(ask(llama, secret, cache_prompt=False)) == 0
    assert cached(ask(llama, secret)) == 0
    assert cached(ask(llama, secret, cache_prompt=True)) == len(secret) - 1


def test_salts_separate(llama):
    prompt = new_prompt()
    seen = [(salt, cached(ask(llama, prompt, cache_salt=salt))) for salt in ("a", "b", "a", "", "b", "")]
    whole = len(prompt) - 1
    assert seen == [("a", 0), ("b", 0), ("a", whole), ("", 0), ("b", whole), ("", whole)]
    assert cached(ask(llama, prompt)) == whole, "an empty salt is none"


def test_keys_separate_unless_a_salt_joins_them(llama):
    def seen(prompt, key, **fields):
        return cached(complete(llama, prompt, key, max_tokens=1, extra_body=fields))

    prompt, shared = new_prompt(), new_prompt()
    whole = len(prompt) - 1
    assert [seen(prompt, key) for key in ("one", "two", "one")] == [0, 0, whole]
    assert [seen(shared, key, cache_salt="both") for key in ("one", "two")] == [0, whole]


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_tells_its_cached_tokens_with_the_usage(llama, n):
    prompt = new_prompt()

    def stream():
        return list(complete(llama, prompt, max_tokens=20, n=n, stream=True,
                             stream_options={"include_usage": True}))

    def texts(chunks):
        return ["".join(c.choices[0].text for c in chunks if c.choices and c.choices[0].index == i)
                for i in range(n)]

    first, second = stream(), stream()
    assert cached(first[-1]) == 0
    assert cached(second[-1]) == len(prompt) - 1
    assert all(chunk.usage is None for chunk in second[:-1])
    assert texts(first) == texts(second)


def test_the_next_turn_of_a_conversation_finds_the_one_before(llama):
    client = client_of(llama)

    def turn(messages, **fields):
        return client.chat.completions.create(model="llama", messages=messages, max_tokens=10,
                                              temperature=0, extra_body=fields)

    first = turn(HELLO)
    messages = [*HELLO, {"role": "assistant", "content": first.choices[0].message.content},
                {"role": "user", "content": "And again."}]
    alone, second = turn(messages, cache_prompt=False), turn(messages)
    assert cached(second) >= first.usage.prompt_tokens - 1
    assert second.choices == alone.choices


def test_metrics_move_with_what_usage_tells(llama):
    prompt = new_prompt()

    def ended():
        return metrics_of(llama)["cohort_requests_ended_total"]["length"]

    before = metrics_of(llama)
    answers = [ask(llama, prompt), ask(llama, prompt), ask(llama, prompt, cache_prompt=False)]
    # An end is counted just after it is told.
    eventually(lambda: ended() == before["cohort_requests_ended_total"]["length"] + 3)
    after = metrics_of(llama)

    def moved(name, sample=""):
        return after[name][sample] - before[name][sample]

    assert moved("cohort_prompt_tokens_total") == sum(a.usage.prompt_tokens for a in answers)
    assert moved("cohort_generated_tokens_total") == sum(a.usage.completion_tokens for a in answers)
    assert moved("cohort_cached_tokens_total") == sum(map(cached, answers)) == len(prompt) - 1
    assert moved("cohort_prefix_hits_total") == moved("cohort_prefix_misses_total") == 1
    for histogram in ("cohort_queue_seconds", "cohort_time_to_first_token_seconds"):
        assert moved(histogram, "_count") == 3
        assert moved(histogram, "_sum") > 0
    assert moved("cohort_inter_token_seconds", "_count") == 3 * 19
    assert moved("cohort_preemptions_total") == 0
    assert after["cohort_prefixes"][""] > 0
    assert 0 < after["cohort_prefix_bytes"][""]


def test_a_server_may_keep_nothing():
    with serving(LLAMA, "--prompt-cache-mb", "0") as server:
        server.name = "llama"
        prompt = new_prompt()
        first, second = ask(server, prompt), ask(server, prompt)
        assert cached(first) == cached(second) == 0
        assert first.choices == second.choices
        assert metrics_of(server)["cohort_prefixes"][""] == 0
