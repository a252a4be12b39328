//! `tokenizer.json` as GGUF metadata.
//!
//! GGUF does not store how text is cut before pieces are joined, only a name for it, and a few switches. The ones that
//! fit are found by trial: a vocabulary is kept when it gives the same tokens as `tokenizer.json` for a text full of
//! corner cases. One that no trial fits is refused.

use std::collections::HashMap;
use std::path::Path;

use akunu_format::checkpoint::Checkpoint;
use akunu_format::gguf::{Gguf, Writer};
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special, TokenKind};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::text::read_text;
use crate::{Error, Result};

/// Names of ways to cut text, one for each way. Those of whole words first: a word that is a piece is that piece.
const CUTS: [&str; 15] = [
    "llama-bpe",
    "tekken",
    "qwen2",
    "qwen35",
    "smollm",
    "gpt-2",
    "gpt-4o",
    "smaug-bpe",
    "hunyuan",
    "command-r",
    "olmo",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "falcon",
];

/// What the ways to cut text differ in: case, contractions, digits, runs of spaces and line ends, punctuation before letters
/// and line ends, marks that combine, scripts without spaces, characters of more than one form.
pub(super) const CORNER_CASES: &str = concat!(
    "Hello World  and   more    spaces \t tabs\n\n\nlines\r\n  indented\n",
    "I'm you'RE we'll THEY'VE don't it's 'quoted' camelCase PascalCase SCREAMING_SNAKE x2y3z\n",
    "1 12 123 1234 12345 3.14159 1,234,567 0x1F ٣٤٥ ²³ ½ Ⅷ\n",
    "a/b\\c //comment\n#include <stdio.h>;\nfoo(bar)[0]={};!!! ... -- ?! $5 €10 @you #tag %d\n",
    "caf\u{e9} cafe\u{301} na\u{ef}ve \u{fb01}ne \u{212b} Stra\u{df}e \u{1e9b}\u{323}\n",
    "日本語のテキスト 中文字符 한국어 ไทยภาษา हिन्दी العربية עברית Ελληνικά Русский Tiếng Việt\n",
    "😀👩‍👩‍👧‍👦🇩🇪 \u{200b}zero\u{a0}width\u{3000}ideographic \u{2581}mark trailing ",
);

/// Writes the vocabulary and the chat template. Gives a note when there is no vocabulary.
pub(super) fn write(
    checkpoint: &Checkpoint,
    embedding_rows: usize,
    header: &mut Writer,
) -> Result<Option<String>> {
    write_chat_templates(checkpoint, header)?;
    let Some(path) = checkpoint.companion("tokenizer.json") else {
        return Ok(Some(no_vocabulary(checkpoint)));
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let original = Tokenizer::from_dir(directory).map_err(Error::tokenizer(directory))?;
    let text = read_text(&path)?;
    let file: File = serde_json::from_str(&text).map_err(|error| malformed(&path, &text, &error))?;
    let pieces = file.pieces(&original, embedding_rows).map_err(|problem| unsupported(&path, problem))?;
    let fitting = candidates(&file)
        .into_iter()
        .map(|shape| Vocabulary { shape, pieces: &pieces, file: &file, original: &original })
        .find_map(|vocabulary| vocabulary.if_it_fits().transpose())
        .ok_or_else(|| unsupported(&path, "no vocabulary of GGUF cuts text the same way".to_owned()))?;
    fitting?.write(header)?;
    Ok(None)
}

/// What is said of a file that has none.
pub(super) fn no_vocabulary(checkpoint: &Checkpoint) -> String {
    format!("there is no tokenizer.json in {}: the file has no vocabulary", checkpoint.path().display())
}

/// `tokenizer.json`, as far as GGUF has room for it.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: usize,
    content: String,
}

#[derive(Deserialize)]
struct Model {
    vocab: HashMap<String, usize>,
    #[serde(default)]
    merges: Vec<Merge>,
    #[serde(default)]
    byte_fallback: bool,
}

/// A pair of pieces that are joined.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Joined(String),
}

