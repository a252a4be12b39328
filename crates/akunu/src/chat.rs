//! A conversation.

use std::collections::VecDeque;

use akunu_text::Segment;
use akunu_text::chat::{Channel, ChatTemplate, Message, RenderOptions, Splitter, Syntax};
use akunu_text::tokenizer::AddSpecial;

use crate::generation::{FinishReason, Generation, Statistics};
use crate::model::Model;
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
    /// How the model marks its thoughts, if it has any.
    syntax: Option<&'static Syntax>,
    /// Whether the model was told to think, or not to.
    thinking: Option<bool>,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPiece {
    /// Whether it is a thought or the answer itself.
    pub channel: Channel,
    /// Whole characters, without the marks around thoughts.
    pub text: String,
}

/// An answer as it is generated: an iterator of [`AnswerPiece`]s. When it is dropped, finished or not, what was generated
/// becomes part of the conversation.
#[derive(Debug)]
pub struct Answer<'c> {
    generation: Generation<&'c mut Sequence>,
    messages: &'c mut Vec<Message>,
    splitter: Option<Splitter>,
    ready: VecDeque<AnswerPiece>,
    text: String,
    reasoning: String,
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
        let template = self.templates().choose(None, false).map_err(Error::template(self.path()))?;
        let syntax = Syntax::of_template(template.source());
        let mut settings = settings.clone();
        if let Some(syntax) = syntax {
            // Some models mark their thoughts by control tokens, which have no text otherwise.
            let tokenizer = self.tokenizer()?;
            let marks = [syntax.reasoning.open, syntax.reasoning.close];
            settings.shown_tokens.extend(marks.iter().filter_map(|mark| tokenizer.id_of(mark)));
        }
        Ok(Chat {
            model: self.clone(),
            sequence: self.sequence()?,
            template,
            settings,
            messages: Vec::new(),
            syntax,
            thinking: None,
        })
    }

    /// The tokens a conversation is for the model, by default up to where its answer begins. What people wrote in it names
    /// no special tokens.
    pub fn render(&self, template: &ChatTemplate, options: &RenderOptions<'_>) -> Result<Vec<u32>> {
        self.render_text(template, options).map(|(tokens, _)| tokens)
    }

    /// The same, with the text they came from.
    pub fn render_text(
        &self,
        template: &ChatTemplate,
        options: &RenderOptions<'_>,
    ) -> Result<(Vec<u32>, String)> {
        let tokenizer = self.tokenizer()?;
        let name = |id: Option<u32>| id.map(|id| tokenizer.piece(id));
        let (bos, eos) = (name(tokenizer.bos()), name(tokenizer.eos()));
        let options =
            RenderOptions { bos_token: bos.as_deref(), eos_token: eos.as_deref(), ..options.clone() };
        let prompt = template.render(&options).map_err(Error::template(self.path()))?;
        let segments: Vec<Segment<'_>> = prompt.segments().collect();
        // A template writes the beginning token itself where the model wants one.
        Ok((tokenizer.encode_segments(&segments, AddSpecial::No), prompt.text().to_owned()))
    }
}

impl Chat {
    /// Whether the model can think before it answers.
    pub fn can_think(&self) -> bool {
        self.syntax.is_some()
    }

    /// Tells the model to think before it answers, or not to; `None` leaves that to it. An error where it has no choice.
    pub fn set_thinking(&mut self, thinking: Option<bool>) -> Result<()> {
        let refuse = |what: &str, hint: &str| {
            let problem = format!("{} {what}", self.model.path().display());
            Err(Error::Usage { problem, hint: hint.to_owned() })
        };
        let switch = Syntax::switch(self.template.source());
        match thinking {
            Some(true) if self.syntax.is_none() => refuse(
                "was not made to think before it answers",
                "ask it to reason step by step in your own words",
            ),
            Some(false) if self.syntax.is_some() && switch.is_none() => refuse(
                "always thinks before it answers: its chat template has no switch for that",
                "hide its thoughts instead",
            ),
            _ => {
                self.thinking = thinking;
                Ok(())
            }
        }
    }

    /// The conversation for the model, up to where its answer begins: tokens and text.
    fn prompt(&self) -> Result<(Vec<u32>, String)> {
        let mut extra = serde_json::Map::new();
        if let (Some(thinking), Some(switch)) = (self.thinking, Syntax::switch(self.template.source())) {
            extra.insert(switch.to_owned(), thinking.into());
        }
        let options =
            RenderOptions { messages: &self.messages, extra: Some(&extra), ..RenderOptions::default() };
        self.model.render_text(&self.template, &options)
    }

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
        let generation = self.prompt().and_then(|(tokens, text)| {
            let splitter = self.syntax.map(|syntax| Splitter::new(syntax.reasoning, &text));
            let mut settings = self.settings.clone();
            if let (Some(constraint), Some(syntax)) = (&mut settings.constraint, self.syntax) {
                let tokenizer = self.model.tokenizer()?;
                *constraint = constraint.after_thinking(&syntax.reasoning, &tokens, tokenizer, None);
            }
            Ok((Generation::new(&mut self.sequence, tokens, &settings)?, splitter))
        });
        match generation {
            Ok((generation, splitter)) => Ok(Answer {
                generation,
                messages: &mut self.messages,
                splitter,
                ready: VecDeque::new(),
                text: String::new(),
                reasoning: String::new(),
            }),
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

    /// What the model thought so far.
    pub fn reasoning(&self) -> &str {
        &self.reasoning
    }

    /// Takes text apart, or, at the end, what is left of it.
    fn take(&mut self, text: Option<&str>) {
        let (answer, reasoning, ready) = (&mut self.text, &mut self.reasoning, &mut self.ready);
        let mut out = |channel: Channel, text: &str| {
            let whole = if channel == Channel::Answer { &mut *answer } else { &mut *reasoning };
            whole.push_str(text);
            ready.push_back(AnswerPiece { channel, text: text.to_owned() });
        };
        match (&mut self.splitter, text) {
            (Some(splitter), Some(text)) => splitter.push(text, out),
            (Some(splitter), None) => splitter.flush(out),
            (None, Some("") | None) => {}
            (None, Some(text)) => out(Channel::Answer, text),
        }
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
    type Item = Result<AnswerPiece>;

    fn next(&mut self) -> Option<Result<AnswerPiece>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            match self.generation.next() {
                Some(Ok(piece)) => self.take(Some(&piece.text)),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.take(None);
                    return self.ready.pop_front().map(Ok);
                }
            }
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        self.take(None);
        let reasoning = std::mem::take(&mut self.reasoning);
        self.messages.push(Message {
            reasoning_content: (!reasoning.is_empty()).then_some(reasoning),
            ..Message::assistant(std::mem::take(&mut self.text))
        });
    }
}
