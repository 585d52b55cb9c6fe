#!/usr/bin/env python3
"""Makes the fixtures of tests/model/decoder_reference_test.cpp with `transformers`.

Each folder holds a tiny random model as Hugging Face tools write it (config.json,
model.safetensors) and expected.safetensors: tokens, labels (-1: ignored), the logits, the mean loss
over the labels that count, and the gradient of every parameter, computed in fp32 by `transformers`
from that very folder. Those of LOSS_TERMS also hold loss_terms.safetensors: loss and gradients,
every GRADIENT_STEP-th element, with z-loss and label smoothing, of the same tokens.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python tests/reference/make_decoder_fixtures.py tests/reference/decoders [NAME ...]
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

SEQUENCES, TOKENS = 2, 12
LEAST_MARGIN = 0.03
GRADIENT_STEP = 7  # no divisor of any size, so that all rows and columns are met
LOSS_TERMS = {"llama-plain": {"z_loss": 0.02, "label_smoothing": 0.1}}

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "vocab_size": 40,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": None,
    "eos_token_id": None,
}
QWEN3 = {
    **{key: value for key, value in LLAMA.items() if key != "mlp_bias"},
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "rms_norm_eps": 1e-6,
    "head_dim": 8,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 2,
}
QWEN3_MOE = {
    **{key: value for key, value in QWEN3.items() if key != "intermediate_size"},
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 12,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "router_aux_loss_coef": 0.001,
    "output_router_logits": False,
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_act": "silu",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "vocab_size": 40,
    "tie_word_embeddings": False,
    "attention_bias": True,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "sliding_window": 4,
    "rope_theta": 150000.0,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                     "truncate": False, "original_max_position_embeddings": 16},
    "output_router_logits": False,
    "router_aux_loss_coef": 0.9,
    "pad_token_id": None,
    "eos_token_id": None,
}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 16,
    "n_head": 2,
    "n_layer": 2,
    "n_positions": 16,
    "vocab_size": 40,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": None,
    "eos_token_id": None,
}

# Name: fields of config.json, and the type its weights are stored in.
MODELS = {
    "gpt2": (GPT2, torch.float32),
    # No scaling, one key head, fields where transformers had them before version 5.
    "llama-plain": (
        {**LLAMA, "num_key_value_heads": 1, "head_dim": 8, "rope_theta": 500.0,
         "rope_scaling": None, "torch_dtype": "bfloat16"},
        torch.bfloat16,
    ),
    "llama-linear": (
        {**LLAMA, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0},
         "torch_dtype": "float32"},
        torch.float32,
    ),
    # As many key heads as query heads, biases everywhere, tied; pairs of all three kinds.
    "llama-llama3-tied-biases": (
        {**LLAMA, "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 32,
         "max_position_embeddings": 128, "tie_word_embeddings": True,
         "attention_bias": True, "mlp_bias": True,
         "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                             "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 64},
         "dtype": "bfloat16"},
        torch.bfloat16,
    ),
    # Without num_key_value_heads and head_dim.
    "llama-llama3": (
        {**{key: value for key, value in LLAMA.items() if key != "num_key_value_heads"},
         "rope_theta": 500.0,
         "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
         "torch_dtype": "bfloat16"},
        torch.bfloat16,
    ),
    # head_dim is twice hidden_size / num_attention_heads.
    "qwen3": (
        {**QWEN3, "rope_theta": 1000000.0, "rope_scaling": None, "torch_dtype": "bfloat16"},
        torch.bfloat16,
    ),
    "qwen3-tied-yarn": (
        {**QWEN3, "head_dim": 16, "tie_word_embeddings": True, "attention_bias": True,
         "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                             "original_max_position_embeddings": 16},
         "layer_types": ["full_attention", "full_attention"], "dtype": "float32"},
        torch.float32,
    ),
    # One key head, and a single layer.
    "qwen3-linear": (
        {**QWEN3, "num_hidden_layers": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-3,
         "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 1.5}},
        torch.bfloat16,
    ),
    # An MLP of another width, a larger epsilon, and no size a power of two.
    "gpt2-narrow": (
        {**GPT2, "n_embd": 18, "n_head": 3, "n_inner": 20, "n_layer": 1, "vocab_size": 37,
         "layer_norm_epsilon": 1e-2},
        torch.bfloat16,
    ),
    # Experts one by one in the file, as version 4 of transformers writes them; of the shares of all
    # experts as they are.
    "qwen3-moe-one-by-one": (
        {**QWEN3_MOE, "norm_topk_prob": False, "rope_theta": 10000.0, "rope_scaling": None,
         "torch_dtype": "bfloat16"},
        torch.bfloat16,
    ),
    # One expert a token, whose share is not 1; an expert that nobody chooses; hidden size and that
    # of an expert are the same, so that no shape tells how a matrix lies.
    "qwen3-moe-tied-top1": (
        {**QWEN3_MOE, "moe_intermediate_size": 16, "num_experts_per_tok": 1, "head_dim": 16,
         "norm_topk_prob": False, "tie_word_embeddings": True, "attention_bias": True,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "dtype": "float32"},
        torch.float32,
    ),
    # Most experts have no row, some have one; shares that sum to 1.
    "qwen3-moe": (
        {**QWEN3_MOE, "num_experts": 40, "num_experts_per_tok": 2, "num_hidden_layers": 1,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "dtype": "float32"},
        torch.float32,
    ),
    # Windows shorter than the sequence: by the older switches, and by layer.
    "qwen3-windows": (
        {**QWEN3, "num_hidden_layers": 3, "rope_theta": 10000.0, "use_sliding_window": True,
         "sliding_window": 5, "max_window_layers": 1},
        torch.float32,
    ),
    "qwen3-windows-by-layer": (
        {**QWEN3, "num_key_value_heads": 1, "tie_word_embeddings": True, "rope_theta": 500.0,
         "use_sliding_window": True, "sliding_window": 2,
         "layer_types": ["sliding_attention", "full_attention"]},
        torch.bfloat16,
    ),
    # As published: windows in every other layer, yarn that does not round, two names of one number.
    "gpt-oss": (
        {**GPT_OSS, "experts_per_token": 2, "swiglu_limit": 7.0, "initial_context_length": 16,
         "torch_dtype": "bfloat16"},
        torch.bfloat16,
    ),
    # Limits that cut much off, windows by layer and not in turn, more experts a token, a tied head.
    "gpt-oss-limits": (
        {**{key: value for key, value in GPT_OSS.items() if not key.startswith("rope")},
         "num_hidden_layers": 3, "num_experts_per_tok": 3, "swiglu_limit": 0.5,
         "swiglu_alpha": 1.25, "sliding_window": 3, "tie_word_embeddings": True,
         "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
         "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                             "attention_factor": 1.25, "truncate": True,
                             "original_max_position_embeddings": 32},
         "dtype": "float32"},
        torch.float32,
    ),
    # Packed experts; hidden size and that of an expert are the same, so that no shape tells how a
    # matrix lies.
    "gpt-oss-mxfp4": (
        {**GPT_OSS, "hidden_size": 32, "intermediate_size": 32, "num_local_experts": 3,
         "num_hidden_layers": 1, "torch_dtype": "bfloat16",
         "quantization_config": {
             "quant_method": "mxfp4",
             "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                        "model.embed_tokens", "lm_head"]}},
        torch.bfloat16,
    ),
}


def randomize(model, generator):
    """Numbers of a size at which every parameter counts."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = "norm" in name or ".ln_" in name
        if is_norm and name.endswith("weight"):
            parameter.data = 1 + 0.2 * noise
        elif parameter.dim() == 1:
            parameter.data = 0.2 * noise
        else:
            parameter.data = 0.3 * noise
        if name.endswith("sinks"):
            parameter.data = noise
        if name.endswith("mlp.gate.weight"):
            # An expert whose logit is never the largest: the mean of the others'.
            parameter.data[-1] = parameter.data[:-1].mean(dim=0)


