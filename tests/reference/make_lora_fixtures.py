#!/usr/bin/env python3
"""Makes the fixtures of tests/model/lora_reference_test.cpp and tests/train/lora_training_test.cpp
with PEFT.

Each folder is an adapter as PEFT saves it (adapter_config.json, adapter_model.safetensors) of a
tiny model in tests/reference/decoders, with matrices that are both random, and
expected.safetensors: for tokens and labels (-1: ignored) of 20 batches the mean loss before each
of 20 steps of torch's AdamW; of the first batch the gradient of every matrix, and the logits of
the merged model. All in fp32.

    python3 -m venv venv && venv/bin/pip install torch transformers peft safetensors
    venv/bin/python tests/reference/make_lora_fixtures.py tests/reference
"""

import json
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

STEPS, SEQUENCES, TOKENS = 20, 2, 12
OPTIMIZER = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

ALL = "all-linear"
# Name: base, and what PEFT is told.
ADAPTERS = {
    "gpt2": ("gpt2", dict(r=4, lora_alpha=8, target_modules=ALL, fan_in_fan_out=True)),
    # A product of three modules of which two have adapters.
    "llama": ("llama-linear",
              dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj", "down_proj"])),
    # A scale of one; head norms between product and rotation.
    "qwen3": ("qwen3", dict(r=4, lora_alpha=4, target_modules=ALL)),
    # A scale that is no short number; biases; a head tied to the embedding.
    "llama-rslora": ("llama-llama3-tied-biases",
                     dict(r=2, lora_alpha=3, target_modules=ALL, use_rslora=True)),
}


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")


def batches(vocabulary, generator):
    shape = (STEPS, SEQUENCES, TOKENS)
    tokens = torch.randint(vocabulary, shape, generator=generator)
    labels = torch.randint(vocabulary, shape, generator=generator)
    labels[:, 0, 3] = labels[:, 1, 7] = -1
    return tokens, labels


def loss_of(model, tokens, labels):
    logits = model(input_ids=tokens).logits
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-1)


def file_name(name):
    return name.replace(".default.", ".")


def make(root, name, base, settings, seed):
    generator = torch.Generator().manual_seed(seed)
    folder, base_folder = root / "lora" / name, root / "decoders" / base
    shutil.rmtree(folder, ignore_errors=True)
    model = peft.get_peft_model(
        load(base_folder), peft.LoraConfig(task_type="CAUSAL_LM", bias="none", **settings))
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    for parameter in trained.values():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    # From the adapter's own folder, so that the fixtures may lie anywhere.
    config["base_model_name_or_path"] = f"../../decoders/{base}"
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")

    tokens, labels = batches(model.config.vocab_size, generator)
    expected = {"tokens": tokens.float(), "labels": labels.float()}
    model.eval()
    optimizer = torch.optim.AdamW(trained.values(), **OPTIMIZER)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, tokens[step], labels[step])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            for n, p in trained.items():
                expected["gradient." + file_name(n)] = p.grad.clone()
        optimizer.step()
    expected["losses"] = torch.tensor(losses)
    merged = peft.PeftModel.from_pretrained(load(base_folder), folder).merge_and_unload().eval()
    with torch.no_grad():
        expected["merged_logits"] = merged(input_ids=tokens[0]).logits
    save_file(expected, folder / "expected.safetensors")
    print(f"{name}: {sum(p.numel() for p in trained.values())} trained parameters, "
          f"loss {losses[0]:.6f} to {losses[-1]:.6f}")


def main():
    root = pathlib.Path(sys.argv[1])
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, "
          f"peft {peft.__version__}")
    for seed, (name, (base, settings)) in enumerate(ADAPTERS.items()):
        make(root, name, base, settings, seed)


if __name__ == "__main__":
    main()
