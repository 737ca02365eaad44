"""The command line as a person or a script uses it: every form of the contract, and what goes wrong."""

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys

import numpy
import pytest
from conftest import COHORT, ROOT

GOLDENS = ROOT / "tests" / "goldens"
LLAMA = GOLDENS / "llama"
COMMANDS = ["serve", "run", "logits", "bench", "fit", "pull", "ls"]
FRANCE = "What is the capital of France?"
GREEDY = ["--temperature", "0", "--threads", "2"]

sys.path.append(str(ROOT / "bench"))
import gguf_file  # noqa: E402


def cohort(*arguments, stdin="", **environment):
    return subprocess.run([COHORT, *map(str, arguments)], input=stdin, capture_output=True, text=True,
                          timeout=300, env={**os.environ, **environment})


def answer(*arguments, **environment):
    """What a command that must succeed printed."""
    done = cohort(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*arguments, status=1, **environment):
    """The one line with which a command failed."""
    done = cohort(*arguments, **environment)
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("cohort: error: ")
    if status == 1:
        assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            kind = {"F32": numpy.float32, "I32": numpy.int32, "U8": numpy.uint8}[entry["dtype"]]
            tensors[name] = numpy.frombuffer(
                data[8 + size + begin:8 + size + end], kind).reshape(entry["shape"])
    return tensors


@pytest.fixture(scope="module")
def golden():
    return read_safetensors(LLAMA / "golden.safetensors")


@pytest.fixture
def ids_file(tmp_path, golden):
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(golden["main.input_ids"].tolist()))
    return path


def logits(model, ids_file, *arguments, **environment):
    out = ids_file.parent / "out.safetensors"
    out.unlink(missing_ok=True)
    assert answer("logits", model, "--ids", ids_file, "--out", out, *arguments, **environment) == ""
    return read_safetensors(out)


def same(left, right):
    return left.keys() == right.keys() and all(left[k].tobytes() == right[k].tobytes() for k in left)


# run

def test_run_prints_the_answer_and_nothing_else():
    done = cohort("run", "smollm2", FRANCE, *GREEDY)
    assert done.stdout == "The capital of France is Paris.\n"
    assert done.stderr == ""
    assert cohort("run", FRANCE, *GREEDY).stdout == done.stdout


def test_run_json_has_every_field():
    out = json.loads(answer("run", "smollm2", FRANCE, "--json", *GREEDY))
    assert out["text"] == "The capital of France is Paris."
    assert all(isinstance(id, int) for id in out["ids"])
    assert out["completion_tokens"] == len(out["ids"])
    assert out["prompt_tokens"] == 37
    assert out["finish_reason"] == "stop"
    for field in ("prefill_tok_s", "decode_tok_s", "ttft_ms"):
        assert isinstance(out[field], float) and out[field] > 0
    assert abs(out["prefill_tok_s"] - out["prompt_tokens"] / out["ttft_ms"] * 1000) < 1
    cut = json.loads(answer("run", "smollm2", FRANCE, "--json", "--max-tokens", "1", *GREEDY))
    assert cut["ids"] == out["ids"][:1] and cut["finish_reason"] == "length"


def test_run_takes_ids_instead_of_text(tmp_path):
    prompt = json.loads((GOLDENS / "real_smollm2" / "golden.json").read_text())["prompts"][0]
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(prompt["input_ids"]))
    out = json.loads(answer("run", "smollm2", "--ids", ids, "--json", "--exact", *GREEDY))
    assert out["ids"] == prompt["greedy_ids"]
    assert out["prompt_tokens"] == len(prompt["input_ids"])
    assert answer("run", "smollm2", "--ids", ids, *GREEDY) == out["text"] + "\n"


def test_run_with_a_seed_repeats():
    def text(*arguments):
        return json.loads(answer("run", LLAMA, "hello", "--json", "--temperature", "1",
                                 "--max-tokens", "12", *arguments))

    first = text()
    assert text("--seed", first["seed"])["ids"] == first["ids"]
    assert text("--seed", first["seed"] + 1)["ids"] != first["ids"]


