#!/usr/bin/env python3
"""An agent's conversation: how much of each turn is read again, and how soon it is answered.

    .deps/venv/bin/python bench/agent.py [--turns 30] [--repeats 5] [--restarts 5] [--record]

Plays one long conversation over /v1/chat/completions to `cohort serve --ssd-cache`: a system prompt that
describes tools, a task, the server's own short answers, and results of tools as the user's messages, drawn
from --seed. Then it asks the last turn again, each time with another result at its end:

warm     right after the conversation, next to the same prompt read from its first token on
restart  after flush, SIGTERM and a new start, with the files dropped from the page cache, next to the same

Greedy answers and their logprobs must be the same either way. Prints tables and one line of JSON; --record
also keeps that line in bench/results/.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import tempfile
import time

from machine import QUIET_SHARE, TREE, OthersClock, circumstances, finish, note, spread
from traffic import Exchange, Server, Unusable, fetch

SLACK_TOKENS = 64  # that a turn may read beside what is new in it: an open block
WARM_SHARE, RESTART_SHARE = 0.1, 0.2  # of the time to the first token without any cache
WORDS = ("anchor beacon cargo delta engine filter gateway harbor index journal kernel ledger matrix node "
         "orbit packet queue router signal token update vector window worker yield zone").split()
TOOLS = [("list_files", "path", "Lists a folder, with size and time of each file."),
         ("read_file", "path, first_line, last_line", "Returns lines of a text file."),
         ("search", "pattern, path", "Finds a regular expression; returns file, line and text of each match."),
         ("run", "command, timeout_s", "Runs a command and returns its exit status and the end of its output."),
         ("edit_file", "path, old, new", "Replaces the one place that has the old text."),
         ("fetch_log", "service, minutes", "Returns what a service wrote lately, oldest line first.")]
RULES = ["Call one tool at a time and wait for its result.", "Read a file before you change it.",
         "Say in one sentence what you found and what you do next.", "Never guess the content of a file.",
         "Run the tests after each change, and stop when they pass."]


def system_prompt():
    lines = ["You are an agent that works on a code base with tools. Tools:"]
    for name, fields, does in TOOLS:
        schema = {"name": name, "description": does, "parameters": {
            "type": "object", "required": fields.split(", "),
            "properties": {field: {"type": "string", "description": f"The {field.replace('_', ' ')} of {name}."}
                           for field in fields.split(", ")}}}
        lines.append(json.dumps(schema))
    return "\n".join([*lines, "Rules:", *(f"- {rule}" for rule in RULES)])


def name_of(draw):
    return "_".join(draw.sample(WORDS, 2))


def listing(draw):
    return json.dumps([{"path": f"src/{name_of(draw)}.py", "size": draw.randrange(100, 9000)} for _ in range(8)])


def code(draw):
    lines = []
    for _ in range(4):
        left, right = draw.sample(WORDS, 2)
        lines += [f"def {name_of(draw)}({left}, {right}):", f"    if {left} is None:",
                  f"        return {right}.{draw.choice(WORDS)}()", f"    return {left} + {draw.randrange(1000)}"]
    return "\n".join(lines)


def log(draw):
    return "\n".join(f"12:{draw.randrange(10, 60)} {draw.choice(['INFO', 'WARN', 'ERROR'])} "
                     f"{draw.choice(WORDS)}: {name_of(draw)} took {draw.randrange(1, 999)} ms" for _ in range(9))


def tool_result(draw):
    tool, make = draw.choice([("list_files", listing), ("read_file", code), ("fetch_log", log)])
    return f"Result of {tool}:\n{make(draw)}\nWhat does that say of the {draw.choice(WORDS)}?"


class Turn:
    """One answer: its tokens with their logprobs, its counts of tokens, the seconds to its first token."""

    def __init__(self, text, logprobs, usage, ttft_s):
        self.text, self.logprobs, self.ttft_s = text, logprobs, ttft_s
        self.prompt, self.answer = usage["prompt_tokens"], usage["completion_tokens"]
        self.cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.recomputed = self.prompt - self.cached


async def ask(server, messages, tokens, **fields):
    body = {"messages": messages, "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **fields}
    sent, first, stream = time.perf_counter(), None, b""
    exchange = await Exchange().open(server.port, "POST", "/v1/chat/completions", body)
    try:
        status = await exchange.status()
        if status != 200:
            raise Unusable(f"the server answered {status}: {(await exchange.rest())[:500].decode()}")
        async for piece in exchange.pieces():
            stream += piece
            if first is None and b'"delta"' in piece:
                first = time.perf_counter()
    finally:
        exchange.close()
    events = [json.loads(event[len("data: "):]) for event in stream.decode().split("\n\n")
              if event.startswith("data: {")]
    choices = [choice for event in events for choice in event["choices"]]
    return Turn("".join(choice["delta"].get("content") or "" for choice in choices),
                [choice["logprobs"] for choice in choices if choice["logprobs"]], events[-1]["usage"], first - sent)


class Conversation:
    """What has been said, and what the last user's message would be if a tool had found something else."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.messages = [{"role": "system", "content": system_prompt()},
                         {"role": "user", "content": "Find out why the nightly job is slow, and repair it. "
                                                     f"Begin with {name_of(self.draw)}.\n{listing(self.draw)}"}]

    async def next_turn(self, server):
        turn = await ask(server, self.messages, self.draw.randint(24, 48), session_id="agent")
        self.messages += [{"role": "assistant", "content": turn.text},
                          {"role": "user", "content": tool_result(self.draw)}]
        return turn

    def with_other_end(self):
        """All but the last result, which is a new one."""
        return [*self.messages[:-1], {"role": "user", "content": tool_result(self.draw)}]


