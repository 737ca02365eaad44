"""More prompts than the caches hold, from several clients at once: budgets, answers, conversations."""

import fcntl
import json
import os
import random
import threading
import urllib.request

import pytest

from test_limits import complete, eventually, metrics_of, prompt_of
from test_prompt_cache import cached
from test_serve_process import LLAMA, serving
from test_ssd_cache import ssd_stats, verify

ROUNDS = int(os.environ.get("COHORT_TEST_ROUNDS", "1"))
MB = 1 << 20
PROMPT_TOKENS = 940  # 15 blocks of 32 KB with an answer: two prompts in 1 MB
PROMPTS = [prompt_of(seed, PROMPT_TOKENS) for seed in range(500, 512)]
CLIENTS = 4


def stats_of(server):
    with urllib.request.urlopen(server.url + "/stats", timeout=10) as response:
        return json.load(response)


class Watch:
    """Looks at the server all the time: what is kept never exceeds its budget."""

    def __init__(self, server):
        self.server = server
        self.most_bytes, self.most_used = 0, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.over.wait(0.002):
            stats = stats_of(self.server)
            self.most_bytes = max(self.most_bytes, stats["prefix_cache"]["bytes"])
            self.most_used = max(self.most_used, stats["kv"]["used_bytes"])

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def side_by_side(*works):
    """Every piece of work on a thread of its own; fails if one does, or does not come to its end."""
    failures = []

    def guarded(work):
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a client waits forever"
    if failures:
        raise failures[0]


def press(server, rounds):
    """Every client asks all prompts in an order of its own. Returns how many tokens were found."""
    def ask(prompt, **fields):
        return complete(server, prompt, max_tokens=12, extra_body=fields)

    alone = [ask(prompt, cache_prompt=False).choices for prompt in PROMPTS]
    found = []

    def client(seed):
        draw = random.Random(seed)
        for _ in range(rounds):
            for i in draw.sample(range(len(PROMPTS)), len(PROMPTS)):
                # Now and then the same at once, so that there is something to find.
                for _ in range(draw.choice([1, 1, 2])):
                    answer = ask(PROMPTS[i])
                    assert answer.choices == alone[i], f"prompt {i}"
                    found.append(cached(answer))

    side_by_side(*[lambda seed=seed: client(seed) for seed in range(CLIENTS)])
    assert set(found) <= {*range(3), PROMPT_TOKENS - 1}, "prompts have no more than a token in common"
    return sum(found)


def expect_at_rest(server, watch):
    """All rows are gone, and what is in use is what is kept."""
    def rests(stats):
        # The bytes of entries include their books.
        return stats["rows"] == 0 and 0 < stats["kv"]["used_bytes"] <= stats["prefix_cache"]["bytes"] <= MB

    eventually(lambda: rests(stats_of(server)))
    stats = stats_of(server)
    assert watch.most_bytes <= MB
    assert watch.most_used > MB, "rows need more than what is kept"
    assert stats["waiting"] == stats["parked"] == stats["failed_forwards"] == 0
    assert 1 <= stats["prefix_cache"]["entries"] <= 3
    assert stats["prefix_cache"]["evictions"] > 0


@pytest.mark.parametrize("kv_memory_mb", [1024, 3])
def test_prompts_that_drive_each_other_out_are_answered_alike(kv_memory_mb):
    with serving(LLAMA, "--prompt-cache-mb", "1", "--kv-memory-mb", kv_memory_mb) as server:
        server.name = "llama"
        with Watch(server) as watch:
            assert press(server, 2 * ROUNDS) > 0
        expect_at_rest(server, watch)
        assert watch.most_used <= kv_memory_mb * MB


def reserve(folder, left_bytes):
    """Takes all of 1 GB but `left_bytes` in the name of another server, which uses the file."""
    (folder / ("0" * 32)).mkdir(mode=0o700)
    file = open(folder / ("0" * 32) / ("0" * 32 + ".kv"), "wb")
    file.truncate((1 << 30) - left_bytes)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def test_a_small_ssd_cache_under_pressure_stays_small_and_answers_alike(tmp_path):
    room = 3 * MB // 2  # three files
    with reserve(tmp_path, room), serving(LLAMA, "--prompt-cache-mb", "1", "--kv-memory-mb", "32",
                                          "--ssd-cache", tmp_path, "--ssd-cache-max", "1") as server:
        server.name = "llama"
        with Watch(server) as watch:
            assert press(server, 2 * ROUNDS) > 0
        eventually(lambda: ssd_stats(server)["pending_writes"] == 0)
        expect_at_rest(server, watch)
        disk = ssd_stats(server)
        assert disk["removed"] > 0 and disk["hits"] > 0, disk
        assert disk["write_errors"] == disk["damaged"] == 0, disk
        files = [path for path in tmp_path.glob("*/*.kv") if path.parent.name != "0" * 32]
        assert 0 < sum(path.stat().st_size for path in files) <= room
        assert disk["bytes"] == sum(path.stat().st_size for path in files)
    for path in (tmp_path / ("0" * 32)).iterdir():
        path.unlink()
    assert verify(tmp_path).returncode == 0


@pytest.mark.parametrize("flags", [[], ["--ssd-cache"]])
def test_two_conversations_outlive_a_crowd_of_single_prompts(tmp_path, flags):
    folder = [tmp_path] if flags else []
    with serving(LLAMA, "--prompt-cache-mb", "1", *flags, *folder) as server:
        server.name = "llama"
        talks = {name: prompt_of(seed, 200) for seed, name in enumerate(["a", "b"], 600)}
        seeds = iter(range(1000, 2000))
        with Watch(server) as watch:
            for turn in range(6):
                for name, prompt in talks.items():
                    def crowd(seed):
                        complete(server, prompt_of(seed, 300), max_tokens=10)

                    def talk():
                        answer = complete(server, prompt, max_tokens=10, extra_body={"session_id": name})
                        if turn > 0:
                            assert cached(answer) == len(prompt) - 80, f"turn {turn} of {name}"

                    side_by_side(talk, *[lambda seed=next(seeds): crowd(seed) for _ in range(5)])
                    talks[name] = prompt + prompt_of(next(seeds), 80)
        stats = stats_of(server)
        assert stats["prefix_cache"]["evictions"] > 0 and watch.most_bytes <= MB
        if not flags:
            return
        hits = metrics_of(server)["cohort_prefix_hits_total"][""]
        assert hits >= 10, "turns are found in memory"
