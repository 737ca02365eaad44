#!/usr/bin/env python3
"""Copies the licences of all that is linked into the program: Rust crates and Debian packages.

usage: tools/collect_licences.py DESTINATION
"""

import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEBIAN_PACKAGES = ["libboost1.81-dev", "libcli11-dev", "libtomlplusplus-dev", "libfmt-dev"]
NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")


def crates():
    """Name, version, declared licence and folder of each crate."""
    manifest = ROOT / "rust" / "textkit" / "Cargo.toml"
    cargo = shutil.which("cargo") or "/usr/lib/rust-web/bin/cargo"
    if not manifest.exists():
        return
    command = [cargo, "metadata", "--format-version", "1", "--locked", "--manifest-path", str(manifest)]
    for package in json.loads(subprocess.check_output(command))["packages"]:
        if package["source"]:
            yield f"{package['name']}-{package['version']}", package["license"], pathlib.Path(
                package["manifest_path"]).parent


def main(destination):
    index = []
    for name, licence, folder in crates():
        index.append(f"{name}: {licence}\n")
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name.upper().startswith(NAMES):
                target = destination / "rust" / name
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / path.name)
    if index:
        (destination / "rust" / "INDEX.txt").write_text("".join(sorted(index)))
    for package in DEBIAN_PACKAGES:
        copyright_file = pathlib.Path("/usr/share/doc") / package / "copyright"
        if copyright_file.exists():
            destination.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(copyright_file, destination / f"{package}.txt")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