def one_by_one(weights):
    """Stacked experts as version 4 of transformers names them."""
    result = {}
    for name, tensor in weights.items():
        folder, found, kind = name.partition(".experts.")
        if not found:
            result[name] = tensor
            continue
        for expert, matrix in enumerate(tensor):
            parts = matrix.chunk(2) if kind == "gate_up_proj" else [matrix]
            kinds = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else [kind]
            for part, own in zip(parts, kinds):
                result[f"{folder}.experts.{expert}.{own}.weight"] = part.contiguous()
    return result


def packed(weights, generator):
    """Random packed experts in place of plain ones."""
    result = {}
    for name, tensor in weights.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            result[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        groups = (experts, rows, columns // 32)
        result[name + "_blocks"] = torch.randint(
            256, (*groups, 16), generator=generator, dtype=torch.uint8)
        result[name + "_scales"] = torch.randint(
            123, 125, groups, generator=generator, dtype=torch.uint8)
    return result


def choice_margin(model, tokens):
    """How much the least chosen expert's logit is above the next, at least over all tokens."""
    count = model.config.num_experts_per_tok
    with torch.no_grad():
        logits = model(input_ids=tokens, output_router_logits=True).router_logits
    ranked = torch.cat(logits).sort(descending=True).values
    return (ranked[:, count - 1] - ranked[:, count]).min().item()


def make(folder, fields, stored, seed):
    # Experts must be the same ones when bf16 rounds: the first seed that makes them so.
    while not make_from(folder, fields, stored, seed):
        seed += 1000


def make_from(folder, fields, stored, seed):
    """Whether the model's experts are chosen clearly, if it has any."""
    generator = torch.Generator().manual_seed(seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    randomize(model, generator)
    weights = {name: parameter.detach().to(stored) for name, parameter in model.named_parameters()}
    if folder.name.endswith("one-by-one"):
        weights = one_by_one(weights)
    unpacking = {}
    if "quantization_config" in fields:
        weights = packed(weights, generator)
        unpacking["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
        **unpacking)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    model.eval()
    vocabulary = fields["vocab_size"]
    tokens = torch.randint(vocabulary, (SEQUENCES, TOKENS), generator=generator)
    labels = torch.randint(vocabulary, (SEQUENCES, TOKENS), generator=generator)
    labels[0, 3] = labels[1, 7] = -1
    has_experts = fields.keys() & {"num_experts", "num_local_experts"}
    if has_experts and choice_margin(model, tokens) < LEAST_MARGIN:
        return False
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, vocabulary), labels.reshape(-1), ignore_index=-1)
    loss.backward()
    expected = {
        "tokens": tokens.float(),
        "labels": labels.float(),
        "logits": logits.detach(),
        "loss": loss.detach().reshape(1),
    }
    if folder.name.endswith("top1"):
        for layer in model.model.layers:
            assert not layer.mlp.experts.down_proj.grad[-1].any()
    for name, parameter in model.named_parameters():
        expected["gradient." + name] = parameter.grad.contiguous()
        if name + "_blocks" in weights:
            expected["unpacked." + name] = parameter.detach().contiguous()
    save_file(expected, folder / "expected.safetensors")
    print(f"{folder.name}: {sum(p.numel() for p in model.parameters())} parameters, "
          f"loss {loss.item():.6f}")
    if folder.name in LOSS_TERMS:
        save_loss_terms(folder, model, tokens, labels, LOSS_TERMS[folder.name])
    return True


def save_loss_terms(folder, model, tokens, labels, terms):
    """As torchtune has the z-loss: the mean over targets of z_loss * logsumexp^2."""
    model.zero_grad()
    logits = model(input_ids=tokens).logits.flatten(0, 1)
    counts = labels.flatten() >= 0
    loss = torch.nn.functional.cross_entropy(
        logits, labels.flatten(), ignore_index=-1, label_smoothing=terms["label_smoothing"])
    loss = loss + terms["z_loss"] * logits.logsumexp(dim=-1)[counts].square().mean()
    loss.backward()
    expected = {"loss": loss.detach().reshape(1),
                "terms": torch.tensor([terms["z_loss"], terms["label_smoothing"]])}
    for name, parameter in model.named_parameters():
        expected["gradient." + name] = parameter.grad.flatten()[::GRADIENT_STEP].contiguous()
    save_file(expected, folder / "loss_terms.safetensors")
    print(f"{folder.name}: loss {loss.item():.6f} with {terms}")


def main():
    out, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for seed, (name, (fields, stored)) in enumerate(MODELS.items()):
        if not wanted or name in wanted:
            make(out / name, fields, stored, seed)


if __name__ == "__main__":
    main()
