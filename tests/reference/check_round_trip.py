#!/usr/bin/env python3
"""Checks that folders which transformers writes come through stagecoach bit for bit.

usage: check_round_trip.py STAGECOACH [FAMILY…]   (gpt2, llama, llama-tied, qwen3, qwen3-tied,
                                                   qwen3-moe, qwen3-moe-tied, qwen3-moe-stacked,
                                                   gpt-oss, gpt-oss-tied)

Makes tiny random folders with transformers (default: gpt2): in fp32, in bf16 and in several files,
in fp16 and, where the head is tied, as the model without head. Each must have the same loss in
`stagecoach eval` as in transformers (relative 1e-6); after a training step that changes nothing,
`stagecoach export` must give back every tensor with its name, dtype and bytes, in a folder that
transformers loads whole. Needs torch, transformers and safetensors.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

TOLERANCE = 1e-6
SEQUENCE = 32
VARIANTS = [
    ('fp32', torch.float32, '5GB', True),
    ('bf16 in several files', torch.bfloat16, '20KB', True),
    ('fp16 without head, in several files', torch.float16, '20KB', False),
]


def run(command, *arguments):
    done = subprocess.run([command, *map(str, arguments)], check=True, stdout=subprocess.PIPE)
    return done.stdout


def read_tensors(folder):
    tensors = {}
    for path in sorted(folder.glob('*.safetensors')):
        with safe_open(path, 'pt') as file:
            tensors.update({name: file.get_tensor(name) for name in file.keys()})
    return tensors


def make_model(family, dtype):
    ends = {'vocab_size': 257, 'bos_token_id': 1, 'eos_token_id': 2}
    decoder = {**ends, 'hidden_size': 48, 'intermediate_size': 80, 'num_hidden_layers': 3,
               'num_attention_heads': 4, 'num_key_value_heads': 2, 'max_position_embeddings': 64,
               'tie_word_embeddings': family.endswith('-tied')}
    if family == 'gpt2':
        config = transformers.GPT2Config(n_positions=64, n_embd=48, n_layer=3, n_head=4, **ends)
    elif family.startswith('llama'):
        rope = {'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 8.0,
                'low_freq_factor': 1.0, 'high_freq_factor': 4.0,
                'original_max_position_embeddings': 16}
        config = transformers.LlamaConfig(rope_parameters=rope, **decoder)
    elif family.startswith('gpt-oss'):
        config = transformers.GptOssConfig(head_dim=32, num_local_experts=6, num_experts_per_tok=2,
                                           sliding_window=8, **decoder)
    elif family.startswith('qwen3-moe'):
        config = transformers.Qwen3MoeConfig(head_dim=32, num_experts=6, num_experts_per_tok=2,
                                             moe_intermediate_size=24, norm_topk_prob=True,
                                             **decoder)
    else:
        config = transformers.Qwen3Config(head_dim=32, **decoder)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.to(dtype)


def stack_experts(source, model):
    """The folder again with experts as they are in memory; transformers writes them one by one."""
    for path in source.glob('model*'):
        path.unlink()
    save_file(model.state_dict(), source / 'model.safetensors', metadata={'format': 'pt'})


def mean_loss(model, tokens):
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(tokens) - 1, SEQUENCE):
            labels = tokens[start + 1:start + SEQUENCE + 1]
            inputs = tokens[start:start + len(labels)]
            logits = model(inputs[None]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, labels, reduction='sum').item()
    return total / (len(tokens) - 1)


def check(command, family, place, dtype, shard_size, has_head):
    model = make_model(family, dtype)
    source, text = place / 'source', place / 'text'
    has_head = has_head or not model.config.tie_word_embeddings
    (model if has_head else model.base_model).save_pretrained(source, max_shard_size=shard_size)
    if family.endswith('-stacked'):
        stack_experts(source, model)
    content = bytes(random.randrange(256) for _ in range(2000))
    text.write_bytes(content)
    # Read anew: a model that was rounded and widened has rounded rotary frequencies too.
    read = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    theirs = mean_loss(read, torch.tensor(list(content)))
    evaluated = run(command, 'eval', '--model', source, '--data', text, '--sequence', SEQUENCE,
                    '--json')
    ours = json.loads(evaluated)['loss']
    assert abs(ours - theirs) <= TOLERANCE * theirs, (ours, theirs)
    run(command, 'train', '--model', source, '--data', text, '--devices', 'cpu:1', '--set',
        'train.iterations=1', 'optimizer.lr=1e-300', 'data.sequence=16', f'output.dir={place}/run')
    run(command, 'export', '--checkpoint', place / 'run', '--out', place / 'out')
    before, after = read_tensors(source), read_tensors(place / 'out')
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype and torch.equal(tensor, after[name]), name
    _, info = transformers.AutoModelForCausalLM.from_pretrained(place / 'out',
                                                                output_loading_info=True)
    assert not any(info.values()), info
    return f'loss {theirs:.9f} and {ours:.9f}, {len(before)} tensors bit for bit'


def main():
    torch.manual_seed(1)
    random.seed(1)
    for family in sys.argv[2:] or ['gpt2']:
        for name, *variant in VARIANTS:
            with tempfile.TemporaryDirectory() as folder:
                result = check(sys.argv[1], family, Path(folder), *variant)
            print(f'{family}, {name}: {result}')


if __name__ == '__main__':
    main()
