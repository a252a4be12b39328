//! From a model of speech to its programs. The encoder writes the keys and values that the decoder's layers attend to, so
//! both run over one store of three groups.

use std::collections::HashSet;

use super::{Builder, MULTIPLY};
use crate::arch::{AlignmentHead, Architecture, SpeechArchitecture};
use crate::program::{
    Activation, CacheLayer, Domain, Element, GroupId, Head, Index, KvGroup, Mask, Op, Program, Value, ValueId,
};
use crate::{Error, Result, TensorSource};

/// The programs of a model of speech.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeechPrograms {
    /// From the frames of a window to its states. Stores what the decoder attends to; the states of outputs come back.
    pub encoder: Program,
    /// From tokens to logits.
    pub decoder: Program,
}

impl SpeechPrograms {
    /// The keys and values of the encoder's own layers, one after the other: they are done with when the next begins.
    pub const SOUND: GroupId = GroupId(0);
    /// Those of the text, a layer for each of the decoder's.
    pub const TEXT: GroupId = GroupId(1);
    /// Those of the states, a layer for each of the decoder's.
    pub const CROSS: GroupId = GroupId(2);
}

/// Builds the programs of a model of speech, whose tensors are seen through
/// [`SpeechTensors`](crate::arch::SpeechTensors).
pub fn build_speech<'n>(
    arch: &SpeechArchitecture,
    tensors: &dyn TensorSource,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<SpeechPrograms> {
    let (encoder, decoder) = (encoder(arch, tensors)?, decoder(arch, tensors)?);
    let weights = encoder.weights.iter().chain(&decoder.weights);
    let used: HashSet<&str> = weights.map(|weight| weight.name.as_str()).collect();
    let extra = |name: &&str| {
        let ours = arch.encoder_names.must_be_used(name) || arch.decoder_names.must_be_used(name);
        ours && !used.contains(name)
    };
    match names.into_iter().find(extra) {
        None => Ok(SpeechPrograms { encoder, decoder }),
        Some(name) => Err(Error::ExtraTensor {
            name: name.to_owned(),
            family: arch.decoder.family.to_owned(),
            layers: arch.encoder.layers.len().max(arch.decoder.layers.len()),
        }),
    }
}

/// The groups of the store.
fn groups(arch: &SpeechArchitecture) -> Vec<KvGroup> {
    let group = |side: &Architecture, layers: usize| {
        let layer = &side.layers[0];
        KvGroup { layers, kv_heads: layer.kv_heads, head_dim: layer.head_dim, window: None }
    };
    let layers = arch.decoder.layers.len();
    vec![group(&arch.encoder, 1), group(&arch.decoder, layers), group(&arch.decoder, layers)]
}

fn encoder(arch: &SpeechArchitecture, tensors: &dyn TensorSource) -> Result<Program> {
    let &Architecture { hidden, context, ref layers, .. } = &arch.encoder;
    let mut b = Builder::new(&arch.encoder, &arch.encoder_names, tensors, context)?;
    b.program.groups = groups(arch);
    let frames = b.value(Domain::Frames, arch.mels);
    b.push(Op::Input { out: frames });
    let x = b.convolution("conv1", frames, Domain::Frames)?;
    let x = b.convolution("conv2", x, Domain::Tokens)?;
    let position = b.lookup("position_embd", context, Index::Position(0), 1.0)?;
    let mut x = b.add(x, position);
    for (i, layer) in layers.iter().enumerate() {
        let cache = CacheLayer { group: SpeechPrograms::SOUND, layer: 0 };
        x = b.attention(i, layer, cache, x)?;
        x = b.feed_forward(i, layer, x)?;
    }
    let states = b.norm(x, arch.encoder_names.global("output_norm"), 1)?;
    for i in 0..arch.decoder.layers.len() {
        let name = |name| arch.decoder_names.layer(i, name);
        let role = b.all_rows();
        let parts = [
            b.named(name("cross_k"), hidden, hidden, role)?,
            b.named(name("cross_v"), hidden, hidden, role)?,
        ];
        let kv = b.linear(states, &parts);
        let cache = CacheLayer { group: SpeechPrograms::CROSS, layer: i };
        b.push(Op::Store { k: kv[0], v: kv[1], cache });
    }
    b.program.logits = b.outputs(states);
    Ok(b.program)
}

