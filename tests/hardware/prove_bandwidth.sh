#!/usr/bin/env bash
# usage: tests/hardware/prove_bandwidth.sh BUILD OUT [H2D D2H DUPLEX]
# Measures the link of card cuda:0 by `bench bandwidth` and compares with what is known of it (GB/s;
# by default an H200's 55.5 55.3 96.8), with itself, and what training takes with what `plan`
# predicts by the profile alone. OUT gets every result file, a profile and summary.txt. TEXT names
# a text file of a megabyte or more to train on. Exits 1 where a figure is off by more than 3 %
# (links) or 10 % (steps), `quick` takes 40 s or more, or something fails.
set -uo pipefail
if [ $# -ne 2 ] && [ $# -ne 5 ]; then
  sed -n '2,8s/^# //p' "$0" >&2
  exit 1
fi
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
known=("${3:-55.5}" "${4:-55.3}" "${5:-96.8}")
bench=("$build/stagecoach" bench bandwidth)

say() { echo "$*" | tee -a "$out/summary.txt"; }
# field FILE EXPRESSION: of a JSON file, in Python, as `json`.
field() {
  python3 -c "import json as j, sys
json = j.load(open(sys.argv[1]))
print(eval(sys.argv[2]))" "$1" "$2"
}
# fastest FILE GROUP DIRECTION: the largest median of that.
fastest() {
  field "$1" "max(r['stats']['median'] for r in json['results']
    if r['group'] == '$2' and r['status'] == 'ok' and r['params'].get('dir') == '$3'
    and r['params'].get('kind') == 'pinned')"
}
# near NAME FOUND EXPECTED PERCENT
near() {
  awk -v name="$1" -v found="$2" -v expected="$3" -v most="$4" 'BEGIN {
    off = 100 * (found - expected) / expected
    printf "%s  %s: %.4g, expected %.4g (%+.1f %%, at most %g)\n",
           off * off <= most * most ? "ok    " : "FAILED", name, found, expected, off, most }' |
    tee -a "$out/summary.txt"
}

quick() {
  local turn seconds
  for turn in 1 2; do
    seconds=$SECONDS
    "${bench[@]}" quick --devices cuda:0 --out "$out/quick$turn.json" \
      >"$out/quick$turn.log" 2>&1 ||
      say "FAILED  quick $turn: exit code $?"
    seconds=$((SECONDS - seconds))
    [ "$seconds" -lt 40 ] || say "FAILED  quick $turn took too long"
    say "ok      quick $turn: $seconds s"
    near "host to device" "$(fastest "$out/quick$turn.json" copy up)" "${known[0]}" 3
    near "device to host" "$(fastest "$out/quick$turn.json" copy down)" "${known[1]}" 3
    near "both directions" "$(fastest "$out/quick$turn.json" duplex both)" "${known[2]}" 3
  done
  for name in "copy up" "copy down" "duplex both"; do
    # shellcheck disable=SC2086  # a group and a direction
    near "second run, $name" "$(fastest "$out/quick2.json" $name)" \
      "$(fastest "$out/quick1.json" $name)" 3
  done
}

full() {
  "${bench[@]}" full --devices cuda:0 --out "$out/full.json" --save-profile "$out/profile.json" \
    >"$out/full.log" 2>&1 || say "FAILED  full: exit code $?"
  say "$(field "$out/full.json" "'\n'.join('        %-48s %10.4g %-8s p99 %.4g'
    % (r['id'], r['stats']['median'], r['unit'], r['stats'].get('p99', 0))
    for r in json['results'] if r['group'] != 'copy' and r['status'] == 'ok')")"
}

# step NAME MODEL SEQUENCE BATCH MICROBATCHES
step() {
  local model=(--model "$2" --sequence "$3" --batch "$4" --microbatches "$5" --dtype bf16)
  "$build/stagecoach" plan "${model[@]}" --devices cuda:0 --profile "$out/profile.json" --json \
    >"$out/plan_$1.json" 2>"$out/plan_$1.log" || say "FAILED  plan of $1"
  "$build/stagecoach" train --model "$2" --data "$TEXT" --devices cuda:0 --set model.init=random \
    model.dtype=bf16 data.sequence="$3" train.batch="$4" train.microbatches="$5" \
    train.iterations=16 output.save_every=0 output.trace=false output.dir="$out/run_$1" \
    devices.profile="$out/profile.json" >"$out/train_$1.log" 2>&1 || say "FAILED  training $1"
  near "step of $1 in s, plan against run" \
    "$(field "$out/plan_$1.json" "json['predicted']['step_s']")" \
    "$(field "$out/run_$1/summary.json" "$3 * $4 / json['tokens_per_s']")" 10
}

say "$("$build/stagecoach" --version), $(date -u +%F)"
quick
full
if [ -s "${TEXT:-}" ]; then
  step gpt2-medium gpt2-medium 1024 16 4
  step qwen3-1.7b qwen3-1.7b 2048 4 2
  step gpt2 gpt2 1024 32 4
  # A shape that no sample of `bench bandwidth layers` has.
  mkdir -p "$out/qwen3-0.6b"
  cat >"$out/qwen3-0.6b/config.json" <<'EOF'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024,
 "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
 "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
 "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
 "tie_word_embeddings": true, "hidden_act": "silu", "attention_bias": false,
 "initializer_range": 0.02, "torch_dtype": "bfloat16"}
EOF
  step qwen3-0.6b "$out/qwen3-0.6b" 2048 16 4
else
  say "FAILED  steps: set TEXT to a text file"
fi
! grep -q FAILED "$out/summary.txt"