def test_a_chat_fed_by_a_pipe_keeps_the_conversation():
    done = cohort("run", "smollm2", *GREEDY, "--max-tokens", "24",
                  stdin=f"{FRANCE}\n\nWhat was my first question?\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The capital of France is Paris.\n")
    assert len(done.stdout.splitlines()) >= 2
    assert "> " not in done.stdout


def test_a_chat_takes_a_seed_and_refuses_json():
    chat = ["run", LLAMA, "--temperature", "1", "--max-tokens", "12", "--seed", "7"]
    assert cohort(*chat, stdin="hello\n").stdout == cohort(*chat, stdin="hello\n").stdout
    assert "--json" in refusal("run", LLAMA, "--json", status=2)


def test_a_chat_ends_with_a_last_line_without_newline():
    assert cohort("run", "smollm2", *GREEDY, stdin=FRANCE).stdout == "The capital of France is Paris.\n"
    assert cohort("run", LLAMA, stdin="").returncode == 0


# logits

def test_logits_are_those_of_the_golden(golden, ids_file):
    out = logits(LLAMA, ids_file, "--exact", "--hidden")
    assert out["logits"].dtype == numpy.float32
    assert numpy.abs(out["logits"] - golden["main.logits"]).max() <= 1e-3
    layers = [name for name in golden if name.startswith("main.hidden.layer_")]
    assert set(out) == {"logits", "embeddings", *(f"hidden.{n}" for n in range(len(layers)))}
    assert numpy.abs(out["embeddings"] - golden["main.hidden.embed"]).max() <= 1e-5
    for layer in range(len(layers)):
        want = golden[f"main.hidden.layer_{layer:02}"]
        assert numpy.abs(out[f"hidden.{layer}"] - want).max() <= 1e-3


@pytest.mark.parametrize("mode", [[], ["--exact"], ["--kv-dtype", "f32"]])
def test_chunks_and_threads_change_no_byte_of_the_logits(ids_file, mode):
    whole = logits(LLAMA, ids_file, "--hidden", *mode)
    for arguments in (["--chunk", "1"], ["--chunk", "7"], ["--threads", "1"], ["--threads", "3"]):
        assert same(whole, logits(LLAMA, ids_file, "--hidden", *mode, *arguments)), arguments
    assert set(logits(LLAMA, ids_file, *mode)) == {"logits"}


@pytest.mark.parametrize("model", ["llama", "gemma3", "quantized/llama_q4_g32"])
def test_instruction_sets_change_no_byte_of_the_logits(ids_file, model):
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    ids = json.loads(ids_file.read_text())
    ids_file.write_text(json.dumps((ids * 40)[:40]))  # so many that tiles are opened, and AMX is used
    sets = {"scalar": True, "avx2": "avx2" in flags, "avx_vnni": "avx_vnni" in flags, "avx512": "avx512_vnni" in flags,
            "amx": "amx_int8" in flags and "avx512_vnni" in flags,
            "neon": "asimddp" in flags, "neon_i8mm": "i8mm" in flags}
    results = [logits(GOLDENS / model, ids_file, "--hidden", COHORT_ISA=name)
               for name, present in sets.items() if present]
    assert all(same(results[0], result) for result in results[1:])


def test_a_folder_with_the_keys_of_published_configs_loads(tmp_path, ids_file):
    for model in ("llama", "gemma3"):
        hub = tmp_path / model
        shutil.copytree(GOLDENS / model, hub)
        (hub / "config_hub.json").rename(hub / "config.json")
        assert same(logits(GOLDENS / model, ids_file), logits(hub, ids_file))


def test_logits_are_written_to_the_named_file_or_not_at_all(tmp_path, ids_file):
    out = tmp_path / "plain"
    answer("logits", LLAMA, "--ids", ids_file, "--out", out)
    assert "logits" in read_safetensors(out)
    absent = tmp_path / "absent" / "out.safetensors"
    assert str(absent) in refusal("logits", LLAMA, "--ids", ids_file, "--out", absent)
    assert "/dev/full" in refusal("logits", LLAMA, "--ids", ids_file, "--out", "/dev/full")