def play(server, args, conversation):
    """The rows of the first table."""
    async def all_turns():
        turns = [await conversation.next_turn(server) for _ in range(args.turns)]
        conversation.messages = conversation.messages[:-2]  # the last turn is the one that is asked again
        return turns

    turns, rows = asyncio.run(all_turns()), []
    for before, turn in zip([None, *turns], turns):
        new = turn.prompt - (before.prompt if before else 0)
        # The last token of an answer is drawn, but nothing was computed for it.
        same = before is None or turn.cached >= before.prompt + before.answer - 1
        rows.append({"prompt": turn.prompt, "new": new, "cached": turn.cached, "recomputed": turn.recomputed,
                     "excess": turn.recomputed - new, "ttft_s": round(turn.ttft_s, 4), "answer": turn.answer,
                     "retokenized": not same})
    return rows


def compare(server, conversation, cached_first):
    """The last turn with another end, with what is cached and without."""
    async def both():
        messages, found = conversation.with_other_end(), {}
        for cached in (cached_first, not cached_first):
            fields = {"session_id": "agent"} if cached else {"cache_prompt": False}
            found[cached] = await ask(server, messages, 48, logprobs=True, **fields)
        return found[True], found[False]

    quick, cold = asyncio.run(both())
    return {"prompt": quick.prompt, "cached": quick.cached, "recomputed": quick.recomputed,
            "ttft_s": round(quick.ttft_s, 4), "cold_ttft_s": round(cold.ttft_s, 4),
            "ratio": round(quick.ttft_s / cold.ttft_s, 4),
            "same_answer": (quick.text, quick.logprobs) == (cold.text, cold.logprobs)}


def make_durable(server):
    """Has all snapshots written; returns what the SSD cache counted."""
    status, told = asyncio.run(fetch(server.port, "POST", "/admin/cache/flush", {}))
    if status != 200:
        raise Unusable(f"flush: {told}")
    return asyncio.run(fetch(server.port, "GET", "/stats"))[1]["ssd_cache"]


