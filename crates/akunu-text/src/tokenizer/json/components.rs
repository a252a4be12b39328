//! The components of `tokenizer.json` in terms of this crate's pipeline.

use std::collections::HashMap;

use base64::Engine as _;

use super::FILE;
use super::schema;
use crate::tokenizer::PairEnds;
use crate::tokenizer::bpe::SPACE_MARK;
use crate::tokenizer::charsmap::{CharsMap, Lookup};
use crate::tokenizer::error::{Result, TokenizerError};
use crate::tokenizer::families;
use crate::tokenizer::normalize::{BertNormalizer, Normalizer, excessive_growth};
use crate::tokenizer::pattern::Pattern;
use crate::tokenizer::pretokenize::{Behavior, Matcher, PrependScheme, Step};
use crate::tokenizer::vocab::TokenId;

fn unsupported<T>(what: impl Into<String>) -> Result<T> {
    Err(TokenizerError::unsupported(format!("{FILE}: {}", what.into())))
}

fn matcher(pattern: schema::Pattern) -> Result<Matcher> {
    Ok(match pattern {
        schema::Pattern::String(text) => Matcher::Literal(text),
        schema::Pattern::Regex(pattern) => Matcher::Pattern(Pattern::new(&pattern)?),
    })
}

/// Steps of one kind that a file may have. Those of real models have up to eight.
const MOST_STEPS: usize = 32;

/// Bytes that a normalizer may put in front of texts, or a vocabulary in front of pieces.
pub(super) const LONGEST_PREFIX: usize = 64;

/// The steps of a normalizer, nested sequences in a row.
pub(super) fn normalizers(normalizer: schema::Normalizer) -> Result<Vec<Normalizer>> {
    let steps = flat_normalizers(normalizer)?;
    if steps.len() > MOST_STEPS {
        return unsupported(format!("a normalizer of {} steps", steps.len()));
    }
    if let Some(growth) = excessive_growth(&steps) {
        return unsupported(format!("a normalizer that makes text {growth} times as long"));
    }
    Ok(steps)
}

fn flat_normalizers(normalizer: schema::Normalizer) -> Result<Vec<Normalizer>> {
    use schema::Normalizer as Json;
    Ok(vec![match normalizer {
        Json::Sequence { normalizers: list } => {
            let lists: Vec<_> = list.into_iter().map(flat_normalizers).collect::<Result<_>>()?;
            return Ok(lists.into_iter().flatten().collect());
        }
        Json::Nfc => Normalizer::Nfc,
        Json::Nfd => Normalizer::Nfd,
        Json::Nfkc => Normalizer::Nfkc,
        Json::Nfkd => Normalizer::Nfkd,
        Json::Lowercase => Normalizer::Lowercase,
        Json::StripAccents => Normalizer::StripAccents,
        Json::Strip { strip_left, strip_right } => Normalizer::Strip { left: strip_left, right: strip_right },
        Json::Replace { pattern, content } => {
            Normalizer::Replace { pattern: matcher(pattern)?, with: content }
        }
        Json::Prepend { prepend } if prepend.len() > LONGEST_PREFIX => {
            return unsupported(format!("a normalizer that prepends {} bytes", prepend.len()));
        }
        Json::Prepend { prepend } => Normalizer::Prepend(prepend),
        Json::Precompiled { precompiled_charsmap } => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(precompiled_charsmap).ok();
            let map = bytes.and_then(|bytes| CharsMap::read(&bytes, Lookup::Graphemes)).ok_or_else(|| {
                TokenizerError::invalid(format!("{FILE}: normalizer.precompiled_charsmap"), "is damaged")
            })?;
            Normalizer::CharsMap(map)
        }
        Json::Bert { clean_text, handle_chinese_chars, strip_accents, lowercase } => {
            let strip_accents = strip_accents.unwrap_or(lowercase);
            Normalizer::Bert(BertNormalizer::new(clean_text, handle_chinese_chars, strip_accents, lowercase))
        }
    }])
}

/// How text is cut into words.
#[derive(Default)]
pub(super) struct Cutting {
    pub steps: Vec<Step>,
    /// The vocabulary is written in the alphabet of bytes.
    pub byte_level: bool,
}

/// Steps that may put marks between words: each can double the text.
const MOST_MARKS: usize = 2;

pub(super) fn steps(pre_tokenizer: schema::PreTokenizer) -> Result<Cutting> {
    let mut cutting = Cutting::default();
    cutting.add(pre_tokenizer)?;
    let marks = cutting.steps.iter().filter(|step| matches!(step, Step::Metaspace { .. })).count();
    if cutting.steps.len() > MOST_STEPS || marks > MOST_MARKS {
        return unsupported(format!("a pre_tokenizer of {} steps", cutting.steps.len()));
    }
    Ok(cutting)
}