@pytest.mark.parametrize("text", ["[1, 2, 99999999]", "[-1]", "[]", '{"a": 1}', "[1.5]", "[true]",
                                  "no json", "", "[[1]]", "[2147483648]"])
def test_bad_ids_are_a_clear_error(tmp_path, text):
    ids = tmp_path / "ids.json"
    ids.write_text(text)
    out = tmp_path / "out.safetensors"
    assert str(ids) in refusal("logits", LLAMA, "--ids", ids, "--out", out)
    assert not out.exists()
    message = refusal("run", LLAMA, "--ids", ids)
    assert "99999999" in message if "99999999" in text else str(ids) in message


def test_a_missing_ids_file_is_a_clear_error(tmp_path):
    ids = tmp_path / "absent.json"
    assert str(ids) in refusal("logits", LLAMA, "--ids", ids, "--out", tmp_path / "o.safetensors")
    assert str(ids) in refusal("run", LLAMA, "--ids", ids)


# bench, version, help, usage

def test_bench_prints_its_fields():
    arguments = ["bench", LLAMA, "--prefill", "64", "--decode", "16", "--threads", "1"]
    out = json.loads(answer(*arguments, "--json"))
    assert out["threads"] == 1
    assert (out["prefill_tokens"], out["decode_tokens"]) == (64, 16)
    assert out["prefill_tok_s"] > 0 and out["decode_tok_s"] > 0
    text = answer(*arguments, "--exact")
    assert "prefill" in text and "decode" in text and "tok/s" in text
    assert "2048" in refusal("bench", LLAMA, "--prefill", "2049")
    assert "2048" in refusal("bench", LLAMA, "--prefill", "0", "--depth", "2048")


def test_bench_measures_rows_together_behind_a_depth():
    out = json.loads(answer("bench", LLAMA, "--prefill", "0", "--decode", "8", "--depth", "33", "--batch", "3",
                            "--json"))
    assert (out["prefill_tok_s"], out["depth_tokens"], out["batch_rows"]) == (0, 33, 3)
    assert out["decode_tok_s"] > 0 and out["weight_bytes"] > 0
    out = json.loads(answer("bench", LLAMA, "--prefill", "8", "--decode", "0", "--json"))
    assert out["prefill_tok_s"] > 0 and out["decode_tok_s"] == 0


def test_bench_refuses_rows_that_memory_cannot_hold_before_it_fills_them():
    for batch, depth in [(1 << 20, 0), (1 << 20, 8000)]:
        said = refusal("bench", "smollm2", "--prefill", "0", "--decode", "8", "--depth", depth, "--batch", batch)
        found = re.search(rf"a row of {depth + 8} tokens needs ([\d.]+) MB of memory; the ([\d.]+) MB that are left "
                          rf"hold (\d+), not {batch}", said)
        assert found, said
        row, room, rows = float(found[1]), float(found[2]), int(found[3])
        assert rows * (row - 0.1) <= room <= (rows + 1) * (row + 0.1)


@pytest.mark.parametrize("start", ["1", "8", "16", "64", "70"])
def test_bench_goes_through_the_change_of_precision(start):
    out = json.loads(answer("bench", "smollm2", "--prefill", "64", "--depth", "64", "--decode", "16", "--json",
                            "--kv-quant", "8", "--kv-start", start))
    assert out["prefill_tok_s"] > 0 and out["decode_tok_s"] > 0


def test_bench_takes_prompts_in_chunks():
    assert json.loads(answer("bench", LLAMA, "--prefill", "64", "--decode", "1", "--json",
                             "--prefill-chunk-tokens", "5"))["prefill_tok_s"] > 0


# fit

@pytest.mark.parametrize("model, refused", [(LLAMA, {"8", "4", "config", "turbo:k8v8"}),
                                            ("smollm2", {"config"})])
