//! How families of models mark what is not their answer: one description each, from which a stream is taken apart.
//!
//! A model that reasons writes its thoughts between two marks before it answers. Which marks, its chat template shows:
//! [`Syntax::of_template`] finds the description, and a [`Splitter`] tells thoughts from answer while they come.
//!
//! ```
//! use akunu_text::chat::{Channel, Splitter, Syntax};
//!
//! let syntax = Syntax::of_template("{{ '<think>' }} ... {{ '</think>' }}").unwrap();
//! let mut splitter = Splitter::new(syntax.reasoning, "<|im_start|>assistant\n");
//! let mut said = Vec::new();
//! for piece in ["<thi", "nk>\nHm, 6 times 7", ".\n</th", "ink>\n\n42"] {
//!     splitter.push(piece, |channel, text| said.push((channel, text.to_owned())));
//! }
//! splitter.flush(|channel, text| said.push((channel, text.to_owned())));
//! assert_eq!(said, [
//!     (Channel::Reasoning, "Hm, 6 times 7".to_owned()),
//!     (Channel::Reasoning, ".".to_owned()),
//!     (Channel::Answer, "42".to_owned()),
//! ]);
//! ```

/// What a family writes around things that are not its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syntax {
    /// The family, or what its marks are known by.
    pub name: &'static str,
    /// Around its thoughts.
    pub reasoning: Marks,
}

/// Two marks and what lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Before it.
    pub open: &'static str,
    /// After it.
    pub close: &'static str,
}

/// The families that reason.
const SYNTAXES: [Syntax; 4] = [
    // Qwen3, DeepSeek, SmolLM3, GLM and most others.
    Syntax { name: "think", reasoning: Marks { open: "<think>", close: "</think>" } },
    Syntax { name: "seed-oss", reasoning: Marks { open: "<seed:think>", close: "</seed:think>" } },
    Syntax { name: "cohere", reasoning: Marks { open: "<|START_THINKING|>", close: "<|END_THINKING|>" } },
    Syntax { name: "mistral", reasoning: Marks { open: "[THINK]", close: "[/THINK]" } },
];

/// Variables by which templates are told whether the model should think.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

impl Syntax {
    /// The syntax of models with this chat template; `None` for those that do not reason.
    pub fn of_template(source: &str) -> Option<&'static Syntax> {
        SYNTAXES.iter().find(|syntax| source.contains(syntax.reasoning.close))
    }

    /// Every mark of every family, around thoughts and around calls of tools: where a vocabulary has a token for one, that token
    /// means something of its own.
    pub fn all_marks() -> impl Iterator<Item = &'static str> {
        let reasoning = SYNTAXES.iter().flat_map(|syntax| [syntax.reasoning.open, syntax.reasoning.close]);
        reasoning.chain(super::tools::MARKS)
    }

    /// The variable that tells a template whether the model should think, if it looks at one.
    pub fn switch(source: &str) -> Option<&'static str> {
        SWITCHES.into_iter().find(|name| mentions(source, name))
    }
}

/// Whether a template uses a variable of that name: as a word that is no attribute, no string and no part of another.
fn mentions(source: &str, name: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '\'' | '"' | '<' | '/' | '|');
    source.match_indices(name).any(|(at, _)| {
        let before = source[..at].chars().next_back();
        let after = source[at + name.len()..].chars().next();
        !before.is_some_and(part_of_word) && !after.is_some_and(|c| part_of_word(c) && c != '|')
    })
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// A thought.
    Reasoning,
    /// The answer.
    Answer,
}

/// Takes a stream of text apart into thoughts and answer, without the marks and the line feeds around them. Thoughts stand
/// at the beginning or nowhere: a mark that an answer quotes is part of the answer.
#[derive(Clone, Debug)]
pub struct Splitter {
    marks: Marks,
    state: State,
    /// What was not passed on: the beginning of a mark, perhaps, or line feeds that may be the last.
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space yet.
    Start,
    /// In the thoughts; whether any have come.
    Inside {
        begun: bool,
    },
    /// After the thoughts, before the answer.
    Between,
    Answer,
}

impl Splitter {
    /// A splitter for what follows a prompt. Some templates write the opening mark themselves.
    pub fn new(marks: Marks, prompt: &str) -> Splitter {
        let inside = prompt.trim_end().ends_with(marks.open);
        let state = if inside { State::Inside { begun: false } } else { State::Start };
        Splitter { marks, state, held: String::new() }
    }

    /// Takes the next piece of text and passes on what is certain, in order.
    pub fn push(&mut self, text: &str, mut out: impl FnMut(Channel, &str)) {
        self.held.push_str(text);
        while self.step(&mut out) {}
    }

    /// Ends the text: what was held back is passed on.
    pub fn flush(&mut self, mut out: impl FnMut(Channel, &str)) {
        let (channel, rest) = match self.state {
            State::Inside { .. } => (Channel::Reasoning, self.held.trim_matches('\n')),
            State::Between => (Channel::Answer, self.held.trim_start_matches('\n')),
            State::Start | State::Answer => (Channel::Answer, self.held.as_str()),
        };
        if !rest.is_empty() {
            out(channel, rest);
        }
        self.held.clear();
        self.state = State::Answer;
    }

