#!/usr/bin/env python3
"""Cohort and llama.cpp on the same file, in turns: prompt and answer speed, and their ratio.

    .deps/venv/bin/python bench/compare.py [--cells prefill512,decode2048,batch16] [--quick] [--record]
                                           [--against ANOTHER_COHORT]

A cell is what both do: prefillN reads a prompt of N tokens, decodeN writes an answer behind N tokens, batchN
writes N answers together. llama.cpp is built natively, once, in a cache folder, from the source that the PyPI
package llama-cpp-python carries. Prints a table and one line of JSON; --record also keeps that line in
bench/results/. Rates drift by tens of percent between minutes of a shared machine, so every round runs both
programs and the ratio is taken within the round.
"""

import argparse
import dataclasses
import json
import pathlib
import re

import gguf_file
import llama_cpp
import make_gguf
from machine import (QUIET_SHARE, TREE, cell, circumstances, finish, note, play_rounds, pull_gguf, run, run_measured,
                     spread)

MODELS = ("smollm2", "gemma3-270m", *make_gguf.FILES)
JUDGED = "prefill512,decode0,batch8"
EVERY = "prefill128,prefill512,prefill2048,decode0,decode2048,batch1,batch4,batch8,batch16"
BATCH_DEPTH = 16  # tokens of each row before its answer
SMALL_BYTES = 400 << 20


@dataclasses.dataclass(frozen=True)
class Model:
    """A GGUF file and what a forward does with it."""

    name: str
    path: pathlib.Path
    weight_bytes: int  # as the file has them; the head may be the embedding's matrix
    multiplied: int  # weights that every token of a prompt is multiplied by: not the head
    answer_tokens: int  # so many that a sample takes seconds

    @classmethod
    def find(cls, args, name):
        path = make_gguf.provide(name, args.cohort) if name in make_gguf.FILES else pull_gguf(args.cohort, name)
        matrices = [tensor for tensor in gguf_file.read(path)[1] if len(tensor.shape) == 2]
        inner = [tensor for tensor in matrices if tensor.name.startswith("blk.")]
        weight_bytes = sum(tensor.bytes for tensor in matrices)
        return cls(name, path, weight_bytes, multiplied=sum(tensor.elements for tensor in inner),
                   answer_tokens=128 if weight_bytes < SMALL_BYTES else 32)


@dataclasses.dataclass(frozen=True)
class Cell:
    kind: str
    size: int

    @classmethod
    def parse(cls, text):
        match = re.fullmatch(r"(prefill|decode|batch)(\d+)", text)
        if not match or (match[1] != "decode" and match[2] == "0"):
            raise argparse.ArgumentTypeError(f"{text} is no cell; cells are like {JUDGED}")
        return cls(match[1], int(match[2]))

    def __str__(self):
        return f"{self.kind}{self.size}"

    def share(self, model, rate, limits):
        """The share of the machine's limit that a rate needs: arithmetic for a prompt, else reading the weights."""
        if self.kind == "prefill":
            needed, limit = rate * 2 * model.multiplied / 1e9, limits["int8_gop_s"]
        else:
            rows = self.size if self.kind == "batch" else 1
            needed, limit = rate / rows * model.weight_bytes / 1e9, limits["read_gb_s"]
        return round(needed / limit, 3) if isinstance(limit, float) else None  # "no VNNI"


def sample_build(program, model, threads, asked):
    tokens = model.answer_tokens
    flags = {"prefill": ["--prefill", asked.size, "--decode", 0],
             "decode": ["--prefill", 0, "--depth", asked.size, "--decode", tokens],
             "batch": ["--prefill", 0, "--depth", BATCH_DEPTH, "--batch", asked.size, "--decode", tokens]}
    output, others = run_measured([program, "bench", model.path, "--threads", threads, "--json",
                                   *flags[asked.kind]])
    return {"rate": json.loads(output)["prefill_tok_s" if asked.kind == "prefill" else "decode_tok_s"],
            "others": others}


def sample_cohort(args, model, threads, asked):
    return sample_build(args.cohort, model, threads, asked)


def sample_other_build(args, model, threads, asked):
    return sample_build(args.against, model, threads, asked)


def sample_llama(args, model, threads, asked):
    tokens, shared = model.answer_tokens, ["-m", model.path, "-t", threads, "-fa", "on"]
    if asked.kind == "batch":
        output, others = run_measured([args.llama_batched_bench, *shared, "-npp", BATCH_DEPTH, "-ntg", tokens, "-npl",
                                       asked.size, "-c", asked.size * (BATCH_DEPTH + tokens),
                                       "--output-format", "jsonl"])
        line = next(line for line in output.splitlines() if line.startswith("{"))
        return {"rate": json.loads(line)["speed_tg"], "others": others}
    work = ["-p", asked.size, "-n", 0] if asked.kind == "prefill" else ["-p", 0, "-n", tokens, "-d", asked.size]
    output, others = run_measured([args.llama_bench, *shared, "-r", 1, "-o", "json", *work])
    return {"rate": json.loads(output)[0]["avg_ts"], "others": others}