def test_fit_says_what_fits(model, refused):
    out = json.loads(answer("fit", model, "--json", "--memory-mb", "1000"))
    assert out["memory_bytes"] == 1000 << 20
    taken = out["weight_bytes"] + out["program_bytes"] + out["working_bytes"]
    assert out["kv_bytes"] == out["memory_bytes"] - taken
    schemes = {scheme.pop("kv_quant"): scheme for scheme in out["schemes"]}
    assert refused <= {words for words, scheme in schemes.items() if "refused" in scheme}
    assert list(schemes)[:4] == ["off", "8", "4", "config"]
    for words, scheme in schemes.items():
        if "refused" in scheme:
            assert set(scheme) == {"refused"} and scheme["refused"]
            continue
        assert set(scheme) == {"bytes_per_token", "context_tokens", "rows_of_whole_context", "layers"}
        assert scheme["bytes_per_token"] == sum(
            layer["layers"] * layer["bytes_per_token"] for layer in scheme["layers"])
        assert 0 < scheme["context_tokens"] <= out["model_context_tokens"]
    if "refused" not in schemes["8"]:
        assert schemes["4"]["bytes_per_token"] < schemes["8"]["bytes_per_token"] \
            < schemes["off"]["bytes_per_token"]

    text = answer("fit", model, "--memory-mb", "1000")
    for words, scheme in schemes.items():
        line, = (line for line in text.splitlines() if line.startswith(words + " "))
        assert scheme.get("refused", str(scheme.get("bytes_per_token"))) in line


def test_nothing_fits_into_too_little_memory():
    out = json.loads(answer("fit", "smollm2", "--json", "--memory-mb", "1"))
    assert out["kv_bytes"] == 0
    assert {scheme.get("context_tokens", 0) for scheme in out["schemes"]} == {0}


# Keys and values


@pytest.mark.parametrize("flags", [
    ["--kv-start", "64"],
    ["--kv-group-size", "32"],
    ["--kv-group-size", "96"],
    ["--kv-turbo-skip-ends", "2"],
    ["--kv-config", "some.json"],
    ["--kv-quant", "8", "--kv-turbo-skip-ends", "2"],
    ["--kv-quant", "turbo", "--kv-group-size", "128"],
    ["--exact", "--kv-quant", "8"],
    ["--exact", "--kv-dtype", "bf16"],
])
def test_a_knob_without_effect_is_an_error(flags):
    assert flags[-2] in refusal("bench", LLAMA, "--prefill", "8", "--decode", "1", *flags)


def test_exact_stores_f32_however_it_is_asked_for(tmp_path, ids_file):
    exact = logits(LLAMA, ids_file, "--exact")
    assert same(exact, logits(LLAMA, ids_file, "--exact", "--kv-dtype", "f32"))
    assert not same(exact, logits(LLAMA, ids_file))
    assert same(logits(LLAMA, ids_file), logits(LLAMA, ids_file, "--kv-dtype", "bf16"))
    bench = ["bench", LLAMA, "--prefill", "8", "--decode", "1"]
    config = tmp_path / "config.toml"
    config.write_text('exact = true\nkv_dtype = "bf16"\n')
    for said in (refusal(*bench, "--exact", COHORT_KV_DTYPE="bf16"), refusal(*bench, "--config", config)):
        assert "--exact stores keys and values as f32: leave --kv-dtype bf16 out, or make it f32" in said
    answer(*bench, "--config", config, "--kv-dtype", "f32")
    answer(*bench, "--config", config, "--exact=false")


@pytest.mark.parametrize("flags, reason", [
    (["--kv-quant", "8", "--kv-start", "100000"], "--kv-start 100000: no sequence gets there"),
    (["--kv-quant", "turbo", "--kv-turbo-skip-ends", "15"], "it leaves every layer of this model as it is"),
    (["--exact", "--kv-quant-by-request"], "does not go with"),
])
def test_a_scheme_that_never_comes_about_is_refused_at_start(flags, reason):
    done = cohort("serve", "smollm2", "--port", "0", *flags)
    assert done.returncode == 1 and reason in done.stderr


# kv_config.json

