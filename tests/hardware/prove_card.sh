#!/usr/bin/env bash
# shellcheck disable=SC2317  # parts are called by name
# usage: tests/hardware/prove_card.sh BUILD OUT [PART...]
# Proves the GPU backends on a real NVIDIA card, and the HIP backend through hip_over_cuda
# (docs/hip_backend.md). BUILD is a build folder with both backends, tests and benchmarks. Parts (by
# default all): conformance ops models sanitizer training overhead. OUT gets a log a part and
# summary.txt. TEXT names a text file of a megabyte or more to train on. Exits 1 when a part fails.
set -uo pipefail
if [ $# -lt 2 ]; then
  sed -n '3,7s/^# //p' "$0" >&2
  exit 1
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
parts=${*:-conformance ops models sanitizer training overhead}
card=${CARD:-0}
export STAGECOACH_HIP_LIBRARY=$build/libhip_over_cuda.so

say() { echo "$*" | tee -a "$out/summary.txt"; }
# check NAME COMMAND...: runs it with its output in OUT/NAME.log and says how it ended.
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$out/$name.log" 2>&1; then
    say "ok      $name ($((SECONDS - start)) s)"
  else
    say "FAILED  $name ($((SECONDS - start)) s)"
  fi
}

conformance() {
  check conformance_cuda "$build/tests/test_conformance" --gtest_filter='*cuda*'
  check conformance_hip "$build/tests/test_conformance" --gtest_filter='*/hip*'
  for log in cuda hip; do
    grep -qE 'PASSED  \] [1-9]' "$out/conformance_$log.log" || { say "FAILED  no $log test ran"; }
    say "$(grep -E 'PASSED|SKIPPED.* tests?,' "$out/conformance_$log.log" | tr '\n' ' ')"
  done
}

# Large odd shapes by the vendor's libraries and by own kernels, in processes side by side: the
# oracle and the operands take longest.
ops() {
  local kind shard
  for kind in fp32 bf16 fp16; do
    for shard in 0 1 2 3 4 5 6 7; do
      STAGECOACH_TEST_DEVICES="cuda:$card,cuda:$card[libraries=off]" \
        STAGECOACH_TEST_SHARD=$shard/8 check "ops_${kind}_$shard" "$build/tests/test_kernels" \
        --gtest_filter="*GpuOpsTest*$kind" &
    done
  done
  wait
  STAGECOACH_TEST_SMALL=1 STAGECOACH_TEST_DEVICES=hip:$card check ops_hip_small \
    "$build/tests/test_kernels" --gtest_filter='*GpuOpsTest*'
  grep -l 'no GPU named' "$out"/ops_*.log && say "FAILED  a part of ops was skipped"
}

# Tiny models of every architecture against what transformers says of them: each pass on its own,
# and training through the scheduler, streamed and bound.
models() {
  local kind
  for kind in "cuda:$card" "cuda:$card[libraries=off]" "hip:$card"; do
    STAGECOACH_TEST_DEVICES=$kind check "models_${kind//[^a-z0-9]/_}" "$build/tests/test_model" \
      --gtest_filter='*DecoderReference*:*LoraReference*:*RouterLossReference*'
  done
  STAGECOACH_TEST_DEVICES="cuda:${card}x2" check models_training "$build/tests/test_train" \
    --gtest_filter='*ReferenceTraining*:*PackedDocuments*:*LossesOfTwentyStepsAreThoseOfPeft*'
}

sanitizer() {
  local tool
  for tool in memcheck racecheck; do
    STAGECOACH_TEST_SMALL=1 STAGECOACH_TEST_DEVICES="cuda:$card[libraries=off]" check "$tool" \
      compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/tests/test_kernels" \
      --gtest_filter='*GpuOpsTest*' &
  done
  wait
  for tool in memcheck racecheck; do
    say "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$tool.log")"
  done
}

# train NAME DEVICES: the demo's model, 100 iterations.
train() {
  check "train_$1" "$build/stagecoach" train --config "$root/configs/demo.toml" --devices "$2" \
    --set model.path="$root/configs/demo-model" data.train="[\"$TEXT\"]" data.validation=[] \
    train.eval_every=0 train.iterations=100 train.deterministic=true devices.memory=auto \
    output.dir="$out/run_$1" output.save_every=0
}
value() { sed -n "s/^  \"$2\": \(.*[^,]\),\{0,1\}$/\1/p" "$out/run_$1/summary.json" 2>/dev/null; }
losses() { sed -n 's/.*"loss":\([0-9.e+-]*\).*/\1/p' "$out/run_$1/metrics.jsonl"; }

training() {
  local name same="cuda_again cuda_x2"
  if [ ! -s "${TEXT:-}" ]; then
    say "FAILED  training: set TEXT to a text file"
    return
  fi
  train cpu cpu:2
  train cuda "cuda:$card"
  train cuda_again "cuda:$card"
  train cuda_x2 "cuda:${card}x2"
  train hip "hip:$card"
  train mixed "cpu:1,cuda:$card"
  if grep -q '^cuda:1 ' "$out/devices.log"; then
    train cuda_two cuda:0,cuda:1
    same="$same cuda_two"
  fi
  for name in cuda hip mixed $same; do
    paste <(losses cpu) <(losses "$name") | awk -v name="$name" '
      { d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > worst) worst = d; last = $2; ++n }
      END { printf "%s  loss of %s: last %s, at most %.2g %% from the CPU in %d iterations\n",
            (n == 100 && worst < 0.01) ? "ok    " : "FAILED", name, last, 100 * worst, n }' |
      tee -a "$out/summary.txt"
    say "        weights $(value "$name" weights_sha256) tokens/s $(value "$name" tokens_per_s)"
  done
  for name in $same; do
    [ "$(value cuda weights_sha256)" = "$(value "$name" weights_sha256)" ] &&
      [ -n "$(value cuda weights_sha256)" ] && continue
    say "FAILED  $name has other weights than cuda"
  done
}

overhead() {
  check launch_overhead "$build/bench/launch_overhead" "--benchmark_out=$out/launch_overhead.json"
  sed -n '/ns/p' "$out/launch_overhead.log" >>"$out/summary.txt"
}

say "$("$build/stagecoach" --version), $(date -u +%F)"
check devices "$build/stagecoach" devices --verbose
for part in $parts; do
  case $part in
    conformance | ops | models | sanitizer | training | overhead) $part ;;
    *) echo "no part '$part'" >&2; exit 1 ;;
  esac
done
! grep -q FAILED "$out/summary.txt"
