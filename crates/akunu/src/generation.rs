//! Generating text: one prompt in, pieces of text out.

use std::borrow::BorrowMut;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::constraint::Matcher;
use crate::model::Model;
use crate::pieces::Piece;
use crate::sequence::{Sequence, StopHandle};
use crate::settings::Settings;
use crate::speculate::Speculator;
use crate::transcript::Transcript;
use crate::{Error, Result};

/// Tokens chosen in one run take at most about this long, so that text appears and stops steadily.
const LONGEST_RUN: Duration = Duration::from_millis(50);

/// Text as it is generated: an iterator of [`Piece`]s.
///
/// Dropping it ends the generation; so does [`StopHandle::stop`] from another thread. However it ends, the sequence then
/// holds exactly the prompt and the tokens that were kept, or all of them but the last, which was never fed (nor were those
/// before it that a constraint left no choice about). With [`Settings::context_shift`], less the tokens that were dropped.
///
/// ```no_run
/// use akunu::{Model, Options, Settings};
///
/// let model = Model::load("model.gguf", &Options::default())?;
/// let mut generation = model.generate("Once upon a time", &Settings::default())?;
/// for piece in &mut generation {
///     print!("{}", piece?.text);
/// }
/// println!("\n{:.1} tokens/s", generation.statistics().decode_rate());
/// # Ok::<(), akunu::Error>(())
/// ```
#[derive(Debug)]
pub struct Generation<S: BorrowMut<Sequence> = Sequence> {
    sequence: S,
    prompt: Vec<u32>,
    /// What was generated and kept.
    tokens: Vec<u32>,
    longest_chain: usize,
    context_shift: bool,
    /// Tokens that were dropped from the sequence.
    dropped: usize,
    /// Tokens of the next chain.
    chain: usize,
    transcript: Transcript,
    ready: VecDeque<Piece>,
    speculator: Speculator,
    guesses: Vec<u32>,
    /// Follows the text where it is constrained.
    matcher: Option<Matcher>,
    /// What the last run chose.
    chosen: Vec<u32>,
    /// Chosen and not fed yet; `None` before the prompt is.
    next: Option<u32>,
    /// Tokens after that one that a constraint left no choice about; part of the text, and not fed yet.
    forced: Vec<u32>,
    statistics: Statistics,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model said that it is done.
    Stop,
    /// A stop string came: its index.
    StopString(usize),
    /// As many tokens as were asked for, or as the context holds.
    Length,
    /// Someone stopped it.
    Cancelled,
}

/// What a generation took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, how many were in the cache already.
    pub cached_tokens: usize,
    /// Tokens generated, those of a stop string included, the end token not.
    pub generated_tokens: usize,
    /// Time the prompt took.
    pub prefill: Duration,
    /// Time from the beginning to the first token.
    pub first_token: Duration,
    /// Time all tokens after the first took.
    pub decode: Duration,
    /// Tokens guessed by speculation.
    pub guessed: usize,
    /// Of those, how many were right.
    pub right_guesses: usize,
    /// Tokens that a constraint left no choice about, and that were fed with others.
    pub forced_tokens: usize,
}

