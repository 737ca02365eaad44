"""What a server is watched by: /metrics, /debug/traces, --trace; and who asks, as it understands it."""

import json
import math
import re
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest

from test_serve_process import COHORT, HELLO, LLAMA, client_of, chat, get, open_stream, serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
PHASES = ["request.body_parse", "request.prompt", "response.first_write", "response.last_write"]

SAMPLE = re.compile(r'([a-z_]+)(?:\{([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"\})? (\S+)')
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?|[+-]Inf")


def parse_metrics(text):
    """The exposition format 0.0.4, strictly: {name: (type, {label value: number})}."""
    assert text.endswith("\n")
    metrics, name = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, told = line.removeprefix("# HELP ").split(" ", 1)
            assert told and name not in metrics, line
            metrics[name] = (None, {})
        elif line.startswith("# TYPE "):
            of, kind = line.removeprefix("# TYPE ").split(" ")
            assert of == name and metrics[name] == (None, {}), line
            assert kind in ("counter", "gauge", "histogram")
            metrics[name] = (kind, {})
        else:
            match = SAMPLE.fullmatch(line)
            assert match and NUMBER.fullmatch(match[4]), line
            kind, samples = metrics[name]
            suffix = match[1].removeprefix(name)
            assert match[1].startswith(name), line
            assert suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",)), line
            assert (match[2] == "le") == (suffix == "_bucket"), line
            key = match[3] if match[2] else suffix
            assert key not in samples, line
            samples[key] = float(match[4])
    return metrics


def check_histogram(samples):
    bounds = [key for key in samples if not key.startswith("_")]
    assert bounds[-1] == "+Inf"
    assert [float(bound) for bound in bounds] == sorted(float(bound) for bound in bounds)
    counts = [samples[bound] for bound in bounds]
    assert counts == sorted(counts) and counts[-1] == samples["_count"]
    assert list(samples)[-2:] == ["_sum", "_count"]


def metrics_of(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=10) as reply:
        assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return parse_metrics(reply.read().decode())


def test_metrics_are_what_prometheus_reads():
    with serving() as server:
        chat(server)
        metrics = metrics_of(server)
    for name, (kind, samples) in metrics.items():
        assert name.startswith("cohort_")
        assert name.endswith("_total") == (kind == "counter"), name
        assert all(value >= 0 for value in samples.values()), name
        if kind == "histogram":
            check_histogram(samples)
        if kind == "gauge":
            assert list(samples) == [""]
    assert set(metrics["cohort_requests_ended_total"][1]) == {"stop", "length", "cancelled", "error"}
    assert metrics["cohort_iterations_total"][1][""] > 0
    assert {name for name, (kind, _) in metrics.items() if kind == "histogram"} == {
        "cohort_time_to_first_token_seconds", "cohort_inter_token_seconds", "cohort_queue_seconds",
        "cohort_iteration_seconds", "cohort_batch_rows"}


def test_metrics_of_a_running_answer():
    with serving() as server:
        _, rest = open_stream(server, 1500)
        metrics = metrics_of(server)
        assert metrics["cohort_rows"][1][""] == 1
        assert 0 < metrics["cohort_kv_used_bytes"][1][""] <= metrics["cohort_kv_held_bytes"][1][""]
        assert metrics["cohort_kv_limit_bytes"][1][""] > 0
        rest.close()
        assert not math.isnan(metrics_of(server)["cohort_iteration_seconds"][1]["_sum"])


