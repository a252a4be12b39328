//! One request that is being served.

use std::collections::VecDeque;
use std::time::Instant;

use akunu_program::Phase;
use akunu_program::select::{Mask, Sampling};

use super::{Event, Job, LogProbabilities};
use crate::constraint::Matcher;
use crate::generation::{FinishReason, Statistics};
use crate::model::Model;
use crate::pieces::Piece;
use crate::sequence::{Feed, Sequence, Wanted};
use crate::transcript::Transcript;
use crate::{Error, Result};

/// A request that is being served.
pub(super) struct Running {
    pub(super) job: Job,
    pub(super) choices: Vec<Choice>,
    /// Whether every choice has its own sequence: until almost all of the prompt is read, the first one's is for all.
    forked: bool,
    began: Instant,
    first_token: Option<Instant>,
    statistics: Statistics,
    /// Tokens of the prompt that are kept for others.
    pub(super) remembered: usize,
}

/// One continuation.
pub(super) struct Choice {
    /// `None` before the fork and after the end.
    pub(super) sequence: Option<Sequence>,
    transcript: Transcript,
    sampling: Sampling,
    /// Part of the text and not fed yet: what was chosen last, and what a constraint left no choice about after it. Empty while
    /// the prompt is being read.
    pending: Vec<u32>,
    /// Follows the text where it is constrained.
    matcher: Option<Matcher>,
    /// What may be chosen in the step that is planned, unless everything may.
    mask: Option<Vec<u32>>,
    /// Those of tokens whose text is held back.
    log_probabilities: VecDeque<LogProbabilities>,
    /// Tokens it is fed in this step.
    pub(super) planned: usize,
}

impl Choice {
    /// Whether text is being generated.
    pub(super) fn is_decoding(&self) -> bool {
        !self.pending.is_empty() && self.sequence.is_some()
    }

    /// Tokens that wait to be fed.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.transcript.finish().is_some()
    }

    /// Follows a token that was chosen. If `forward` is set, tokens that must come after it become part of the text; how many
    /// is given.
    fn follow(&mut self, token: u32, forward: bool, piece: &mut Piece) -> Result<usize> {
        let (Some(matcher), None) = (&mut self.matcher, self.transcript.finish()) else { return Ok(0) };
        matcher.commit(token)?;
        let room = self.sequence.as_ref().map_or(0, Sequence::room);
        let forced = if forward { matcher.forced() } else { Vec::new() };
        let mut taken = 0;
        for token in forced.into_iter().take(room.saturating_sub(1)) {
            if self.transcript.finish().is_some() {
                break;
            }
            matcher.commit(token)?;
            self.pending.push(token);
            piece.append(self.transcript.accept(token));
            taken += 1;
        }
        if matcher.is_finished() {
            piece.append(self.transcript.end(FinishReason::Stop));
        }
        Ok(taken)
    }
}

impl Running {
    /// Begins a request in a sequence that holds the first `cached` tokens of its prompt.
    pub(super) fn new(mut job: Job, mut sequence: Sequence, cached: usize) -> Result<Running> {
        let began = Instant::now();
        let settings = &job.request.settings;
        let choices = std::mem::take(&mut job.transcripts).into_iter().enumerate().map(|(i, transcript)| {
            let seed = choice_seed(settings.sampling.seed, i);
            Choice {
                sequence: None,
                transcript,
                sampling: Sampling { seed, ..settings.sampling.clone() },
                pending: Vec::new(),
                matcher: job.matcher.clone(),
                mask: None,
                log_probabilities: VecDeque::new(),
                planned: 0,
            }
        });
        let mut choices: Vec<Choice> = choices.collect();
        sequence.set_sampling(&choices[0].sampling)?;
        choices[0].sequence = Some(sequence);
        let statistics = Statistics {
            prompt_tokens: job.request.prompt.len(),
            cached_tokens: cached,
            ..Statistics::default()
        };
        let waited = began - job.submitted;
        // Whoever does not listen any more is found out before the next step.
        let _ = job.events.send(Event::Started { waited, cached_tokens: cached });
        Ok(Running {
            forked: choices.len() == 1,
            job,
            choices,
            began,
            first_token: None,
            statistics,
            remembered: cached,
        })
    }

