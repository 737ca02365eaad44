#!/usr/bin/env bash
# The long checks that `make test` has no time for: every preset's tests, the kernels for another
# processor, the client suite against the sanitized server, more random crowds of rows, longer fuzzing,
# a server in long use, the package. Writes docs/verify-DATE.md, to be committed.
#   tools/verify.sh          every check
#   tools/verify.sh NAME...  these, such as fuzzing or "release tests"; the rest of today's report stays
#   FUZZ_S  seconds for each fuzz target (default 300)
#   SOAK    requests of each soak (default 1000)
#   ROUNDS  of random crowds, of 10,000 random schedules and of 5 kills (default 40, about a quarter
#           of a minute each on two cores)
set -uo pipefail
cd "$(dirname "$0")/.."
report=docs/verify-$(date +%F).md
python=$PWD/.deps/venv/bin/python
failed=0
chosen=("$@")
ran=0

# step NAME COMMAND...: if it was chosen, runs it, keeps its log, adds a row to the report.
step() {
  local name=$1 start=$SECONDS result=passed log commit
  shift
  if [ ${#chosen[@]} -gt 0 ] && ! printf '%s\n' "${chosen[@]}" | grep -qxF -- "$name"; then return; fi
  ran=$((ran + 1))
  commit=$(git rev-parse --short HEAD)
  [ -z "$(git status --porcelain -- . ':!docs')" ] || commit+=", changed"
  log=build/verify-${name// /-}.log
  echo "verify: $name"
  "$@" >"$log" 2>&1 || { result=FAILED; failed=1; tail -20 "$log"; }
  echo "| $name | \`${*//$PWD\//}\` | $result | $((SECONDS - start)) s | $commit |" >>"$report"
}

configure_and_test() {
  cmake --preset "$1" && cmake --build "build/$1" && ctest --preset "$1" -j2
}

# fuzz SECONDS: for each target
fuzz() {
  local target targets=(tests/fuzz/*_fuzz.cpp)
  targets=("${targets[@]##*/}")
  targets=("${targets[@]%_fuzz.cpp}")
  cmake --preset fuzz && cmake --build build/fuzz --target "${targets[@]/%/_fuzz}" || return 1
  for target in "${targets[@]}"; do
    mkdir -p "build/fuzz/found/$target"
    "build/fuzz/tests/${target}_fuzz" -max_total_time="$1" -timeout=10 -rss_limit_mb=1024 \
      -artifact_prefix="build/fuzz/found/$target/" "build/fuzz/found/$target" "tests/fuzz/corpus/$target" \
      || return 1
  done
}

sanitized_clients() {
  cmake --preset dev && cmake --build build/dev --target cohort || return 1
  COHORT_BINARY=$PWD/build/dev/cohort "$python" -m pytest tests/client -q
}

# with_release COMMAND...: of the release build as the sources are now
with_release() {
  make build && "$@"
}

mkdir -p build docs
[ ${#chosen[@]} -gt 0 ] && [ -f "$report" ] || cat >"$report" <<END
# Verification of $(date +%F)

Made by \`tools/verify.sh\` on $(nproc) cores, $(uname -sm).

| check | command | result | time | commit |
| --- | --- | --- | --- | --- |
END

step "release tests" make test
step "clang-tidy" make lint
step "address and undefined sanitizers" configure_and_test dev
step "thread sanitizer" configure_and_test tsan
step "kernels for ARM" make arm
step "clients of the sanitized server" sanitized_clients
step "random crowds" with_release env COHORT_TEST_ROUNDS="${ROUNDS:-40}" build/release/tests/model_tests \
  --gtest_filter='*KvInvariance*'
step "random schedules" with_release env COHORT_TEST_ROUNDS="${ROUNDS:-40}" build/release/tests/engine_plan_tests \
  --gtest_filter='Loop.*'
step "kills" with_release env COHORT_TEST_ROUNDS="${ROUNDS:-40}" \
  "$python" -m pytest tests/client/test_ssd_cache.py -q -k kills
step "fuzzing" fuzz "${FUZZ_S:-300}"
step "soak" with_release "$python" tools/soak.py --requests "${SOAK:-1000}"
step "soak with little memory" with_release "$python" tools/soak.py --requests "${SOAK:-1000}" \
  --kv-memory-mb 48 --prompt-max 200 --tokens-max 1000
step "package" make dist
if [ $ran -lt ${#chosen[@]} ]; then
  echo "verify: of ${#chosen[@]} names only $ran are of a check" >&2
  failed=1
fi
echo "verify: wrote $report"
exit $failed
