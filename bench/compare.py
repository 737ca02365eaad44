#!/usr/bin/env python3
"""Cohort and llama.cpp on the same file, in turns: prompt and answer speed, and their ratio.

    .deps/venv/bin/python bench/compare.py [--quick] [--record]

llama.cpp is built natively, once, in a cache folder, from the source that the PyPI package
llama-cpp-python carries. Prints a table and one line of JSON; --record also keeps that line in
bench/results/. Rates drift by tens of percent between minutes of a shared machine, so every round runs
both programs and the ratio is taken within the round.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
RELEASE = "0.3.36"  # of llama-cpp-python; its source archive holds the whole of llama.cpp
ARCHIVE = f"llama_cpp_python-{RELEASE}.tar.gz"
ARCHIVE_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
CMAKE_FLAGS = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON"] + [
    f"-D{name}=OFF" for name in ("LLAMA_CURL", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_UI",
                                 "LLAMA_BUILD_WEBUI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_APP")]
RATES = ("prefill", "decode")
QUIET_SHARE = 0.10  # of the machine's CPU time for others; more disturbs a round


def fail(message):
    sys.exit(f"compare: {message}")


def run(command, **options):
    """Runs a command to its end and returns what it printed."""
    try:
        done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, **options)
    except FileNotFoundError:
        fail(f"{command[0]} is not there; `make build` builds cohort, `make setup` installs the tools")
    if done.returncode != 0:
        fail(f"`{' '.join(map(str, command))}` ended with status {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def note(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


def build_llama_bench(folder):
    """The path of llama-bench under `folder`, downloaded and built if it is not there."""
    source = folder / ARCHIVE.removesuffix(".tar.gz") / "vendor" / "llama.cpp"
    program = source / "build" / "bin" / "llama-bench"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / ARCHIVE
    if not archive.exists():
        note(f"downloading llama-cpp-python {RELEASE} to {folder}")
        run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-binary", "llama-cpp-python", "--dest", folder, f"llama-cpp-python=={RELEASE}"])
    if hashlib.sha256(archive.read_bytes()).hexdigest() != ARCHIVE_SHA256:
        fail(f"{archive} is not the release this program was written for; delete it and try again")
    if not (source / "CMakeLists.txt").exists():
        run(["tar", "xf", archive, "-C", folder])
    note("building llama.cpp, once: about ten minutes on two cores")
    run(["cmake", "-S", source, "-B", source / "build", "-G", "Ninja", *CMAKE_FLAGS])
    run(["ninja", "-C", source / "build", "llama-bench"])
    return program


def cpu_seconds():
    """CPU time of the whole machine since boot in which somebody worked, steal included."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def child_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_measured(command):
    """Output of a program, and the share of the machine that others took meanwhile (0 to 1)."""
    began, busy, own = time.monotonic(), cpu_seconds(), child_seconds()
    output = run(command, stderr=subprocess.DEVNULL)
    elapsed = time.monotonic() - began
    others = (cpu_seconds() - busy) - (child_seconds() - own)
    return output, round(max(0.0, others) / (elapsed * os.cpu_count()), 3)


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


def wait_until_quiet(deadline):
    """Returns when others leave the machine alone for a second, or at the deadline."""
    while time.monotonic() < deadline:
        busy, began = cpu_seconds(), time.monotonic()
        time.sleep(1)
        if cpu_seconds() - busy < QUIET_SHARE * os.cpu_count() * (time.monotonic() - began):
            return


def play_round(args, model, threads, index, deadline):
    """One sample of each program, or None if others disturbed one and there is time to try again."""
    wait_until_quiet(deadline)
    samples = {}
    # Who goes first changes each round, so that drift favours nobody.
    for name in sorted(PROGRAMS, reverse=index % 2 == 1):
        samples[name] = PROGRAMS[name](args, model, threads)
        if samples[name]["others"] > QUIET_SHARE and time.monotonic() < deadline:
            return None
    return samples


