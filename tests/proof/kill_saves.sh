#!/usr/bin/env bash
# Kills a run that saves after every iteration at COUNT random moments (default 100) and checks
# after each that the folder holds a whole checkpoint, which `eval` loads, or none yet; then lets it
# end and compares its weights with those of a run that nothing happened to.
# usage: tests/proof/kill_saves.sh [BUILD_FOLDER [COUNT [SEED]]]
set -euo pipefail
command=$(realpath "${1:-build/cpu}")/stagecoach
count=${2:-100}
RANDOM=${3:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for ((line = 0; line < 400; ++line)); do
  echo "$line: a bright cold day in April, and the clocks were striking thirteen."
done >text.txt
cat >config.json <<'JSON'
{"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 256, "n_layer": 4,
 "n_head": 4}
JSON
# 40 iterations, saved after each; the folder's name follows
train=("$command" train --model config.json --data text.txt --devices cpu:2)
for setting in model.init=random data.sequence=32 train.batch=4 train.microbatches=2 \
  train.iterations=40 output.save_every=1 output.trace=false; do
  train+=(--set "$setting")
done
sha() {
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["weights_sha256"])' \
    "$1/summary.json"
}
"${train[@]}" --set output.dir=whole >whole.log 2>&1
killed=0 whole_folders=0
for ((kill = 1; kill <= count; ++kill)); do
  "${train[@]}" --set output.dir=out >out.log 2>&1 & process=$!
  sleep "$(printf '0.%03d' $((RANDOM % 1000)))"
  kill -KILL "$process" 2>/dev/null && killed=$((killed + 1))
  wait "$process" 2>/dev/null || true
  if compgen -G 'out/checkpoint-*' >/dev/null; then
    "$command" eval --model out/checkpoint --data text.txt --sequence 32 >eval.log 2>&1 ||
      { cat eval.log; echo "kill $kill: no whole checkpoint"; exit 1; }
    whole_folders=$((whole_folders + 1))
  fi
  # From the beginning now and then, so that kills meet all of a run.
  if [ -e out/summary.json ]; then rm -rf out; fi
done
"${train[@]}" --set output.dir=out >out.log 2>&1
[ "$(sha out)" = "$(sha whole)" ] || { echo "other weights than without kills"; exit 1; }
echo "killed $killed of $count runs; $whole_folders times checkpoints were there, all whole;" \
  "weights as without kills"