impl Cutting {
    fn add(&mut self, pre_tokenizer: schema::PreTokenizer) -> Result<()> {
        use schema::PreTokenizer as Json;
        let step = match pre_tokenizer {
            Json::Sequence { pretokenizers } => {
                return pretokenizers.into_iter().try_for_each(|pre_tokenizer| self.add(pre_tokenizer));
            }
            Json::Digits { individual_digits } => Step::digits(individual_digits),
            // Digits are the same in the alphabet of bytes, and those of its other characters that count as digits
            // belong to no piece with anything else: cutting the text itself has the same result.
            Json::Split { pattern: schema::Pattern::Regex(pattern), behavior, invert }
                if self.byte_level && pattern == "[0-9][0-9][0-9]" =>
            {
                Step::Split { matcher: Matcher::Pattern(Pattern::new(&pattern)?), behavior, invert }
            }
            _ if self.byte_level => return unsupported("a pre_tokenizer after \"ByteLevel\""),
            Json::ByteLevel { add_prefix_space, use_regex } => {
                self.byte_level = true;
                if add_prefix_space {
                    self.steps.push(Step::PrefixSpace);
                }
                if !use_regex {
                    return Ok(());
                }
                Step::split(Matcher::Pattern(Pattern::new(families::GPT2)?), Behavior::Isolated)
            }
            Json::Split { pattern, behavior, invert } => {
                Step::Split { matcher: matcher(pattern)?, behavior, invert }
            }
            Json::Punctuation { behavior } => Step::punctuation(behavior.unwrap_or(Behavior::Isolated)),
            Json::WhitespaceSplit => Step::split(Matcher::Whitespace, Behavior::Removed),
            Json::Whitespace => {
                let matcher = Matcher::Pattern(Pattern::new(r"\w+|[^\w\s]+")?);
                Step::Split { matcher, behavior: Behavior::Removed, invert: true }
            }
            Json::Bert => {
                self.steps.extend(Step::bert());
                return Ok(());
            }
            Json::Metaspace { replacement, prepend_scheme, add_prefix_space, split } => Step::Metaspace {
                mark: replacement,
                prepend: schema::scheme(prepend_scheme, add_prefix_space),
                split,
            },
        };
        self.steps.push(step);
        Ok(())
    }
}

/// The tokens before and after a text.
#[derive(Default)]
pub(super) struct Ends {
    pub prefix: Vec<TokenId>,
    pub suffix: Vec<TokenId>,
    pub pair: Option<PairEnds>,
}

pub(super) fn ends(post_processor: schema::PostProcessor) -> Result<Ends> {
    use schema::PostProcessor as Json;
    let mut ends = Ends::default();
    match post_processor {
        Json::ByteLevel => {}
        Json::Sequence { processors } => {
            for Ends { mut prefix, suffix, pair } in
                processors.into_iter().map(self::ends).collect::<Result<Vec<_>>>()?
            {
                ends.pair = pair.or(ends.pair);
                prefix.append(&mut ends.prefix);
                ends.prefix = prefix;
                ends.suffix.extend(suffix);
            }
        }
        Json::BertProcessing { sep, cls } => {
            let (before, between, after) = (vec![cls.1], vec![sep.1], vec![sep.1]);
            (ends.prefix, ends.suffix) = (before.clone(), after.clone());
            ends.pair = Some(PairEnds { before, between, after, marks_second: true });
        }
        Json::RobertaProcessing { sep, cls } => {
            let (before, between, after) = (vec![cls.1], vec![sep.1; 2], vec![sep.1]);
            (ends.prefix, ends.suffix) = (before.clone(), after.clone());
            ends.pair = Some(PairEnds { before, between, after, marks_second: false });
        }
        Json::TemplateProcessing { single, pair, special_tokens } => {
            let mut sequences = 0;
            for piece in single {
                let schema::TemplatePiece::SpecialToken { id, .. } = piece else {
                    sequences += 1;
                    continue;
                };
                let ids = template_ids(&special_tokens, &id)?;
                if sequences == 0 { &mut ends.prefix } else { &mut ends.suffix }.extend(ids);
            }
            if sequences != 1 {
                return unsupported(format!("a post_processor that has the text {sequences} times"));
            }
            ends.pair = pair_ends(pair, &special_tokens)?;
        }
    }
    Ok(ends)
}

