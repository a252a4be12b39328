#!/usr/bin/env python3
"""Makes tiny random models of every architecture, with the logits `transformers` gives for one prompt.

    tiny_models.py OUT [NAME ...]

For each case of `tiny_cases.py` OUT/NAME gets

    config.json         as `save_pretrained` writes it
    config-hub.json     the same facts as files on the hub word them (older key names, defaults left out)
    model.safetensors   as `save_pretrained` writes it
    model.gguf          the twin that llama.cpp reads (`tiny_gguf.py`)
    prompt.json         40 token ids
    logits.bin          F32 little-endian [40][vocabulary]

The logits come from the weights in the file, computed in float64 with eager attention; transformers itself takes RMS norms, softmax and the
angles of RoPE in float32 even then. The script fails when `config-hub.json` gives other logits than `config.json`, when a wrong
detail would not show, or when an expert is chosen by so little that rounding could decide.
"""

import argparse
import copy
import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from tiny_cases import CASES, VOCABULARY, Case
from tiny_gguf import write_twin
from transformers import AutoConfig, AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration, PreTrainedConfig, PreTrainedModel

PROMPT_LENGTH = 40
# A mistake that moves the logits by this much is seen at a tolerance of 1e-4; F32 arithmetic loses about 1e-6 on these models.
VISIBLE = 2e-4
# Least difference in probability between the last expert chosen and the first one left out.
ROUTER_MARGIN = 2e-3
# The plain loops: the fused ones know no float64.
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}


def prompt() -> list[int]:
    """Ids from 3 up (0 to 2 are special), with repetitions, so that attention has something to find."""
    numbers = np.random.Generator(np.random.PCG64(40))
    ids = numbers.integers(3, VOCABULARY, size=PROMPT_LENGTH)
    ids[20:26] = ids[4:10]
    return [int(i) for i in ids]


def random_weight(model: str, name: str, shape: tuple[int, ...], gemma: bool) -> np.ndarray:
    """A weight that depends on the names alone, at a scale at which scores, gates and logits are well spread, and layers weigh no less than
    the embedding they are added to."""
    seed = hashlib.sha256(f"{model}/{name}".encode()).digest()
    numbers = np.random.Generator(np.random.PCG64(int.from_bytes(seed[:8], "little")))
    normal = numbers.standard_normal(shape)
    if "norm" in name:
        if gemma:
            return normal * 0.4 + (2.0 if name.endswith("model.norm.weight") else 0.0)
        return normal * 0.4 + 1.0
    if len(shape) == 1:
        return normal * 0.5
    gain = {
        "embed_tokens": (0.2 if gemma else 0.6) * np.sqrt(shape[-1]),
        "lm_head": 2.5,
        "q_proj": 1.6,
        "k_proj": 1.6,
        "qkv_proj": 1.5,
        "gate": 2.0,
    }
    factor = next((value for part, value in gain.items() if name.split(".")[-2] == part), 1.5)
    return normal * factor / np.sqrt(shape[-1])


def build(config, state: dict | None = None) -> PreTrainedModel:
    make = Gemma3ForConditionalGeneration._from_config if isinstance(config, Gemma3Config) else AutoModelForCausalLM.from_config
    model = make(copy.deepcopy(config), **EAGER).eval()
    if state is not None:
        model.load_state_dict(state)
    return model


def fill(model: PreTrainedModel, seed: str) -> None:
    gemma = model.config.model_type.startswith("gemma")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            vision = "vision" in name or "projector" in name
            weight = random_weight(seed, name, tuple(parameter.shape), gemma and not vision)
            parameter.copy_(torch.from_numpy(weight))


