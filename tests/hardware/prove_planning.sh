#!/usr/bin/env bash
# usage: tests/hardware/prove_planning.sh BUILD OUT
# Trains GPT-2 medium in bf16 on NVIDIA cards and holds what was planned from measured layer times
# beside what was taken: one card, two (CARDS=2), and two of unequal speed (the second without its
# vendor's libraries). TEXT names a text file of a megabyte or more. OUT gets a folder a run and
# summary.txt. Exits 1 when a run fails, a step is not within 20 % of its plan, memory is more than
# 20 % above its plan (scratch memory of operations beyond what is set aside is not planned), or
# losses differ between runs by more than 1 %.
set -uo pipefail
if [ $# -ne 2 ]; then
  sed -n '2,9s/^# //p' "$0" >&2
  exit 1
fi
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)

run() {
  local name=$1 devices=$2 start=$SECONDS
  shift 2
  if "$build/stagecoach" train --model gpt2-medium --data "$TEXT" --devices "$devices" \
    --set model.init=random model.dtype=bf16 data.sequence=1024 train.batch=48 \
    train.microbatches=24 train.iterations=12 optimizer.warmup=2 \
    output.save_every=0 output.dir="$out/$name" "$@" \
    >"$out/$name.log" 2>&1; then
    echo "ran $name on $devices ($((SECONDS - start)) s)" | tee -a "$out/summary.txt"
  else
    echo "FAILED $name on $devices" | tee -a "$out/summary.txt"
    tail -5 "$out/$name.log"
  fi
}

run one cuda:0
run streamed cuda:0 --set schedule.max_stage_layers=4
if [ "${CARDS:-1}" -ge 2 ]; then
  run two cuda:0,cuda:1
  run unequal 'cuda:0,cuda:1[libraries=off]'
  run unequal_swapped 'cuda:0[libraries=off],cuda:1'
fi

python3 - "$out" <<'PYTHON' | tee -a "$out/summary.txt"
import json, os, sys

losses = []
for name in sorted(os.listdir(sys.argv[1])):
    path = os.path.join(sys.argv[1], name, "summary.json")
    if not os.path.isfile(path):
        continue
    run = json.load(open(path))
    losses.append(run["loss_last"])
    ratio = run["step_predicted_s"] / run["step_s"]
    memory = max(peak / planned for planned, peak in
                 zip(run["device_planned_bytes"], run["device_peak_bytes"]) if planned)
    shares = " ".join(f"{share['share']:.3f}" for share in run["shares"])
    verdict = "ok" if abs(ratio - 1) <= 0.2 and memory <= 1.2 else "FAILED"
    print(f"{verdict} {name}: planned {run['step_predicted_s']:.4f} s, "
          f"taken {run['step_s']:.4f} s, ratio {ratio:.3f}; "
          f"{run['tokens_per_s']:.0f} tokens/s, idle {run['bubble_fraction']:.3f}, "
          f"update exposed {run['update_exposed_fraction']:.3f}, shares {shares}, "
          f"memory over plan {memory:.3f}, loss {run['loss_last']:.4f}")
if losses and max(losses) / min(losses) > 1.01:
    print("FAILED: losses differ:", losses)
PYTHON
! grep -q FAILED "$out/summary.txt"
