#!/usr/bin/env python3
"""What writing snapshots to the SSD cache costs answers that are being written.

    .deps/venv/bin/python bench/ssd_cost.py [--rounds 12] [--new 1000] [--record]

In each round a fresh `cohort serve` with --ssd-cache and one without it carry the same load, one after the
other: four streams decode while a client sends one short request after another, whose prompts of 1,000
tokens are kept, and so written. Of such a prompt --new tokens are new and the rest comes from memory: the
fewer, the more often a snapshot is written. Counts the tokens of the streams in a window that begins when
the first of these requests has ended. Prints the slowdown with the 95 % upper bound of its mean, and one
line of JSON; --record also keeps that line in bench/results/.
"""

import argparse
import asyncio
import math
import pathlib
import random
import statistics
import tempfile
import time

from machine import QUIET_SHARE, TREE, OthersClock, cell, circumstances, finish, note, play_rounds, spread
from traffic import Answer, Exchange, Server, Unusable, fetch, until_tokens

IDS = range(1000, 20000)  # ordinary tokens in every vocabulary that is served here
SETTLING_TOKENS = 32  # of each stream, until all of them decode steadily
MOST_SLOWDOWN = 0.05
FOLDER_GB = 4  # of snapshots; the oldest go, as in a folder that is in use for long


class Churn:
    """Requests one after the other that end and are kept, until it is cancelled."""

    def __init__(self, server, args):
        self.server, self.args, self.ended = server, args, 0
        self.task = asyncio.create_task(self.send())

    async def send(self):
        kept = random.choices(IDS, k=self.args.prompt - self.args.new)
        while True:
            body = {"prompt": kept + random.choices(IDS, k=self.args.new), "max_tokens": 4, "temperature": 0}
            exchange = await Exchange().open(self.server.port, "POST", "/v1/completions", body)
            try:
                status, told = await exchange.status(), await exchange.rest()
            finally:
                exchange.close()
            if status != 200:
                raise Unusable(f"the server answered {status}: {told[:500].decode()}")
            self.ended += 1

    async def first(self):
        while self.ended == 0:
            if self.task.done():
                self.task.result()
            await asyncio.sleep(0.01)


async def written_bytes(server):
    ssd = (await fetch(server.port, "GET", "/stats"))[1]["ssd_cache"]
    return ssd["written_bytes"] if ssd else 0


async def stop(tasks):
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(result, asyncio.CancelledError):
            raise Unusable(f"what should have gone on has ended: {result!r}")


async def play(server, args):
    """Rates in the window: of the streams, of requests that ended, of bytes that were written."""
    streams = [Answer(server, random.choices(IDS, k=64), args.most_tokens) for _ in range(args.streams)]
    await until_tokens(streams, SETTLING_TOKENS)
    churn = Churn(server, args)
    await churn.first()
    clock = OthersClock(lambda: server.cpu_seconds() + time.process_time())
    written, ended, begin = await written_bytes(server), churn.ended, time.perf_counter()
    await asyncio.sleep(args.window)
    end, others, requests = time.perf_counter(), clock.share(), churn.ended - ended
    written = await written_bytes(server) - written
    await stop([churn.task, *(stream.task for stream in streams)])
    tokens = sum(begin < arrival <= end for stream in streams for arrival in stream.arrivals)
    return {"decode_tok_s": round(tokens / (end - begin), 2), "requests_s": round(requests / (end - begin), 3),
            "written_mb_s": round(written / 1e6 / (end - begin), 2), "others": others}


def sample(args, command):
    """A server of its own each time: two processes may differ for all their lives in how they lie in memory."""
    with Server(command) as server:
        return asyncio.run(play(server, args))


def upper_t(freedom):
    """What 95 % of Student's t are below: the normal quantile and two terms of Cornish and Fisher."""
    z = statistics.NormalDist().inv_cdf(0.95)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def slowdown(rounds, rate):
    """By how much the rate is lower with the cache, as a share; and the 95 % upper bound of the mean."""
    logs = [math.log(samples["without"][rate] / samples["ssd"][rate]) for samples in rounds]
    mean, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    bound = mean + upper_t(len(logs) - 1) * error
    return {"mean": round(1 - math.exp(-mean), 4), "at_most": round(1 - math.exp(-bound), 4)}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2", help="alias, folder or .gguf")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--window", type=float, default=12, metavar="SECONDS")
    parser.add_argument("--patience", type=float, default=0, metavar="MINUTES",
                        help="so long, rounds that others disturb are repeated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=1000, help="tokens of the requests beside the streams")
    parser.add_argument("--new", type=int, default=1000, help="of these, tokens that are not in memory")
    parser.add_argument("--most-tokens", type=int, default=8000, help="of a stream; it must outlast the window")
    parser.add_argument("--folder", type=pathlib.Path, help="on the disk that is meant (default: a temporary one)")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    parser.add_argument("--record", action="store_true", help="keep the JSON in bench/results/")
    args = parser.parse_args()
    if args.rounds < 2 or not 1 <= args.new <= args.prompt:
        parser.error("--rounds is at least 2, --new at least 1 and at most --prompt")
    return args


def main():
    args = parse_arguments()
    report = {**circumstances(), "model": args.model, "threads": args.threads, "streams": args.streams,
              "prompt": args.prompt, "new": args.new, "window_s": args.window}
    command = [args.cohort, "serve", args.model, "--threads", args.threads]

    def say(index, samples):
        for name, found in sorted(samples.items()):
            note(f"round {index} of {args.rounds}, {name}: {found}")

    with tempfile.TemporaryDirectory(prefix="ssd-cost-", dir=args.folder) as folder:
        with_cache = [*command, "--ssd-cache", folder, "--ssd-cache-max", FOLDER_GB]
        samplers = {"ssd": lambda: sample(args, with_cache), "without": lambda: sample(args, command)}
        rounds, set_aside = play_rounds(samplers, args.rounds, args.patience, say)

    results = {name: {key: spread([samples[name][key] for samples in rounds]) for key in rounds[0][name]}
               for name in samplers}
    print("| server | decode tok/s | requests/s | written MB/s | others' CPU |\n" + "| --- " * 5 + "|")
    for name, found in results.items():
        print(f"| {name} | " + " | ".join(cell(found[key], digits) for key, digits in (
            ("decode_tok_s", 1), ("requests_s", 2), ("written_mb_s", 1), ("others", 2))) + " |")
    lost = slowdown(rounds, "decode_tok_s")
    holds = lost["at_most"] <= MOST_SLOWDOWN and results["ssd"]["written_mb_s"]["min"] > 0
    print(f"slowdown of decoding: {lost['mean']:.1%}, at most {lost['at_most']:.1%} (95 %); "
          f"wanted at most {MOST_SLOWDOWN:.0%}: {'yes' if holds else 'NO'}")
    if any(found["others"]["max"] > QUIET_SHARE for found in results.values()):
        print("Other programs had the CPU meanwhile; the writing thread took some of its time from them, so the "
              "slowdown may look smaller than it is.")
    finish(report | {"slowdown": lost, "holds": holds, "results": results, "set_aside": set_aside, "rounds": rounds},
           args.record)


if __name__ == "__main__":
    main()