    /// Sequences it has or is going to need.
    pub(super) fn sequences(&self) -> usize {
        self.choices.iter().filter(|choice| !choice.is_finished()).count()
    }

    /// Gives every choice its own sequence once only the prompt's last token is left: what comes after that one is
    /// different for each.
    pub(super) fn fork(&mut self) -> Result<()> {
        let [first, others @ ..] = &mut self.choices[..] else { return Ok(()) };
        let Some(sequence) = &mut first.sequence else { return Ok(()) };
        if self.forked || sequence.position() + 1 < self.job.request.prompt.len() {
            return Ok(());
        }
        for choice in others {
            let mut fork = sequence.fork()?;
            fork.set_sampling(&choice.sampling)?;
            choice.sequence = Some(fork);
        }
        self.forked = true;
        Ok(())
    }

    /// Tokens of the prompt the choice can be fed before anything else happens; 0 for one that is decoding.
    pub(super) fn unread(&self, choice: usize) -> usize {
        let choice = &self.choices[choice];
        let Some(sequence) = choice.sequence.as_ref().filter(|_| choice.pending.is_empty()) else { return 0 };
        self.job.request.prompt.len() - usize::from(!self.forked) - sequence.position()
    }

    /// Whether the planned step of any choice chooses a token whose log-probability is asked for.
    pub(super) fn wants_logits(&self) -> bool {
        let planned = (0..self.choices.len()).filter(|&i| self.choices[i].planned > 0);
        self.job.request.log_probabilities.is_some() && planned.into_iter().any(|i| self.chooses(i))
    }

    /// Whether the planned step ends with a choice of the next token.
    fn chooses(&self, choice: usize) -> bool {
        let Choice { pending, planned, .. } = &self.choices[choice];
        match pending.len() {
            0 => self.forked && *planned == self.unread(choice),
            waiting => *planned == waiting,
        }
    }

    /// Finds out what may be chosen in the planned step.
    pub(super) fn mask(&mut self) -> Result<()> {
        for i in 0..self.choices.len() {
            let chooses = self.choices[i].planned > 0 && self.chooses(i);
            let Choice { matcher, mask, .. } = &mut self.choices[i];
            *mask = match matcher {
                Some(matcher) if chooses => Some(matcher.mask()?.to_vec()),
                _ => None,
            };
        }
        Ok(())
    }

