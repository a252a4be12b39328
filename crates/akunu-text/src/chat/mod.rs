//! Chat templates: from a conversation to the prompt a model was trained on.
//!
//! A model brings a Jinja template along; [`ChatTemplate`] renders it exactly as Hugging Face's `transformers`
//! does. Two things are added. The result is a list of [`Segment`]s that tell the template's own text, in which
//! `<|im_end|>` is a token, from what people, tools and models wrote, in which it is ten characters like any
//! others. And a rendering is bounded in time and memory, since a template is a program from a stranger.
//!
//! ```
//! use akunu_text::Segment;
//! use akunu_text::chat::{ChatTemplate, Message, RenderOptions};
//!
//! let template = ChatTemplate::builtin("chatml")?;
//! let messages = [Message::user("What does <|im_end|> mean?")];
//! let prompt = template.render(&RenderOptions { messages: &messages, ..RenderOptions::default() })?;
//! assert_eq!(
//!     prompt.segments().collect::<Vec<_>>(),
//!     [
//!         Segment::trusted("<|im_start|>user\n"),
//!         Segment::untrusted("What does <|im_end|> mean?"),
//!         Segment::trusted("<|im_end|>\n<|im_start|>assistant\n"),
//!     ]
//! );
//! # Ok::<(), akunu_text::chat::TemplateError>(())
//! ```

mod builtin;
mod clock;
mod jinja;
mod message;
mod syntax;
mod tools;

pub use builtin::BUILTIN_NAMES;
pub use clock::DateTime;
pub use jinja::{ErrorKind, Limits, TemplateError};
pub use message::{Content, FunctionCall, Message, Part, ToolCall};
pub use syntax::{Channel, Marks, Splitter, Syntax};
pub use tools::{CallParser, Said, ToolSyntax};

use serde_json::{Map, Value as Json};

use crate::Segment;
use jinja::{Input, Origin, Text};

/// Variables every template is given; options must not use their names.
const RESERVED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// Fields a message's reasoning may come under, the usual one first.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Stands behind a text that is to be continued while a template is rendered, in characters that no text has.
const CONTINUED: &str = "\u{f8ff}\u{e0a7}\u{f8ff}";

/// A chat template that was read and checked.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    template: jinja::Template,
}

/// What a template is rendered with.
#[derive(Clone, Debug)]
pub struct RenderOptions<'a> {
    /// The conversation so far.
    pub messages: &'a [Message],
    /// Tools the model may call, as JSON schemas.
    pub tools: Option<&'a [Json]>,
    /// Documents to answer from.
    pub documents: Option<&'a [Json]>,
    /// Whether the prompt ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends where the last message's text does, for the model to go on with it. There is no generation
    /// prompt then.
    pub continue_last: bool,
    /// Further variables that templates look at, such as `enable_thinking`.
    pub extra: Option<&'a Map<String, Json>>,
    /// The token that begins a text, where the model has one.
    pub bos_token: Option<&'a str>,
    /// The token that ends a text.
    pub eos_token: Option<&'a str>,
    /// Further special tokens by variable name, such as `("unk_token", "<unk>")`.
    pub special_tokens: &'a [(&'a str, &'a str)],
    /// What `strftime_now` shows.
    pub now: DateTime,
    /// What the rendering may cost.
    pub limits: Limits,
}

impl Default for RenderOptions<'_> {
    /// No messages, with a generation prompt, now.
    fn default() -> Self {
        Self {
            messages: &[],
            tools: None,
            documents: None,
            add_generation_prompt: true,
            continue_last: false,
            extra: None,
            bos_token: None,
            eos_token: None,
            special_tokens: &[],
            now: DateTime::now_utc(),
            limits: Limits::default(),
        }
    }
}

/// A rendered prompt.
#[derive(Clone, Debug)]
pub struct Prompt {
    text: Text,
    /// Bytes of the text that are the prompt's.
    end: usize,
}

impl Prompt {
    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text.as_str()[..self.end]
    }

    /// The text in stretches that are either the template's or somebody else's, ready to be encoded.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let stretches = self.text.runs_in(0..self.end);
        stretches.map(|(text, origin)| Segment { text, trusted: origin == Origin::Template })
    }
}

impl ChatTemplate {
    /// Reads a Jinja template.
    pub fn from_source(source: &str) -> Result<Self, TemplateError> {
        Ok(Self { source: source.to_owned(), template: jinja::Template::parse(source)? })
    }

