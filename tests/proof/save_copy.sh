#!/usr/bin/env bash
# How long updates wait for a save on a disk of 40 MB/s, without and with memory to copy to
# (output.save_copy); the weights must be the same.
# usage: tests/proof/save_copy.sh [BUILD_FOLDER]
set -euo pipefail
command=$(realpath "${1:-build/cpu}")/stagecoach
here=$(realpath "$(dirname "$0")")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${CC:-cc}" -shared -fPIC -O2 -o slow_writes.so "$here/slow_writes.c" -ldl
for ((line = 0; line < 400; ++line)); do
  echo "$line: a bright cold day in April, and the clocks were striking thirteen."
done >text.txt
cat >config.json <<'JSON'
{"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 384, "n_layer": 6,
 "n_head": 6}
JSON
for size in 0 256M; do
  SLOW_BYTES_PER_S=40e6 LD_PRELOAD="$folder/slow_writes.so" "$command" train --model config.json \
    --data text.txt --devices cpu:2 --set model.init=random data.sequence=32 train.batch=4 \
    train.microbatches=4 train.iterations=32 output.save_every=16 "output.dir=copy-$size" \
    "output.save_copy=$size" output.trace=false >/dev/null 2>"copy-$size.log"
  echo "output.save_copy = $size"
  grep "saved a checkpoint" "copy-$size.log"
done
python3 - <<'PYTHON'
import json
runs = [json.load(open(f"copy-{size}/summary.json")) for size in ("0", "256M")]
for run in runs:
    print(f"step {run['step_s'] or 0:.3f} s, waited {run['save_wait_s']:.3f} s, "
          f"copied {run['save_copied_bytes']} bytes")
assert runs[0]["weights_sha256"] == runs[1]["weights_sha256"], "other weights"
PYTHON
