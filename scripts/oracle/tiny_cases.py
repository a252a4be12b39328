"""The tiny models: one `Case` per detail of an architecture that an engine can get wrong.

Dimensions are small, ragged and different from one another, so that a swapped pair of them does not go unnoticed: heads times head size
differs from the hidden size wherever the family allows it, and so do the feed-forward size and the number of key heads.
"""

from dataclasses import dataclass, field

from transformers import (
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SiglipVisionConfig,
    logging,
)

logging.set_verbosity_error()

VOCABULARY = 128
CONTEXT = 256


@dataclass
class Case:
    """One fixture folder."""

    name: str
    exercises: str
    config: PreTrainedConfig
    dtype: str = "float32"
    # What the random weights are seeded with, where it is not the name: variants of one model share it.
    weights: str = ""
    # What a careless engine might do instead: label -> changes of the configuration. Each must move the logits visibly.
    mistakes: dict[str, dict] = field(default_factory=dict)
    # Changes of the configuration that give what llama.cpp computes from the twin, where it departs from transformers, and why.
    peer: dict | None = None
    peer_note: str = ""
    # Write the layer pattern of local and global attention into the twin (Gemma 3 leaves it out when it is the usual one).
    write_pattern: bool = False
    # Also record the logits under the long factors of LongRoPE.
    long: bool = False


def rope(theta: float, rope_type: str = "default", **scaling) -> dict:
    return {"rope_theta": theta, "rope_type": rope_type, **scaling}


def llama(**changes) -> LlamaConfig:
    settings = dict(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=52,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-3,
        rope_parameters=rope(10000.0),
        tie_word_embeddings=False,
    )
    return LlamaConfig(**(settings | changes))


def gemma3_text(**changes) -> Gemma3TextConfig:
    settings = dict(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=7,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=10,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-4,
        query_pre_attn_scalar=40,
        sliding_window=8,
        rope_parameters={"full_attention": rope(100000.0), "sliding_attention": rope(500.0)},
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=1,
    )
    return Gemma3TextConfig(**(settings | changes))


def phi3(**changes) -> Phi3Config:
    settings = dict(
        vocab_size=VOCABULARY,
        hidden_size=36,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        max_position_embeddings=CONTEXT,
        original_max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-3,
        rope_parameters=rope(10000.0, partial_rotary_factor=1.0),
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=1,
    )
    return Phi3Config(**(settings | changes))


def qwen3moe(**changes) -> Qwen3MoeConfig:
    settings = dict(
        vocab_size=VOCABULARY,
        hidden_size=24,
        intermediate_size=72,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=10,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-3,
        rope_parameters=rope(50000.0),
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=1,
    )
    return Qwen3MoeConfig(**(settings | changes))


GEMMA3_MISTAKES = {
    "no window": {"sliding_window": 1000},
    "window off by one": {"sliding_window": 9},
    "one theta": {"rope_parameters": {"full_attention": rope(100000.0), "sliding_attention": rope(100000.0)}},
    "thetas swapped": {"rope_parameters": {"full_attention": rope(500.0), "sliding_attention": rope(100000.0)}},
    "scale by head size": {"query_pre_attn_scalar": 10},
}

LLAMA_MISTAKES = {
    "other theta": {"rope_parameters": rope(12000.0)},
    "other epsilon": {"rms_norm_eps": 1e-5},
}

LLAMA3_ROPE = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128)
YARN = dict(factor=4.0, original_max_position_embeddings=64)
SHORT_FACTORS = [1.0, 1.1, 1.3, 1.6, 2.0, 2.5]
LONG_FACTORS = [1.05, 1.5, 2.4, 4.5, 9.0, 16.0]