impl Merge {
    fn joined(&self) -> String {
        match self {
            Merge::Pair(left, right) => format!("{left} {right}"),
            Merge::Joined(pair) => pair.clone(),
        }
    }

    fn whole(&self) -> String {
        match self {
            Merge::Pair(left, right) => format!("{left}{right}"),
            Merge::Joined(pair) => pair.replacen(' ', "", 1),
        }
    }
}

/// A token's text and its number among the kinds of GGUF.
type Piece = (String, i32);

impl File {
    /// All tokens by id, one for each row of the embeddings.
    fn pieces(&self, original: &Tokenizer, embedding_rows: usize) -> Result<Vec<Piece>, String> {
        let count = original.vocab_size();
        if count > embedding_rows {
            return Err(format!("{count} tokens for {embedding_rows} rows of embeddings"));
        }
        let mut pieces: Vec<Piece> =
            (0..embedding_rows).map(|id| (format!("[PAD{id}]"), kind_number(TokenKind::Unused))).collect();
        let tokens = self.model.vocab.iter().map(|(text, id)| (*id, text));
        for (id, text) in tokens.chain(self.added_tokens.iter().map(|token| (token.id, &token.content))) {
            let kind = u32::try_from(id).map_or(TokenKind::Unused, |id| original.kind(id));
            if let Some(piece) = pieces.get_mut(id) {
                *piece = (text.clone(), kind_number(kind));
            }
        }
        Ok(pieces)
    }

    /// A score for each piece: the earlier it is joined, the higher.
    fn scores(&self, pieces: &[Piece]) -> Vec<f32> {
        let mut ranks: HashMap<String, usize> = HashMap::with_capacity(self.model.merges.len());
        for (rank, merge) in self.model.merges.iter().enumerate() {
            ranks.entry(merge.whole()).or_insert(rank);
        }
        let last = self.model.merges.len();
        pieces.iter().map(|(text, _)| -(*ranks.get(text).unwrap_or(&last) as f32)).collect()
    }
}

fn kind_number(kind: TokenKind) -> i32 {
    match kind {
        TokenKind::Normal => 1,
        TokenKind::Unknown => 2,
        TokenKind::Control => 3,
        TokenKind::UserDefined => 4,
        TokenKind::Unused => 5,
        TokenKind::Byte => 6,
    }
}

/// How GGUF might describe a vocabulary.
#[derive(Clone, Copy)]
enum Shape {
    /// Byte-level pieces, and the name of a way to cut text.
    ByteLevel { cut: &'static str },
    /// Pieces with marks for spaces, and whether one is put before a text.
    SpaceMarks { prefix: bool },
}

fn candidates(file: &File) -> Vec<Shape> {
    if file.model.byte_fallback {
        return [true, false].map(|prefix| Shape::SpaceMarks { prefix }).to_vec();
    }
    CUTS.map(|cut| Shape::ByteLevel { cut }).to_vec()
}

struct Vocabulary<'a> {
    shape: Shape,
    pieces: &'a [Piece],
    file: &'a File,
    original: &'a Tokenizer,
}

