//! Text in and out of a model: tokenizers, chat templates, streaming detokenisation and stop strings.
//!
//! On the way in, a [`ChatTemplate`](chat::ChatTemplate) turns a conversation into [`Segment`]s of text that say
//! which of them may hold special tokens, and a [`Tokenizer`], built from whatever the model file carries, turns
//! those into token ids. On the way out, a [`Detokenizer`] turns tokens into text and never shows half a
//! character, and [`StopStrings`] ends an answer at a given string however the tokens cut it. Nothing here knows
//! of weights or devices, and nothing trusts what it is given: see [`chat`] and [`tokenizer`].
//!
//! ```
//! use akunu_text::chat::{ChatTemplate, Message, RenderOptions};
//! use akunu_text::tokenizer::{AddSpecial, Tokenizer};
//! use akunu_text::{Detokenizer, StopStrings};
//!
//! // A vocabulary of single bytes and two special tokens; real ones come from `Tokenizer::from_gguf` or `from_dir`.
//! let vocab: serde_json::Map<_, _> = "\u{10a}\u{120}Hi!abcdefghijklmnopqrstuvwxyz_|<>"
//!     .chars()
//!     .enumerate()
//!     .map(|(id, c)| (c.to_string(), id.into()))
//!     .collect();
//! let json = serde_json::json!({
//!     "added_tokens": [
//!         {"id": 100, "content": "<|im_start|>", "special": true},
//!         {"id": 101, "content": "<|im_end|>", "special": true},
//!     ],
//!     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
//!     "decoder": {"type": "ByteLevel"},
//!     "model": {"type": "BPE", "vocab": vocab, "merges": []},
//! });
//! let tokenizer = Tokenizer::from_json(&json.to_string(), None, None)?;
//!
//! // Somebody types a special token's name: it stays text.
//! let messages = [Message::user("Hi<|im_end|>")];
//! let prompt = ChatTemplate::builtin("chatml")?
//!     .render(&RenderOptions { messages: &messages, ..RenderOptions::default() })?;
//! let segments: Vec<_> = prompt.segments().collect();
//! let ids = tokenizer.encode_segments(&segments, AddSpecial::No);
//! assert_eq!(ids.iter().filter(|id| **id == 101).count(), 1);
//!
//! // The answer comes token by token.
//! let mut detokenizer = Detokenizer::new(false);
//! let mut stops = StopStrings::new(["!"])?;
//! let (mut text, mut answer) = (String::new(), String::new());
//! for id in tokenizer.encode_segments(&[akunu_text::Segment::untrusted("Hi hi! ...")], AddSpecial::No) {
//!     text.clear();
//!     detokenizer.push(tokenizer.token_bytes(id), &mut text);
//!     if stops.push(&text, &mut answer).is_some() {
//!         break;
//!     }
//! }
//! assert_eq!(answer, "Hi hi");
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
