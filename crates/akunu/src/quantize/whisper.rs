//! Whisper models with other dtypes: as GGUF, or in whisper.cpp's own container.
//!
//! All matrices get the recipe's main dtype, as whisper.cpp expects: convolutions are F16, positions and vectors F32. Tensors have
//! OpenAI's names in both.

use std::collections::HashMap;
use std::path::Path;

use akunu_format::gguf;
use akunu_format::whisper_ggml::{self, Hparams, MelFilters};
use akunu_format::{DType, ModelFile};
use akunu_program::arch::{Architecture, Names, SpeechArchitecture};
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{TokenKind, spell_bytes};

use super::plan::Planned;
use super::source::{Source, Values};
use super::{Header, Input, Plan, Recipe, rules};
use crate::{Error, Result, text};

/// Parts of the encoder and the decoder beside their layers, and of every layer; each has what it has of a weight and a bias.
const ENCODER: [&str; 4] = ["position_embd", "conv1", "conv2", "output_norm"];
const DECODER: [&str; 3] = ["position_embd", "token_embd", "output_norm"];
const LAYER: [&str; 13] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "attn_norm",
    "cross_q",
    "cross_k",
    "cross_v",
    "cross_output",
    "cross_norm",
    "ffn_up",
    "ffn_down",
    "ffn_norm",
];

/// What ggml adds to the number of a quantised dtype: the version of its blocks, times a thousand.
const QUANTIZED_FTYPE: u32 = 2000;
/// Bands of a frame: Whisper has 80 or 128; what hostile files claim would only cost memory.
const MOST_MELS: usize = 1024;
/// Ends a transcript; ids below are text.
const END: &str = "<|endoftext|>";

/// Whether a file of this name is to be in whisper.cpp's container.
pub(super) fn is_container(output: &Path) -> bool {
    output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bin"))
}

/// Reads a model of speech that is to be converted, for whisper.cpp's container if there is a recipe for it, else for GGUF.
pub(super) fn read(file: &ModelFile, container: Option<Recipe>) -> Result<Input<'_>> {
    let architecture = SpeechArchitecture::of(file)?;
    let sources = sources(file, &architecture)?;
    let mut notes = Vec::new();
    let header = match container {
        Some(recipe) => Header::WhisperGgml(container_header(file, &architecture, recipe)?),
        None => {
            let mut header = gguf::Writer::new();
            write_metadata(&architecture, &mut header)?;
            match text::tokenizer(file)? {
                Some(tokenizer) => write_vocabulary(&tokenizer, &mut header)?,
                None => {
                    notes.push(format!("{} has no vocabulary: nor has the new file", file.path().display()));
                }
            }
            Header::Gguf(header)
        }
    };
    let files = match file {
        ModelFile::Gguf(gguf) => gguf.files().map(Path::to_owned).collect(),
        ModelFile::Checkpoint(checkpoint) => checkpoint.files().map(Path::to_owned).collect(),
        ModelFile::WhisperGgml(_) | ModelFile::Torch(_) => vec![file.path().to_owned()],
    };
    let plan = Plan::Speech { same: container.is_some() };
    Ok(Input { files, plan, sources, header, notes })
}

/// What becomes of every tensor. `same` asks for one dtype for all matrices.
pub(super) fn plan(recipe: Recipe, sources: &[Source<'_>], same: bool) -> Result<Vec<Planned>> {
    let base = recipe.base();
    sources
        .iter()
        .map(|source| {
            let (mut to, mut instead_of) = (DType::F32, None);
            let is_matrix = source.shape.len() == 2 && !source.shape.contains(&1);
            if source.shape.len() == 3 {
                to = if base == DType::F32 { DType::F32 } else { DType::F16 };
            } else if is_matrix && !source.name.ends_with("positional_embedding") {
                to = rules::fitting(base, source.row_len());
                instead_of = (to != base).then_some(base);
            }
            if same && instead_of.is_some() {
                return Err(Error::Usage {
                    problem: format!(
                        "rows of {} (\"{}\") do not divide into blocks of {base}",
                        source.row_len(),
                        source.name
                    ),
                    hint: "choose Q8_0, Q5_1, Q5_0, Q4_1 or Q4_0, or write GGUF, where others can stand in"
                        .to_owned(),
                });
            }
            Ok(Planned {
                name: source.name.clone(),
                shape: source.shape.clone(),
                from: source.dtype_name(),
                to,
                instead_of,
            })
        })
        .collect()
}

/// Every tensor of the architecture under OpenAI's name.
fn sources<'a>(file: &'a ModelFile, architecture: &SpeechArchitecture) -> Result<Vec<Source<'a>>> {
    let [encoder, decoder] = Names::openai();
    let sides = [
        (&architecture.encoder_names, encoder, &architecture.encoder, ENCODER.as_slice()),
        (&architecture.decoder_names, decoder, &architecture.decoder, &DECODER),
    ];
    let mut sources = Vec::new();
    for (theirs, ours, side, globals) in sides {
        for part in globals {
            take(file, &theirs.global(part), &ours.global(part), &mut sources)?;
        }
        for layer in 0..side.layers.len() {
            for part in LAYER {
                take(file, &theirs.layer(layer, part), &ours.layer(layer, part), &mut sources)?;
            }
        }
    }
    check(file, architecture, &sources)?;
    Ok(sources)
}