impl<'a> Vocabulary<'a> {
    /// Itself if a tokenizer made of it agrees with the original.
    fn if_it_fits(self) -> Result<Option<Vocabulary<'a>>> {
        let mut header = Writer::new();
        self.write(&mut header)?;
        let gguf = Gguf::from_bytes(header.header()?)?;
        let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else { return Ok(None) };
        let ids = |tokenizer: &Tokenizer, add| {
            let whole = tokenizer.encode(CORNER_CASES, Special::Plain, add);
            let lines = CORNER_CASES.lines().flat_map(|line| tokenizer.encode(line, Special::Plain, add));
            whole.into_iter().chain(lines).collect::<Vec<_>>()
        };
        let fits = [AddSpecial::Yes, AddSpecial::No].iter().all(|add| {
            let (theirs, ours) = (ids(self.original, *add), ids(&tokenizer, *add));
            theirs == ours
        });
        Ok(fits.then_some(self))
    }

    fn write(&self, header: &mut Writer) -> Result<()> {
        let (model, pre) = match self.shape {
            Shape::ByteLevel { cut } => ("gpt2", cut),
            Shape::SpaceMarks { .. } => ("llama", "default"),
        };
        header.metadata("tokenizer.ggml.model", model)?;
        header.metadata("tokenizer.ggml.pre", pre)?;
        let texts: Vec<&str> = self.pieces.iter().map(|(text, _)| text.as_str()).collect();
        header.metadata("tokenizer.ggml.tokens", &texts)?;
        let kinds: Vec<i32> = self.pieces.iter().map(|(_, kind)| *kind).collect();
        header.metadata("tokenizer.ggml.token_type", &kinds)?;
        match self.shape {
            Shape::ByteLevel { .. } => {
                let merges: Vec<String> = self.file.model.merges.iter().map(Merge::joined).collect();
                header.metadata("tokenizer.ggml.merges", &merges)?;
            }
            Shape::SpaceMarks { prefix } => {
                header.metadata("tokenizer.ggml.scores", &self.file.scores(self.pieces))?;
                header.metadata("tokenizer.ggml.add_space_prefix", &prefix)?;
            }
        }
        let roles = [
            ("bos_token_id", self.original.bos()),
            ("eos_token_id", self.original.eos()),
            ("unknown_token_id", self.original.unknown()),
            ("padding_token_id", self.original.padding()),
            // The second of several ends of a turn; others are known by their names.
            ("eot_token_id", self.second_end()),
        ];
        for (key, id) in roles {
            if let Some(id) = id {
                header.metadata(&format!("tokenizer.ggml.{key}"), &id)?;
            }
        }
        let empty = self.original.encode("", Special::Plain, AddSpecial::Yes);
        header.metadata("tokenizer.ggml.add_bos_token", &self.original.adds_bos())?;
        let adds_eos = empty.last().is_some_and(|last| Some(*last) == self.original.eos() && empty.len() > 1);
        header.metadata("tokenizer.ggml.add_eos_token", &adds_eos)?;
        Ok(())
    }

    fn second_end(&self) -> Option<u32> {
        self.original.eog_ids().iter().copied().find(|id| Some(*id) != self.original.eos())
    }
}

#[derive(Deserialize)]
struct TokenizerConfig {
    chat_template: Option<Json>,
}

/// A file of its own counts before the configuration's.
fn write_chat_templates(checkpoint: &Checkpoint, header: &mut Writer) -> Result<()> {
    const KEY: &str = "tokenizer.chat_template";
    if let Some(path) = checkpoint.companion("chat_template.jinja") {
        let template = read_text(&path)?;
        header.metadata(KEY, &template)?;
        return Ok(());
    }
    let Some(path) = checkpoint.companion("tokenizer_config.json") else { return Ok(()) };
    let text = read_text(&path)?;
    let config: TokenizerConfig =
        serde_json::from_str(&text).map_err(|error| malformed(&path, &text, &error))?;
    match config.chat_template {
        Some(Json::String(template)) => {
            header.metadata(KEY, &template)?;
        }
        Some(Json::Array(named)) => {
            let named = named
                .iter()
                .filter_map(|entry| Some((entry.get("name")?.as_str()?, entry.get("template")?.as_str()?)));
            for (name, template) in named {
                let key = if name == "default" { KEY.to_owned() } else { format!("{KEY}.{name}") };
                header.metadata(&key, template)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn malformed(path: &Path, text: &str, error: &serde_json::Error) -> Error {
    let lines_before = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let offset = lines_before.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
    Error::Format(akunu_format::Error::Malformed {
        path: path.to_owned(),
        field: "JSON".to_owned(),
        offset: offset as u64,
        problem: error.to_string(),
    })
}

fn unsupported(path: &Path, problem: String) -> Error {
    Error::Format(akunu_format::Error::Unsupported {
        path: path.to_owned(),
        what: "writing this vocabulary as GGUF".to_owned(),
        hint: Some(problem),
    })
}
