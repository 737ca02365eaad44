#!/usr/bin/env python3
"""What a model costs before and beside its work: the first token, memory, the CPU of an idle server.

    .deps/venv/bin/python bench/startup.py [--record]

The file is in the page cache: the first start of a model is not counted. Prints a table and one line of
JSON; --record also keeps that line in bench/results/.
"""

import argparse
import asyncio
import os
import pathlib
import subprocess
import time

import traffic
from machine import TREE, cell, circumstances, fail, finish, note, pull_gguf, spread

PROMPT = "Why is the sky blue?"
TOKENS = 16


def first_token_seconds(args, file):
    """From the start of `cohort run` to the first byte of its answer."""
    command = [args.cohort, "run", file, PROMPT, "--max-tokens", str(TOKENS)]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        first = process.stdout.read(1)
        elapsed = time.monotonic() - began
        process.stdout.read()
    if process.returncode != 0 or not first:
        fail(f"`cohort run` ended with status {process.returncode}")
    return elapsed


def memory(pid, file):
    """Bytes of a process by whose they are; pages of programs and libraries are everybody's."""
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    bytes_of = {name: int(status[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem", "RssFile", "VmHWM")}
    of_file, ours = 0, False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split(None, 5)
        if not words[0].endswith(":"):  # the head of a mapping
            ours = len(words) > 5 and words[5] == file
        elif ours and words[0] == "Rss:":
            of_file += int(words[1]) << 10
    return {"anon": bytes_of["RssAnon"], "shmem": bytes_of["RssShmem"], "model_file": of_file,
            "programs": bytes_of["RssFile"] - of_file, "peak": bytes_of["VmHWM"]}


def children(pid):
    return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()]


async def ask(port):
    status, answer = await traffic.fetch(port, "POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": TOKENS})
    if status != 200:
        fail(f"the server answered {status}: {answer}")


def measure_server(args, file):
    """Of a server after one short answer."""
    with traffic.Server([args.cohort, "serve", file]) as server:
        asyncio.run(ask(server.port))
        pid = server.process.pid
        used = memory(pid, file)
        used["worker"] = sum(memory(child, file)["anon"] for child in children(pid))
        before = server.cpu_seconds()
        time.sleep(args.idle)
        busy = (server.cpu_seconds() - before) / args.idle if args.idle else 0.0
    return used, busy


def measure(args, model, file):
    note(f"{model}: {args.rounds} starts, then {args.idle:.0f} s of an idle server")
    first_token_seconds(args, file)
    seconds = [round(first_token_seconds(args, file), 3) for _ in range(args.rounds)]
    used, busy = measure_server(args, file)
    held = used["anon"] + used["shmem"] + used["model_file"] + used["worker"]
    size = os.path.getsize(file)
    return {"model": model, "first_token_s": spread(seconds), "starts_s": seconds, "file_bytes": size,
            "held_bytes": held, "held_ratio": round(held / size, 3), "memory": used, "idle_cpu": round(busy, 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", action="append", help="may repeat (default: smollm2 and gemma3-270m)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=30, metavar="SECONDS")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    parser.add_argument("--record", action="store_true", help="keep the JSON in bench/results/")
    args = parser.parse_args()
    models = {model: pull_gguf(args.cohort, model) for model in args.model or ["smollm2", "gemma3-270m"]}
    report = {**circumstances(), "cases": [measure(args, model, file) for model, file in models.items()]}
    print("| model | first token, s | memory, MB | of the file | peak, MB | idle CPU |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in report["cases"]:
        print(f"| {case['model']} | {cell(case['first_token_s'], 2)} | {case['held_bytes'] / 1e6:.0f} "
              f"| {case['held_ratio']:.2f} x | {case['memory']['peak'] / 1e6:.0f} | {case['idle_cpu']:.2%} |")
    finish(report, args.record)


if __name__ == "__main__":
    main()