    /// A built-in template, by one of [`BUILTIN_NAMES`].
    pub fn builtin(name: &str) -> Result<Self, TemplateError> {
        match builtin::source(name) {
            Some(source) => Self::from_source(&source),
            None => Err(TemplateError {
                kind: ErrorKind::Syntax,
                message: format!("there is no built-in template `{name}`: use {}", BUILTIN_NAMES.join(", ")),
                line: None,
            }),
        }
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation.
    pub fn render(&self, options: &RenderOptions<'_>) -> Result<Prompt, TemplateError> {
        let mut messages = options.messages.iter().map(message_json).collect::<Result<Vec<_>, _>>()?;
        if options.continue_last {
            let text = messages.last_mut().and_then(|message| message.get_mut("content"));
            let Some(Json::String(text)) = text else { return Err(cannot_continue("is not text")) };
            text.push_str(CONTINUED);
        }
        let tools = options.tools.map_or(Json::Null, |tools| Json::Array(tools.to_vec()));
        let documents = options.documents.map_or(Json::Null, |documents| Json::Array(documents.to_vec()));
        let mut inputs = Vec::new();
        let tokens = [("bos_token", options.bos_token), ("eos_token", options.eos_token)];
        inputs.extend(tokens.iter().filter_map(|(name, token)| Some((*name, Input::Trusted((*token)?)))));
        inputs.extend(options.special_tokens.iter().map(|(name, token)| (*name, Input::Trusted(token))));
        for (name, value) in options.extra.into_iter().flatten() {
            if RESERVED.contains(&name.as_str()) {
                return Err(TemplateError {
                    kind: ErrorKind::Render,
                    message: format!("the option `{name}` would hide the variable of that name"),
                    line: None,
                });
            }
            inputs.push((name.as_str(), Input::Content(value)));
        }
        inputs.push(("messages", Input::Messages(&messages)));
        inputs.push(("tools", Input::Content(&tools)));
        inputs.push(("documents", Input::Content(&documents)));
        let generation_prompt = options.add_generation_prompt && !options.continue_last;
        inputs.push(("add_generation_prompt", Input::Flag(generation_prompt)));
        let text = self.template.render(&inputs, options.now, options.limits)?;
        let end = if options.continue_last {
            text.as_str().rfind(CONTINUED).ok_or_else(|| cannot_continue("is not in the prompt as it is"))?
        } else {
            text.as_str().len()
        };
        Ok(Prompt { text, end })
    }
}

fn cannot_continue(why: &str) -> TemplateError {
    let message = format!("the last message cannot be continued: its text {why}");
    TemplateError { kind: ErrorKind::Render, message, line: None }
}

/// A message as templates see it: its reasoning, whatever field it came in, is under the two names they read.
fn message_json(message: &Message) -> Result<Json, TemplateError> {
    let json = serde_json::to_value(message).map_err(|error| TemplateError {
        kind: ErrorKind::Render,
        message: format!("a message is not JSON: {error}"),
        line: None,
    })?;
    let Json::Object(fields) = json else { return Ok(json) };
    let reasoning = REASONING_FIELDS.iter().filter_map(|name| fields.get(*name));
    let Some(reasoning) = reasoning.into_iter().find(|value| !value.is_null()).cloned() else {
        return Ok(Json::Object(fields));
    };
    let mut seen = Map::new();
    seen.insert("thinking".into(), reasoning.clone());
    seen.extend(fields);
    seen.insert("reasoning_content".into(), reasoning);
    Ok(Json::Object(seen))
}

/// The templates a model comes with: often one, sometimes several by name.
///
/// ```
/// use akunu_text::chat::ChatTemplates;
///
/// let templates = ChatTemplates::from_json(&serde_json::json!([
///     {"name": "default", "template": "plain"},
///     {"name": "tool_use", "template": "with tools"},
/// ]))?;
/// assert_eq!(templates.choose(None, true)?.source(), "with tools");
/// assert_eq!(templates.choose(None, false)?.source(), "plain");
/// # Ok::<(), akunu_text::chat::TemplateError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTemplates {
    /// Names and sources.
    named: Vec<(String, String)>,
}

impl ChatTemplates {
    /// Templates by name; a single one is called `default`.
    pub fn new(named: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { named: named.into_iter().collect() }
    }

    /// Reads the field `chat_template` of `tokenizer_config.json`: a template, or a list of objects with `name`
    /// and `template`.
    pub fn from_json(json: &Json) -> Result<Self, TemplateError> {
        let malformed = |what: &str| TemplateError {
            kind: ErrorKind::Syntax,
            message: format!("the field chat_template {what}"),
            line: None,
        };
        match json {
            Json::String(source) => Ok(Self::new([("default".to_owned(), source.clone())])),
            Json::Array(entries) => {
                let named = entries.iter().enumerate().map(|(index, entry)| {
                    match (entry.get("name"), entry.get("template")) {
                        (Some(Json::String(name)), Some(Json::String(source))) => {
                            Ok((name.clone(), source.clone()))
                        }
                        _ => Err(malformed(&format!("has no name and template in entry {index}"))),
                    }
                });
                Ok(Self { named: named.collect::<Result<_, _>>()? })
            }
            _ => Err(malformed("is neither a template nor a list of them")),
        }
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    /// Reads the template of a given name; without one, `tool_use` if there are tools and such a template, else
    /// `default`.
    pub fn choose(&self, name: Option<&str>, has_tools: bool) -> Result<ChatTemplate, TemplateError> {
        let source =
            |wanted: &str| self.named.iter().find(|(own, _)| own == wanted).map(|(_, source)| source);
        let found = match name {
            Some(name) => source(name),
            None => has_tools.then(|| source("tool_use")).flatten().or_else(|| source("default")),
        };
        match found {
            Some(source) => ChatTemplate::from_source(source),
            None => Err(TemplateError {
                kind: ErrorKind::Syntax,
                message: format!(
                    "there is no template `{}`, but: {}",
                    name.unwrap_or("default"),
                    self.names().collect::<Vec<_>>().join(", ")
                ),
                line: None,
            }),
        }
    }
}
