#!/usr/bin/env python3
"""Latency under attack: what a long prompt does to answers that are being written, and how batches scale.

    .deps/venv/bin/python bench/mixed.py [--only cohort] [--rounds 5] [--record]

Serves one file with `cohort serve` and with llama.cpp's llama-server, and in every round asks each:

attack   four streams decode; when they are steady a long prompt arrives. How long do they wait for a token
         until it has its first token, next to the median wait before? How long does it wait?
whole    the time of all that, next to the same work one after the other
streams  1, 4, 8 and 16 streams that start together: their rate, the waits for the first and for further tokens

Every prompt is fresh, so that no cache of prompts helps. Prints tables and one line of JSON; --record also
keeps that line in bench/results/.
"""

import argparse
import asyncio
import contextlib
import pathlib
import random
import shlex
import statistics
import time

import llama_cpp
from machine import (QUIET_SHARE, TREE, OthersClock, cell, circumstances, fail, finish, note, play_rounds, pull_gguf,
                     spread)
from traffic import Answer, Server, Unusable, all_of, until_tokens

SETTLING_TOKENS = 16  # of each stream, until all of them decode steadily
CALM_TOKENS = 48  # of each stream after that, before the long prompt arrives
STORY = ("Chapter {}. The old lighthouse keeper counted the ships that passed in the night and wrote their names "
         "into a book that nobody had ever asked to read. This evening")
IDS = range(1000, 20000)  # ordinary tokens in every vocabulary that is served here
SCALING_TOKENS = 96
PERCENTILES = (50, 95, 99, 100)


def story():
    return STORY.format(random.randrange(10**9))


def long_prompt(args):
    return random.choices(IDS, k=args.prompt)