@pytest.fixture
def folder_with_bad_kv_config(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(LLAMA, folder)
    (folder / "kv_config.json").write_text('{"of": "another program"}')
    return folder


def test_a_kv_config_is_read_only_where_it_counts(folder_with_bad_kv_config, tmp_path):
    folder = folder_with_bad_kv_config
    bench = ["bench", folder, "--prefill", "8", "--decode", "1"]
    answer(*bench)
    for arguments in ([*bench, "--kv-quant", "config"], ["fit", folder],
                      [*bench, "--kv-quant", "config", "--kv-config", folder / "kv_config.json"],
                      ["serve", folder, "--port", "0", "--kv-quant-by-request"]):
        done = cohort(*arguments)
        assert done.returncode == 1 and "kv_config.json: must be an array" in done.stderr, arguments
    (folder / "kv_config.json").unlink()
    assert "there is no " in refusal(*bench, "--kv-quant", "config")


def test_a_kv_config_may_lie_beside_a_gguf_file(tmp_path):
    model = tmp_path / "model.gguf"
    model.symlink_to(answer("pull", "smollm2").strip())
    bench = ["bench", model, "--prefill", "8", "--decode", "1", "--kv-quant", "config"]
    assert str(tmp_path / "kv_config.json") in refusal(*bench)
    (tmp_path / "kv_config.json").write_text('[{"layer_idx": 1, "bits": 8, "group_size": 64}]')
    answer(*bench)


def test_a_gpu_takes_a_build_for_it_and_dense_keys_in_memory(tmp_path):
    gpu = [LLAMA, "--device", "gpu"]
    assert "cmake --preset cuda" in refusal("run", *gpu, "hello")
    assert "--kv-quant " in refusal("run", *gpu, "hello", "--kv-quant", "8")
    assert "--kv-quant-by-request" in refusal("serve", *gpu, "--kv-quant-by-request")
    assert "--ssd-cache" in refusal("serve", *gpu, "--ssd-cache", tmp_path)


def test_version_and_help():
    version = answer("--version")
    assert version.startswith("cohort ") and "MLX" in version and version.count("\n") == 1
    assert answer("-V") == version
    overview = answer("--help")
    assert answer() == overview == answer("-h")
    for command in COMMANDS:
        assert f"\n  {command} " in overview


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_reads_well(command):
    text = answer(command, "--help")
    assert f"\nUsage: cohort {command}" in text
    assert "Example" in text
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    assert all(line == line.rstrip() for line in lines)
    options = [line for line in lines if line.startswith("      --")]
    assert options and all(len(line.split()) > 1 for line in options)


@pytest.mark.parametrize("arguments", [
    ["frobnicate"], ["--frobnicate"], ["logits", LLAMA], ["bench"], ["pull"],
    ["run", LLAMA, "hi", "--temperature", "hot"], ["run", LLAMA, "hi", "--temperature", "-1"],
    ["run", LLAMA, "hi", "--seed", "-1"], ["run", LLAMA, "hi", "--threads", "99999"],
    ["run", LLAMA, "one", "two"], ["serve", "--port", "70000"], ["serve", "--host"],
    ["bench", LLAMA, "--batch", "0"], ["bench", LLAMA, "--context-tokens", "8"],
    ["logits", LLAMA, "--ids", "x", "--out", "y", "--chunk", "0"],
    ["run", LLAMA, "hi", "--kv-dtype", "int8"], ["ls", "--frobnicate"],
    *[[command, "--frobnicate"] for command in COMMANDS],
])
def test_wrong_usage_exits_2(arguments):
    message = refusal(*arguments, status=2)
    assert any(str(argument).lstrip("-") in message for argument in arguments)


def test_a_bad_environment_variable_is_named():
    assert "COHORT_THREADS" in refusal("run", LLAMA, "hi", status=2, COHORT_THREADS="many")
    assert "COHORT_ISA" in refusal("run", LLAMA, "hi", COHORT_ISA="mmx")
    assert "COHORT_CONFIG" in refusal("ls", status=2, COHORT_CONFIG="absent.toml")
    assert "COHORT_MAX_ROWS" in refusal("ls", status=2, COHORT_MAXROWS="8")


def test_variables_for_tests_and_an_empty_config_stop_nothing():
    assert answer("ls", COHORT_TEST_ROUNDS="3", COHORT_CONFIG="") == answer("ls")


# What is no model

def damaged_models(folder):
    def make(name, content):
        path = folder / name
        path.write_bytes(content)
        return path

    config = folder / "no_weights"
    config.mkdir()
    shutil.copy(LLAMA / "config.json", config)
    cut = folder / "cut_weights"
    shutil.copytree(LLAMA, cut)
    weights = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(weights[:len(weights) // 2])
    foreign = folder / "foreign"
    shutil.copytree(LLAMA, foreign)
    text = json.loads((foreign / "config.json").read_text())
    (foreign / "config.json").write_text(json.dumps({**text, "model_type": "gpt_oss"}))
    (folder / "empty_folder").mkdir()
    return [folder / "absent.gguf", make("text.gguf", b"not a model"), make("empty.gguf", b""),
            make("head.gguf", b"GGUF\3\0\0\0"), folder / "empty_folder", config, cut, foreign]


def test_what_is_no_model_gives_one_clear_line(tmp_path, ids_file):
    for path in damaged_models(tmp_path):
        for command in (["run", path, "hi"], ["bench", path], ["serve", path, "--port", "0"],
                        ["logits", path, "--ids", ids_file, "--out", tmp_path / "o.safetensors"]):
            done = cohort(*command)
            assert done.returncode == 1, (command, done.stdout, done.stderr)
            line = done.stderr.splitlines()[-1]
            assert line.startswith("cohort: error: ") and len(line) < 600
            assert path.name in line or "model.safetensors" in line, line
            assert done.stdout == ""


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_an_end_token_that_the_vocabulary_lacks_is_refused_at_start(tmp_path, file):
    model = tmp_path / "llama"
    shutil.copytree(LLAMA, model)
    config = json.loads((model / file).read_text())
    (model / file).write_text(json.dumps({**config, "eos_token_id": 327}))
    assert '"eos_token_id" must be token ids from 0 to 326' in refusal("run", model, "hi")


def test_names_of_tensors_reach_no_terminal_as_they_are(tmp_path):
    model = tmp_path / "llama"
    shutil.copytree(LLAMA, model)
    content = (model / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    head = json.loads(content[8:8 + size])
    head["x\x1b[2J\nfake line"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    head = json.dumps(head).encode()
    (model / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + content[8 + size:])
    done = cohort("bench", model)
    assert done.returncode == 1 and "fake line" in done.stderr
    assert "\x1b" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_rope_factor_of_a_gguf_file_without_a_type_is_linear(tmp_path, ids_file):
    values, tensors = gguf_file.read(answer("pull", "smollm2").strip())

    def logits_with(**more):
        added = {f"llama.rope.{key}": value for key, value in more.items()}
        gguf_file.write(tmp_path / "model.gguf", values | added, tensors)
        return logits(tmp_path / "model.gguf", ids_file)

    four = struct.pack("<If", 6, 4.0)
    linear = logits_with(**{"scaling.factor": four, "scaling.type": struct.pack("<IQ", 8, 6) + b"linear"})
    assert not same(linear, logits_with())
    assert same(linear, logits_with(**{"scaling.factor": four}))
    assert same(linear, logits_with(scale_linear=four))


# Readers that go away, disks that are full

@pytest.mark.parametrize("arguments", [["run", LLAMA, "hello", "--max-tokens", "400"], ["--help"]])
def test_a_reader_that_goes_away_is_no_crash(arguments):
    process = subprocess.Popen([COHORT, *map(str, arguments)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) in (0, 1, -signal.SIGPIPE)
    assert b"terminate" not in error


@pytest.mark.parametrize("arguments", [["run", LLAMA, "hello", "--max-tokens", "4"],
                                       ["run", LLAMA, "hello", "--max-tokens", "4", "--json"],
                                       ["bench", LLAMA, "--prefill", "8", "--decode", "2"],
                                       ["ls"], ["pull", LLAMA], ["ls", "--help"],
                                       ["--help"], ["--version"]])
def test_a_full_disk_is_an_error(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([COHORT, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE,
                              timeout=60)
    assert done.returncode == 1, done.stderr
    assert b"No space left" in done.stderr and done.stderr.count(b"\n") == 1
