//! How text is generated.

use akunu_program::select::Sampling;

use crate::constraint::Constraint;
use crate::speculate::Speculate;
use crate::{Error, Result};

/// How text is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens; by default until the model or the context ends.
    pub max_tokens: Option<usize>,
    /// Strings that end the text; they are not part of it.
    pub stop: Vec<String>,
    /// Whether coming tokens are guessed and verified together. Changes how fast text comes, never the text.
    pub speculate: Speculate,
    /// Most tokens chosen in one run. Shorter runs show text sooner, longer ones waste less time between them.
    pub longest_chain: usize,
    /// Whether a full context ends the text, or the oldest tokens are dropped and it goes on: see
    /// [`Sequence::shift`](crate::Sequence::shift).
    pub context_shift: bool,
    /// What the text must be like. It ends where nothing may follow; where it is cut off by length or a stop string, it is
    /// the beginning of such a text.
    pub constraint: Option<Constraint>,
    /// Control tokens whose names are part of the text, such as the marks around a model's thoughts; others have no text.
    pub shown_tokens: Vec<u32>,
}

impl Default for Settings {
    /// Greedy, without an end but the model's.
    fn default() -> Settings {
        Settings {
            sampling: Sampling::GREEDY,
            max_tokens: None,
            stop: Vec::new(),
            speculate: Speculate::Off,
            longest_chain: 64,
            context_shift: false,
            constraint: None,
            shown_tokens: Vec::new(),
        }
    }
}

/// Refuses parameters that have no meaning.
pub(crate) fn check_sampling(sampling: &Sampling) -> Result<()> {
    let s = sampling;
    let checks = [
        ("temperature", s.temperature, s.temperature >= 0.0, "0 (greedy) or more"),
        ("top-p", s.top_p, s.top_p > 0.0 && s.top_p <= 1.0, "more than 0 and at most 1"),
        ("min-p", s.min_p, (0.0..=1.0).contains(&s.min_p), "from 0 to 1"),
        ("repeat penalty", s.repeat_penalty, s.repeat_penalty > 0.0, "more than 0"),
        ("frequency penalty", s.frequency_penalty, true, "a number"),
        ("presence penalty", s.presence_penalty, true, "a number"),
    ];
    for (name, value, fits, range) in checks {
        if !fits || !value.is_finite() {
            let problem = format!("a {name} of {value} has no meaning");
            return Err(Error::Usage { problem, hint: format!("it must be {range}") });
        }
    }
    if let Some((token, _)) = s.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
        let problem = format!("the logit bias of token {token} is not a number");
        return Err(Error::Usage {
            problem,
            hint: "give a number, or an infinity to forbid or force it".to_owned(),
        });
    }
    Ok(())
}
