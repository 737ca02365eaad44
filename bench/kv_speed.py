#!/usr/bin/env python3
"""Decode speed behind a long context for each way to store keys and values, alternating.

    .deps/venv/bin/python bench/kv_speed.py [--model smollm2] [--depths 4096,7500] [--rounds 5]

Prints a table: tokens per second (median) and the median ratio to bf16 of the same round.
"""

import argparse
import json
import statistics
import subprocess

SCHEMES = ["off", "8", "4", "turbo:k8v3", "turbo:k4v3"]


def decode_rate(args, depth, scheme):
    command = [args.cohort, "bench", args.model, "--prefill", "0", "--depth", str(depth), "--decode", str(args.decode),
               "--threads", str(args.threads), "--kv-quant", scheme, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["decode_tok_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohort", default="build/release/cohort")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--depths", default="4096,7500")
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    schemes = args.schemes.split(",")
    if "off" not in schemes:  # what the others are compared with
        schemes.insert(0, "off")
    print("| context | --kv-quant | decode tok/s | ratio to off |")
    print("| ---: | --- | ---: | ---: |")
    for depth in map(int, args.depths.split(",")):
        rounds = [{scheme: decode_rate(args, depth, scheme) for scheme in schemes} for _ in range(args.rounds)]
        for scheme in schemes:
            rate = statistics.median(r[scheme] for r in rounds)
            ratio = statistics.median(r[scheme] / r["off"] for r in rounds)
            print(f"| {depth} | {scheme} | {rate:.1f} | {ratio:.2f} |", flush=True)


main()
