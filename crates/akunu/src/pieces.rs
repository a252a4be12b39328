//! From tokens to pieces of text: whole characters only, and nothing that may be part of a stop string.

use std::collections::VecDeque;

use akunu_text::tokenizer::TokenKind;
use akunu_text::{StopStrings, Tokenizer, Utf8Stream};

use crate::{Error, Result};

/// A piece of generated text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Whole characters; may be empty.
    pub text: String,
    /// The tokens that the text so far completes.
    pub tokens: Vec<u32>,
}

impl Piece {
    /// Adds what comes after it.
    pub(crate) fn append(&mut self, next: Piece) {
        self.text.push_str(&next.text);
        self.tokens.extend(next.tokens);
    }
}

/// What a token led to.
pub(super) enum Pushed {
    /// More text, perhaps.
    Piece(Piece),
    /// The last text before the stop string with that index.
    Stop(Piece, usize),
}

#[derive(Debug)]
pub(super) struct Pieces {
    utf8: Utf8Stream,
    stops: StopStrings,
    /// Control tokens that have a text all the same.
    shown: Vec<u32>,
    /// Tokens whose text was not passed on whole, each with the length the text must reach.
    held: VecDeque<(u32, usize)>,
    /// Bytes of text that tokens gave.
    given: usize,
    /// Bytes of text passed on.
    passed: usize,
    scratch: String,
}

impl Pieces {
    pub(super) fn new(stop: &[String], shown: &[u32]) -> Result<Pieces> {
        let stops = StopStrings::new(stop).map_err(|error| Error::Usage {
            problem: error.to_string(),
            hint: "a stop string needs at least one character".to_owned(),
        })?;
        Ok(Pieces {
            utf8: Utf8Stream::default(),
            stops,
            shown: shown.to_vec(),
            held: VecDeque::new(),
            given: 0,
            passed: 0,
            scratch: String::new(),
        })
    }

    /// Takes the next token. Control tokens have no text unless they are to be shown.
    pub(super) fn push(&mut self, token: u32, tokenizer: &Tokenizer) -> Pushed {
        let silent = matches!(tokenizer.kind(token), TokenKind::Control | TokenKind::Unknown)
            && !self.shown.contains(&token);
        self.scratch.clear();
        self.utf8.push(if silent { &[] } else { tokenizer.token_bytes(token) }, &mut self.scratch);
        self.given += self.scratch.len();
        // The end of an unfinished character lies at least one byte ahead.
        self.held.push_back((token, self.given + usize::from(self.utf8.is_pending())));
        let mut text = String::new();
        let stop = self.stops.push(&self.scratch, &mut text);
        let piece = self.pass(text);
        match stop {
            Some(index) => Pushed::Stop(piece, index),
            None => Pushed::Piece(piece),
        }
    }

    /// Ends the text: everything held back is passed on.
    pub(super) fn flush(&mut self) -> Piece {
        let mut text = String::new();
        self.scratch.clear();
        self.utf8.flush(&mut self.scratch);
        self.given += self.scratch.len();
        if self.stops.push(&self.scratch, &mut text).is_none() {
            self.stops.flush(&mut text);
        }
        self.pass(text)
    }

    fn pass(&mut self, text: String) -> Piece {
        self.passed += text.len();
        let mut tokens = Vec::new();
        while let Some(&(token, end)) = self.held.front()
            && end <= self.passed
        {
            tokens.push(token);
            self.held.pop_front();
        }
        Piece { text, tokens }
    }
}