impl Statistics {
    /// Prompt tokens per second, those in the cache left out.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens - self.cached_tokens, self.prefill)
    }

    /// Generated tokens per second, the first left out: it came with the prompt.
    pub fn decode_rate(&self) -> f64 {
        rate(self.generated_tokens.saturating_sub(1), self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}

impl Model {
    /// Continues `prompt` in a new sequence. Names of special tokens in it are special tokens.
    pub fn generate(&self, prompt: &str, settings: &Settings) -> Result<Generation> {
        use akunu_text::tokenizer::{AddSpecial, Special};
        let tokens = self.tokenizer()?.encode(prompt, Special::Parse, AddSpecial::Yes);
        Generation::new(self.sequence()?, tokens, settings)
    }
}

impl<S: BorrowMut<Sequence>> Generation<S> {
    /// Continues `prompt` in `sequence`. What the two have in common is not fed again; what else the sequence holds is
    /// dropped.
    pub fn new(sequence: S, prompt: Vec<u32>, settings: &Settings) -> Result<Self> {
        Generation::begin(sequence, prompt, settings).map_err(|refused| refused.1)
    }

    /// The same for those who want the sequence back, as it was, where the request makes no sense.
    pub fn begin(mut sequence: S, prompt: Vec<u32>, settings: &Settings) -> Result<Self, Box<(S, Error)>> {
        let state = sequence.borrow_mut();
        let context = state.model().context();
        let (transcript, matcher) = match prepare(state, &prompt, settings) {
            Ok(prepared) => prepared,
            Err(error) => return Err(Box::new((sequence, error))),
        };
        state.renew_stop();
        Ok(Generation {
            tokens: Vec::with_capacity(settings.max_tokens.unwrap_or(context).min(context)),
            longest_chain: settings.longest_chain.max(1),
            context_shift: settings.context_shift,
            dropped: 0,
            chain: 1,
            transcript,
            ready: VecDeque::with_capacity(settings.longest_chain.max(1) + 1),
            speculator: Speculator::new(settings.speculate, &prompt),
            guesses: Vec::new(),
            matcher,
            forced: Vec::new(),
            chosen: Vec::new(),
            next: None,
            statistics: Statistics { prompt_tokens: prompt.len(), ..Statistics::default() },
            sequence,
            prompt,
        })
    }

    /// Feeds the prompt now rather than with the first piece. `progress` hears how many of how many tokens were fed.
    pub fn prefill(&mut self, mut progress: impl FnMut(usize, usize)) -> Result<()> {
        if self.next.is_some() || self.finish_reason().is_some() {
            return Ok(());
        }
        let begin = Instant::now();
        match self.feed_prompt(&mut progress) {
            Ok(first) => {
                self.statistics.prefill = begin.elapsed();
                self.statistics.first_token = begin.elapsed();
                if let Err(error) = self.accept_chosen(first) {
                    return self.fail(error);
                }
                self.settle()
            }
            Err(error) => self.fail(error),
        }
    }

    fn feed_prompt(&mut self, progress: &mut impl FnMut(usize, usize)) -> Result<u32> {
        let sequence = self.sequence.borrow_mut();
        let total = self.prompt.len();
        // The last token is always fed: what comes after it is not in the cache.
        let cached = sequence.keep_common_prefix(&self.prompt[..total - 1])?;
        self.statistics.cached_tokens = cached;
        progress(cached, total);
        let batch = sequence.model().batch();
        let mut fed = cached;
        while total - fed > batch {
            sequence.feed(&self.prompt[fed..fed + batch])?;
            fed += batch;
            progress(fed, total);
        }
        let mask = self.matcher.as_mut().map(Matcher::mask).transpose()?;
        let first = sequence.prefill_masked(&self.prompt[fed..], mask)?;
        progress(total, total);
        Ok(first)
    }

    /// Chooses at least one more token.
    fn advance(&mut self) -> Result<()> {
        let Some(next) = self.next else { return self.prefill(|_, _| {}) };
        let sequence = self.sequence.borrow_mut();
        if sequence.room() == 0 && self.context_shift && sequence.can_shift() {
            match sequence.shift() {
                Ok(dropped) => self.dropped += dropped,
                Err(error) => return self.fail(error),
            }
        }
        let sequence = self.sequence.borrow_mut();
        let room = sequence.room();
        // A token that is chosen last need not be fed.
        let wanted = self.transcript.wanted();
        if room == 0 {
            return self.end(FinishReason::Length);
        }
        if self.matcher.is_some() {
            return self.advance_constrained(next);
        }
        let begin = Instant::now();
        let most_guesses = (wanted - 1).min(room - 1).min(sequence.model().outputs() - 1);
        self.speculator.guess(most_guesses, &mut self.guesses);
        let chosen = if self.guesses.is_empty() {
            let n = self.chain.min(wanted).min(room).min(self.speculator.chain_limit());
            sequence.chain(next, n)
        } else {
            self.guesses.insert(0, next);
            sequence.verify(&self.guesses)
        };
        self.chosen.clear();
        match chosen {
            Ok(chosen) => self.chosen.extend_from_slice(chosen),
            Err(error) => return self.fail(error),
        }
        let time = begin.elapsed();
        let kept = if self.guesses.is_empty() {
            let tokens = self.chosen.len();
            self.speculator.chained(tokens, time);
            self.chain = next_chain(self.chain, self.longest_chain, tokens, time);
            tokens
        } else {
            let guesses = &self.guesses[1..];
            let right =
                guesses.iter().zip(&self.chosen).take_while(|(guess, chosen)| guess == chosen).count();
            self.statistics.guessed += guesses.len();
            self.statistics.right_guesses += right;
            self.speculator.verified(guesses.len(), right, right + 1, time);
            right + 1
        };
        // What was fed: the token from before and all of these but the last.
        let mut fed = 0;
        while fed < kept && self.finish_reason().is_none() {
            let token = self.chosen[fed];
            fed += 1;
            self.next = Some(token);
            self.accept(token);
        }
        self.sequence.borrow_mut().commit(fed)?;
        self.statistics.decode += begin.elapsed();
        self.settle()
    }

    /// The same where the text is constrained: what was chosen last, tokens that must follow it and guesses are fed in one
    /// run, and each token is chosen from those its mask has.
    fn advance_constrained(&mut self, next: u32) -> Result<()> {
        let begin = Instant::now();
        let chosen = match self.choose_constrained(next) {
            Ok(chosen) => chosen,
            Err(error) => return self.fail(error),
        };
        // The guesses that were right are followed already.
        let right = self.guesses.iter().zip(&chosen).take_while(|(guess, chosen)| guess == chosen).count();
        let wrong = self.guesses.len() - right;
        if !self.guesses.is_empty() {
            self.statistics.guessed += self.guesses.len();
            self.statistics.right_guesses += right;
            self.speculator.verified(self.guesses.len(), right, right + 1, begin.elapsed());
        } else {
            self.speculator.chained(1, begin.elapsed());
        }
        let mut fed = 1 + std::mem::take(&mut self.forced).len();
        for token in &chosen[..right] {
            if self.finish_reason().is_some() {
                break;
            }
            self.next = Some(*token);
            self.accept(*token);
            fed += 1;
        }
        self.sequence.borrow_mut().commit(fed)?;
        if self.finish_reason().is_none() {
            let followed = self.matcher.as_mut().map_or(Ok(()), |matcher| matcher.rollback(wrong));
            if let Err(error) = followed.and_then(|()| self.accept_chosen(chosen[right])) {
                return self.fail(error);
            }
        }
        self.statistics.decode += begin.elapsed();
        self.settle()
    }

    /// One token after all that must come, and one after every guess.
    fn choose_constrained(&mut self, next: u32) -> Result<Vec<u32>> {
        let sequence = self.sequence.borrow_mut();
        let first = self.forced.len();
        let room = (sequence.room() - 1 - first).min(sequence.model().batch() - 1 - first);
        let most = (self.transcript.wanted() - 1).min(room).min(sequence.model().outputs() - 1);
        self.speculator.guess(most, &mut self.guesses);
        let Some(matcher) = &mut self.matcher else { return Ok(Vec::new()) };
        let mut masks = vec![matcher.mask()?.to_vec()];
        for (i, &guess) in self.guesses.iter().enumerate() {
            // A guess that ends the text is none.
            if !matcher.allows(guess)? || sequence.model().tokenizer()?.is_eog(guess) {
                self.guesses.truncate(i);
                break;
            }
            matcher.commit(guess)?;
            masks.push(matcher.mask()?.to_vec());
        }
        let masks: Vec<_> = masks.iter().map(|mask| Some(mask.as_slice())).collect();
        let tokens: Vec<u32> = [next].iter().chain(&self.forced).chain(&self.guesses).copied().collect();
        Ok(sequence.verify_masked(&tokens, first, &masks)?.to_vec())
    }

    /// Takes a token that was chosen into the text, and all that must follow it.
    fn accept_chosen(&mut self, token: u32) -> Result<()> {
        self.next = Some(token);
        self.accept(token);
        let (Some(matcher), None) = (&mut self.matcher, self.transcript.finish()) else { return Ok(()) };
        matcher.commit(token)?;
        let sequence = self.sequence.borrow();
        // With the token before them and one guess or none they are fed in one run.
        let most = sequence.room().min(sequence.model().batch()).saturating_sub(2);
        let mut forced = matcher.forced();
        forced.truncate(most);
        for &token in &forced {
            if self.transcript.finish().is_some() {
                return Ok(());
            }
            if let Some(matcher) = &mut self.matcher {
                matcher.commit(token)?;
            }
            self.forced.push(token);
            self.statistics.forced_tokens += 1;
            self.accept(token);
        }
        if self.matcher.as_ref().is_some_and(Matcher::is_finished) {
            let rest = self.transcript.end(FinishReason::Stop);
            self.deliver(rest);
        }
        Ok(())
    }

    /// Takes the next token into the text, or ends there.
    fn accept(&mut self, token: u32) {
        let piece = self.transcript.accept(token);
        if self.transcript.generated() > self.statistics.generated_tokens {
            self.statistics.generated_tokens = self.transcript.generated();
            self.speculator.push(token);
        }
        self.deliver(piece);
    }

    fn deliver(&mut self, piece: Piece) {
        self.tokens.extend_from_slice(&piece.tokens);
        if !piece.text.is_empty() || !piece.tokens.is_empty() {
            self.ready.push_back(piece);
        }
    }

    fn end(&mut self, reason: FinishReason) -> Result<()> {
        let rest = self.transcript.end(reason);
        self.deliver(rest);
        self.settle()
    }

    /// At the end, takes back what was not kept.
    fn settle(&mut self) -> Result<()> {
        if self.finish_reason().is_none() {
            return Ok(());
        }
        // What stays of the beginning is never taken back: a stop string that long would have dropped itself.
        let kept = (self.prompt.len() + self.tokens.len()).saturating_sub(self.dropped);
        let sequence = self.sequence.borrow_mut();
        if kept < sequence.position() {
            if sequence.can_roll_back(kept) {
                sequence.rollback(kept)?;
            } else {
                sequence.reset();
            }
        }
        Ok(())
    }

    /// Ends the generation: a stop is no error.
    fn fail(&mut self, error: Error) -> Result<()> {
        self.end(FinishReason::Cancelled)?;
        if matches!(error, Error::Stopped) { Ok(()) } else { Err(error) }
    }

    /// Ends the generation from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.sequence.borrow().stop_handle()
    }

    /// What was generated so far and kept, as tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The prompt and what was kept, less what was dropped: what a prompt that goes on from here begins with.
    pub fn history(&self) -> Vec<u32> {
        if self.dropped == 0 {
            return [self.prompt.as_slice(), &self.tokens].concat();
        }
        let sequence = self.sequence.borrow();
        let held = (sequence.position() + self.dropped).saturating_sub(self.prompt.len());
        [sequence.tokens(), self.tokens.get(held..).unwrap_or_default()].concat()
    }

    /// Why it ended; `None` while it goes on.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.transcript.finish()
    }

    /// What it took so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Gives the sequence back.
    pub fn into_sequence(self) -> S {
        self.sequence
    }
}

