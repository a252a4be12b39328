//! From an architecture to a program: the forward pass, once, for every family.

mod speech;

pub use speech::{SpeechPrograms, build_alignment, build_speech};

use std::collections::{HashMap, HashSet};

use crate::arch::{Architecture, FeedForward, Layer, Names, expert_rows};
use crate::program::{
    CacheLayer, Domain, Element, Expert, GroupId, Index, KvGroup, Mask, NormKind, Op, Part, Program, Role,
    RopeId, Slice, Value, ValueId, WeightId, WeightUse,
};
use crate::{Error, Result, TensorSource};

/// Builds the program of a model whose sequences will have up to `context` positions, from token to logits.
pub fn build(
    arch: &Architecture,
    names: &Names,
    tensors: &dyn TensorSource,
    context: usize,
) -> Result<Program> {
    if arch.mask != Mask::Causal {
        let what = format!("writing text with the architecture \"{}\"", arch.family);
        return Err(Error::Unsupported { what, supported: "embeddings (`akunu embed`)".into() });
    }
    let mut b = Builder::new(arch, names, tensors, context)?;
    let last = b.hidden()?;
    let vocab = b.program.token_count();
    // A model without an output matrix uses the embedding's.
    let output = match b.find(names.global("output") + ".weight", vocab, arch.hidden, MULTIPLY)? {
        Some(output) => output,
        None => b.require(names.global("token_embd") + ".weight", vocab, arch.hidden, MULTIPLY)?,
    };
    let mut logits = b.linear(last, &[(output, None)])[0];
    if arch.logit_cap.is_some() {
        let out = b.value(Domain::Outputs, vocab);
        b.push(Op::Cap { x: logits, scale: 1.0, cap: arch.logit_cap, out });
        logits = out;
    }
    b.program.logits = logits;
    Ok(b.program)
}

/// Builds the program that ends where [`build`]'s turns to the vocabulary: with a row of `hidden` numbers for every output,
/// which embeddings are made of.
pub fn build_hidden(
    arch: &Architecture,
    names: &Names,
    tensors: &dyn TensorSource,
    context: usize,
) -> Result<Program> {
    let mut b = Builder::new(arch, names, tensors, context)?;
    b.program.logits = b.hidden()?;
    Ok(b.program)
}

/// Builds the program of a cross-encoder: one number for each output, which is the first token of two texts, says how well they go together.
pub fn build_rank(
    arch: &Architecture,
    names: &Names,
    tensors: &dyn TensorSource,
    context: usize,
) -> Result<Program> {
    let supported = "BERT and RoBERTa with a head that gives one number";
    let Some([dense, score]) = names.head(tensors) else {
        let what = format!("ranking texts with a model without a head for that (\"{}\")", arch.family);
        return Err(Error::Unsupported { what, supported: supported.into() });
    };
    let labels = tensors.find(&format!("{score}.weight")).map_or(0, |tensor| tensor.rows());
    if labels != 1 {
        let what = format!("ranking texts with a head that tells {labels} classes apart");
        return Err(Error::Unsupported { what, supported: supported.into() });
    }
    let mut b = Builder::new(arch, names, tensors, context)?;
    let last = b.hidden()?;
    let dense = b.named(dense, arch.hidden, arch.hidden, MULTIPLY)?;
    let x = b.linear(last, &[dense])[0];
    let out = b.like(x);
    // A cap of 1 is the hyperbolic tangent itself.
    b.push(Op::Cap { x, scale: 1.0, cap: Some(1.0), out });
    let score = b.named(score, 1, arch.hidden, MULTIPLY)?;
    b.program.logits = b.linear(out, &[score])[0];
    Ok(b.program)
}

/// Refuses a file with a tensor that its program does not use: what it stands for would be left out silently.
pub fn refuse_extra<'n>(
    program: &Program,
    arch: &Architecture,
    names: &Names,
    mut tensors: impl Iterator<Item = &'n str>,
) -> Result<()> {
    let used: HashSet<&str> = program.weights.iter().map(|weight| weight.name.as_str()).collect();
    match tensors.find(|name| names.must_be_used(name) && !used.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Error::ExtraTensor {
            name: name.to_owned(),
            family: arch.family.to_owned(),
            layers: arch.layers.len(),
        }),
    }
}

const MULTIPLY: Role = Role { lookup: false, multiply: true, encode: false, vector: false };
const VECTOR: Role = Role { lookup: false, multiply: false, encode: false, vector: true };
const LOOKUP: Role = Role { lookup: true, multiply: false, encode: false, vector: false };
const ENCODE: Role = Role { lookup: false, multiply: false, encode: true, vector: false };

struct Builder<'a> {
    arch: &'a Architecture,
    names: &'a Names,
    tensors: &'a dyn TensorSource,
    program: Program,
    /// Weights used so far, by name.
    known: HashMap<String, WeightId>,
}

