#!/usr/bin/env bash
# Trains adapters of a model whose base is larger than the memory that the program may have: the
# base stays in its files (model.base = "mapped"). Checks that with the base in memory the same run
# is refused, and, where the machine has room for it, that it gives the same bits without the limit.
# The limit is RLIMIT_DATA (ulimit -d), which counts all memory of the program but mappings of
# files. Where a control group of memory can be made (root), the mapped run is made in one with the
# same limit as well, the base dropped from the page cache before: a group counts mapped files too,
# and the system drops them when its limit is near.
# usage: tests/proof/lora_beyond_memory.sh [BUILD_FOLDER [MODEL_FOLDER [LIMIT_MIB [DEVICES]]]]
# MODEL_FOLDER holds weights in bf16 and a vocabulary of 257 or more. "dense" (the default) and
# "experts" make a model of 1 GiB each, of Llama's and of Qwen3-MoE's architecture.
set -euo pipefail
start=$PWD
command=$(realpath "${1:-build/cpu}")/stagecoach
kind=${2:-dense}
limit_mib=${3:-704}
devices=${4:-'cpu:1[memory=160M]'}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
model=$folder/base
if (cd "$start" && [ -d "$kind" ]); then
  model=$(cd "$start" && realpath "$kind")
else
  mkdir base
  python3 - base "$kind" <<'PYTHON'
import json, math, pathlib, random, struct, sys
folder = pathlib.Path(sys.argv[1])
has_experts = {"dense": False, "experts": True}[sys.argv[2]]
HIDDEN, MIDDLE, LAYERS, EXPERTS = (512, 512, 40, 16) if has_experts else (1024, 4096, 32, 0)
HEADS, VOCABULARY = HIDDEN // 64, 257
config = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
    "hidden_size": HIDDEN, "intermediate_size": MIDDLE, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": 64,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "vocab_size": VOCABULARY, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
if has_experts:
    config |= {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
               "moe_intermediate_size": MIDDLE, "num_experts": EXPERTS, "num_experts_per_tok": 2,
               "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
(folder / "config.json").write_text(json.dumps(config))
shapes = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN],
          "lm_head.weight": [VOCABULARY, HIDDEN]}
for layer in range(LAYERS):
    prefix = f"model.layers.{layer}."
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        shapes[prefix + f"self_attn.{name}.weight"] = [HIDDEN, HIDDEN]
    if has_experts:
        shapes[prefix + "mlp.gate.weight"] = [EXPERTS, HIDDEN]
        shapes[prefix + "mlp.experts.gate_up_proj"] = [EXPERTS, 2 * MIDDLE, HIDDEN]
        shapes[prefix + "mlp.experts.down_proj"] = [EXPERTS, HIDDEN, MIDDLE]
        shapes[prefix + "self_attn.q_norm.weight"] = [64]
        shapes[prefix + "self_attn.k_norm.weight"] = [64]
    else:
        shapes[prefix + "mlp.gate_proj.weight"] = [MIDDLE, HIDDEN]
        shapes[prefix + "mlp.up_proj.weight"] = [MIDDLE, HIDDEN]
        shapes[prefix + "mlp.down_proj.weight"] = [HIDDEN, MIDDLE]
    shapes[prefix + "input_layernorm.weight"] = [HIDDEN]
    shapes[prefix + "post_attention_layernorm.weight"] = [HIDDEN]
header, offset = {"__metadata__": {"format": "pt"}}, 0
for name, shape in sorted(shapes.items()):
    size = 2 * math.prod(shape)
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
    offset += size
text = json.dumps(header).encode()
random.seed(1)
half = lambda value: struct.pack("<f", value)[2:]
noise = b"".join(half(random.gauss(0, 0.02)) for _ in range(99991))  # a prime: rows differ
with open(folder / "model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for name, shape in sorted(shapes.items()):
        start, end = header[name]["data_offsets"]
        if len(shape) == 1:
            file.write(half(1.0) * shape[0])
            continue
        for done in range(0, end - start, len(noise)):
            file.write(noise[:end - start - done])
PYTHON
fi
for ((line = 0; line < 100; ++line)); do
  echo "$line: a bright cold day in April, and the clocks were striking thirteen."
done >text.txt
base_bytes=$(cat "$model"/*.safetensors | wc -c)
limit_bytes=$((limit_mib * 1024 * 1024))
echo "base $((base_bytes / 1048576)) MiB in files, limit $limit_mib MiB of memory"
[ "$base_bytes" -gt "$limit_bytes" ] || { echo "the base is not larger than the limit"; exit 1; }
# the folder and where the base is follow
train=("$command" train --model "$model" --data text.txt --devices "$devices" --set
  'model.lora={rank = 8, alpha = 16}' model.dtype=bf16 data.sequence=16 train.batch=2
  train.microbatches=1 train.iterations=3 optimizer.lr=0.003 optimizer.warmup=0
  output.trace=false)
value() {
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' \
    "$1/summary.json" "$2"
}
if (ulimit -d $((limit_mib * 1024)); exec "${train[@]}" output.dir=refused) >refused.log 2>&1; then
  echo "a base in memory was not refused"; exit 1
fi
grep -q 'host memory' refused.log || { cat refused.log; exit 1; }
(ulimit -d $((limit_mib * 1024)); exec "${train[@]}" model.base=mapped output.dir=mapped) \
  >mapped.log 2>&1 || { cat mapped.log; exit 1; }
echo "mapped: loss $(value mapped loss_first) to $(value mapped loss_last), state" \
  "$(($(value mapped state_bytes) / 1048576)) MiB"

# The folder of a new control group with the limit; nothing where none can be made.
make_group() {
  local root=/sys/fs/cgroup name=stagecoach_proof_$$ file=memory.max
  if [ -d $root/memory ]; then
    root=$root/memory file=memory.limit_in_bytes
  elif ! grep -qw memory $root/cgroup.subtree_control 2>/dev/null; then
    return 0
  fi
  mkdir "$root/$name" 2>/dev/null || return 0
  echo "$limit_bytes" >"$root/$name/$file" && echo "$root/$name"
}
group=$(make_group)
if [ -n "$group" ]; then
  trap 'rm -rf "$folder"; rmdir "$group"' EXIT
  sync
  python3 - "$model"/*.safetensors <<'PYTHON'
import os, sys
for name in sys.argv[1:]:
    file = os.open(name, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
PYTHON
  sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$group" "${train[@]}" model.base=mapped \
    output.dir=grouped >grouped.log 2>&1 || { cat grouped.log; exit 1; }
  [ "$(value mapped weights_sha256)" = "$(value grouped weights_sha256)" ] ||
    { echo "the weights differ in the control group"; exit 1; }
  peak=$(cat "$group"/memory.max_usage_in_bytes "$group"/memory.peak 2>/dev/null | head -1) || true
  echo "the same in a control group of $limit_mib MiB, which held $((peak / 1048576)) MiB at most"
else
  echo "no control group of memory can be made here: that part is left out"
fi
available_kib=$(awk '/MemAvailable/ {print $2}' /proc/meminfo)
if [ "$((available_kib * 1024))" -gt "$((2 * base_bytes + limit_bytes))" ]; then
  "${train[@]}" output.dir=memory >memory.log 2>&1 || { cat memory.log; exit 1; }
  [ "$(value mapped weights_sha256)" = "$(value memory weights_sha256)" ] ||
    { echo "the weights differ"; exit 1; }
  echo "the same weights as with the base in memory: $(value memory weights_sha256)"
fi