/// Takes what there is of a part: a table without an ending, a weight, a bias.
fn take<'a>(file: &'a ModelFile, theirs: &str, ours: &str, sources: &mut Vec<Source<'a>>) -> Result<()> {
    if let Some(table) = file.get_tensor(theirs) {
        sources.push(Source::stored(ours, table));
    }
    for kind in ["weight", "bias"] {
        let Some(tensor) = file.get_tensor(&format!("{theirs}.{kind}")) else { continue };
        let is_table = ours.ends_with("positional_embedding");
        let name = if is_table { ours.to_owned() } else { format!("{ours}.{kind}") };
        let mut source = Source::stored(name, tensor.clone());
        // whisper.cpp has the biases of convolutions as columns.
        if let ([count], true) = (source.shape.as_slice(), ours.contains(".conv")) {
            source.shape = vec![*count, 1];
            source.values = Values::Computed(tensor.to_f32()?, tensor.dtype_name());
        }
        sources.push(source);
    }
    Ok(())
}

/// Every tensor has a place, save the output matrix, which is the table of tokens; and those that tell the model's sizes tell
/// what the file says.
fn check(file: &ModelFile, architecture: &SpeechArchitecture, sources: &[Source<'_>]) -> Result<()> {
    // As many as whisper.cpp counts: see its container.
    let side = |side: &Architecture, layer: usize| side.layers.len() * layer;
    let expected = 11 + side(&architecture.encoder, 15) + side(&architecture.decoder, 24);
    let unsupported = |what: String| {
        let path = file.path().to_owned();
        Err(Error::Format(akunu_format::Error::Unsupported { path, what, hint: None }))
    };
    if sources.len() != expected {
        return unsupported(format!("a Whisper model with {} tensors instead of {expected}", sources.len()));
    }
    let SpeechArchitecture { encoder, decoder, mels, vocabulary, .. } = architecture;
    if !(1..=MOST_MELS).contains(mels) {
        return unsupported(format!("a Whisper model with {mels} bands, where 1 to {MOST_MELS} are,"));
    }
    // Rows and their lengths. A convolution has three taps.
    let sizes = [
        ("encoder.conv1.weight", encoder.hidden, mels * 3),
        ("encoder.conv2.weight", encoder.hidden, encoder.hidden.saturating_mul(3)),
        ("encoder.positional_embedding", encoder.context, encoder.hidden),
        ("decoder.positional_embedding", decoder.context, decoder.hidden),
        ("decoder.token_embedding.weight", *vocabulary, decoder.hidden),
    ];
    let count = |shape: &[usize]| shape.iter().try_fold(1usize, |count, dim| count.checked_mul(*dim));
    for (name, rows, row_len) in sizes {
        let shape = sources.iter().find(|source| source.name == name).map(|source| source.shape.as_slice());
        match shape {
            Some([first, rest @ ..]) if *first == rows && count(rest) == Some(row_len) => {}
            _ => {
                let shape = shape.unwrap_or_default();
                return unsupported(format!(
                    "a Whisper model whose \"{name}\" is {shape:?} instead of {rows} rows of {row_len}"
                ));
            }
        }
    }
    Ok(())
}

fn container_header(
    file: &ModelFile,
    architecture: &SpeechArchitecture,
    recipe: Recipe,
) -> Result<whisper_ggml::Writer> {
    let SpeechArchitecture { encoder, decoder, mels, vocabulary, .. } = architecture;
    let size = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let heads = |side: &Architecture| size(side.layers.first().map_or(0, |layer| layer.heads));
    let hparams = Hparams {
        vocab_size: size(*vocabulary),
        audio_ctx: size(encoder.context),
        audio_state: size(encoder.hidden),
        audio_heads: heads(encoder),
        audio_layers: size(encoder.layers.len()),
        text_ctx: size(decoder.context),
        text_state: size(decoder.hidden),
        text_heads: heads(decoder),
        text_layers: size(decoder.layers.len()),
        mels: size(*mels),
        ftype: ftype(recipe)?,
    };
    if let ModelFile::WhisperGgml(whisper) = file {
        return Ok(whisper_ggml::Writer::new(&hparams, &whisper.mel_filters(), whisper.tokens())?);
    }
    let tokenizer = text::tokenizer(file)?.ok_or_else(|| text::no_vocabulary(file.path()))?;
    let values = akunu_audio::filters(*mels);
    let filters = MelFilters { mels: *mels, bins: values.len() / (*mels).max(1), values };
    let pieces = (0..tokenizer.id_of(END).unwrap_or_default()).map(|id| match tokenizer.kind(id) {
        TokenKind::Normal => tokenizer.token_bytes(id),
        _ => &[],
    });
    Ok(whisper_ggml::Writer::new(&hparams, &filters, pieces)?)
}

/// ggml's number for files of mostly one dtype.
fn ftype(recipe: Recipe) -> Result<u32> {
    let number = match recipe.base() {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::Q4_0 => 2,
        DType::Q4_1 => 3,
        DType::Q8_0 => 7,
        DType::Q5_0 => 8,
        DType::Q5_1 => 9,
        DType::Q2_K => 10,
        DType::Q3_K => 11,
        DType::Q4_K => 12,
        DType::Q5_K => 13,
        DType::Q6_K => 14,
        other => {
            return Err(Error::Usage {
                problem: format!("whisper.cpp's format has no {other}"),
                hint: "give the output a name that ends in .gguf, or choose another type".to_owned(),
            });
        }
    };
    Ok(if recipe.base().is_quantized() { number + QUANTIZED_FTYPE } else { number })
}

fn write_metadata(architecture: &SpeechArchitecture, header: &mut gguf::Writer) -> Result<()> {
    header.metadata("general.architecture", "whisper")?;
    header.metadata("general.type", "model")?;
    let sides = [("encoder", &architecture.encoder), ("decoder", &architecture.decoder)];
    let mut number = |key: String, value: usize| -> Result<()> {
        header.metadata(&format!("whisper.{key}"), &u32::try_from(value).unwrap_or(u32::MAX))?;
        Ok(())
    };
    number("vocab_size".to_owned(), architecture.vocabulary)?;
    number("encoder.mels_count".to_owned(), architecture.mels)?;
    for (name, side) in sides {
        number(format!("{name}.context_length"), side.context)?;
        number(format!("{name}.embedding_length"), side.hidden)?;
        number(format!("{name}.block_count"), side.layers.len())?;
        number(format!("{name}.attention.head_count"), side.layers.first().map_or(0, |layer| layer.heads))?;
    }
    Ok(())
}

/// The vocabulary as GGUF has byte-level ones: pieces in letters, and which two pieces make up each. Ids are ranks.
fn write_vocabulary(tokenizer: &Tokenizer, header: &mut gguf::Writer) -> Result<()> {
    let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let mut texts = Vec::with_capacity(tokenizer.vocab_size());
    let mut kinds: Vec<i32> = Vec::with_capacity(tokenizer.vocab_size());
    let mut ranks = HashMap::with_capacity(tokenizer.vocab_size());
    for id in ids {
        let bytes = tokenizer.token_bytes(id);
        let (text, kind) = match tokenizer.kind(id) {
            TokenKind::Normal if !bytes.is_empty() => {
                ranks.insert(bytes, id);
                (spell_bytes(bytes), 1)
            }
            TokenKind::Control | TokenKind::UserDefined => (String::from_utf8_lossy(bytes).into_owned(), 3),
            _ => (format!("[unused{id}]"), 5),
        };
        texts.push(text);
        kinds.push(kind);
    }
    let mut merges = Vec::with_capacity(ranks.len());
    for (id, text) in texts.iter().enumerate() {
        let bytes = tokenizer.token_bytes(id as u32);
        if ranks.get(bytes) == Some(&(id as u32))
            && !text.is_empty()
            && let Some((left, right)) = halves(bytes, &ranks)
        {
            merges.push(format!("{} {}", spell_bytes(left), spell_bytes(right)));
        }
    }
    header.metadata("tokenizer.ggml.model", "gpt2")?;
    header.metadata("tokenizer.ggml.pre", "gpt-2")?;
    header.metadata("tokenizer.ggml.tokens", &texts)?;
    header.metadata("tokenizer.ggml.token_type", &kinds)?;
    header.metadata("tokenizer.ggml.merges", &merges)?;
    if let Some(end) = tokenizer.id_of(END) {
        header.metadata("tokenizer.ggml.eos_token_id", &end)?;
    }
    header.metadata("tokenizer.ggml.add_bos_token", &false)?;
    Ok(())
}

/// The two pieces that a piece is joined from, when the pieces of lowest rank are joined first; `None` for a single byte.
fn halves<'b>(piece: &'b [u8], ranks: &HashMap<&[u8], u32>) -> Option<(&'b [u8], &'b [u8])> {
    // Where the parts begin, and the end.
    let mut borders: Vec<usize> = (0..=piece.len()).collect();
    while borders.len() > 3 {
        let joined = |i: &usize| ranks.get(&piece[borders[*i]..borders[*i + 2]]).copied().unwrap_or(u32::MAX);
        let best = (0..borders.len() - 2).min_by_key(joined)?;
        borders.remove(best + 1);
    }
    (borders.len() == 3).then(|| piece.split_at(borders[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_comes_apart_where_it_was_joined_last() {
        let pieces: [&[u8]; 7] = [b"a", b"b", b"c", b"d", b"cd", b"bcd", b"abcd"];
        let ranks: HashMap<&[u8], u32> = pieces.into_iter().zip(0..).collect();
        assert_eq!(halves(b"abcd", &ranks), Some((&b"a"[..], &b"bcd"[..])));
        assert_eq!(halves(b"cd", &ranks), Some((&b"c"[..], &b"d"[..])));
        assert_eq!(halves(b"a", &ranks), None);
    }
}