CASES = [
    Case(
        "llama",
        "RMS norm, interleaved-to-split-half RoPE, grouped heads, SwiGLU, separate output; head size not hidden / heads",
        llama(),
        mistakes=LLAMA_MISTAKES,
    ),
    Case("llama-f16", "the same model rounded to F16", llama(), dtype="float16", weights="llama"),
    Case("llama-bf16", "the same model rounded to BF16", llama(), dtype="bfloat16", weights="llama"),
    Case(
        "llama-bias",
        "biases on every projection of attention and feed-forward; no `head_dim` (hidden / heads)",
        llama(attention_bias=True, mlp_bias=True, head_dim=None),
    ),
    Case(
        "llama3",
        "Llama-3 RoPE scaling (all three bands), tied output",
        llama(rope_parameters=rope(20000.0, "llama3", **LLAMA3_ROPE), head_dim=16, tie_word_embeddings=True),
        mistakes={
            "no scaling": {"rope_parameters": rope(20000.0)},
            "linear instead": {"rope_parameters": rope(20000.0, "linear", factor=8.0)},
        },
    ),
    Case(
        "llama-linear",
        "linear RoPE scaling",
        llama(rope_parameters=rope(10000.0, "linear", factor=4.0)),
        mistakes={"no scaling": {"rope_parameters": rope(10000.0)}},
    ),
    Case(
        "llama-yarn",
        "YaRN with its defaults: ramp between the two frequencies, attention factor 0.1 ln(factor) + 1",
        llama(rope_parameters=rope(10000.0, "yarn", **YARN), head_dim=16),
        mistakes={
            "no scaling": {"rope_parameters": rope(10000.0)},
            "linear instead": {"rope_parameters": rope(10000.0, "linear", factor=4.0)},
            "no attention factor": {"rope_parameters": rope(10000.0, "yarn", attention_factor=1.0, **YARN)},
        },
    ),
    Case(
        "llama-yarn-tuned",
        "YaRN with its own `attention_factor`, `beta_fast` and `beta_slow`",
        llama(rope_parameters=rope(10000.0, "yarn", attention_factor=0.8, beta_fast=8.0, beta_slow=0.5, **YARN), head_dim=16),
        mistakes={"defaults": {"rope_parameters": rope(10000.0, "yarn", **YARN)}},
        peer={"rope_parameters": rope(10000.0, "yarn", **YARN)},
        peer_note="ignores `rope.scaling.yarn_*` for llama: compared with transformers at YaRN's defaults",
    ),
    Case(
        "mistral",
        "sliding window of 16 in every layer",
        MistralConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=52,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            max_position_embeddings=CONTEXT,
            sliding_window=16,
            rms_norm_eps=1e-3,
            rope_parameters=rope(10000.0),
            tie_word_embeddings=False,
        ),
        mistakes={"no window": {"sliding_window": None}, "window off by one": {"sliding_window": 17}},
        peer={"sliding_window": None},
        peer_note="ignores the window for llama: compared with transformers without it",
    ),
    Case(
        "qwen2",
        "biases on Q, K and V only, split-half RoPE, tied output",
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=40,
            intermediate_size=52,
            num_hidden_layers=2,
            num_attention_heads=5,
            num_key_value_heads=1,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-3,
            rope_parameters=rope(50000.0),
            tie_word_embeddings=True,
        ),
        mistakes={"other theta": {"rope_parameters": rope(10000.0)}},
    ),
    Case(
        "qwen3",
        "norms on Q and K before RoPE; head size not hidden / heads; separate output",
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=52,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=14,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-3,
            rope_parameters=rope(50000.0),
            tie_word_embeddings=False,
        ),
        mistakes={"other theta": {"rope_parameters": rope(10000.0)}},
    ),
    Case(
        "gemma",
        "norms by 1 + w, embedding times sqrt(hidden), tanh GELU, tied output, one key head",
        GemmaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=52,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=14,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-4,
            rope_parameters=rope(10000.0),
            pad_token_id=0,
            eos_token_id=2,
            bos_token_id=1,
        ),
        mistakes={"erf GELU": {"hidden_act": "gelu"}},
    ),
    Case(
        "gemma2",
        "soft-caps on scores and logits, window 8 on even layers, norms before and after, query scale by `query_pre_attn_scalar`",
        Gemma2Config(
            vocab_size=VOCABULARY,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=4,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=10,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-4,
            query_pre_attn_scalar=40,
            sliding_window=8,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=5.0,
            rope_parameters=rope(10000.0),
            pad_token_id=0,
            eos_token_id=2,
            bos_token_id=1,
        ),
        mistakes={
            "no window": {"sliding_window": 1000},
            "window off by one": {"sliding_window": 9},
            "windows on odd layers": {"layer_types": ["full_attention", "sliding_attention"] * 2},
            "no cap on scores": {"attn_logit_softcapping": None},
            "no cap on logits": {"final_logit_softcapping": None},
            "scale by head size": {"query_pre_attn_scalar": 10},
        },
        peer_note="has no key for `query_pre_attn_scalar` = 40: the twin's Q rows carry sqrt(10 / 40)",
    ),
    Case(
        "gemma3",
        "five local layers (window 8, theta 500) to one global (theta 100000), norms on Q and K, query scale by `query_pre_attn_scalar`",
        gemma3_text(),
        mistakes=GEMMA3_MISTAKES,
        peer_note="has no key for `query_pre_attn_scalar` = 40: the twin's Q norm carries sqrt(10 / 40)",
    ),
    Case("gemma3-f16", "the same model rounded to F16", gemma3_text(), dtype="float16", weights="gemma3"),
    Case("gemma3-bf16", "the same model rounded to BF16", gemma3_text(), dtype="bfloat16", weights="gemma3"),
    Case(
        "gemma3-linear",
        "linear RoPE scaling by 8 on global layers alone; a pattern of three said in the file; cap on the final logits",
        gemma3_text(
            num_hidden_layers=4,
            intermediate_size=52,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            final_logit_softcapping=6.0,
            query_pre_attn_scalar=10,
            rope_parameters={"full_attention": rope(100000.0, "linear", factor=8.0), "sliding_attention": rope(500.0)},
        ),
        mistakes={
            "no scaling": {"rope_parameters": {"full_attention": rope(100000.0), "sliding_attention": rope(500.0)}},
            "scaling everywhere": {
                "rope_parameters": {
                    "full_attention": rope(100000.0, "linear", factor=8.0),
                    "sliding_attention": rope(500.0, "linear", factor=8.0),
                }
            },
            "usual pattern": {"layer_types": ["sliding_attention"] * 4},
        },
        write_pattern=True,
    ),
    Case(
        "gemma3-multimodal",
        "text model nested in a vision model: `text_config`, prefixed tensor names, vision tensors to be skipped",
        Gemma3Config(
            text_config=gemma3_text(num_hidden_layers=6, intermediate_size=28, query_pre_attn_scalar=10),
            vision_config=SiglipVisionConfig(
                hidden_size=8,
                intermediate_size=8,
                num_hidden_layers=1,
                num_attention_heads=1,
                image_size=8,
                patch_size=4,
            ),
            mm_tokens_per_image=1,
            boi_token_index=125,
            eoi_token_index=126,
            image_token_id=127,
        ),
    ),
    Case("phi3", "Q, K, V in one tensor, gate and up in one tensor", phi3()),
    Case(
        "phi3-partial",
        "RoPE on the first half of each head; grouped heads in the fused tensor; tied output",
        phi3(
            num_key_value_heads=1,
            rope_parameters=rope(10000.0, partial_rotary_factor=0.5),
            tie_word_embeddings=True,
        ),
        mistakes={"whole heads": {"rope_parameters": rope(10000.0, partial_rotary_factor=1.0)}},
    ),
    Case(
        "phi3-window",
        "sliding window of 16 in every layer",
        phi3(sliding_window=16),
        mistakes={"no window": {"sliding_window": None}, "window off by one": {"sliding_window": 17}},
        peer={"sliding_window": None},
        peer_note="ignores the window for phi3: compared with transformers without it",
    ),
    Case(
        "phi3-longrope",
        "LongRoPE with its attention factor; `logits.bin` under the short factors, `logits-long.bin` under the long ones",
        phi3(
            max_position_embeddings=4096,
            original_max_position_embeddings=512,
            rope_parameters=rope(
                10000.0, "longrope", partial_rotary_factor=1.0, short_factor=SHORT_FACTORS, long_factor=LONG_FACTORS
            ),
        ),
        mistakes={
            "no scaling": {"rope_parameters": rope(10000.0, partial_rotary_factor=1.0)},
            "no attention factor": {"max_position_embeddings": 512},
        },
        peer_note="picks by context size: 512 for the short factors, 1024 for the long ones",
        long=True,
    ),
    Case(
        "mixtral",
        "four experts, two used, router's softmax renormalised over those two",
        MixtralConfig(
            vocab_size=VOCABULARY,
            hidden_size=24,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=10,
            num_local_experts=4,
            num_experts_per_tok=2,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-3,
            rope_parameters=rope(50000.0),
            tie_word_embeddings=False,
        ),
        weights="mixtral 24",
        mistakes={"one expert": {"num_experts_per_tok": 1}, "three experts": {"num_experts_per_tok": 3}},
    ),
    Case(
        "qwen3moe",
        "eight experts, two used, weights renormalised over those two, norms on Q and K",
        qwen3moe(),
        weights="qwen3moe 59",
        mistakes={"not renormalised": {"norm_topk_prob": False}},
    ),
    Case(
        "qwen3moe-raw",
        "router's probabilities used as they are (`norm_topk_prob` false)",
        qwen3moe(norm_topk_prob=False),
        weights="qwen3moe-raw 24",
        mistakes={"renormalised": {"norm_topk_prob": True}},
        peer={"norm_topk_prob": True},
        peer_note="always renormalises for qwen3moe: compared with transformers doing so",
    ),
]
