"""The programs of bench/ still run and say what they measured; their figures mean nothing here."""

import json
import pathlib
import subprocess
import sys

import pytest
from conftest import COHORT, ROOT


@pytest.fixture
def llama_bench(tmp_path):
    """What stands in for llama.cpp, which takes minutes to build."""
    program = tmp_path / "llama-bench"
    program.write_text("#!/bin/sh\necho '[{\"avg_ts\": 100}]'\n")
    program.chmod(0o755)
    return program


def last_line(script, *arguments):
    done = subprocess.run([sys.executable, str(ROOT / "bench" / script), "--cohort", COHORT, "--rounds", "1",
                           *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_contention(llama_bench):
    report = last_line("contention.py", "--llama-bench", llama_bench)
    assert [case["program"] for case in report["cases"]] == ["cohort", "llama.cpp"]
    assert all(case["kept"]["median"] > 0 for case in report["cases"])


@pytest.mark.parametrize("against", [False, True])
def test_compare(llama_bench, against):
    peer = ["--against", COHORT] if against else \
        ["--llama-bench", llama_bench, "--llama-batched-bench", llama_bench]
    limits = pathlib.Path(COHORT).parent / "bench" / "limits"
    report = last_line("compare.py", "--model", "smollm2", "--cells", "decode0", "--limits", limits, *peer)
    assert report["cases"][0]["ratio"]["median"] > 0
