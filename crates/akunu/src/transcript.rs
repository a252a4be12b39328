//! One answer as its tokens come: the text they make and where it ends.

use akunu_text::Tokenizer;

use crate::Result;
use crate::generation::FinishReason;
use crate::pieces::{Piece, Pieces, Pushed};
use crate::settings::Settings;

/// What was generated so far.
#[derive(Debug)]
pub(crate) struct Transcript {
    tokenizer: Tokenizer,
    pieces: Pieces,
    most_tokens: usize,
    generated: usize,
    finish: Option<FinishReason>,
}

impl Transcript {
    /// Nothing yet.
    pub(crate) fn new(tokenizer: Tokenizer, settings: &Settings) -> Result<Transcript> {
        Ok(Transcript {
            tokenizer,
            pieces: Pieces::new(&settings.stop, &settings.shown_tokens)?,
            most_tokens: settings.max_tokens.unwrap_or(usize::MAX),
            generated: 0,
            finish: None,
        })
    }

    /// Takes the next token into the text, or ends there.
    pub(crate) fn accept(&mut self, token: u32) -> Piece {
        if self.wanted() == 0 {
            return self.end(FinishReason::Length);
        }
        if self.tokenizer.is_eog(token) {
            return self.end(FinishReason::Stop);
        }
        self.generated += 1;
        let piece = match self.pieces.push(token, &self.tokenizer) {
            Pushed::Piece(piece) => piece,
            Pushed::Stop(piece, index) => {
                self.finish = Some(FinishReason::StopString(index));
                piece
            }
        };
        if self.finish.is_some() || self.generated < self.most_tokens {
            return piece;
        }
        let rest = self.end(FinishReason::Length);
        Piece { text: piece.text + &rest.text, tokens: [piece.tokens, rest.tokens].concat() }
    }

    /// Ends the text for another reason than its tokens, and lets go of what was held back.
    pub(crate) fn end(&mut self, reason: FinishReason) -> Piece {
        if self.finish.is_some() {
            return Piece::default();
        }
        self.finish = Some(reason);
        self.pieces.flush()
    }

    /// Why it ended; `None` while it goes on.
    pub(crate) fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    /// Tokens generated, those of a stop string included, the end token not.
    pub(crate) fn generated(&self) -> usize {
        self.generated
    }

    /// Tokens that may still come.
    pub(crate) fn wanted(&self) -> usize {
        self.most_tokens - self.generated
    }
}
