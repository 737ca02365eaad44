#!/usr/bin/env python3
"""Cohort and llama.cpp on the same file, in turns: prompt and answer speed, and their ratio.

    .deps/venv/bin/python bench/compare.py [--quick] [--record]

llama.cpp is built natively, once, in a cache folder, from the source that the PyPI package
llama-cpp-python carries. Prints a table and one line of JSON; --record also keeps that line in
bench/results/. Rates drift by tens of percent between minutes of a shared machine, so every round runs
both programs and the ratio is taken within the round.
"""

import argparse
import json
import pathlib
import resource
import subprocess

import llama_cpp
from machine import (QUIET_SHARE, TREE, OthersClock, cell, circumstances, finish, note, play_rounds, pull_gguf, run,
                     spread)

RATES = ("prefill", "decode")


def child_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_measured(command):
    """Output of a program, and the share of the machine that others took meanwhile (0 to 1)."""
    clock = OthersClock(child_seconds)
    output = run(command, stderr=subprocess.DEVNULL)
    return output, clock.share()


def sample_cohort(args, model, threads):
    output, others = run_measured([args.cohort, "bench", model, "--threads", threads, "--prefill", args.prefill,
                                   "--decode", args.decode, "--json"])
    found = json.loads(output)
    return {"prefill": found["prefill_tok_s"], "decode": found["decode_tok_s"], "others": others}


def sample_llama(args, model, threads):
    output, others = run_measured([args.llama_bench, "-m", model, "-t", threads, "-r", 1, "-fa", "on",
                                   "-p", args.prefill, "-n", args.decode, "-o", "json"])
    found = {"prefill" if test["n_prompt"] else "decode": test["avg_ts"] for test in json.loads(output)}
    return found | {"others": others}


PROGRAMS = {"cohort": sample_cohort, "llama.cpp": sample_llama}


def measure(args, model, threads):
    """Rounds of both programs, and how many more were set aside as disturbed."""
    def say(index, samples):
        rates = ", ".join(name + " " + "/".join(f"{samples[name][rate]:.0f}" for rate in RATES) for name in PROGRAMS)
        others = max(sample["others"] for sample in samples.values())
        note(f"round {index} of {args.rounds}, {threads} threads: {rates} tok/s; others' CPU {others:.0%}")

    samplers = {name: lambda sample=sample: sample(args, model, threads) for name, sample in PROGRAMS.items()}
    return play_rounds(samplers, args.rounds, args.patience, say)


def summarize(rounds):
    result = {}
    for rate in RATES:
        values = {name: [samples[name][rate] for samples in rounds] for name in PROGRAMS}
        ratios = [ours / theirs for ours, theirs in zip(values["cohort"], values["llama.cpp"])]
        result[rate] = {**{name: spread(found) for name, found in values.items()}, "ratio": spread(ratios)}
    return result | {"others": spread([sample["others"] for samples in rounds for sample in samples.values()])}


def table(report):
    yield "| model | threads | rate | cohort tok/s | llama.cpp tok/s | ratio | others' CPU |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for case in report["cases"]:
        for rate in RATES:
            found = case[rate]
            yield (f"| {case['model']} | {case['threads']} | {rate} | {cell(found['cohort'], 0)} "
                   f"| {cell(found['llama.cpp'], 0)} | {cell(found['ratio'], 2)} "
                   f"| {case['others']['median']:.0%} (at most {case['others']['max']:.0%}) |")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds of smollm2 with 2 threads")
    parser.add_argument("--model", action="append", metavar="MODEL",
                        help="alias or .gguf, may repeat (default: smollm2 and gemma3-270m)")
    parser.add_argument("--threads", type=int, action="append", help="may repeat (default: 1 and 2)")
    parser.add_argument("--rounds", type=int, help="default: 5")
    parser.add_argument("--patience", type=float, default=0, metavar="MINUTES",
                        help="so long per model and thread count, rounds that others disturb are repeated")
    parser.add_argument("--prefill", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--decode", type=int, default=128, help="tokens of the answer")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    llama_cpp.add_flags(parser, "llama-bench")
    parser.add_argument("--record", action="store_true", help="keep the JSON in bench/results/")
    args = parser.parse_args()
    args.model = args.model or (["smollm2"] if args.quick else ["smollm2", "gemma3-270m"])
    args.threads = args.threads or ([2] if args.quick else [1, 2])
    args.rounds = args.rounds or (3 if args.quick else 5)
    if min(args.rounds, args.prefill, args.decode, *args.threads) < 1:
        parser.error("rounds, threads and tokens are at least 1")
    return args


def main():
    args = parse_arguments()
    files = {model: pull_gguf(args.cohort, model) for model in args.model}
    args.llama_bench, peer = llama_cpp.provide(args, "llama-bench")
    report = {**circumstances(), "llama_cpp": peer, "prefill_tokens": args.prefill, "decode_tokens": args.decode,
              "cases": []}
    for model, file in files.items():
        for threads in args.threads:
            rounds, set_aside = measure(args, file, threads)
            report["cases"].append({"model": model, "threads": threads, **summarize(rounds),
                                    "set_aside": set_aside, "rounds": rounds})
    print("\n".join(table(report)))
    if any(case["others"]["max"] > QUIET_SHARE for case in report["cases"]):
        print("Other programs had the CPU meanwhile: llama.cpp's threads wait by spinning and suffer more, so these "
              "ratios flatter cohort.")
    finish(report, args.record)


if __name__ == "__main__":
    main()
