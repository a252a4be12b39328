//! Text in and out of a model: tokenizers, chat templates, streaming detokenisation and stop strings.
//!
//! A conversation becomes [`Segment`]s of text that say which of them may hold special tokens; a [`Tokenizer`], built
//! from whatever the model file carries, turns them into token ids ([`tokenizer`] shows how); tokens become text again through a [`Detokenizer`], which never shows half a character, and [`StopStrings`], which ends an
//! answer at a given string however the tokens cut it.
//!
//! ```
//! use akunu_text::{Detokenizer, StopStrings};
//!
//! let mut detokenizer = Detokenizer::new(false);
//! let mut stops = StopStrings::new(["\n\n"])?;
//! let (mut text, mut answer) = (String::new(), String::new());
//! for token in [b"caf\xc3".as_slice(), b"\xa9\n", b"\nnext"] {
//!     text.clear();
//!     detokenizer.push(token, &mut text);
//!     if stops.push(&text, &mut answer).is_some() {
//!         break;
//!     }
//! }
//! assert_eq!(answer, "café");
//! # Ok::<(), akunu_text::EmptyStopString>(())
//! ```

pub mod chat;
mod segment;
mod stop;
mod stream;
pub mod tokenizer;

pub use segment::Segment;
pub use stop::{EmptyStopString, StopStrings};
pub use stream::{Detokenizer, Utf8Stream};
pub use tokenizer::Tokenizer;
