//! The tokens of Whisper that are no text, and those that are no speech.

use std::ops::Range;

use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special};

use super::languages::LANGUAGES;
use crate::{Error, Result};

/// Symbols that stand for sounds or for who speaks, not for what is said.
const SYMBOLS: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 \
                       << >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪";
/// Notes, which may be several tokens: the first is enough, since no other symbols begin with it that anybody says.
const NOTES: &str = "♩ ♪ ♫ ♬ ♭ ♮ ♯";
/// Allowed inside of words, but not at their beginning.
const INSIDE: [&str; 2] = [" -", " '"];

/// The ids of Whisper's special tokens.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    /// Ends a transcript. All ids below are text.
    pub end: u32,
    /// Begins one.
    pub start: u32,
    pub translate: u32,
    pub transcribe: u32,
    /// Comes before the text that was said before.
    pub previous: u32,
    pub no_speech: u32,
    pub no_timestamps: u32,
    /// All ids from here on are times, in steps of 20 ms.
    pub first_time: u32,
    /// One token for each language, in the order of [`LANGUAGES`].
    pub languages: Range<u32>,
    /// Which no transcript begins with.
    pub blank: Vec<u32>,
    /// Which no transcript has.
    pub suppressed: Vec<u32>,
}

impl Tokens {
    /// The token of a language, by its code.
    pub fn language(&self, code: &str) -> Option<u32> {
        let index = LANGUAGES.iter().position(|(known, _)| *known == code)?;
        Some(self.languages.start + index as u32).filter(|token| self.languages.contains(token))
    }

    /// Finds them in the vocabulary of a model that knows `size` tokens.
    pub fn of(tokenizer: &Tokenizer, size: usize) -> Result<Tokens> {
        let id = |name: &str| match tokenizer.id_of(name) {
            Some(id) if (id as usize) < size => Ok(id),
            Some(id) => Err(Error::Usage {
                problem: format!("{name} is token {id} of the vocabulary, and the model has {size} tokens"),
                hint: "the vocabulary is that of another model: fetch this one's".to_owned(),
            }),
            None => Err(Error::Missing {
                what: format!("the vocabulary has no {name}"),
                hint: "is this a Whisper model?".to_owned(),
            }),
        };
        let (start, translate) = (id("<|startoftranscript|>")?, id("<|translate|>")?);
        let (transcribe, previous) = (id("<|transcribe|>")?, id("<|startofprev|>")?);
        // Hugging Face's older files have the name that OpenAI had before.
        let no_speech = id("<|nospeech|>").or_else(|error| id("<|nocaptions|>").map_err(|_| error))?;
        let no_timestamps = id("<|notimestamps|>")?;
        let mut suppressed = not_speech(tokenizer);
        suppressed.extend([start, translate, transcribe, previous, no_speech, id("<|startoflm|>")?]);
        suppressed.sort_unstable();
        suppressed.dedup();
        Ok(Tokens {
            end: id("<|endoftext|>")?,
            start,
            translate,
            transcribe,
            previous,
            no_speech,
            no_timestamps,
            // The times follow, whether or not the vocabulary spells them out.
            first_time: no_timestamps + 1,
            languages: start + 1..translate.max(start + 1),
            blank: encode(tokenizer, " "),
            suppressed,
        })
    }

    /// Whether a token is a time.
    pub fn is_time(&self, token: u32) -> bool {
        token >= self.first_time
    }

    /// The text among tokens.
    pub fn text(&self, tokenizer: &Tokenizer, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens
            .iter()
            .filter(|&&token| token < self.end)
            .flat_map(|&token| tokenizer.token_bytes(token).iter().copied())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The tokens of a text in which nothing is special.
pub(super) fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, Special::Plain, AddSpecial::No)
}

/// Tokens that are no speech, where they are tokens of their own.
fn not_speech(tokenizer: &Tokenizer) -> Vec<u32> {
    let mut ids: Vec<u32> =
        INSIDE.iter().filter_map(|text| encode(tokenizer, text).first().copied()).collect();
    let symbols = SYMBOLS.split_whitespace().map(|symbol| (symbol, false));
    let notes = NOTES.split_whitespace().map(|note| (note, true));
    for (symbol, is_note) in symbols.chain(notes) {
        for text in [symbol.to_owned(), format!(" {symbol}")] {
            match encode(tokenizer, &text).as_slice() {
                [id] => ids.push(*id),
                [id, ..] if is_note => ids.push(*id),
                _ => {}
            }
        }
    }
    ids
}
