#!/usr/bin/env python3
"""What one other busy process does to decoding: each program's rate beside it, as a share of its idle rate.

    .deps/venv/bin/python bench/contention.py [--model smollm2] [--rounds 5] [--record]

The other process spins in a session of its own, as the programs of other people do, pinned to no core: Linux
shares the processor among sessions first. Each round runs cohort and llama.cpp idle and beside it. Prints a
table and one line of JSON; --record also keeps that line in bench/results/.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import signal
import subprocess
import sys

import compare
import llama_cpp
from machine import TREE, cell, circumstances, finish, note, play_rounds, spread

IDLE, BUSY = "idle", "beside a busy process"
# Of an answer beside a busy session. llama.cpp takes about a second for each: its threads wait by spinning, and
# the system lets a thread spin for milliseconds before the one it waits for.
BUSY_TOKENS = {"cohort": 128, "llama.cpp": 8}


@contextlib.contextmanager
def busy_process(args):
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=not args.same_session)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def sample(args, model, program, state):
    if state == BUSY and not args.same_session:
        model = dataclasses.replace(model, answer_tokens=BUSY_TOKENS[program])
    with busy_process(args) if state == BUSY else contextlib.nullcontext():
        found = compare.PROGRAMS[program](args, model, args.threads, compare.Cell("decode", 0))
    # Beside a busy process the share of others is that process.
    return found if state == IDLE else found | {"others": 0, "beside": found["others"]}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2", help="as in compare.py")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--same-session", action="store_true", help="the busy process has no session of its own")
    parser.add_argument("--patience", type=float, default=0, metavar="MINUTES",
                        help="so long, rounds whose idle runs others disturb are repeated")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    llama_cpp.add_flags(parser, "llama-bench")
    parser.add_argument("--record", action="store_true", help="keep the JSON in bench/results/")
    return parser.parse_args()


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without the busy process
    args.llama_bench, peer = llama_cpp.provide(args, "llama-bench")
    model = compare.Model.find(args, args.model)
    samplers = {f"{program}, {state}": lambda program=program, state=state: sample(args, model, program, state)
                for program in BUSY_TOKENS for state in (IDLE, BUSY)}

    def say(index, samples):
        rates = "; ".join(f"{name} {found['rate']:.1f}" for name, found in samples.items())
        note(f"round {index} of {args.rounds}: {rates} tok/s")

    rounds, set_aside = play_rounds(samplers, args.rounds, args.patience, say)
    report = {**circumstances(), "llama_cpp": peer, "model": args.model, "threads": args.threads, "cases": []}
    print("| decode | idle tok/s | beside a busy process tok/s | kept |\n| --- | --- | --- | --- |")
    for program in BUSY_TOKENS:
        idle, busy = ([samples[f"{program}, {state}"]["rate"] for samples in rounds] for state in (IDLE, BUSY))
        case = {"program": program, "idle": spread(idle), "busy": spread(busy),
                "kept": spread([b / i for i, b in zip(idle, busy)])}
        report["cases"].append(case)
        print(f"| {program} | {cell(case['idle'], 1)} | {cell(case['busy'], 1)} | {cell(case['kept'], 2)} |")
    finish(report | {"set_aside": set_aside, "rounds": rounds}, args.record)


if __name__ == "__main__":
    main()