PROGRAMS = {"cohort": sample_cohort, "llama.cpp": sample_llama, "other build": sample_other_build}


def measure(args, model, threads, asked, limits):
    """The case of one cell: rounds of both programs and what they come to."""
    def say(index, samples):
        rates = ", ".join(f"{name} {sample['rate']:.1f}" for name, sample in sorted(samples.items()))
        others = max(sample["others"] for sample in samples.values())
        note(f"{model.name} {asked}, round {index} of {args.rounds}, {threads} threads: {rates} tok/s; "
             f"others' CPU {others:.0%}")

    samplers = {name: lambda name=name: PROGRAMS[name](args, model, threads, asked) for name in ("cohort", args.peer)}
    rounds, set_aside = play_rounds(samplers, args.rounds, args.patience, say)
    rates = {name: spread([samples[name]["rate"] for samples in rounds]) for name in samplers}
    shares = {name: asked.share(model, found["median"], limits) for name, found in rates.items()}
    return {"model": model.name, "threads": threads, "cell": str(asked), **rates,
            "ratio": spread([samples["cohort"]["rate"] / samples[args.peer]["rate"] for samples in rounds]),
            "of_limit": shares, "others": spread([sample["others"] for samples in rounds
                                                  for sample in samples.values()]),
            "set_aside": set_aside, "rounds": rounds}


def table(report, peer):
    def percent(share):
        return "" if share is None else f"{share:.0%}"

    yield f"| model | threads | cell | cohort tok/s | {peer} tok/s | ratio | of the limit | others' CPU |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for case in report["cases"]:
        yield (f"| {case['model']} | {case['threads']} | {case['cell']} | {cell(case['cohort'], 1)} "
               f"| {cell(case[peer], 1)} | {cell(case['ratio'], 2)} "
               f"| {', '.join(percent(case['of_limit'][name]) for name in ('cohort', peer))} "
               f"| {case['others']['median']:.0%} (at most {case['others']['max']:.0%}) |")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds of smollm2")
    parser.add_argument("--all", action="store_true", help="every cell, with 1 and 2 threads")
    parser.add_argument("--cells", help=f"default: {JUDGED}; --all is {EVERY}")
    parser.add_argument("--model", action="append", metavar="MODEL",
                        help=f"alias, .gguf or a file of make_gguf.py, may repeat (default: {', '.join(MODELS)})")
    parser.add_argument("--threads", type=int, action="append", help="may repeat (default: 2)")
    parser.add_argument("--rounds", type=int, help="default: 5")
    parser.add_argument("--patience", type=float, default=0, metavar="MINUTES",
                        help="so long per cell, rounds that others disturb are repeated")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    parser.add_argument("--limits", type=pathlib.Path, default=TREE / "build" / "release" / "bench" / "limits")
    llama_cpp.add_flags(parser, "llama-bench", "llama-batched-bench")
    parser.add_argument("--against", type=pathlib.Path, metavar="PROGRAM",
                        help="another build of cohort instead of llama.cpp")
    parser.add_argument("--record", action="store_true", help="keep the JSON in bench/results/")
    args = parser.parse_args()
    args.peer = "other build" if args.against else "llama.cpp"
    if args.against and args.record:
        parser.error("--record keeps what llama.cpp is compared with")
    args.model = args.model or (["smollm2"] if args.quick else MODELS)
    args.threads = args.threads or ([1, 2] if args.all else [2])
    args.rounds = args.rounds or (3 if args.quick else 5)
    try:
        args.cells = [Cell.parse(text) for text in (args.cells or (EVERY if args.all else JUDGED)).split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    if min(args.rounds, *args.threads) < 1:
        parser.error("rounds and threads are at least 1")
    return args


def main():
    args = parse_arguments()
    models = [Model.find(args, name) for name in args.model]
    release = None
    if not args.against:
        args.llama_bench, release = llama_cpp.provide(args, "llama-bench")
        if any(asked.kind == "batch" for asked in args.cells):
            args.llama_batched_bench, _ = llama_cpp.provide(args, "llama-batched-bench")
    limits = {threads: json.loads(run([args.limits, threads])) for threads in args.threads}
    report = {**circumstances(), "llama_cpp": release, "limits": list(limits.values()), "cases": []}
    for model in models:
        for threads in args.threads:
            report["cases"] += [measure(args, model, threads, asked, limits[threads]) for asked in args.cells]
    print("\n".join(table(report, args.peer)))
    print(*map(json.dumps, limits.values()), sep="\n")
    if not args.against and any(case["others"]["max"] > QUIET_SHARE for case in report["cases"]):
        print("Other programs had the CPU meanwhile: llama.cpp's threads wait by spinning and suffer more, so these "
              "ratios flatter cohort.")
    finish(report, args.record)


if __name__ == "__main__":
    main()