/// Checks a request and readies a sequence for it.
fn prepare(
    sequence: &mut Sequence,
    prompt: &[u32],
    settings: &Settings,
) -> Result<(Transcript, Option<Matcher>)> {
    let model = sequence.model().clone();
    let context = model.context();
    if prompt.is_empty() {
        return Err(Error::Usage {
            problem: "the prompt is empty".to_owned(),
            hint: "give it at least one token".to_owned(),
        });
    }
    if prompt.len() > context {
        return Err(Error::TooLong { tokens: prompt.len(), context });
    }
    let transcript = Transcript::new(model.tokenizer()?.clone(), settings)?;
    let matcher = settings.constraint.as_ref().map(|constraint| model.matcher(constraint)).transpose()?;
    sequence.set_sampling(&settings.sampling)?;
    Ok((transcript, matcher))
}

/// Twice as long as long as that is quick enough.
fn next_chain(chain: usize, longest: usize, tokens: usize, time: Duration) -> usize {
    let per_token = time.as_secs_f64() / tokens.max(1) as f64;
    let quick = (LONGEST_RUN.as_secs_f64() / per_token.max(1e-9)) as usize;
    (2 * chain).min(quick).clamp(1, longest)
}

impl<S: BorrowMut<Sequence>> Iterator for Generation<S> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.finish_reason().is_some() {
                return None;
            }
            if let Err(error) = self.advance() {
                return Some(Err(error));
            }
        }
    }
}
