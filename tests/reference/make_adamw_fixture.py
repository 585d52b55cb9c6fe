#!/usr/bin/env python3
"""Makes the fixture of tests/train/adamw_reference_test.cpp with torch.optim.AdamW.

expected.safetensors: the same parameters and the gradients of three steps for every setting, and
what torch makes of the parameters after each step. Settings stand in the file's metadata, as JSON.
Gradients are of every size, also in one element from step to step. All in fp32; hyperparameters are
Python's doubles, as users give them.

    python3 -m venv venv && venv/bin/pip install torch safetensors
    venv/bin/python tests/reference/make_adamw_fixture.py tests/reference/adamw
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

PARAMETERS, STEPS = 211, 3  # a tail behind whole vectors of every processor

# Name: what torch is told, and the learning rate of each step.
SETTINGS = {
    "decay": (dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1), [3e-4, 2e-4, 1e-3]),
    "plain": (dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0), [1e-2, 1e-3, 5e-3]),
    "slow": (dict(betas=(0.95, 0.9999), eps=1e-5, weight_decay=0.1), [1e-1, 3e-2, 1e-2]),
    "quick": (dict(betas=(0.0, 0.5), eps=1e-15, weight_decay=0.0), [1e-3, 1e-3, 1e-2]),
    "still": (dict(betas=(0.8, 0.99), eps=1e-3, weight_decay=0.5), [1e-2, 0.0, 1e-2]),
}


def make_start():
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    parameters = 0.5 * normal(PARAMETERS)
    parameters[:3] = torch.tensor([0.0, 1e-6, -4.0])
    gradients = 0.02 * normal(STEPS, PARAMETERS)
    # A third of them from 1e-12 to 1e+12, the same or another size in the next step.
    exponents = 24 * torch.rand(STEPS, PARAMETERS, generator=generator) - 12
    gradients[:, 0::3] = (normal(STEPS, PARAMETERS) * 10.0 ** exponents)[:, 0::3]
    gradients[:, 5] = 0.0
    gradients[1, 7] = 0.0
    gradients[:, 8] = torch.tensor([1e15, 1e-15, -1.0])
    gradients[:, 10] = torch.tensor([1e-30, -1e-18, 1e-9])
    return parameters, gradients


def main(folder):
    start, gradients = make_start()
    tensors = {"parameters": start, "gradients": gradients}
    for name, (options, rates) in SETTINGS.items():
        parameter = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.AdamW([parameter], **options)
        after = []
        for step, rate in enumerate(rates):
            optimizer.param_groups[0]["lr"] = rate
            parameter.grad = gradients[step].clone()
            optimizer.step()
            after.append(parameter.detach().clone())
        tensors[f"{name}.after"] = torch.stack(after)
        assert torch.isfinite(tensors[f"{name}.after"]).all()
    settings = {name: dict(options, lr=rates) for name, (options, rates) in SETTINGS.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(folder / "expected.safetensors"),
              metadata={"settings": json.dumps(settings), "torch": torch.__version__})


main(pathlib.Path(sys.argv[1]))
