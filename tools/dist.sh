#!/usr/bin/env bash
# Packs the program, MLX and all licences into dist/cohort-VERSION-linux-ARCH.tar.gz, and tries the
# packed program in another folder.
#   usage  tools/dist.sh BUILD_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
version=$(sed -n 's/^project(cohort VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=cohort-$version-linux-$(uname -m)

rm -rf "dist/$name"
cmake --install "$build" --prefix "dist/$name" --strip >/dev/null
cp README.md "dist/$name/"
tar -C dist -czf "dist/$name.tar.gz" "$name"
rm -rf "dist/$name"

tried=$(mktemp -d)
trap 'rm -rf "$tried"' EXIT
tar -C "$tried" -xzf "dist/$name.tar.gz"
program=$tried/$name/bin/cohort
"$program" --version
if readelf -d "$program" | grep -E 'R(UN)?PATH' | grep -v '\[\$ORIGIN/\.\./lib\]'; then
  echo "dist: the program looks for libraries outside its own folder" >&2
  exit 1
fi
# Everything MLX brings must come from the package, not from the build tree.
if ldd "$program" | grep -E 'not found|\.deps|site-packages'; then
  echo "dist: a library is missing from the package" >&2
  exit 1
fi
du -h "dist/$name.tar.gz"
