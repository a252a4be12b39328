//! Which tensor becomes which dtype. `docs/decisions/quantise-recipes.md` has the rules in words.

use akunu_format::DType;

use super::Recipe;

/// What a matrix does in the model, as far as the rules care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The matrix that gives the logits.
    Output,
    /// The table of token embeddings; it is the output too where the file has no other.
    Embedding,
    /// Values, alone or in one matrix with queries and keys.
    AttentionValue,
    AttentionKey,
    AttentionOutput,
    FeedForwardDown,
    Other,
}

impl Role {
    pub(super) fn of(tensor: &str) -> Role {
        const PARTS: [(&str, Role); 6] = [
            ("attn_qkv.weight", Role::AttentionValue),
            ("attn_kv_b.weight", Role::AttentionValue),
            ("attn_v.weight", Role::AttentionValue),
            ("attn_k.weight", Role::AttentionKey),
            ("attn_output.weight", Role::AttentionOutput),
            ("ffn_down", Role::FeedForwardDown),
        ];
        match tensor {
            "output.weight" => Role::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Role::Embedding,
            _ => PARTS.iter().find(|(part, _)| tensor.contains(part)).map_or(Role::Other, |(_, role)| *role),
        }
    }
}

/// Parts of names of matrices that stay as they are: small, or hurt by quantising.
const KEPT: &[&str] = &[
    // Norms and routers.
    "_norm.weight",
    "ffn_gate_inp.weight",
    // Gemma 3n.
    "altup",
    "laurel",
    "per_layer_model_proj",
    // Convolutions of state-space models, relative positions of T5.
    "ssm_conv1d",
    "shortconv.conv.weight",
    "attn_rel_b.weight",
    // Vision and audio.
    ".position_embd",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// Names of matrices that stay as they are: positions and token types of BERT.
const KEPT_NAMES: [&str; 2] = ["position_embd.weight", "token_types.weight"];

/// Whether a tensor is converted at all.
pub(super) fn converts(name: &str, shape: &[usize]) -> bool {
    // Leading dimensions of one do not count.
    let is_matrix = shape.iter().rev().skip(1).any(|&dim| dim > 1);
    is_matrix
        && name.ends_with("weight")
        && !KEPT_NAMES.contains(&name)
        && !KEPT.iter().any(|part| name.contains(part))
}

/// What the rules need to know of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    /// Query heads that share a key and value head in the first layer.
    pub queries_per_value: usize,
    pub experts: usize,
    /// Whether it is one of those with 70 billion parameters.
    pub is_70b: bool,
    /// Whether the token embeddings give the logits.
    pub tied: bool,
}

/// Where a matrix stands among those of its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub index: usize,
    pub count: usize,
}

#[derive(Clone, Copy)]
enum When {
    Always,
    /// The first so many.
    First(usize),
    /// The first of so many equal parts.
    FirstOf(usize),
    /// The first eighth, the last eighth, and every third between.
    Spread,
    /// Four query heads or more share a value head, which makes the value matrix small.
    ValuesShared,
    EightExperts,
}

impl When {
    fn holds(self, model: &Model, Place { index, count }: Place) -> bool {
        match self {
            When::Always => true,
            When::First(n) => index < n,
            When::FirstOf(parts) => index < count / parts,
            When::Spread => {
                let eighth = count / 8;
                index < eighth || index >= 7 * count / 8 || (index - eighth) % 3 == 2
            }
            When::ValuesShared => model.queries_per_value >= 4,
            When::EightExperts => model.experts == 8,
        }
    }
}

/// The first row that fits decides: these recipes, this role, under this condition, take this dtype (`None`: the
/// recipe's base).
type Rule = (&'static [Recipe], Role, When, Option<DType>);

const RULES: &[Rule] = {
    use Recipe as R;
    use Role::{AttentionKey as K, AttentionOutput as O, AttentionValue as V, FeedForwardDown as Down};
    use When::{Always, EightExperts, First, FirstOf, Spread, ValuesShared};
    const Q3: Option<DType> = Some(DType::Q3_K);
    const Q4: Option<DType> = Some(DType::Q4_K);
    const Q5: Option<DType> = Some(DType::Q5_K);
    const Q6: Option<DType> = Some(DType::Q6_K);
    const Q8: Option<DType> = Some(DType::Q8_0);
    &[
        (Recipe::ALL, V, EightExperts, Q8),
        (Recipe::ALL, K, EightExperts, Q8),
        (&[R::Q2_K, R::Q3_K_S, R::Q3_K_M, R::Q4_K_S, R::Q4_K_M, R::IQ4_NL], O, EightExperts, Q5),
        (Recipe::ALL, O, EightExperts, None),
        //
        (&[R::Q2_K, R::Q2_K_S], V, ValuesShared, Q4),
        (&[R::Q2_K], V, Always, Q3),
        (&[R::Q3_K_M], V, First(2), Q5),
        (&[R::Q3_K_M], V, Always, Q4),
        (&[R::Q3_K_L], V, Always, Q5),
        (&[R::IQ4_NL], V, ValuesShared, Q5),
        (&[R::Q4_K_S], V, First(4), Q5),
        (&[R::Q4_K_M, R::Q5_K_M], V, Spread, Q6),
        //
        (&[R::Q2_K], Down, Always, Q3),
        (&[R::Q2_K_S], Down, FirstOf(8), Q4),
        (&[R::Q3_K_M], Down, FirstOf(16), Q5),
        (&[R::Q3_K_M], Down, Always, Q4),
        (&[R::Q3_K_L], Down, Always, Q5),
        (&[R::IQ4_NL, R::Q4_K_S], Down, FirstOf(8), Q5),
        (&[R::Q4_K_M, R::Q5_K_M], Down, Spread, Q6),
        //
        (&[R::Q2_K], O, Always, Q3),
        (&[R::Q3_K_M], O, Always, Q4),
        (&[R::Q3_K_L], O, Always, Q5),
    ]
};

/// The dtype the recipe asks for, before the row length has its say.
pub(super) fn wanted(recipe: Recipe, model: &Model, role: Role, place: Place, row_len: usize) -> DType {
    let base = recipe.base();
    if !base.is_quantized() {
        return base;
    }
    if role == Role::Output || (role == Role::Embedding && model.tied) {
        // The logits deserve good bits whatever the rest has.
        let keep_simple = base == DType::Q8_0 || !row_len.is_multiple_of(base.block_len());
        return if keep_simple { DType::Q8_0 } else { DType::Q6_K };
    }
    let fits =
        |(recipes, of, when, _): &&Rule| recipes.contains(&recipe) && *of == role && when.holds(model, place);
    let dtype = RULES.iter().find(fits).and_then(|(.., dtype)| *dtype).unwrap_or(base);
    match dtype {
        DType::Q3_K | DType::Q4_K if model.is_70b && role == Role::AttentionValue => DType::Q5_K,
        dtype => dtype,
    }
}

/// The dtype itself if rows of `row_len` divide into its blocks, else the nearest that does.
pub(super) fn fitting(dtype: DType, row_len: usize) -> DType {
    let smaller_blocks = match dtype {
        DType::Q2_K | DType::Q3_K => DType::Q4_0,
        DType::Q4_K => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        simple => simple,
    };
    [dtype, smaller_blocks]
        .into_iter()
        .find(|dtype| row_len.is_multiple_of(dtype.block_len()))
        .unwrap_or(DType::F16)
}
