//! Text to tokens and back, and conversations to prompts.

use std::ffi::c_char;

use akunu_text::Tokenizer;
use akunu_text::chat::{Message, RenderOptions};
use akunu_text::tokenizer::{AddSpecial, Special};
use engine::{Error, Model};

use crate::arguments::{elements, fill, fill_text, text, write};
use crate::model::{akunu_model, loaded};
use crate::status::{Failure, Outcome, akunu_status, guard};

/// Names of special tokens in the text are these tokens. For text the program wrote, not its users.
pub const AKUNU_PARSE_SPECIAL: u32 = 1;
/// Adds what the model expects around a text, such as its beginning-of-sequence token.
pub const AKUNU_ADD_SPECIAL: u32 = 2;

/// One message of a conversation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct akunu_message {
    /// "system", "user", "assistant", or another the model's template knows.
    pub role: *const c_char,
    /// What was said.
    pub content: *const c_char,
}

/// The tokens of a text. `flags` are AKUNU_PARSE_SPECIAL and AKUNU_ADD_SPECIAL, or 0. `*count` is how many there are, also
/// where `capacity` is too small for them (AKUNU_SHORT_BUFFER, and nothing is written): with a capacity of 0 it counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_tokenize(
    model: *const akunu_model,
    text: *const c_char,
    flags: u32,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> akunu_status {
    guard(|| {
        if flags & !(AKUNU_PARSE_SPECIAL | AKUNU_ADD_SPECIAL) != 0 {
            return Err(Failure::usage(format_args!("flags has bits without a meaning: {flags:#x}")));
        }
        let special = if flags & AKUNU_PARSE_SPECIAL != 0 { Special::Parse } else { Special::Plain };
        let add = if flags & AKUNU_ADD_SPECIAL != 0 { AddSpecial::Yes } else { AddSpecial::No };
        let model = loaded(model)?;
        // SAFETY: the caller's promise, see `arguments`.
        let text = unsafe { crate::arguments::text(text, "text")? };
        let encoded = model.model.tokenizer()?.encode(text, special, add);
        // SAFETY: as above.
        unsafe { fill(&encoded, tokens, capacity, count) }
    })
}

/// The text of tokens. Control tokens have none. Bytes that are no whole character become U+FFFD.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_detokenize(
    model: *const akunu_model,
    tokens: *const u32,
    count: usize,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    guard(|| {
        let model = loaded(model)?;
        // SAFETY: the caller's promise, see `arguments`.
        let tokens = unsafe { elements(tokens, count, "tokens")? };
        let tokenizer = model.model.tokenizer()?;
        tokens.iter().try_for_each(|&token| known(tokenizer, token))?;
        let bytes = tokenizer.decode(tokens);
        // SAFETY: as above.
        unsafe { fill_text(String::from_utf8_lossy(&bytes).as_bytes(), buffer, capacity, length) }
    })
}

/// The bytes one token stands for, a control token's name included. They need not be whole characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_token_bytes(
    model: *const akunu_model,
    token: u32,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    guard(|| {
        let model = loaded(model)?;
        let tokenizer = model.model.tokenizer()?;
        known(tokenizer, token)?;
        // SAFETY: the caller's promise, see `arguments`.
        unsafe { fill_text(tokenizer.token_bytes(token), buffer, capacity, length) }
    })
}

/// Refuses tokens that a vocabulary does not have.
fn known(tokenizer: &Tokenizer, token: u32) -> Outcome<()> {
    if (token as usize) < tokenizer.vocab_size() {
        return Ok(());
    }
    let message = format!("there is no token {token}: the vocabulary has {}", tokenizer.vocab_size());
    Err(Failure::usage(message))
}

/// Whether a token ends a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_token_is_end(
    model: *const akunu_model,
    token: u32,
    ends: *mut bool,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe { write(ends, loaded(model)?.model.tokenizer()?.is_eog(token), "ends") })
}

/// The tokens a conversation is for the model, up to where its answer begins. Nothing that was said names a special token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_chat_tokens(
    model: *const akunu_model,
    messages: *const akunu_message,
    message_count: usize,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe {
        let prompt = conversation(&loaded(model)?.model, messages, message_count)?;
        fill(&prompt.0, tokens, capacity, count)
    })
}

/// The same as text, for a person to read: as a prompt it would let users write special tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_chat_text(
    model: *const akunu_model,
    messages: *const akunu_message,
    message_count: usize,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    // SAFETY: the caller's promise, see `arguments`.
    guard(|| unsafe {
        let prompt = conversation(&loaded(model)?.model, messages, message_count)?;
        fill_text(prompt.1.as_bytes(), buffer, capacity, length)
    })
}

/// The source of the model's chat template, a Jinja program. AKUNU_NOT_FOUND if it was not made for conversations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn akunu_chat_template(
    model: *const akunu_model,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> akunu_status {
    guard(|| {
        let model = loaded(model)?;
        check_chats(&model.model)?;
        let template = model.model.templates().choose(None, false).map_err(Error::from)?;
        // SAFETY: the caller's promise, see `arguments`.
        unsafe { fill_text(template.source().as_bytes(), buffer, capacity, length) }
    })
}

/// A conversation as tokens and as text.
///
/// # Safety
///
/// As [`arguments`](crate::arguments) says.
pub(crate) unsafe fn conversation(
    model: &Model,
    messages: *const akunu_message,
    count: usize,
) -> Outcome<(Vec<u32>, String)> {
    // SAFETY: handed on.
    let given = unsafe { elements(messages, count, "messages")? };
    let mut messages = Vec::with_capacity(given.len());
    for message in given {
        // SAFETY: handed on.
        let (role, content) = unsafe { (text(message.role, "role")?, text(message.content, "content")?) };
        messages.push(Message { role: role.to_owned(), ..Message::user(content) });
    }
    check_chats(model)?;
    let template = model.templates().choose(None, false).map_err(Error::from)?;
    Ok(model.render_text(&template, &RenderOptions { messages: &messages, ..RenderOptions::default() })?)
}

fn check_chats(model: &Model) -> Outcome {
    if model.templates().names().next().is_some() {
        return Ok(());
    }
    let message = format!("{} has no chat template", model.path().display());
    Err(Failure::new(akunu_status::AKUNU_NOT_FOUND, message))
}
