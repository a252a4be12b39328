//! What models think before they answer: whether they should, and telling it from the answer.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use akunu::scheduler::{Event, LogProbabilities};
use akunu::{FinishReason, Statistics};
use akunu_text::chat::{Channel, ChatTemplate, Splitter, Syntax};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::fields::Fields;

/// What a request says about thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thinking {
    /// Whether the model should think; `None` leaves that to it.
    pub(crate) wanted: Option<bool>,
    /// Whether thoughts are told from the answer; else they stand in it with their marks.
    pub(crate) apart: bool,
    /// Most tokens of thoughts.
    pub(crate) budget: Option<NonZeroU32>,
}

impl Default for Thinking {
    fn default() -> Thinking {
        Thinking { wanted: None, apart: true, budget: None }
    }
}

impl Thinking {
    /// How hard to think, as OpenAI's clients say it: not at all, or at all.
    pub(crate) fn effort(fields: &mut Fields, name: &str) -> Result<Option<bool>, ApiError> {
        match fields.take::<String>(name)?.as_deref() {
            None => Ok(None),
            Some("none") => Ok(Some(false)),
            Some("minimal" | "low" | "medium" | "high" | "xhigh") => Ok(Some(true)),
            Some(other) => Err(ApiError::field(
                name,
                format!("is \"{other}\": it must be none, minimal, low, medium, high or xhigh"),
            )),
        }
    }

    /// The variables that tell a template so, beside those a request brings. `param` is the field that asked.
    pub(crate) fn variables(
        self,
        template: &ChatTemplate,
        mut variables: Map<String, Value>,
        param: &str,
    ) -> Result<Map<String, Value>, ApiError> {
        let thinks = Syntax::of_template(template.source()).is_some();
        match (self.wanted, Syntax::switch(template.source())) {
            (Some(true), _) if !thinks => {
                return Err(ApiError::unsupported(
                    param,
                    "is not for this model: it does not think before it answers",
                ));
            }
            (Some(false), None) if thinks => {
                return Err(ApiError::unsupported(
                    param,
                    "cannot be turned off: this model always thinks before it answers",
                ));
            }
            (Some(wanted), Some(switch)) => {
                variables.insert(switch.to_owned(), Value::Bool(wanted));
            }
            _ => {}
        }
        Ok(variables)
    }
}

/// What happens to an answer, as interfaces write it.
#[derive(Debug)]
pub(crate) enum Said {
    /// The model reads the prompt.
    Started { cached_tokens: usize },
    /// More of a choice.
    Text { choice: usize, channel: Channel, text: String, log_probabilities: Vec<LogProbabilities> },
    /// A choice is complete.
    Finished { choice: usize, reason: FinishReason },
    /// All of them are, and this is what they took. Nothing comes after it.
    Done(Taken),
    /// Nothing more will come.
    Failed(akunu::Error),
}

/// What an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Taken {
    pub(crate) statistics: Statistics,
    /// Of the generated tokens, those of thoughts.
    pub(crate) reasoning_tokens: usize,
}

/// Tells thoughts from answers in the events of a request.
#[derive(Debug, Default)]
pub(crate) struct Parted {
    /// `[choice]`; empty where nothing is to be told apart.
    choices: Vec<Part>,
    reasoning_tokens: usize,
    ready: VecDeque<Said>,
}

#[derive(Clone, Debug)]
struct Part {
    splitter: Splitter,
    /// What the last text was.
    channel: Channel,
    /// Tokens of which it is not known yet what they are.
    undecided: usize,
}

impl Parted {
    pub(crate) fn new(splitter: Option<Splitter>, choices: usize) -> Parted {
        let part = |splitter| Part { splitter, channel: Channel::Answer, undecided: 0 };
        Parted { choices: splitter.map_or(Vec::new(), |s| vec![part(s); choices]), ..Parted::default() }
    }

    /// The next thing that was said, of what was taken.
    pub(crate) fn next(&mut self) -> Option<Said> {
        self.ready.pop_front()
    }