fn decoder(arch: &SpeechArchitecture, tensors: &dyn TensorSource) -> Result<Program> {
    let &Architecture { hidden, context, ref layers, .. } = &arch.decoder;
    let names = &arch.decoder_names;
    let mut b = Builder::new(&arch.decoder, names, tensors, context)?;
    b.program.groups = groups(arch);
    let mut x = b.embedding()?;
    for (i, layer) in layers.iter().enumerate() {
        x = b.attention(i, layer, CacheLayer { group: SpeechPrograms::TEXT, layer: i }, x)?;
        x = b.cross_attention(i, arch.encoder.context, x)?;
        x = b.feed_forward(i, layer, x)?;
    }
    let last = b.outputs(x);
    let last = b.norm(last, names.global("output_norm"), 1)?;
    // Checkpoints may repeat the table of tokens as the output; where they do not, it is the output too.
    let output = match b.find("proj_out.weight".to_owned(), arch.vocabulary, hidden, MULTIPLY)? {
        Some(output) => output,
        None => b.require(names.global("token_embd") + ".weight", arch.vocabulary, hidden, MULTIPLY)?,
    };
    b.program.logits = b.linear(last, &[(output, None)])[0];
    Ok(b.program)
}

/// Builds the program that tells how much each token attends to each of the states, in some heads of the decoder: outputs ×
/// (heads · states). Its weights are the decoder's.
pub fn build_alignment(decoder: &Program, heads: &[AlignmentHead]) -> Result<Program> {
    // The cross-attention of each layer, in order: where it stands, and what it is of.
    let crosses: Vec<(usize, Head, u32)> = decoder
        .body
        .iter()
        .enumerate()
        .filter_map(|(at, op)| match *op {
            Op::Attend { q, mask: Mask::Stored(states), cache, scale, .. } => {
                Some((at, Head { q, cache, head: 0, scale }, states))
            }
            _ => None,
        })
        .collect();
    let none = || Error::Batch("no heads to align by".into());
    let positions = crosses.first().ok_or_else(none)?.2;
    let mut chosen = Vec::with_capacity(heads.len());
    let mut end = 0;
    for &(layer, head) in heads {
        let (at, cross, _) = crosses.get(layer).ok_or_else(none)?;
        end = end.max(*at);
        chosen.push(Head { head, ..*cross });
    }
    let mut program = Program { body: decoder.body[..end].to_vec(), ..decoder.clone() };
    let width = chosen.len() * positions as usize;
    let mut value = |domain| {
        program.values.push(Value { domain, width, element: Element::Number });
        ValueId(program.values.len() as u32 - 1)
    };
    let (x, out) = (value(Domain::Tokens), value(Domain::Outputs));
    program.body.push(Op::Weights { heads: chosen, positions, out: x });
    program.body.push(Op::Gather { x, out });
    program.logits = out;
    Ok(program)
}

impl Builder<'_> {
    /// A convolution of three taps and its non-linearity, over every frame or (to tokens) every other one.
    fn convolution(&mut self, name: &str, x: ValueId, to: Domain) -> Result<ValueId> {
        let width = 3 * self.program.value(x).width;
        let unfolded = self.value(to, width);
        self.push(Op::Unfold { x, out: unfolded });
        let kernel = self.named(self.names.global(name), self.arch.hidden, width, self.all_rows())?;
        let x = self.linear(unfolded, &[kernel])[0];
        let out = self.like(x);
        self.push(Op::Activate { x, activation: Activation::GeluErf, out });
        Ok(out)
    }

    /// Attention to what the encoder stored.
    fn cross_attention(&mut self, i: usize, states: usize, x: ValueId) -> Result<ValueId> {
        let (hidden, scale) = (self.arch.hidden, self.arch.layers[i].score_scale);
        let h = self.before(i, "cross_norm", x)?;
        let query = self.matrix(i, "cross_q", hidden, hidden)?;
        let q = self.linear(h, &[query])[0];
        let mixed = self.like(q);
        let cache = CacheLayer { group: SpeechPrograms::CROSS, layer: i };
        let mask = Mask::Stored(states as u32);
        self.push(Op::Attend { q, mask, cache, scale, cap: None, out: mixed });
        let output = self.matrix(i, "cross_output", hidden, hidden)?;
        let h = self.linear(mixed, &[output])[0];
        Ok(self.add(x, h))
    }

    /// The rows of a value that are asked for.
    fn outputs(&mut self, x: ValueId) -> ValueId {
        let width = self.program.value(x).width;
        let out = self.value(Domain::Outputs, width);
        self.push(Op::Gather { x, out });
        out
    }
}
