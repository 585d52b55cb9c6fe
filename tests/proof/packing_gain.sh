#!/usr/bin/env bash
# usage: tests/proof/packing_gain.sh [BUILD_FOLDER]
#
# Trains on 2,000 short chats with data.packing = "pad" and "documents" by turns, three times each,
# and prints the share of positions that are targets and the targets a second of each run. Not part
# of CI: rates on a shared machine vary.
set -euo pipefail
command=$(realpath "${1:-build/cpu}")/stagecoach
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 - <<'PYTHON'
import json
import random

draw = random.Random(1)
WORDS = [''.join(draw.choice('etaoinshrdlu') for _ in range(draw.randint(1, 8))) for _ in range(90)]


def say(role, least, most):
    words = (draw.choice(WORDS) for _ in range(draw.randint(least, most)))
    return {'role': role, 'content': ' '.join(words)}


with open('chats.jsonl', 'w', encoding='utf-8') as chats:
    for _ in range(2000):
        turns = draw.choice((1, 1, 1, 2, 3))
        messages = [m for _ in range(turns) for m in (say('user', 2, 12), say('assistant', 3, 25))]
        chats.write(json.dumps({'messages': messages}) + '\n')
MODEL = {'model_type': 'llama', 'vocab_size': 257, 'hidden_size': 128, 'intermediate_size': 384,
         'num_hidden_layers': 4, 'num_attention_heads': 4, 'num_key_value_heads': 2,
         'max_position_embeddings': 1024}
with open('model.json', 'w', encoding='utf-8') as model:
    json.dump(MODEL, model)
PYTHON
for _ in 1 2 3; do
  for packing in pad documents; do
    STAGECOACH_THREADS=1 "$command" train --model model.json --data chats.jsonl --devices cpu:1 \
      --set model.init=random model.dtype=fp32 data.sequence=1024 data.packing=$packing \
      train.iterations=12 train.batch=4 train.microbatches=2 output.dir=out output.save_every=0 \
      >log 2>&1 || { cat log; exit 1; }
    python3 - <<'PYTHON'
import json

with open('out/summary.json', encoding='utf-8') as file:
    summary = json.load(file)
print(f'{summary["packing"]}: target_fraction {summary["target_fraction"]:.4f}, '
      f'{summary["tokens_per_s"]:.0f} targets/s')
PYTHON
    rm -r out
  done
done