def measure(args, model, threads):
    """Rounds of both programs, and how many more were set aside as disturbed."""
    rounds, set_aside = [], 0
    deadline = time.monotonic() + 60 * args.patience
    while len(rounds) < args.rounds:
        samples = play_round(args, model, threads, len(rounds), deadline)
        if samples is None:
            set_aside += 1
            continue
        rounds.append(samples)
        rates = ", ".join(name + " " + "/".join(f"{samples[name][rate]:.0f}" for rate in RATES) for name in PROGRAMS)
        others = max(sample["others"] for sample in samples.values())
        note(f"round {len(rounds)} of {args.rounds}, {threads} threads: {rates} tok/s; others' CPU {others:.0%}")
    return rounds, set_aside


def spread(values):
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3),
            "max": round(max(values), 3)}


def summarize(rounds):
    result = {}
    for rate in RATES:
        values = {name: [samples[name][rate] for samples in rounds] for name in PROGRAMS}
        ratios = [ours / theirs for ours, theirs in zip(values["cohort"], values["llama.cpp"])]
        result[rate] = {**{name: spread(found) for name, found in values.items()}, "ratio": spread(ratios)}
    return result | {"others": spread([sample["others"] for samples in rounds for sample in samples.values()])}


def table(report):
    def cell(found, digits):
        return f"{found['median']:.{digits}f} ({found['min']:.{digits}f}–{found['max']:.{digits}f})"

    yield "| model | threads | rate | cohort tok/s | llama.cpp tok/s | ratio | others' CPU |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for case in report["cases"]:
        for rate in RATES:
            found = case[rate]
            yield (f"| {case['model']} | {case['threads']} | {rate} | {cell(found['cohort'], 0)} "
                   f"| {cell(found['llama.cpp'], 0)} | {cell(found['ratio'], 2)} "
                   f"| {case['others']['median']:.0%} (at most {case['others']['max']:.0%}) |")


def circumstances():
    """What a figure means nothing without: the commit and the processor."""
    in_git = shutil.which("git") and (TREE / ".git").exists()
    models = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]
    return {"commit": run(["git", "-C", TREE, "describe", "--always", "--dirty"]).strip() if in_git else None,
            "cpu": models[0] if models else None, "cpus": os.cpu_count()}


def parse_arguments():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
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
    parser.add_argument("--llama-bench", type=pathlib.Path, help="a ready program instead of building one")
    parser.add_argument("--peers", type=pathlib.Path, default=cache / "cohort" / "peers" / "llama.cpp",
                        help="where llama.cpp is built (default: %(default)s)")
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
    os.environ.setdefault("COHORT_PYTHON", sys.executable)  # fetches the models' wheels
    files = {model: run([args.cohort, "pull", model]).strip() for model in args.model}
    for model, file in files.items():
        if not file.endswith(".gguf"):
            fail(f"{model} is not a GGUF file, which is what llama.cpp reads")
    given = args.llama_bench
    args.llama_bench = given or build_llama_bench(args.peers)
    names = [argument.rsplit("/", 1)[-1] for argument in sys.argv[1:]]  # programs, not places
    report = {"date": datetime.date.today().isoformat(), "command": " ".join(["bench/compare.py", *names]),
              **circumstances(), "llama_cpp": "a given program" if given else f"llama-cpp-python {RELEASE}",
              "prefill_tokens": args.prefill, "decode_tokens": args.decode, "load_before": os.getloadavg(),
              "cases": []}
    for model, file in files.items():
        for threads in args.threads:
            rounds, set_aside = measure(args, file, threads)
            report["cases"].append({"model": model, "threads": threads, **summarize(rounds),
                                    "set_aside": set_aside, "rounds": rounds})
    report["load_after"] = os.getloadavg()
    print("\n".join(table(report)))
    if any(case["others"]["max"] > QUIET_SHARE for case in report["cases"]):
        print("Other programs had the CPU meanwhile: llama.cpp's threads wait by spinning and suffer more, so these "
              "ratios flatter cohort.")
    print("load average: {:.2f} before, {:.2f} after".format(report["load_before"][0], report["load_after"][0]))
    line = json.dumps(report)
    print(line)
    if args.record:
        kept = TREE / "bench" / "results" / f"compare-{report['date']}.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(line + "\n")
        note(f"kept in {kept.relative_to(TREE)}")


if __name__ == "__main__":
    main()