def percentile(values, percent):
    """The smallest value that so many percent of them do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * percent // 100) - 1)]


async def attack(server, args):
    began = time.perf_counter()
    streams = [Answer(server, story(), args.tokens) for _ in range(args.streams)]
    await until_tokens(streams, SETTLING_TOKENS)
    steady = time.perf_counter()
    await until_tokens(streams, SETTLING_TOKENS + CALM_TOKENS)
    long = Answer(server, long_prompt(args), args.long_tokens)
    await all_of([*streams, long])
    whole_s = max(answer.ended for answer in [*streams, long]) - began

    calm = statistics.median(gap for stream in streams for gap in stream.gaps(steady, long.sent))
    first = long.arrivals[0]
    gaps = [gap for stream in streams for gap in stream.gaps(long.sent, first)]
    if not gaps:
        raise Unusable("no stream was left when the long prompt arrived: give more --tokens")
    result = {"calm_ms": 1000 * calm, "ttft_s": first - long.sent, "whole_s": whole_s,
              "outlasted": min(stream.arrivals[-1] for stream in streams) > first,
              "gaps": len(gaps), "worst_ms": 1000 * max(gaps)}
    came = sum(long.sent < arrival <= first for stream in streams for arrival in stream.arrivals)
    result["pace"] = calm * came / len(streams) / (first - long.sent)
    result |= {f"p{percent}": percentile(gaps, percent) / calm for percent in PERCENTILES}
    return result | {"worst_to_end": max(gap for stream in streams
                                         for gap in stream.gaps(long.sent, long.ended)) / calm}


async def whole(server, args):
    """Seconds of the same work: the streams one by one, the streams at once, the long prompt alone."""
    one_by_one_s = 0
    for _ in range(args.streams):
        one_by_one_s += await seconds_of(server, [story()], args.tokens)
    return {"one_by_one_s": one_by_one_s,
            "at_once_s": await seconds_of(server, [story() for _ in range(args.streams)], args.tokens),
            "long_s": await seconds_of(server, [long_prompt(args)], args.long_tokens)}


async def seconds_of(server, prompts, tokens):
    answers = await all_of([Answer(server, prompt, tokens) for prompt in prompts])
    return max(answer.ended for answer in answers) - min(answer.sent for answer in answers)


async def streams(server, count):
    """What so many streams that start together get, by the names that STREAMS has."""
    answers = await all_of([Answer(server, story(), SCALING_TOKENS) for _ in range(count)])
    aggregate = sum(len(answer.arrivals) for answer in answers) / (
        max(answer.ended for answer in answers) - min(answer.sent for answer in answers))
    begin = max(answer.arrivals[0] for answer in answers)
    end = min(answer.arrivals[-1] for answer in answers)
    found = {"aggregate": aggregate, "rate": aggregate}  # unless they ever decode together
    if end > begin:
        found["rate"] = sum(begin < arrival <= end for answer in answers for arrival in answer.arrivals) / (end - begin)
    firsts = [1000 * (answer.arrivals[0] - answer.sent) for answer in answers]
    gaps = [1000 * gap for answer in answers for gap in answer.gaps(answer.sent, answer.ended)]
    found |= {f"ttft{percent}": percentile(firsts, percent) for percent in (50, 95)}
    return found | {f"gap{percent}": percentile(gaps, percent) for percent in (50, 95, 99)}


def sample(server, args):
    async def play():
        found = {}
        if "attack" in args.parts:
            found |= await attack(server, args)
        if "whole" in args.parts:
            found |= await whole(server, args)
        if "streams" in args.parts:
            for count in args.counts:
                found |= {f"{name}_{count}": value for name, value in (await streams(server, count)).items()}
        return found

    client = time.process_time()
    clock = OthersClock(lambda: server.cpu_seconds() + time.process_time())
    began = time.perf_counter()
    try:
        found = asyncio.run(play())
    except Unusable as error:
        fail(str(error))
    found |= {"others": clock.share(), "client": (time.process_time() - client) / (time.perf_counter() - began)}
    if {"attack", "whole"} <= set(args.parts):
        found["serial_ratio"] = (found["one_by_one_s"] + found["long_s"]) / found["whole_s"]
        found["batch_ratio"] = (found["at_once_s"] + found["long_s"]) / found["whole_s"]
    if "streams" in args.parts:
        found |= {f"gain_{count}": found[f"rate_{count}"] / found[f"rate_{args.counts[0]}"] for count in args.counts}
    return {name: round(value, 4) for name, value in found.items()}


# What a sample holds, as columns: title, name, digits.
ATTACK = [("median gap before, ms", "calm_ms", 1), ("p50 ×", "p50", 2), ("p95 ×", "p95", 2), ("p99 ×", "p99", 2),
          ("max ×", "p100", 2), ("max to its end ×", "worst_to_end", 2), ("max, ms", "worst_ms", 0),
          ("pace during, of before", "pace", 3),
          ("TTFT, s", "ttft_s", 2)]
WHOLE = [("mixed, s", "whole_s", 1), ("streams one by one, s", "one_by_one_s", 1),
         ("streams at once, s", "at_once_s", 1), ("long prompt alone, s", "long_s", 2),
         ("all one by one / mixed", "serial_ratio", 2),
         ("streams at once, then the prompt / mixed", "batch_ratio", 2)]
STREAMS = [("tok/s while all decode", "rate", 0), ("× first count", "gain", 2),
           ("tok/s from start to end", "aggregate", 0), ("TTFT p50, ms", "ttft50", 0), ("p95", "ttft95", 0),
           ("between tokens p50, ms", "gap50", 1), ("p95", "gap95", 1), ("p99", "gap99", 1)]


def table(results, columns, title="server"):
    columns = [column for column in columns if all(column[1] in found for found in results.values())]
    if columns:
        yield f"| {title} | " + " | ".join(title for title, _, _ in columns) + " |"
        yield "| --- |" + " --- |" * len(columns)
        for name, found in results.items():
            yield f"| {name} | " + " | ".join(cell(found[key], digits) for _, key, digits in columns) + " |"
        yield ""


def print_tables(args, results):
    tables = [table(results, ATTACK), table(results, WHOLE)]
    for count in args.counts:
        columns = [(title, f"{key}_{count}", digits) for title, key, digits in STREAMS]
        tables.append(table(results, columns, f"streams: {count}"))
    tables.append(table(results, [("others' CPU, share", "others", 2), ("client, cores", "client", 3)]))
    for lines in tables:
        print("\n".join(lines), flush=True)
    if any(found["others"]["max"] > QUIET_SHARE for found in results.values()):
        print("Other programs had the CPU meanwhile: waits are longer than the server's own.")
    for name, found in results.items():
        if found.get("outlasted", {}).get("min") == 0:
            print(f"{name}: some streams had ended before the long prompt's first token; give more --tokens")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2", help="alias or .gguf")
    parser.add_argument("--only", choices=["cohort", "llama.cpp"], help="one server instead of both in turns")
    parser.add_argument("--parts", default="attack,whole,streams", help="which questions (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=float, default=0, metavar="MINUTES",
                        help="so long, rounds that others disturb are repeated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=4, help="that decode when the long prompt arrives")
    parser.add_argument("--tokens", type=int, default=384, help="of each stream's answer")
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of the long prompt")
    parser.add_argument("--long-tokens", type=int, default=16, help="of the long prompt's answer")
    parser.add_argument("--counts", default="1,4,8,16", help="of streams whose rates are compared with the first")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    parser.add_argument("--cohort-flags", default="", metavar="FLAGS", help="more flags of cohort serve")
    llama_cpp.add_flags(parser, "llama-server")
    parser.add_argument("--llama-flags", default="", metavar="FLAGS", help='more of llama-server: "-b 256 -ub 256"')
    parser.add_argument("--record", action="store_true", help="keep the JSON in bench/results/")
    args = parser.parse_args()
    args.parts = args.parts.split(",")
    args.counts = [int(count) for count in args.counts.split(",")]
    if args.tokens <= SETTLING_TOKENS + CALM_TOKENS:
        parser.error(f"--tokens is above {SETTLING_TOKENS + CALM_TOKENS}, which pass before the long prompt arrives")
    return args


def commands(args, file):
    """How each server is started; and what the report calls llama.cpp, if it takes part."""
    found, peer = {}, None
    if args.only != "llama.cpp":
        found["cohort"] = [args.cohort, "serve", file, "--threads", args.threads, *shlex.split(args.cohort_flags)]
    if args.only != "cohort":
        program, peer = llama_cpp.provide(args, "llama-server")
        slots = max(args.streams + 1, *args.counts)
        # A slot holds the longest prompt and answer. Saving prompts for reuse would only cost it time.
        context = slots * max(args.prompt + args.long_tokens + 32, args.tokens + 96)
        found["llama.cpp"] = [program, "-m", file, "-t", args.threads, "-np", slots, "-c", context, "--cache-ram", 0,
                              "--host", "127.0.0.1", *shlex.split(args.llama_flags)]
    return found, peer


def main():
    args = parse_arguments()
    starts, peer = commands(args, pull_gguf(args.cohort, args.model))

    def say(index, samples):
        for name, found in samples.items():
            shown = [f"{key} {found[key]:.4g}" for key in ("calm_ms", "p50", "p99", "p100", "ttft_s", "serial_ratio",
                                                           f"rate_{args.counts[-1]}") if key in found]
            note(f"round {index} of {args.rounds}, {name}: {', '.join(shown)}; others' CPU {found['others']:.0%}")

    report = {**circumstances(), "llama_cpp": peer, "model": args.model, "threads": args.threads,
              "streams": args.streams, "tokens": args.tokens, "prompt": args.prompt, "long_tokens": args.long_tokens}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(Server(command)) for name, command in starts.items()}
        samplers = {name: lambda server=server: sample(server, args) for name, server in servers.items()}
        rounds, set_aside = play_rounds(samplers, args.rounds, args.patience, say)
    results = {name: {key: spread([samples[name][key] for samples in rounds]) for key in rounds[0][name]}
               for name in starts}
    print_tables(args, results)
    finish(report | {"results": results, "set_aside": set_aside, "rounds": rounds}, args.record)


if __name__ == "__main__":
    main()
