#!/usr/bin/env bash
# Installs what building and testing Cohort need on Debian 12 / Ubuntu: system packages (apt, and those
# that ARGS name), a Rust toolchain if none is on PATH, and the Python environment .deps/venv, which also
# holds the pinned MLX wheel. Does nothing, quickly, when everything is already there.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ make cmake ninja-build ccache git ca-certificates python3 python3-pip python3-venv
  libboost1.81-dev libfmt-dev libcli11-dev libtomlplusplus-dev libcurl4-openssl-dev libssl-dev
  libsqlite3-dev libgtest-dev clang libclang-rt-14-dev "$@")

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
done
# Any recent Rust on PATH is used; Debian 12 packages one as cargo-web.
command -v cargo >/dev/null || command -v /usr/lib/rust-web/bin/cargo >/dev/null || missing+=(cargo-web)
if [ ${#missing[@]} -gt 0 ]; then
  sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
  echo "setup: installing ${missing[*]}"
  $sudo apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends \
    "${missing[@]}" >/dev/null
fi

if ! cmp -s tools/requirements.txt .deps/requirements.stamp; then
  echo "setup: installing the Python environment .deps/venv"
  [ -x .deps/venv/bin/python ] || python3 -m venv .deps/venv
  .deps/venv/bin/pip install --quiet --disable-pip-version-check -r tools/requirements.txt
  cp tools/requirements.txt .deps/requirements.stamp
fi
