"""llama.cpp, built natively, once, from the source that the PyPI package llama-cpp-python carries."""

import hashlib
import os
import pathlib
import sys

from machine import fail, note, run

RELEASE = "0.3.36"  # of llama-cpp-python; its source archive holds the whole of llama.cpp
ARCHIVE = f"llama_cpp_python-{RELEASE}.tar.gz"
ARCHIVE_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
TILE_CONFIG = pathlib.Path(__file__).with_name("tile_config.h").read_text()
CMAKE_FLAGS = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON"] + [
    f"-D{name}=OFF" for name in ("LLAMA_CURL", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_UI",
                                 "LLAMA_BUILD_WEBUI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_APP")]


def add_flags(parser, *programs):
    """The flags that say where programs are or are to be built; provide() reads them."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    for program in programs:
        parser.add_argument(f"--{program}", type=pathlib.Path, metavar="PROGRAM",
                            help="a ready program instead of building one")
    parser.add_argument("--peers", type=pathlib.Path, default=cache / "cohort" / "peers" / "llama.cpp",
                        help="where llama.cpp is built (default: %(default)s)")


def provide(args, program):
    """The path of `program` of llama.cpp, and what the report calls it."""
    given = getattr(args, program.replace("-", "_"))
    return (given, "a given program") if given else (build(args.peers, program), f"llama-cpp-python {RELEASE}")


def build(folder, program):
    """The path of `program` under `folder`, downloaded and built if it is not there."""
    source = folder / ARCHIVE.removesuffix(".tar.gz") / "vendor" / "llama.cpp"
    recipe = hashlib.sha256(" ".join([TILE_CONFIG, *CMAKE_FLAGS]).encode()).hexdigest()[:8]
    built = source / f"build-{recipe}"
    path = built / "bin" / program
    if path.exists():
        return path
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
    note(f"building {program} of llama.cpp, once: about ten minutes on two cores")
    header = folder / "tile_config.h"
    header.write_text(TILE_CONFIG)
    run(["cmake", "-S", source, "-B", built, "-G", "Ninja", *CMAKE_FLAGS, f'-DCMAKE_CXX_FLAGS=-include "{header}"'])
    run(["ninja", "-C", built, program])
    return path
