//! A conversation.

use akunu_text::Segment;
use akunu_text::chat::{ChatTemplate, Message, RenderOptions};
use akunu_text::tokenizer::AddSpecial;

use crate::generation::{FinishReason, Generation, Statistics};
use crate::model::Model;
use crate::pieces::Piece;
use crate::sequence::{Sequence, StopHandle};
use crate::settings::Settings;
use crate::{Error, Result};

/// A conversation with a model. What was said before stays in the cache and is not read again.
///
/// ```no_run
/// use akunu::{Model, Options, Settings};
///
/// let model = Model::load("model.gguf", &Options::default())?;
/// let mut chat = model.chat(&Settings::default())?;
/// chat.set_system("Answer in one sentence.");
/// for question in ["Why is the sky blue?", "And at dusk?"] {
///     for piece in chat.ask(question)? {
///         print!("{}", piece?.text);
///     }
/// }
/// # Ok::<(), akunu::Error>(())
/// ```
#[derive(Debug)]
pub struct Chat {
    model: Model,
    sequence: Sequence,
    template: ChatTemplate,
    settings: Settings,
    messages: Vec<Message>,
}

/// An answer as it is generated: an iterator of [`Piece`]s. When it is dropped, finished or not, what was generated becomes
/// part of the conversation.
#[derive(Debug)]
pub struct Answer<'c> {
    generation: Generation<&'c mut Sequence>,
    messages: &'c mut Vec<Message>,
    text: String,
}

impl Model {
    /// Begins a conversation.
    pub fn chat(&self, settings: &Settings) -> Result<Chat> {
        if self.templates().names().next().is_none() {
            return Err(Error::Missing {
                what: format!("{} has no chat template", self.path().display()),
                hint: "it was not made for conversations: continue text with `complete`".to_owned(),
            });
        }
        Ok(Chat {
            model: self.clone(),
            sequence: self.sequence()?,
            template: self.templates().choose(None, false)?,
            settings: settings.clone(),
            messages: Vec::new(),
        })
    }

    /// The tokens a conversation is for the model, by default up to where its answer begins. What people wrote in it names
    /// no special tokens.
    pub fn render(&self, template: &ChatTemplate, options: &RenderOptions<'_>) -> Result<Vec<u32>> {
        let tokenizer = self.tokenizer()?;
        let name = |id: Option<u32>| id.map(|id| tokenizer.piece(id));
        let (bos, eos) = (name(tokenizer.bos()), name(tokenizer.eos()));
        let options =
            RenderOptions { bos_token: bos.as_deref(), eos_token: eos.as_deref(), ..options.clone() };
        let prompt = template.render(&options)?;
        let segments: Vec<Segment<'_>> = prompt.segments().collect();
        // A template writes the beginning token itself where the model wants one.
        Ok(tokenizer.encode_segments(&segments, AddSpecial::No))
    }
}

impl Chat {
    /// The conversation so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces the conversation.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Says what the model should be like; an empty text takes that back.
    pub fn set_system(&mut self, text: &str) {
        if self.messages.first().is_some_and(|message| message.role == "system") {
            self.messages.remove(0);
        }
        if !text.is_empty() {
            self.messages.insert(0, Message::system(text));
        }
    }

    /// Forgets the conversation, except what the model should be like.
    pub fn reset(&mut self) {
        self.messages.retain(|message| message.role == "system");
    }

    /// How the next answers are generated.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The tokens of the conversation that are in the cache.
    pub fn tokens(&self) -> &[u32] {
        self.sequence.tokens()
    }

    /// Says something and gives the answer. On an error the conversation stays as it was.
    pub fn ask(&mut self, text: &str) -> Result<Answer<'_>> {
        self.messages.push(Message::user(text));
        let options = RenderOptions { messages: &self.messages, ..RenderOptions::default() };
        let prompt = self.model.render(&self.template, &options);
        let generation =
            prompt.and_then(|prompt| Generation::new(&mut self.sequence, prompt, &self.settings));
        match generation {
            Ok(generation) => Ok(Answer { generation, messages: &mut self.messages, text: String::new() }),
            Err(error) => {
                self.messages.pop();
                Err(error)
            }
        }
    }
}

impl Answer<'_> {
    /// See [`Generation::prefill`].
    pub fn prefill(&mut self, progress: impl FnMut(usize, usize)) -> Result<()> {
        self.generation.prefill(progress)
    }

    /// Ends the answer from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.generation.stop_handle()
    }

    /// The answer so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why it ended; `None` while it goes on.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.generation.finish_reason()
    }

    /// What it took so far.
    pub fn statistics(&self) -> &Statistics {
        self.generation.statistics()
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        let piece = self.generation.next()?;
        if let Ok(piece) = &piece {
            self.text.push_str(&piece.text);
        }
        Some(piece)
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        self.messages.push(Message::assistant(std::mem::take(&mut self.text)));
    }
}