    /// Takes an event.
    pub(crate) fn take(&mut self, event: Event) {
        match event {
            Event::Started { cached_tokens, .. } => self.ready.push_back(Said::Started { cached_tokens }),
            Event::Piece { choice, piece, log_probabilities } => {
                let Some(part) = self.choices.get_mut(choice) else {
                    let text = piece.text;
                    self.ready.push_back(Said::Text {
                        choice,
                        channel: Channel::Answer,
                        text,
                        log_probabilities,
                    });
                    return;
                };
                let mut texts = Vec::new();
                part.splitter.push(&piece.text, |channel, text| texts.push((channel, text.to_owned())));
                part.undecided += piece.tokens.len();
                if let Some((channel, _)) = texts.last() {
                    part.channel = *channel;
                    // A piece with the end of the thoughts and the beginning of the answer counts as thought.
                    if texts[0].0 == Channel::Reasoning {
                        self.reasoning_tokens += part.undecided;
                    }
                    part.undecided = 0;
                } else if !log_probabilities.is_empty() {
                    texts.push((part.channel, String::new()));
                }
                self.say(choice, texts, log_probabilities);
            }
            Event::Finished { choice, reason } => {
                if let Some(part) = self.choices.get_mut(choice) {
                    let mut texts = Vec::new();
                    part.splitter.flush(|channel, text| texts.push((channel, text.to_owned())));
                    self.say(choice, texts, Vec::new());
                }
                self.ready.push_back(Said::Finished { choice, reason });
            }
            Event::Done(statistics) => {
                let reasoning_tokens = self.reasoning_tokens;
                self.ready.push_back(Said::Done(Taken { statistics, reasoning_tokens }));
            }
            Event::Failed(error) => self.ready.push_back(Said::Failed(error)),
        }
    }

    fn say(
        &mut self,
        choice: usize,
        texts: Vec<(Channel, String)>,
        mut log_probabilities: Vec<LogProbabilities>,
    ) {
        for (channel, text) in texts {
            let log_probabilities = std::mem::take(&mut log_probabilities);
            self.ready.push_back(Said::Text { choice, channel, text, log_probabilities });
        }
    }
}

#[cfg(test)]
mod tests {
    use akunu::Piece;

    use super::*;

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::from_source(source).unwrap()
    }

    #[test]
    fn a_switch_is_set_where_there_is_one_and_refused_where_there_is_none() {
        let on = Thinking { wanted: Some(true), ..Thinking::default() };
        let off = Thinking { wanted: Some(false), ..Thinking::default() };
        let switched = template("{% if enable_thinking %}<think>{% else %}</think>{% endif %}");
        let always = template("{{ '<think>' }}{# </think> #}");
        let never = template("{{ messages }}");
        assert_eq!(on.variables(&switched, Map::new(), "x").unwrap()["enable_thinking"], true);
        assert_eq!(off.variables(&switched, Map::new(), "x").unwrap()["enable_thinking"], false);
        assert!(on.variables(&always, Map::new(), "x").unwrap().is_empty());
        assert_eq!(off.variables(&always, Map::new(), "x").unwrap_err().param.as_deref(), Some("x"));
        assert_eq!(on.variables(&never, Map::new(), "x").unwrap_err().code, Some("unsupported_parameter"));
        assert!(off.variables(&never, Map::new(), "x").unwrap().is_empty());
    }

    #[test]
    fn thoughts_and_answer_are_told_apart_and_counted() {
        let marks = Syntax::of_template("</think>").unwrap().reasoning;
        let mut parted = Parted::new(Some(Splitter::new(marks, "")), 1);
        let pieces = ["<think>", "\n", "hm", " so", "</think>", "\n\n", "42", "!"];
        for (token, text) in pieces.iter().enumerate() {
            let piece = Piece { text: (*text).to_owned(), tokens: vec![token as u32] };
            parted.take(Event::Piece { choice: 0, piece, log_probabilities: Vec::new() });
        }
        parted.take(Event::Finished { choice: 0, reason: FinishReason::Stop });
        parted.take(Event::Done(Statistics::default()));
        let (mut said, mut taken) = (Vec::new(), Taken::default());
        while let Some(next) = parted.next() {
            match next {
                Said::Text { channel, text, .. } => said.push((channel, text)),
                Said::Done(all) => taken = all,
                _ => {}
            }
        }
        let (thought, answer) = (Channel::Reasoning, Channel::Answer);
        let expected = [(thought, "hm"), (thought, " so"), (answer, "42"), (answer, "!")];
        assert_eq!(said, expected.map(|(channel, text)| (channel, text.to_owned())));
        // The marks around the thoughts are the thoughts', as far as they are known when the answer begins.
        assert_eq!(taken.reasoning_tokens, 4);
    }
}
