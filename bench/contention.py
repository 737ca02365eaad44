#!/usr/bin/env python3
"""What one other busy process costs: decode speed alone and beside it, in turns.

    .deps/venv/bin/python bench/contention.py [--record]

The other is a loop of the shell, in cohort's session or, with --apart, in one of its own: then Linux shares
a core between sessions (sched_autogroup_enabled), and gives the loop more. Prints a table and one line of
JSON; --record also keeps that line in bench/results/.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess

from machine import TREE, cell, circumstances, finish, note, run, spread


@contextlib.contextmanager
def busy_process(wanted, apart):
    command = ["sh", "-c", "while :; do :; done"]
    process = subprocess.Popen(command, start_new_session=apart) if wanted else None
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


def decode_rate(args, model, beside):
    with busy_process(beside, args.apart):
        found = run([args.cohort, "bench", model, "--threads", args.threads, "--prefill", args.prefill,
                     "--decode", args.decode, "--json"])
    return json.loads(found)["decode_tok_s"]


def measure(args, model):
    rounds = []
    for index in range(args.rounds):
        # Who goes first changes each round, so that drift favours nobody.
        order = [False, True] if index % 2 == 0 else [True, False]
        found = {beside: decode_rate(args, model, beside) for beside in order}
        rounds.append({"alone": found[False], "beside": found[True], "kept": found[True] / found[False]})
        note("{} round {}: {alone:.0f} tok/s alone, {beside:.0f} beside".format(model, index + 1, **rounds[-1]))
    return {key: spread([found[key] for found in rounds]) for key in rounds[0]} | {"rounds": rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", action="append", help="may repeat (default: smollm2 and gemma3-270m)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill", type=int, default=64)
    parser.add_argument("--decode", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--apart", action="store_true", help="the busy process has a session of its own")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    parser.add_argument("--record", action="store_true", help="keep the JSON in bench/results/")
    args = parser.parse_args()
    report = {**circumstances(), "threads": args.threads, "apart": args.apart, "decode_tokens": args.decode,
              "cases": []}
    for model in args.model or ["smollm2", "gemma3-270m"]:
        report["cases"].append({"model": model, **measure(args, model)})
    print("| model | alone tok/s | beside a busy process | share kept |\n| --- | --- | --- | --- |")
    for case in report["cases"]:
        print(f"| {case['model']} | {cell(case['alone'], 0)} | {cell(case['beside'], 0)} "
              f"| {cell(case['kept'], 2)} |")
    finish(report, args.record)


if __name__ == "__main__":
    main()
