#!/usr/bin/env bash
# usage: tests/fuzz/run.sh [SECONDS] [TARGET…]
# Fuzzes each target (default: all) for SECONDS (default: 600) on one core with libFuzzer under
# AddressSanitizer and UndefinedBehaviorSanitizer, from the committed corpus. Inputs found on the
# way go to build/fuzz/corpus. An input that fails is kept as build/fuzz/TARGET-…; add it to
# tests/fuzz/corpus/TARGET with what fixes it. Needs clang.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-600}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(safetensors weights_index config adapter_config json jsonl token_file)

cmake --preset fuzz >/dev/null
for target in "${targets[@]}"; do
  cmake --build --preset fuzz --target "fuzz_$target" >/dev/null
done
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  echo "== $target"
  log="build/fuzz/$target.log"
  if ! "build/fuzz/tests/fuzz/fuzz_$target" "build/fuzz/corpus/$target" \
    "tests/fuzz/corpus/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=4096 -print_final_stats=1 -artifact_prefix="build/fuzz/$target-" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "run.sh: $target failed; see $log" >&2
    exit 1
  fi
  grep -E '^(Done|stat::number_of_executed_units|stat::peak_rss_mb)' "$log"
done
