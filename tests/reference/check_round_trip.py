#!/usr/bin/env python3
"""Checks that folders which transformers writes come through stagecoach bit for bit.

usage: check_round_trip.py STAGECOACH

Makes tiny random GPT-2 folders with transformers: in fp32, in bf16 and in several files, in fp16
and as the model without head. Each must have the same loss in `stagecoach eval` as in transformers
(relative 1e-5); after a training step that changes nothing, `stagecoach export` must give back
every tensor with its name, dtype and bytes, in a folder that transformers loads whole. Needs torch,
transformers and safetensors.
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

TOLERANCE = 1e-5
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


def make_model(dtype):
    config = transformers.GPT2Config(vocab_size=257, n_positions=64, n_embd=48, n_layer=3,
                                     n_head=4, bos_token_id=1, eos_token_id=2)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.to(dtype)


def mean_loss(model, tokens):
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(tokens) - 1, SEQUENCE):
            labels = tokens[start + 1:start + SEQUENCE + 1]
            inputs = tokens[start:start + len(labels)]
            logits = model(inputs[None]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, labels, reduction='sum').item()
    return total / (len(tokens) - 1)


def check(command, place, dtype, shard_size, has_head):
    model = make_model(dtype)
    source, text = place / 'source', place / 'text'
    (model if has_head else model.transformer).save_pretrained(source, max_shard_size=shard_size)
    content = bytes(random.randrange(256) for _ in range(2000))
    text.write_bytes(content)
    theirs = mean_loss(model.float().eval(), torch.tensor(list(content)))
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
    for name, dtype, shard_size, has_head in VARIANTS:
        with tempfile.TemporaryDirectory() as folder:
            print(f'{name}: {check(sys.argv[1], Path(folder), dtype, shard_size, has_head)}')


if __name__ == '__main__':
    main()
