#!/usr/bin/env python3
"""Checks that transformers reads an exported folder and computes with it what stagecoach does.

usage: check_export.py STAGECOACH FOLDER TEXT [SEQUENCE]

STAGECOACH is the command, FOLDER what `stagecoach export` wrote, TEXT a file of bytes. Compares the
loss of `stagecoach eval` with that of transformers over the same windows (relative 1e-5), and the
tokens that both continue the text's start with, always taking the likeliest. Needs torch,
transformers and safetensors; for fp32 exports of models that use the byte tokenizer.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
import transformers
from safetensors import safe_open

TOLERANCE = 1e-5
PROMPT_BYTES = 8
NEW_TOKENS = 8


def ask(command, *arguments):
    done = subprocess.run([command, *arguments, '--json'], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def check_files(folder):
    for path in sorted(folder.glob('*.safetensors')):
        with safe_open(path, 'pt') as file:
            assert file.metadata() == {'format': 'pt'}, path
            assert len(file.keys()) > 0, path
    config = json.loads((folder / 'config.json').read_text())
    assert config['dtype'] == config['torch_dtype'], config


def mean_loss(model, tokens, sequence):
    total = torch.zeros((), dtype=torch.float64)
    for start in range(0, len(tokens) - 1, sequence):
        inputs = tokens[start:start + sequence]
        labels = tokens[start + 1:start + sequence + 1]
        inputs = inputs[:len(labels)]
        logits = model(inputs[None]).logits[0]
        total += torch.nn.functional.cross_entropy(logits.double(), labels, reduction='sum')
    return (total / (len(tokens) - 1)).item()


def continue_greedily(model, tokens):
    for _ in range(NEW_TOKENS):
        # Only ids that stagecoach's byte tokenizer draws.
        next_id = model(tokens[None]).logits[0, -1, :257].argmax()
        tokens = torch.cat([tokens, next_id[None]])
    return tokens.tolist()


def main():
    command, folder, text = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    sequence = int(sys.argv[4]) if len(sys.argv) > 4 else 16
    check_files(folder)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True)
    for kind in ('missing_keys', 'unexpected_keys', 'mismatched_keys', 'error_msgs'):
        assert not info.get(kind), f'{kind}: {info[kind]}'
    model = model.eval()
    tokens = torch.tensor(list(text.read_bytes()))
    with torch.no_grad():
        theirs = mean_loss(model, tokens, sequence)
        continued = continue_greedily(model, tokens[:PROMPT_BYTES])
    ours = ask(command, 'eval', '--model', folder, '--data', text, '--sequence', str(sequence))
    print(f'transformers {transformers.__version__}: loss {theirs:.9f}; '
          f'stagecoach: {ours["loss"]:.9f}')
    assert ours['tokens'] == len(tokens) - 1, ours
    assert abs(ours['loss'] - theirs) <= TOLERANCE * abs(theirs)
    prompt = bytes(tokens[:PROMPT_BYTES].tolist()).decode()
    generated = ask(command, 'generate', '--model', folder, '--prompt', prompt, '--tokens',
                    str(NEW_TOKENS), '--temperature', '0')
    assert generated['token_ids'] == continued[PROMPT_BYTES:], (generated['token_ids'], continued)
    print(f'the same {NEW_TOKENS} tokens follow; {len(list(folder.iterdir()))} files')


if __name__ == '__main__':
    main()