def ask(server, headers, **fields):
    """Status, JSON, headers of a chat completion with headers of its own."""
    body = {"messages": HELLO, "max_tokens": 4, **fields}
    request = urllib.request.Request(
        server.url + "/v1/chat/completions", json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read().decode(), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def traces_of(server, count):
    """The finished traces, once there are so many."""
    deadline = time.monotonic() + 10
    while True:
        status, body = get(server.url + "/debug/traces")
        assert status == 200
        if len(body["traces"]) == count:
            return body["traces"]
        assert time.monotonic() < deadline, body
        time.sleep(0.02)


def test_traces_of_whole_answers_streams_and_refusals():
    with serving(LLAMA, "--debug-traces", "8") as server:
        headers = {"traceparent": TRACEPARENT, "X-Request-Id": "mine", "Authorization": "Bearer secret"}
        assert ask(server, headers)[0] == 200
        assert ask(server, {"traceparent": TRACEPARENT.upper()}, stream=True)[0] == 200
        assert ask(server, {}, top_p=7)[0] == 400
        whole, stream, refused = traces = traces_of(server, 3)
    assert (whole["trace_id"], whole["parent_id"], whole["request_id"]) == (TRACE, PARENT, "mine")
    assert stream["parent_id"] is None
    assert re.fullmatch("[0-9a-f]{32}", stream["trace_id"]) and stream["trace_id"] != TRACE
    assert [trace["outcome"] for trace in traces] == ["success", "success", "error"]
    for trace in (whole, stream):
        names = [span["name"] for span in trace["spans"]]
        assert [name for name in names if name in PHASES] == PHASES
        assert trace["route"] == "/v1/chat/completions"
        for span in trace["spans"]:
            assert 0 <= span["begin_us"] <= span["begin_us"] + span["duration_us"] <= trace["duration_us"] + 1
    text = json.dumps(traces)
    assert "secret" not in text and HELLO[0]["content"] not in text


def test_traces_are_the_last_ones():
    with serving(LLAMA, "--debug-traces", "2") as server:
        for name in ("a", "b", "c"):
            ask(server, {"X-Request-Id": name})
        deadline = time.monotonic() + 10
        while [t["request_id"] for t in traces_of(server, 2)] != ["b", "c"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_without_traces_the_flag_is_named():
    with serving() as server:
        status, body = get(server.url + "/debug/traces")
        assert status == 404
        assert "--debug-traces" in body["error"]["message"]


def events_in(file):
    """As viewers read it: a bracket that is missing is thought of."""
    text = file.read_text()
    return json.loads(text if text.endswith("]\n") else text + "]")


@pytest.mark.parametrize("kill", [False, True])
def test_a_trace_file_is_whole_after_any_end(tmp_path, kill):
    file = tmp_path / "trace.json"
    with serving(LLAMA, "--trace", file) as server:
        assert ask(server, {"traceparent": TRACEPARENT, "X-Request-Id": "mine"})[0] == 200
        deadline = time.monotonic() + 10
        while len(events_in(file)) == 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if kill:
            server.process.kill()
            server.process.wait(10)
        else:
            assert server.stop() == 0
    events = events_in(file)
    assert file.read_text().endswith("]\n") != kill
    spans = [event for event in events if event["ph"] == "X"]
    assert set(PHASES) < {span["name"] for span in spans}
    for span in spans:
        assert span["args"]["request_id"] == "mine" and span["args"]["trace_id"] == TRACE
        assert span["dur"] >= 0 and span["ts"] >= 0 and span["pid"] == 1
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert {span["tid"] for span in spans} == named
    assert HELLO[0]["content"] not in file.read_text()


def test_a_trace_file_does_not_outgrow_its_limit(tmp_path):
    file = tmp_path / "trace.json"
    with serving(LLAMA, "--trace", file, "--trace-limit-mb", "1") as server:
        for _ in range(20):
            assert ask(server, {}, max_tokens=500, ignore_eos=True)[0] == 200
        whole = json.loads(file.read_text())
        assert server.stop() == 0
    assert file.stat().st_size <= 1 << 20
    assert {event["ph"] for event in whole} == {"M", "X"}
    assert sum("--trace-limit-mb" in line for line in server.output) == 1


def test_a_limit_of_no_trace_file_is_an_error():
    done = subprocess.run([COHORT, "serve", LLAMA, "--port", "0", "--trace-limit-mb", "1"],
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "cohort: error: --trace-limit-mb has no effect without --trace\n")


def test_a_trace_file_that_cannot_be_opened_is_an_error_at_the_start(tmp_path):
    done = subprocess.run([COHORT, "serve", LLAMA, "--port", "0", "--trace", tmp_path / "no" / "file"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("cohort: error: --trace ")
    assert "No such file or directory" in done.stderr and done.stderr.count("\n") == 1


def test_request_ids_come_back():
    with serving() as server:
        assert ask(server, {"X-Request-Id": "mine"})[2]["X-Request-Id"] == "mine"
        assert ask(server, {"X-Request-Id": "mine"}, top_p=7)[2]["X-Request-Id"] == "mine"
        own = [ask(server, {"X-Request-Id": bad})[2]["X-Request-Id"] for bad in ("x" * 129, "\xe9")]
        assert all(re.fullmatch("req-[0-9a-f]{24}", name) for name in own) and own[0] != own[1]
        raw = client_of(server).chat.completions.with_raw_response.create(
            model=client_of(server).models.list().data[0].id, messages=HELLO, max_tokens=1)
        assert raw.parse()._request_id == raw.headers["X-Request-Id"]


@pytest.mark.parametrize("value", ["high", "normal", "low", -7, 0, 7, None])
def test_priorities(server, client, model, value):
    answer = client.chat.completions.create(model=model, messages=HELLO, max_tokens=1,
                                            extra_body={"priority": value})
    assert answer.choices
    if value is not None:
        client.chat.completions.create(model=model, messages=HELLO, max_tokens=1,
                                       extra_headers={"X-Priority": str(value)})


@pytest.mark.parametrize("value", ["urgent", "HIGH", "", 1.5, True, [], {}])
def test_a_priority_that_does_not_exist(server, client, model, value):
    def ask_with(**extra):
        with pytest.raises(openai.BadRequestError, match="'high', 'normal', 'low'") as caught:
            client.chat.completions.create(model=model, messages=HELLO, max_tokens=1, **extra)
        return caught.value.param

    assert ask_with(extra_body={"priority": value}) == "priority"
    if isinstance(value, str):
        assert ask_with(extra_headers={"X-Priority": value}) == "X-Priority"


def test_the_priority_in_the_body_wins_and_both_are_checked(client, model):
    client.chat.completions.create(model=model, messages=HELLO, max_tokens=1,
                                   extra_body={"priority": "low"}, extra_headers={"X-Priority": "high"})
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=model, messages=HELLO, max_tokens=1,
                                       extra_body={"priority": "low"}, extra_headers={"X-Priority": "?"})