    /// What its choices are fed in this step; with masks, if it is one that chooses.
    pub(super) fn feeds<'a>(&'a mut self, masked: bool, feeds: &mut Vec<Feed<'a>>) {
        let chooses: Vec<bool> = (0..self.choices.len()).map(|i| self.chooses(i)).collect();
        let prompt = &self.job.request.prompt;
        for (choice, chooses) in self.choices.iter_mut().zip(chooses) {
            let Choice { sequence: Some(sequence), pending, mask, planned: planned @ 1.., .. } = choice
            else {
                continue;
            };
            let (tokens, phase) = match pending.get(..*planned) {
                Some(tokens) => (tokens, Phase::Decode),
                None => (&prompt[sequence.position()..][..*planned], Phase::Prompt),
            };
            let wanted = if chooses { Wanted::Last } else { Wanted::None };
            let mask: Option<Mask<'_>> = mask.as_deref().filter(|_| masked && chooses);
            let masks = mask.map(Some).into_iter().collect();
            feeds.push(Feed { sequence, tokens, phase, wanted, masks });
        }
    }

    /// Output rows of the planned step.
    pub(super) fn outputs(&self) -> usize {
        let chooses = |(i, choice): (usize, &Choice)| {
            choice.sequence.is_some() && choice.planned > 0 && self.chooses(i)
        };
        self.choices.iter().enumerate().filter(|&choice| chooses(choice)).count()
    }

    /// Takes up what a step brought. `outcome` gives the outcome of the next output row.
    pub(super) fn advance(&mut self, mut outcome: impl FnMut(&Outcome<'_>) -> Result<Chosen>) -> Result<()> {
        for i in 0..self.choices.len() {
            let chooses = self.chooses(i);
            let choice = &mut self.choices[i];
            let Some(sequence) = choice.sequence.as_mut().filter(|_| choice.planned > 0) else { continue };
            let fed = std::mem::take(&mut choice.planned);
            sequence.commit(fed)?;
            choice.pending.drain(..fed.min(choice.pending.len()));
            if !chooses {
                continue;
            }
            let wanted = self.job.request.log_probabilities;
            let mask = choice.mask.as_deref();
            let chosen =
                outcome(&Outcome { sampling: &choice.sampling, history: sequence.tokens(), mask, wanted })?;
            self.accept(i, chosen)?;
        }
        Ok(())
    }

    fn accept(&mut self, index: usize, chosen: Chosen) -> Result<()> {
        if self.first_token.is_none() {
            let now = Instant::now();
            self.first_token = Some(now);
            self.statistics.prefill = now - self.began;
            self.statistics.first_token = now - self.job.submitted;
        }
        let choice = &mut self.choices[index];
        let before = choice.transcript.generated();
        let mut piece = choice.transcript.accept(chosen.token);
        choice.pending.push(chosen.token);
        if choice.transcript.generated() > before {
            choice.log_probabilities.extend(chosen.log_probabilities);
        }
        let forced = choice.follow(chosen.token, self.job.request.log_probabilities.is_none(), &mut piece)?;
        self.statistics.generated_tokens += choice.transcript.generated() - before;
        self.statistics.forced_tokens += forced;
        if choice.sequence.as_ref().is_some_and(|sequence| sequence.room() == 0) {
            piece.append(choice.transcript.end(FinishReason::Length));
        }
        self.deliver(index, piece);
        let choice = &mut self.choices[index];
        if let Some(reason) = choice.transcript.finish() {
            let _ = self.job.events.send(Event::Finished { choice: index, reason });
        }
        Ok(())
    }

    fn deliver(&mut self, index: usize, piece: Piece) {
        if piece.text.is_empty() && piece.tokens.is_empty() {
            return;
        }
        let held = &mut self.choices[index].log_probabilities;
        let log_probabilities = held.drain(..piece.tokens.len().min(held.len())).collect();
        let _ = self.job.events.send(Event::Piece { choice: index, piece, log_probabilities });
    }

    /// Gives up the sequences of choices that are complete.
    pub(super) fn release(&mut self) {
        self.choices
            .iter_mut()
            .filter(|choice| choice.is_finished())
            .for_each(|choice| choice.sequence = None);
    }

    /// Whether it is over; if it ended well, that is said now.
    pub(super) fn finish(&mut self) -> bool {
        let finished = self.choices.iter().all(Choice::is_finished);
        if finished && !self.choices.is_empty() {
            self.statistics.decode = self.first_token.map(|first| first.elapsed()).unwrap_or_default();
            let _ = self.job.events.send(Event::Done(self.statistics));
        }
        finished
    }

    /// Ends it with an error, and gives up its sequences.
    pub(super) fn abort(&mut self, error: Error) {
        let _ = self.job.events.send(Event::Failed(error));
        self.choices.clear();
    }

    /// Tokens generated so far.
    pub(super) fn generated(&self) -> usize {
        self.statistics.generated_tokens
    }
}

/// What is known where a token was chosen.
pub(super) struct Outcome<'a> {
    pub(super) sampling: &'a Sampling,
    /// All tokens fed so far.
    pub(super) history: &'a [u32],
    /// What may be chosen, unless everything may.
    pub(super) mask: Option<Mask<'a>>,
    /// How many log-probabilities are asked for.
    pub(super) wanted: Option<usize>,
}

/// A token that was chosen.
pub(super) struct Chosen {
    pub(super) token: u32,
    pub(super) log_probabilities: Option<LogProbabilities>,
}

/// The first choice has the request's own seed, so that it is the same however many there are.
fn choice_seed(seed: u64, choice: usize) -> u64 {
    // An odd multiplier with mixed bits: no two choices of a request share a seed.
    seed.wrapping_add((choice as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// An empty sequence that begins with what is in the cache.
pub(super) fn begin(model: &Model, tokens: &[u32], prefixes: Vec<crate::kv::Prefix>) -> Result<Sequence> {
    let mut sequence = model.sequence()?;
    if !tokens.is_empty() {
        sequence.adopt(tokens, prefixes);
    }
    Ok(sequence)
}
