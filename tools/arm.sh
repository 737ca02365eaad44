#!/usr/bin/env bash
# Compiles the CPU kernels and their tests for 64-bit ARM and runs them under qemu, on a processor
# with everything and on one without products of unsigned and signed bytes. ARGS go to the tests, as
# in: tools/arm.sh --gtest_filter='Matmul.*'
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh g++-aarch64-linux-gnu qemu-user
out=build/arm
gtest=/usr/src/googletest/googletest
mkdir -p $out/include
ln -sfn /usr/include/fmt $out/include/fmt # alone: the rest of that folder is of this machine
flags=(-std=c++20 -ffp-contract=off -DNDEBUG -DFMT_HEADER_ONLY -Isrc -I. -isystem $out/include
  -isystem $gtest/include -isystem $gtest -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion -Wno-missing-field-initializers -Werror)

# compile LEVEL SOURCES...
compile() {
  local level=$1
  shift
  printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c '"$@" -o "$0/$(basename {}).o"' $out \
    ccache aarch64-linux-gnu-g++ "${flags[@]}" "$level" -c {}
}
rm -f $out/*.o
compile -O3 src/kernels/cpu/*.cpp src/kernels/cpu/encodings/*.cpp src/base/control_groups.cpp
compile -O1 tests/kernels_cpu/*.cpp $gtest/src/gtest-all.cc $gtest/src/gtest_main.cc
aarch64-linux-gnu-g++ $out/*.o -o $out/kernels_cpu_tests
for cpu in max cortex-a76; do
  echo "arm: $cpu"
  qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu $cpu $out/kernels_cpu_tests "$@"
done
