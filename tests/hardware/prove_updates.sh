#!/usr/bin/env bash
# usage: tests/hardware/prove_updates.sh BUILD OUT
# Updates and transfers on an NVIDIA card: GPT-2 medium in bf16 (batch 16 of 1024 tokens) with every
# update mode, with and without clipping, with half of the updates on the card, with and without
# residency, and with little card memory; urgent copies under bulk copies (bench_transfer); the
# optimizer's rates (bench/optimizer).
# TEXT names a text file of a megabyte or more. BUILD is a build folder with STAGECOACH_BENCH. OUT
# gets a folder a run and summary.txt. Exits 1 when a run fails, when modes that must agree give
# other weights, or when a card takes more memory than planned.
set -uo pipefail
if [ $# -ne 2 ]; then
  sed -n '2,9s/^# //p' "$0" >&2
  exit 1
fi
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
failed=0

say() { echo "$*" | tee -a "$out/summary.txt"; }
value() { sed -n "s/^  \"$2\": \(.*[^,]\),\{0,1\}$/\1/p" "$out/$1/summary.json"; }

run() { # NAME DEVICES SETTING...
  local name=$1 devices=$2
  shift 2
  if timeout 120 "$build/stagecoach" train --model gpt2-medium --data "$TEXT" --devices "$devices" \
    --set model.init=random model.dtype=bf16 data.sequence=1024 train.batch=16 \
    train.microbatches=4 train.iterations=24 optimizer.warmup=2 train.deterministic=true \
    output.save_every=0 output.dir="$out/$name" "$@" >"$out/$name.log" 2>&1; then
    say "$name: $(value "$name" tokens_per_s) tokens/s, updates exposed" \
      "$(value "$name" update_exposed_fraction), idle $(value "$name" bubble_fraction), planned" \
      "$(sed -n '/"device_planned_bytes"/,/]/p' "$out/$name/summary.json" | tr -dc '0-9 ')," \
      "peak $(sed -n '/"device_peak_bytes"/,/]/p' "$out/$name/summary.json" | tr -dc '0-9 ')"
  else
    say "FAILED $name: $(tail -2 "$out/$name.log" | tr '\n' ' ')"
    failed=1
  fi
}
same() { # NAME NAME...
  local first=$1 name
  for name in "$@"; do
    [ "$(value "$name" weights_sha256)" = "$(value "$first" weights_sha256)" ] && continue
    say "FAILED $name has other weights than $first"
    failed=1
  done
}

for clip in 1 0; do
  for update in barrier overlap async; do
    run "$update-clip$clip" cuda:0 schedule.update=$update optimizer.clip_norm=$clip
  done
  run "overlap-clip$clip-half" cuda:0 schedule.update=overlap optimizer.clip_norm=$clip \
    optimizer.device_share=0.5
  same "barrier-clip$clip" "overlap-clip$clip" "overlap-clip$clip-half"
done
run "async-half" cuda:0 schedule.update=async optimizer.clip_norm=0 optimizer.device_share=0.5
same async-clip0 async-half
for rounds in 1 2; do
  for residency in auto off; do
    run "rounds$rounds-residency-$residency" cuda:0 schedule.update=overlap optimizer.clip_norm=0 \
      train.rounds="$rounds" devices.residency="$residency"
  done
  same "rounds$rounds-residency-auto" "rounds$rounds-residency-off"
done
for rounds in 1 4; do
  for residency in auto off; do
    run "3G-rounds$rounds-residency-$residency" 'cuda:0[memory=3G]' schedule.update=overlap \
      optimizer.clip_norm=0 train.rounds="$rounds" devices.residency="$residency"
  done
  same "3G-rounds$rounds-residency-auto" "3G-rounds$rounds-residency-off"
done
run share-auto cuda:0 schedule.update=overlap optimizer.clip_norm=0 optimizer.device_share=auto
run memory-5G 'cuda:0[memory=5G]' schedule.update=overlap
run memory-3G 'cuda:0[memory=3G]' schedule.update=overlap

timeout 150 "$build/bench/bench_transfer" --device cuda:0 --json "$out/transfer.json" \
  >"$out/transfer.log" 2>&1 || { say "FAILED bench_transfer"; failed=1; }
cat "$out/transfer.log"
timeout 90 "$build/bench/bench_transfer" --device cuda:0 --causes --json "$out/causes.json" \
  >"$out/causes.log" 2>&1 || { say "FAILED bench_transfer --causes"; failed=1; }
cat "$out/causes.log"
timeout 240 "$build/bench/optimizer" >"$out/optimizer.log" 2>&1 ||
  { say "FAILED bench/optimizer"; failed=1; }
tail -60 "$out/optimizer.log"
exit $failed