type SpecialTokens = HashMap<String, schema::TemplateToken>;

fn template_ids<'a>(tokens: &'a SpecialTokens, id: &str) -> Result<&'a [TokenId]> {
    let field = || format!("{FILE}: post_processor.special_tokens");
    let token =
        tokens.get(id).ok_or_else(|| TokenizerError::invalid(field(), format!("{id:?} is missing")))?;
    Ok(&token.ids)
}

/// What a template for two texts puts around them; none where they are not simply one after the other.
fn pair_ends(pair: Vec<schema::TemplatePiece>, tokens: &SpecialTokens) -> Result<Option<PairEnds>> {
    use schema::TemplatePiece as Piece;
    let mut parts = [const { Vec::new() }; 3];
    let mut texts = Vec::new();
    // The text each piece counts to.
    let mut types = [const { Vec::new() }; 2];
    for piece in pair {
        match piece {
            Piece::SpecialToken { id, type_id } => {
                let Some(part) = parts.get_mut(texts.len()) else { return Ok(None) };
                part.extend_from_slice(template_ids(tokens, &id)?);
                types[usize::from(texts.len() == 2)].push(type_id);
            }
            Piece::Sequence { id, type_id } => {
                types[usize::from(id == "B")].push(type_id);
                texts.push(id);
            }
        }
    }
    let marks_second = match types.map(|types| types.into_iter().max()) {
        [Some(0), Some(0)] => false,
        [Some(0), Some(1)] => true,
        _ => return Ok(None),
    };
    let [before, between, after] = parts;
    Ok((texts == ["A", "B"]).then_some(PairEnds { before, between, after, marks_second }))
}

/// How tokens become text.
pub(super) enum Decoding {
    /// The pieces are the text's bytes.
    Bytes,
    /// The pieces have marks for spaces.
    Marks { strips_leading_space: bool },
    /// The pieces are words with spaces between them, except where they begin with the prefix.
    Words { prefix: String, cleanup: bool },
}

impl Default for Decoding {
    fn default() -> Self {
        Self::Words { prefix: String::new(), cleanup: false }
    }
}

impl Decoding {
    pub fn strips_leading_space(&self) -> bool {
        match self {
            Self::Bytes => false,
            Self::Marks { strips_leading_space } => *strips_leading_space,
            Self::Words { .. } => true,
        }
    }
}

pub(super) fn decoding(decoder: schema::Decoder) -> Result<Decoding> {
    use schema::Decoder as Json;
    let marks = |strips_leading_space| Ok(Decoding::Marks { strips_leading_space });
    let is_mark = |mark: char| SPACE_MARK.starts_with(mark);
    match decoder {
        Json::ByteLevel => Ok(Decoding::Bytes),
        Json::WordPiece { prefix, cleanup } => Ok(Decoding::Words { prefix, cleanup }),
        Json::Metaspace { replacement, prepend_scheme, add_prefix_space } if is_mark(replacement) => {
            marks(schema::scheme(prepend_scheme, add_prefix_space) != PrependScheme::Never)
        }
        Json::Sequence { decoders } => {
            let (mut marked, mut strips) = (false, false);
            for decoder in decoders {
                match decoder {
                    Json::Replace { pattern: schema::Pattern::String(pattern), content }
                        if pattern == SPACE_MARK && content == " " =>
                    {
                        marked = true;
                    }
                    Json::ByteFallback | Json::Fuse => {}
                    Json::Strip { content: ' ', start: 1, stop: 0 } => strips = true,
                    alone @ (Json::ByteLevel | Json::WordPiece { .. } | Json::Metaspace { .. }) => {
                        return decoding(alone);
                    }
                    other => return unsupported(format!("decoder {}", name(&other))),
                }
            }
            if marked { marks(strips) } else { unsupported("a decoder \"Sequence\" without \"Replace\"") }
        }
        other => unsupported(format!("decoder {} alone", name(&other))),
    }
}

fn name(decoder: &schema::Decoder) -> &'static str {
    use schema::Decoder as Json;
    match decoder {
        Json::Sequence { .. } => "\"Sequence\"",
        Json::ByteLevel => "\"ByteLevel\"",
        Json::ByteFallback => "\"ByteFallback\"",
        Json::Fuse => "\"Fuse\"",
        Json::Replace { .. } => "\"Replace\"",
        Json::Strip { .. } => "\"Strip\"",
        Json::Metaspace { .. } => "\"Metaspace\"",
        Json::WordPiece { .. } => "\"WordPiece\"",
    }
}