impl<'a> Builder<'a> {
    fn new(
        arch: &'a Architecture,
        names: &'a Names,
        tensors: &'a dyn TensorSource,
        context: usize,
    ) -> Result<Builder<'a>> {
        let program = Program {
            values: Vec::new(),
            body: Vec::new(),
            logits: ValueId(0),
            groups: Vec::new(),
            ropes: arch.ropes.iter().map(|rope| rope.table(context)).collect::<Result<_>>()?,
            weights: Vec::new(),
        };
        Ok(Builder { arch, names, tensors, program, known: HashMap::new() })
    }

    /// All layers: the normalised hidden states of the outputs.
    fn hidden(&mut self) -> Result<ValueId> {
        let Architecture { hidden, norm_after, .. } = *self.arch;
        let mut x = self.embedding()?;
        for (i, layer) in self.arch.layers.iter().enumerate() {
            let cache = self.cache_layer(layer);
            x = self.attention(i, layer, cache, x)?;
            x = self.feed_forward(i, layer, x)?;
        }
        let last = self.value(Domain::Outputs, hidden);
        self.push(Op::Gather { x, out: last });
        if norm_after { Ok(last) } else { self.norm(last, self.names.global("output_norm"), 1) }
    }

    /// What each token begins with: its own row, and those of its position and segment where the model has such.
    fn embedding(&mut self) -> Result<ValueId> {
        let Architecture { embedding_scale, positions, context, .. } = *self.arch;
        let name = self.names.global("token_embd") + ".weight";
        let vocabulary = self.tensors.find(&name).map_or(0, |t| t.rows());
        let mut x = self.lookup("token_embd", vocabulary, Index::Token, embedding_scale)?;
        if let Some(before) = positions {
            let position = self.lookup("position_embd", before + context, Index::Position(before), 1.0)?;
            x = self.add(x, position);
        }
        let types = self.names.global("token_types") + ".weight";
        if let Some(kinds) = self.tensors.find(&types).map(|t| t.rows()) {
            let by = if kinds > 1 { Index::Segment } else { Index::First };
            let kind = self.lookup("token_types", kinds, by, 1.0)?;
            x = self.add(x, kind);
        }
        let norm = self.names.global("token_embd_norm");
        if self.tensors.find(&format!("{norm}.weight")).is_some() { self.norm(x, norm, 1) } else { Ok(x) }
    }

    fn lookup(&mut self, name: &str, rows: usize, by: Index, scale: f32) -> Result<ValueId> {
        let name = self.names.global(name) + ".weight";
        let table = self.require(name, rows, self.arch.hidden, LOOKUP)?;
        let out = self.value(Domain::Tokens, self.arch.hidden);
        self.push(Op::Embed { table, by, scale, out });
        Ok(out)
    }

    fn value(&mut self, domain: Domain, width: usize) -> ValueId {
        self.program.values.push(Value { domain, width, element: Element::Number });
        ValueId(self.program.values.len() as u32 - 1)
    }

    /// A new value of the same shape.
    fn like(&mut self, id: ValueId) -> ValueId {
        let Value { domain, width, .. } = self.program.value(id);
        self.value(domain, width)
    }

    fn push(&mut self, op: Op) {
        self.program.body.push(op);
    }

    /// A weight of `rows × cols`, if the file has it; an error if it has another shape.
    fn find(&mut self, name: String, rows: usize, cols: usize, role: Role) -> Result<Option<Slice>> {
        let Some(tensor) = self.tensors.find(&name) else { return Ok(None) };
        if tensor.len() != rows * cols || tensor.row_len() != cols {
            let expected = if role.vector { vec![cols] } else { vec![rows, cols] };
            return Err(Error::Shape { name, actual: tensor.shape.to_vec(), expected });
        }
        let weights = &mut self.program.weights;
        let weight = *self.known.entry(name).or_insert_with_key(|name| {
            weights.push(WeightUse { name: name.clone(), rows, cols, role: Role::default() });
            WeightId(weights.len() as u32 - 1)
        });
        let used = &mut weights[weight.0 as usize].role;
        used.lookup |= role.lookup;
        used.multiply |= role.multiply;
        used.encode |= role.encode;
        used.vector |= role.vector;
        Ok(Some(Slice { weight, first: 0, rows }))
    }

    fn require(&mut self, name: String, rows: usize, cols: usize, role: Role) -> Result<Slice> {
        let family = self.arch.family.to_owned();
        self.find(name.clone(), rows, cols, role)?.ok_or(Error::MissingTensor { name, family })
    }

    /// A matrix of one layer that all rows are multiplied with, and its bias, if it has one.
    fn matrix(
        &mut self,
        layer: usize,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(Slice, Option<Slice>)> {
        self.named(self.names.layer(layer, name), rows, cols, self.all_rows())
    }

    /// The role of a matrix that all rows are multiplied with.
    fn all_rows(&self) -> Role {
        if self.arch.mask == Mask::Full { ENCODE } else { MULTIPLY }
    }

    /// A matrix by its name in the file, with its bias, if it has one.
    fn named(
        &mut self,
        name: String,
        rows: usize,
        cols: usize,
        role: Role,
    ) -> Result<(Slice, Option<Slice>)> {
        let weight = self.require(format!("{name}.weight"), rows, cols, role)?;
        let bias = self.find(name + ".bias", 1, rows, VECTOR)?;
        Ok((weight, bias))
    }

    fn linear(&mut self, x: ValueId, parts: &[(Slice, Option<Slice>)]) -> Vec<ValueId> {
        let domain = self.program.value(x).domain;
        let parts: Vec<Part> = parts
            .iter()
            .map(|&(weight, bias)| Part { weight, bias, out: self.value(domain, weight.rows) })
            .collect();
        let outs = parts.iter().map(|part| part.out).collect();
        self.push(Op::Linear { x, parts });
        outs
    }

    /// Normalises `x`, each of `groups` equal parts on its own, with the weight (and bias) of that name.
    fn norm(&mut self, x: ValueId, name: String, groups: usize) -> Result<ValueId> {
        let width = self.program.value(x).width / groups;
        let Architecture { norm: kind, norm_eps: eps, .. } = *self.arch;
        let weight = self.require(format!("{name}.weight"), 1, width, VECTOR)?;
        let bias = match kind {
            NormKind::Rms { .. } => None,
            NormKind::Layer => self.find(name + ".bias", 1, width, VECTOR)?,
        };
        let out = self.like(x);
        self.push(Op::Norm { x, kind, eps, weight, bias, groups, out });
        Ok(out)
    }

    /// Like [`Self::norm`] where the model has that norm; otherwise `x` itself.
    fn optional_norm(&mut self, layer: usize, name: &str, x: ValueId, groups: usize) -> Result<ValueId> {
        let name = self.names.layer(layer, name);
        if self.tensors.find(&format!("{name}.weight")).is_some() {
            self.norm(x, name, groups)
        } else {
            Ok(x)
        }
    }

    /// What a block reads: `x`, normalised unless the sum after the block will be.
    fn before(&mut self, layer: usize, name: &str, x: ValueId) -> Result<ValueId> {
        if self.arch.norm_after { Ok(x) } else { self.norm(x, self.names.layer(layer, name), 1) }
    }

    /// The residual stream after a block that gave `h`.
    fn after(&mut self, layer: usize, name: &str, x: ValueId, h: ValueId) -> Result<ValueId> {
        let sum = self.add(x, h);
        if self.arch.norm_after { self.norm(sum, self.names.layer(layer, name), 1) } else { Ok(sum) }
    }

    fn add(&mut self, x: ValueId, y: ValueId) -> ValueId {
        let out = self.like(x);
        self.push(Op::Add { x, y, out });
        out
    }

    fn attention(&mut self, i: usize, layer: &Layer, cache: CacheLayer, x: ValueId) -> Result<ValueId> {
        let hidden = self.arch.hidden;
        let (q_width, kv_width) = (layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim);
        let h = self.before(i, "attn_norm", x)?;
        let fused = self.names.layer(i, "attn_qkv") + ".weight";
        let parts = if self.tensors.find(&fused).is_some() {
            let (weight, bias) = self.matrix(i, "attn_qkv", q_width + 2 * kv_width, hidden)?;
            if bias.is_some() {
                let what = format!("a bias on \"{fused}\"");
                return Err(Error::Unsupported { what, supported: "biases on separate Q, K and V".into() });
            }
            let part = |first, rows| (Slice { first, rows, ..weight }, None);
            [part(0, q_width), part(q_width, kv_width), part(q_width + kv_width, kv_width)]
        } else {
            [
                self.matrix(i, "attn_q", q_width, hidden)?,
                self.matrix(i, "attn_k", kv_width, hidden)?,
                self.matrix(i, "attn_v", kv_width, hidden)?,
            ]
        };
        let qkv = self.linear(h, &parts);
        let q = self.optional_norm(i, "attn_q_norm", qkv[0], layer.heads)?;
        let k = self.optional_norm(i, "attn_k_norm", qkv[1], layer.kv_heads)?;
        let rotated = self.like(q);
        let rope = layer.rope.map(|rope| RopeId(rope as u32));
        self.push(Op::RopeKv { q, k, v: qkv[2], rope, cache, out: rotated });
        let mixed = self.like(q);
        let (scale, cap) = (layer.score_scale, layer.score_cap);
        self.push(Op::Attend { q: rotated, mask: self.arch.mask, cache, scale, cap, out: mixed });
        let output = self.matrix(i, "attn_output", hidden, q_width)?;
        let h = self.linear(mixed, &[output])[0];
        let h = self.optional_norm(i, "post_attention_norm", h, 1)?;
        self.after(i, "attn_output_norm", x, h)
    }

    /// The place of a layer's keys and values: a group for each kind of layer.
    fn cache_layer(&mut self, layer: &Layer) -> CacheLayer {
        let groups = &mut self.program.groups;
        let alike = |g: &KvGroup| {
            (g.kv_heads, g.head_dim, g.window) == (layer.kv_heads, layer.head_dim, layer.window)
        };
        let group = groups.iter().position(alike).unwrap_or_else(|| {
            let Layer { kv_heads, head_dim, window, .. } = *layer;
            groups.push(KvGroup { layers: 0, kv_heads, head_dim, window });
            groups.len() - 1
        });
        groups[group].layers += 1;
        CacheLayer { group: GroupId(group as u32), layer: groups[group].layers - 1 }
    }

    fn feed_forward(&mut self, i: usize, layer: &Layer, x: ValueId) -> Result<ValueId> {
        let h = self.before(i, "ffn_norm", x)?;
        let h = match layer.feed_forward {
            FeedForward::Plain { inner } => self.plain(i, inner, h)?,
            FeedForward::Dense { inner } => self.dense(i, inner, h)?,
            FeedForward::Experts { count, chosen, inner, normalize } => {
                let router = self.names.layer(i, "ffn_gate_inp");
                let router = self.named(router, count, self.arch.hidden, MULTIPLY)?;
                let logits = self.linear(h, &[router])[0];
                self.program.values.push(Value {
                    domain: Domain::Tokens,
                    width: chosen,
                    element: Element::Route,
                });
                let routes = ValueId(self.program.values.len() as u32 - 1);
                self.push(Op::Route { logits, normalize, out: routes });
                let experts = self.experts(i, count, inner)?;
                let out = self.like(h);
                let activation = self.arch.activation;
                self.push(Op::Experts { x: h, routes, experts, activation, out });
                out
            }
        };
        let h = self.optional_norm(i, "post_ffw_norm", h, 1)?;
        self.after(i, "layer_output_norm", x, h)
    }

    fn plain(&mut self, i: usize, inner: usize, h: ValueId) -> Result<ValueId> {
        let hidden = self.arch.hidden;
        let up = self.matrix(i, "ffn_up", inner, hidden)?;
        let x = self.linear(h, &[up])[0];
        let out = self.like(x);
        self.push(Op::Activate { x, activation: self.arch.activation, out });
        let down = self.matrix(i, "ffn_down", hidden, inner)?;
        Ok(self.linear(out, &[down])[0])
    }

    fn dense(&mut self, i: usize, inner: usize, h: ValueId) -> Result<ValueId> {
        let hidden = self.arch.hidden;
        let gate = self.names.layer(i, "ffn_gate") + ".weight";
        let parts = if self.tensors.find(&gate).is_some() {
            [self.matrix(i, "ffn_gate", inner, hidden)?, self.matrix(i, "ffn_up", inner, hidden)?]
        } else {
            // Phi-3 stores both as one matrix, the gate first.
            let (both, _) = self.matrix(i, "ffn_up", 2 * inner, hidden)?;
            [(Slice { rows: inner, ..both }, None), (Slice { first: inner, rows: inner, ..both }, None)]
        };
        let both = self.linear(h, &parts);
        let inner_value = self.like(both[0]);
        let activation = self.arch.activation;
        self.push(Op::Gate { gate: both[0], up: both[1], activation, out: inner_value });
        let down = self.matrix(i, "ffn_down", hidden, inner)?;
        Ok(self.linear(inner_value, &[down])[0])
    }

    /// The networks of a mixture: three stacks of matrices, or three matrices for each expert.
    fn experts(&mut self, i: usize, count: usize, inner: usize) -> Result<Vec<Expert>> {
        let hidden = self.arch.hidden;
        let mut expert = |name: &str, e: usize, rows: usize, cols: usize| {
            let name = self.names.layer(i, name) + ".weight";
            if name.contains('*') {
                self.require(name.replace('*', &e.to_string()), rows, cols, MULTIPLY)
            } else {
                Ok(expert_rows(self.require(name, count * rows, cols, MULTIPLY)?, count, e))
            }
        };
        (0..count)
            .map(|e| {
                Ok(Expert {
                    gate: expert("ffn_gate_exps", e, inner, hidden)?,
                    up: expert("ffn_up_exps", e, inner, hidden)?,
                    down: expert("ffn_down_exps", e, hidden, inner)?,
                })
            })
            .collect()
    }
}
