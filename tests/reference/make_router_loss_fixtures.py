#!/usr/bin/env python3
"""Adds router_loss.safetensors to folders that make_decoder_fixtures.py made.

Each holds, computed in fp32 by `transformers` from that very folder, of the tokens in
expected.safetensors: labels of which the latter end of the second sequence is padding, the mean
loss of the labels that count, the load-balancing loss, and the gradients (of matrices every
GRADIENT_STEP-th element) of loss + COEFFICIENT * load-balancing loss. The latter is
`load_balancing_loss_func` of each layer and sequence by itself, with the attention mask, in the
mean over layers and over targets.
Of models of one layer, "alone." is what the model itself returns with output_router_logits for the
second sequence by itself.

    venv/bin/python tests/reference/make_router_loss_fixtures.py tests/reference/decoders
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from make_decoder_fixtures import GRADIENT_STEP

COEFFICIENT = 0.5
PADDING = 3
NAMES = ["qwen3-moe", "qwen3-moe-one-by-one", "gpt-oss"]


def balance(config, logits, mask):
    experts = getattr(config, "num_local_experts", None) or config.num_experts
    return load_balancing_loss_func(logits, experts, config.num_experts_per_tok, mask)


def gradients(model, prefix):
    return {prefix + "gradient." + name:
            parameter.grad.flatten()[::1 if parameter.dim() == 1 else GRADIENT_STEP].contiguous()
            for name, parameter in model.named_parameters()}


def make(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", router_aux_loss_coef=COEFFICIENT)
    model.eval()
    made = load_file(folder / "expected.safetensors")
    tokens, labels = made["tokens"].long(), made["labels"].long()
    labels[1, -PADDING:] = -1
    mask = torch.ones_like(tokens)
    mask[1, -PADDING:] = 0
    out = model(input_ids=tokens, attention_mask=mask, output_router_logits=True)
    loss = torch.nn.functional.cross_entropy(
        out.logits.flatten(0, 1), labels.flatten(), ignore_index=-1)
    targets = (labels >= 0).sum(dim=1)
    rows = tokens.shape[1]
    router_loss = 0
    for layer in out.router_logits:
        for sequence, weight in enumerate(targets / targets.sum()):
            logits = layer[sequence * rows:(sequence + 1) * rows]
            of_one = balance(model.config, (logits,), mask[sequence:sequence + 1])
            router_loss = router_loss + weight * of_one / len(out.router_logits)
    (loss + COEFFICIENT * router_loss).backward()
    expected = {"labels": labels.float(), "coefficient": torch.tensor([COEFFICIENT]),
                "loss": loss.detach().reshape(1), "router_loss": router_loss.detach().reshape(1),
                **gradients(model, "")}
    whole = balance(model.config, out.router_logits, mask)
    print(f"{folder.name}: loss {loss.item():.6f}, router loss {router_loss.item():.6f}; "
          f"over all layers and sequences at once {whole.item():.6f}")
    if len(out.router_logits) == 1:
        model.zero_grad()
        foreign = labels[1:].masked_fill(labels[1:] < 0, -100)
        alone = model(input_ids=tokens[1:], attention_mask=mask[1:], output_router_logits=True,
                      labels=foreign, shift_labels=foreign)
        alone.loss.backward()
        expected |= {"alone.total": alone.loss.detach().reshape(1),
                     "alone.router_loss": alone.aux_loss.detach().reshape(1),
                     **gradients(model, "alone.")}
        print(f"{folder.name}: alone {alone.loss.item():.6f}, of which {COEFFICIENT} x "
              f"{alone.aux_loss.item():.6f}")
    save_file(expected, folder / "router_loss.safetensors")


if __name__ == "__main__":
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for name in NAMES:
        make(pathlib.Path(sys.argv[1]) / name)
