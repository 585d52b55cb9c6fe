#!/usr/bin/env python3
"""Checks that PEFT reads adapters that stagecoach writes, and computes with them what it does.

usage: check_adapter.py STAGECOACH

For four models of tests/reference/decoders: trains a new adapter for a few steps with STAGECOACH,
exports it as an adapter and merged, and compares the logits of transformers on the merged folder
with those of PEFT on the adapter (not merged: relative 1e-5; merged by PEFT: 1e-6), and both with
the loss of `stagecoach eval` on the checkpoint (1e-5). The adapter's matrices must come back from
PEFT bit for bit. Needs torch, transformers, peft and safetensors.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent
SEQUENCE, WINDOWS, VOCABULARY = 12, 6, 40


def run(command, *arguments):
    done = subprocess.run([command, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation='eager').eval()


def logits_of(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens).logits.double()


def mean_loss(model, tokens):
    logits = logits_of(model, torch.stack([tokens[i * SEQUENCE:(i + 1) * SEQUENCE]
                                           for i in range(WINDOWS)]))
    labels = torch.stack([tokens[i * SEQUENCE + 1:(i + 1) * SEQUENCE + 1] for i in range(WINDOWS)])
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)).item()


def distance(one, other):
    return ((one - other).norm() / other.norm()).item()


def check(command, name, base, lora, folder):
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(VOCABULARY, (SEQUENCE * WINDOWS + 1,), generator=generator)
    data = folder / 'ids.bin'
    data.write_bytes(b''.join(int(token).to_bytes(2, 'little') for token in tokens))
    run(command, 'train', '--model', base, '--data', data, '--devices', 'cpu:2', '--set',
        f'model.lora={lora}', f'output.dir={folder}/out', f'data.sequence={SEQUENCE}',
        'train.batch=4', 'train.microbatches=2', 'train.iterations=8', 'optimizer.lr=0.02',
        'optimizer.warmup=0')
    run(command, 'export', '--checkpoint', f'{folder}/out', '--out', folder / 'adapter')
    run(command, 'export', '--checkpoint', f'{folder}/out', '--out', folder / 'merged',
        '--merge-lora', '--dtype', 'fp32')
    adapted = peft.PeftModel.from_pretrained(load(base), folder / 'adapter').eval()
    written = load_file(folder / 'adapter' / 'adapter_model.safetensors')
    state = peft.get_peft_model_state_dict(adapted)
    assert state.keys() == written.keys(), state.keys() ^ written.keys()
    assert all(torch.equal(state[key], written[key]) for key in written)
    batch = tokens[:SEQUENCE][None]
    apart = logits_of(adapted, batch)
    ours = logits_of(load(folder / 'merged'), batch)
    theirs = logits_of(peft.PeftModel.from_pretrained(
        load(base), folder / 'adapter').merge_and_unload(), batch)
    changed = distance(logits_of(load(base), batch), theirs)
    evaluated = json.loads(run(command, 'eval', '--model', f'{folder}/out/checkpoint', '--data',
                               data, '--sequence', SEQUENCE, '--json'))['loss']
    expected = mean_loss(adapted, tokens)
    print(f'{name}: logits {distance(ours, apart):.1e} from PEFT, {distance(ours, theirs):.1e} '
          f'from merge_and_unload ({changed:.2f} from the base), loss {evaluated:.7f} and '
          f'{expected:.7f}')
    assert distance(ours, apart) < 1e-5 and distance(ours, theirs) < 1e-6 and changed > 1e-3
    assert abs(evaluated - expected) < 1e-5


def main():
    print(f'torch {torch.__version__}, transformers {transformers.__version__}, '
          f'peft {peft.__version__}')
    for name, base, lora in (
            ('gpt2', 'gpt2', '{rank = 4, alpha = 8}'),
            ('llama', 'llama-linear', '{rank = 2, alpha = 3, targets = ["q_proj", "v_proj"]}'),
            ('llama rslora', 'llama-llama3-tied-biases', '{rank = 2, alpha = 3, rslora = true}'),
            ('qwen3', 'qwen3', '{rank = 4}')):
        with tempfile.TemporaryDirectory() as folder:
            check(sys.argv[1], name, ROOT / 'decoders' / base, lora, Path(folder))


if __name__ == '__main__':
    main()