def drop_from_page_cache(folder):
    """So that a restore reads the disk."""
    for path in folder.rglob("*.kv"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(args, folder):
    command = [args.cohort, "serve", args.model, "--threads", args.threads, "--ssd-cache", folder]
    conversation, found, others = Conversation(args.seed), {}, {}
    with Server(command) as server:
        clock = OthersClock(lambda: server.cpu_seconds() + time.process_time())
        found["turns"] = play(server, args, conversation)
        others["turns"] = clock.share()
        found["ssd"] = make_durable(server)
        note(f"{args.turns} turns, {found['turns'][-1]['prompt']} tokens; "
             f"{found['ssd']['written_bytes'] / 1e6:.0f} MB written; others' CPU {others['turns']:.0%}")
        clock = OthersClock(lambda: server.cpu_seconds() + time.process_time())
        found["warm"] = [compare(server, conversation, i % 2 == 0) for i in range(args.repeats)]
        others["warm"] = clock.share()
        make_durable(server)
    found["restart"] = []
    for i in range(args.restarts):
        drop_from_page_cache(folder)
        with Server(command) as server:
            clock = OthersClock(lambda: server.cpu_seconds() + time.process_time())
            # First of all, always: what comes after finds the prefix in memory.
            found["restart"].append(compare(server, conversation, True))
            others["restart"] = max(others.get("restart", 0), clock.share())
            make_durable(server)
        note(f"restart {i + 1} of {args.restarts}: {found['restart'][-1]}")
    return found, others


def verdicts(found):
    """Question, figure, what is wanted, whether it is so."""
    worst = max(row["excess"] for row in found["turns"][1:])
    yield "most tokens read beside a turn's new ones", worst, f"<= {SLACK_TOKENS}", worst <= SLACK_TOKENS
    for part, share in (("warm", WARM_SHARE), ("restart", RESTART_SHARE)):
        if found[part]:
            ratio = statistics.median(row["ratio"] for row in found[part])
            yield f"{part} TTFT / cold TTFT, median", round(ratio, 4), f"<= {share}", ratio <= share
            alike = sum(row["same_answer"] for row in found[part])
            yield f"{part}: answers as cold", alike, f"= {len(found[part])}", alike == len(found[part])


def print_tables(found, others):
    print("| turn | prompt | new | cached | recomputed | TTFT, ms | answer |")
    print("| --- " * 7 + "|")
    for i, row in enumerate(found["turns"], 1):
        print(f"| {i} | {row['prompt']} | {row['new']} | {row['cached']} | {row['recomputed']} | "
              f"{1000 * row['ttft_s']:.0f} | {row['answer']}{' *' if row['retokenized'] else ''} |")
    changed = sum(row["retokenized"] for row in found["turns"])
    print(f"{changed} turns (*) found less than the prompt and answer before: the template wrote it otherwise\n")
    print("| last turn | prompt | recomputed | TTFT, ms | cold TTFT, ms | ratio |")
    print("| --- " * 6 + "|")
    for part in ("warm", "restart"):
        for row in found[part]:
            print(f"| {part} | {row['prompt']} | {row['recomputed']} | {1000 * row['ttft_s']:.0f} | "
                  f"{1000 * row['cold_ttft_s']:.0f} | {row['ratio']:.4f} |")
    print("\n| question | found | wanted | |")
    print("| --- " * 4 + "|")
    for question, figure, wanted, holds in verdicts(found):
        print(f"| {question} | {figure} | {wanted} | {'yes' if holds else 'NO'} |")
    print("others' CPU: " + ", ".join(f"{part} {share:.0%}" for part, share in others.items()))
    if max(others.values()) > QUIET_SHARE:
        print("Other programs had the CPU meanwhile: times are longer than the server's own.")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2", help="alias, folder or .gguf")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5, help="of the last turn, warm and cold")
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of what the tools find")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path, help="on the disk that is meant (default: a temporary one)")
    parser.add_argument("--cohort", type=pathlib.Path, default=TREE / "build" / "release" / "cohort")
    parser.add_argument("--record", action="store_true", help="keep the JSON in bench/results/")
    args = parser.parse_args()
    if args.turns < 2:
        parser.error("--turns is at least 2: the first finds nothing")
    return args


def main():
    args = parse_arguments()
    report = {**circumstances(), "model": args.model, "threads": args.threads, "seed": args.seed}
    with tempfile.TemporaryDirectory(prefix="agent-", dir=args.folder) as folder:
        found, others = measure(args, pathlib.Path(folder))
    print_tables(found, others)
    summary = {part: {key: spread([row[key] for row in found[part]]) for key in ("ttft_s", "cold_ttft_s", "ratio")}
               for part in ("warm", "restart") if found[part]}
    finish(report | {"summary": summary, "verdicts": list(verdicts(found)), "others": others, **found}, args.record)


if __name__ == "__main__":
    main()