    /// Passes on what it can in one state; whether there is more to do in the next.
    fn step(&mut self, out: &mut impl FnMut(Channel, &str)) -> bool {
        match self.state {
            State::Start => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(self.marks.open) {
                    self.held = rest.to_owned();
                    self.state = State::Inside { begun: false };
                } else if self.marks.open.starts_with(text) {
                    return false;
                } else {
                    self.state = State::Answer;
                }
                true
            }
            State::Inside { begun } => {
                if !begun {
                    let feeds = self.held.len() - self.held.trim_start_matches('\n').len();
                    self.held.drain(..feeds);
                }
                let found = self.held.find(self.marks.close);
                let certain =
                    found.unwrap_or_else(|| self.held.len() - overlap(&self.held, self.marks.close));
                let thoughts = self.held[..certain].trim_end_matches('\n');
                if !thoughts.is_empty() {
                    out(Channel::Reasoning, thoughts);
                    self.state = State::Inside { begun: true };
                }
                let passed = found.map_or(thoughts.len(), |at| at + self.marks.close.len());
                self.held.drain(..passed);
                if found.is_some() {
                    self.state = State::Between;
                }
                found.is_some()
            }
            State::Between => {
                let feeds = self.held.len() - self.held.trim_start_matches('\n').len();
                self.held.drain(..feeds);
                if self.held.is_empty() {
                    return false;
                }
                self.state = State::Answer;
                true
            }
            State::Answer => {
                if !self.held.is_empty() {
                    out(Channel::Answer, &self.held);
                    self.held.clear();
                }
                false
            }
        }
    }
}

/// Bytes at the end of `text` that `mark` begins with.
pub(super) fn overlap(text: &str, mark: &str) -> usize {
    let beginnings = mark.char_indices().map(|(at, _)| at).rev();
    beginnings.into_iter().find(|&at| text.ends_with(&mark[..at])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THINK: Marks = SYNTAXES[0].reasoning;

    fn split(prompt: &str, pieces: &[&str]) -> (String, String) {
        let (mut reasoning, mut answer) = (String::new(), String::new());
        let mut take = |channel, text: &str| {
            assert!(!text.is_empty());
            match channel {
                Channel::Reasoning => {
                    assert!(answer.is_empty(), "thoughts come first");
                    reasoning += text;
                }
                Channel::Answer => answer += text,
            }
        };
        let mut splitter = Splitter::new(THINK, prompt);
        pieces.iter().for_each(|piece| splitter.push(piece, &mut take));
        splitter.flush(&mut take);
        (reasoning, answer)
    }

    fn parts(reasoning: &str, answer: &str) -> (String, String) {
        (reasoning.to_owned(), answer.to_owned())
    }

    #[test]
    fn thoughts_and_answer_come_apart() {
        assert_eq!(split("", &["<think>\na\n\nb\n</think>\n\nyes\n"]), parts("a\n\nb", "yes\n"));
        assert_eq!(split("", &[" \n<think></think>yes"]), parts("", "yes"));
        assert_eq!(split("", &["plain"]), parts("", "plain"));
        assert_eq!(split("", &[" <b>"]), parts("", " <b>"));
    }

    #[test]
    fn a_prompt_may_open_the_thoughts() {
        assert_eq!(split("<|assistant|><think>\n", &["hm\n</think>\nyes"]), parts("hm", "yes"));
        assert_eq!(split("<think>\n\n</think>\n\n", &["yes"]), parts("", "yes"));
    }

    #[test]
    fn an_end_in_the_middle_of_a_thought_loses_nothing() {
        assert_eq!(split("", &["<think>hm </thin"]), parts("hm </thin", ""));
        assert_eq!(split("", &["<thi"]), parts("", "<thi"));
        assert_eq!(split("", &["<think>hm</think>\n"]), parts("hm", ""));
    }

    #[test]
    fn a_mark_in_the_answer_is_the_answers() {
        let text = "<think>a</think>use <think> and </think>";
        assert_eq!(split("", &[text]), parts("a", "use <think> and </think>"));
        assert_eq!(split("", &["No <think>b</think>"]), parts("", "No <think>b</think>"));
    }

    #[test]
    fn nothing_certain_is_held_back() {
        let mut splitter = Splitter::new(THINK, "");
        let mut said = String::new();
        splitter.push("<think>\nwhat if x < 3", |_, text| said += text);
        assert_eq!(said, "what if x < 3");
        splitter.push("</thx\n", |_, text| said += text);
        assert_eq!(said, "what if x < 3</thx");
        splitter.push("4", |_, text| said += text);
        assert_eq!(said, "what if x < 3</thx\n4");
    }

    #[test]
    fn templates_show_their_syntax_and_their_switch() {
        let name = |source| Syntax::of_template(source).map(|syntax| syntax.name);
        assert_eq!(name("a {{ '<think>' }} </think>"), Some("think"));
        assert_eq!(name("[THINK]x[/THINK]"), Some("mistral"));
        assert_eq!(name("{{ messages }}"), None);
        let switch = Syntax::switch;
        assert_eq!(switch("{%- if enable_thinking is defined %}"), Some("enable_thinking"));
        assert_eq!(switch("{%- if thinking %}"), Some("thinking"));
        assert_eq!(switch("{{ message.thinking }} {{ m['thinking'] }} <thinking> no_thinking"), None);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            text in "(<think>)?[ab<\n€]{0,6}(</think>)?[ab<\n€]{0,4}(</think>|<think>)?[a\n]{0,3}",
            cuts in prop::collection::vec(0..40usize, 0..12),
        ) {
            let mut cuts: Vec<usize> =
                cuts.into_iter().filter(|&at| at <= text.len() && text.is_char_boundary(at)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            for prompt in ["", "<think>"] {
                prop_assert_eq!(split(prompt, &pieces), split(prompt, &[&text]));
            }
        }
    }
}