@torch.no_grad()
def logits(model: PreTrainedModel, ids: list[int], first_position: int = 0) -> np.ndarray:
    """[ids][vocabulary], in float64 from the weights the model holds."""
    model = copy.deepcopy(model).double()
    positions = torch.arange(first_position, first_position + len(ids))[None]
    out = model(input_ids=torch.tensor([ids]), position_ids=positions, use_cache=False)
    return out.logits[0].numpy()


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, relative to the largest of `b`."""
    return float(np.abs(a - b).max() / np.abs(b).max())


def changed(config, changes: dict):
    """A configuration with some fields set anew, derived ones with them; even to values that its class would correct."""
    new = type(config).from_dict(config.to_dict() | changes)
    for name, value in changes.items():
        setattr(new, name, value)
    return new


def under_long_factors(model: PreTrainedModel) -> PreTrainedModel:
    """The same model with the long factors of LongRoPE at any length."""
    rope = model.config.rope_parameters
    return build(changed(model.config, {"rope_parameters": rope | {"short_factor": rope["long_factor"]}}), model.state_dict())


def check_mistakes(case: Case, model: PreTrainedModel, ids: list[int], truth: np.ndarray) -> dict[str, float]:
    shifts = {}
    for label, changes in case.mistakes.items():
        wrong = build(changed(case.config, changes), model.state_dict())
        shifts[label] = distance(logits(wrong, ids), truth)
        if shifts[label] < VISIBLE:
            raise SystemExit(f"{case.name}: the mistake '{label}' moves the logits by {shifts[label]:.1e} only")
    return shifts


def check_router(case: Case, model: PreTrainedModel, ids: list[int]) -> None:
    margins = []

    def watch(module, _inputs, output):
        probabilities = torch.sort(torch.softmax(output[0].double(), dim=-1), descending=True).values
        margins.append((probabilities[:, module.top_k - 1] - probabilities[:, module.top_k]).min().item())

    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(watch)
    logits(model, ids)
    if not margins or min(margins) < ROUTER_MARGIN:
        raise SystemExit(f"{case.name}: an expert is chosen by {min(margins, default=0):.1e}; change the seed")


def hub_config(config: PreTrainedConfig) -> dict:
    """What a file on the hub says for the same model: `rope_theta` and `rope_scaling` instead of `rope_parameters`, `torch_dtype`,
    `sliding_window_pattern` instead of `layer_types`, and nothing where the family's default will do."""
    fields = config.to_dict()
    defaults = type(config)().to_dict()
    renamed = ("rope_parameters", "dtype", "layer_types", "text_config", "_sliding_window_pattern", "_name_or_path")
    always = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_experts_per_tok")
    old = {k: v for k, v in fields.items() if k not in renamed and v is not None and (k in always or v != defaults.get(k))}
    old["transformers_version"] = "4.49.0"
    if fields.get("dtype"):
        old["torch_dtype"] = fields["dtype"]
    if "text_config" in fields:
        old["text_config"] = hub_config(config.text_config)
        old["vision_config"] = config.vision_config.to_diff_dict()
        return old
    if fields["model_type"] == "gemma":
        # The first files said so and meant the tanh form.
        old["hidden_act"] = "gelu"
    rope = fields["rope_parameters"]
    if "full_attention" in rope:
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        pattern = fields["layer_types"].index("full_attention") + 1
        if pattern != 6:
            old["sliding_window_pattern"] = pattern
    old["rope_theta"] = rope["rope_theta"]
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        old["partial_rotary_factor"] = rope["partial_rotary_factor"]
    scaling = {k: v for k, v in rope.items() if k not in ("rope_theta", "partial_rotary_factor", "rope_type")}
    if rope["rope_type"] == "longrope":
        # Phi-3 says `type`, and the original length beside the scaling.
        del scaling["original_max_position_embeddings"]
        old["rope_scaling"] = scaling | {"type": "longrope"}
    elif rope["rope_type"] != "default":
        old["rope_scaling"] = scaling | {"rope_type": rope["rope_type"]}
    return old


def check_hub_config(folder: Path, ids: list[int], truth: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(folder / "config-hub.json", Path(scratch) / "config.json")
        shutil.copy(folder / "model.safetensors", scratch)
        if distance(logits(load(Path(scratch)), ids), truth) != 0.0:
            raise SystemExit(f"{folder}: config-hub.json gives other logits than config.json")


def load(folder: Path) -> PreTrainedModel:
    """The saved model, its weights widened to float32."""
    config = AutoConfig.from_pretrained(folder)
    kind = Gemma3ForConditionalGeneration if isinstance(config, Gemma3Config) else AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32, **EAGER).eval()


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def make(case: Case, out: Path) -> None:
    folder = out / case.name
    shutil.rmtree(folder, ignore_errors=True)
    ids = prompt()
    model = build(case.config)
    fill(model, case.weights or case.name)
    model.to(getattr(torch, case.dtype)).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    model = load(folder)
    truth = logits(model, ids)
    if truth.std() < 1.0 or not np.isfinite(truth).all():
        raise SystemExit(f"{case.name}: logits are not well spread (deviation {truth.std():.2f})")
    single = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].detach().numpy()
    write_json(folder / "prompt.json", ids)
    truth.astype("<f4").tofile(folder / "logits.bin")
    if case.long:
        long = logits(under_long_factors(model), ids)
        # transformers picks the long factors when the prompt ends beyond the original length, and RoPE is relative.
        far = logits(model, ids, first_position=case.config.original_max_position_embeddings)
        if distance(far, long) > 1e-4 or distance(truth, long) < VISIBLE:
            raise SystemExit(f"{case.name}: the long factors are not those of a long prompt")
        long.astype("<f4").tofile(folder / "logits-long.bin")

    write_json(folder / "config-hub.json", hub_config(AutoConfig.from_pretrained(folder)))
    check_hub_config(folder, ids, truth)
    shifts = check_mistakes(case, model, ids, truth)
    if hasattr(case.config, "num_experts_per_tok"):
        check_router(case, model, ids)
    write_twin(folder, case.write_pattern)

    size = sum(file.stat().st_size for file in folder.iterdir())
    told = ", ".join(f"{label} {shift:.0e}" for label, shift in shifts.items())
    print(f"{case.name:18} {size // 1024:4} KB  deviation {truth.std():.1f}  float32 {distance(single, truth):.0e}  {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="only these cases")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    for case in CASES:
        if not arguments.names or case.name in arguments.names:
            make(case, arguments.out)


if __name__ == "__main__":
    main()
