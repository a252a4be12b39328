//! The scheduler's thread: one step after another.

use std::sync::Arc;
use std::time::Instant;

use akunu_program::select::{Scratch, select};
use akunu_program::{BLOCK, Outputs, Phase, StopFlag, Work};

use super::log_probabilities::LogProbabilities;
use super::pace::Pace;
use super::prefix::PrefixCache;
use super::queue::{Load, Queue};
use super::running::{Chosen, Outcome, Running, begin};
use super::{Event, Job, Limits};
use crate::kv::Pools;
use crate::model::Model;
use crate::sequence::{self, Feed, Sequence, Wanted};
use crate::{Error, Result};

pub(super) struct Worker {
    model: Model,
    queue: Arc<Queue>,
    pace: Pace,
    prefixes: Option<PrefixCache>,
    /// In the order they began.
    running: Vec<Running>,
    load: Load,
    out: Outputs,
}

impl Worker {
    pub(super) fn new(model: Model, queue: Arc<Queue>, limits: &Limits) -> Worker {
        let windows = || model.0.groups.iter().map(|group| group.window).collect();
        Worker {
            prefixes: limits.reuse_prefixes.then(|| PrefixCache::new(windows())),
            model,
            queue,
            pace: Pace::new(limits.chunk),
            running: Vec::new(),
            load: Load::default(),
            out: Outputs::default(),
        }
    }

    /// Serves until the queue is closed.
    pub(super) fn work(mut self) {
        while self.admit() {
            self.plan();
            self.step();
            self.running.retain_mut(|running| !running.finish());
        }
        for mut running in self.running.drain(..) {
            running.abort(Error::Stopped);
        }
        // The blocks are the model's, which the next scheduler may be for.
        if let Some(cache) = &mut self.prefixes {
            cache.clear(&mut self.model.engine().pools);
        }
        for job in self.queue.end() {
            let _ = job.events.send(Event::Failed(Error::Stopped));
        }
    }

    /// Lets go of requests nobody listens to, and begins others while there are sequences. False at the end.
    fn admit(&mut self) -> bool {
        self.running.retain(|running| !running.job.events.is_closed());
        let clients: Vec<u64> = self.running.iter().map(|running| running.job.request.client).collect();
        let used: usize = self.running.iter().map(Running::sequences).sum();
        self.load.running = self.running.len();
        self.load.kept_tokens = self.prefixes.as_ref().map_or(0, PrefixCache::len);
        let free = self.model.sequences().saturating_sub(used);
        let Some(jobs) = self.queue.take(&clients, free, self.load) else { return false };
        for job in jobs {
            self.begin(job);
        }
        true
    }

    fn begin(&mut self, job: Job) {
        let prompt = &job.request.prompt;
        // The last token is always fed: what comes after it is not in the cache.
        let (cached, prefixes) = match &mut self.prefixes {
            Some(cache) => cache.find(&prompt[..prompt.len() - 1]),
            None => (0, Vec::new()),
        };
        let (events, prompt_tokens) = (job.events.clone(), prompt.len());
        let begun = begin(&self.model, &prompt[..cached], prefixes)
            .and_then(|sequence| self.part_from_cache(sequence))
            .and_then(|sequence| {
                let cached = sequence.position();
                self.load.prompt_tokens += prompt_tokens as u64;
                self.load.cached_tokens += cached as u64;
                Running::new(job, sequence, cached)
            });
        match begun {
            Ok(running) => self.running.push(running),
            Err(error) => drop(events.send(Event::Failed(error))),
        }
    }

    /// Gives a sequence its own copy of the block it begins with a part of. Where there is no room for that, it reads that part
    /// itself: whole blocks are shared as they are and take none.
    fn part_from_cache(&mut self, mut sequence: Sequence) -> Result<Sequence> {
        let cached = sequence.position();
        if !cached.is_multiple_of(BLOCK) {
            let model = self.model.clone();
            let reserved = reserve(&model, &mut model.engine().pools, &mut self.prefixes, &mut sequence, 1);
            if reserved.is_err() {
                sequence.rollback(cached / BLOCK * BLOCK)?;
            }
        }
        Ok(sequence)
    }

    /// Decides what each choice is fed: one token where text is generated (and those that must follow it), and equal shares of what is left of the step where
    /// prompts are read.
    fn plan(&mut self) {
        self.each(Running::fork);
        let mut rows = self.model.batch();
        let decoding = self.running.iter().flat_map(|running| &running.choices).filter(|c| c.is_decoding());
        let flowing = decoding.count();
        // Beyond one token for each text.
        let mut more = rows.saturating_sub(flowing).min(self.pace.chunk(1, flowing));
        let mut unread = Vec::new();
        for (r, running) in self.running.iter_mut().enumerate() {
            for c in 0..running.choices.len() {
                let left = running.unread(c);
                let choice = &mut running.choices[c];
                choice.planned = 0;
                if choice.is_decoding() {
                    let forced = more.min(choice.pending() - 1);
                    more -= forced;
                    choice.planned = 1 + forced;
                }
                rows -= choice.planned;
                if left > 0 {
                    unread.push((left, r, c));
                }
            }
        }
        let decoding = rows < self.model.batch();
        let mut budget = if decoding { rows.min(self.pace.chunk(unread.len(), flowing)) } else { rows };
        // Whoever needs less than a share leaves the rest to the others.
        unread.sort_by_key(|(left, ..)| *left);
        let mut sharing = unread.len();
        for (left, r, c) in unread {
            // Rounded up, so that a small budget still moves someone: those who need least first.
            let planned = left.min(budget.div_ceil(sharing));
            self.running[r].choices[c].planned = planned;
            budget -= planned;
            sharing -= 1;
        }
    }

    /// Runs what is planned.
    fn step(&mut self) {
        self.reserve();
        let planned: Vec<(usize, usize, usize)> = self.planned();
        if planned.is_empty() || self.run().is_ok() {
            return;
        }
        // Somebody's share failed, and nothing was taken up: find out whose.
        for &(r, c, rows) in &planned {
            self.running.iter_mut().flat_map(|running| &mut running.choices).for_each(|c| c.planned = 0);
            let Some(choice) = self.running.get_mut(r).and_then(|running| running.choices.get_mut(c)) else {
                continue;
            };
            if choice.sequence.is_none() {
                continue;
            }
            choice.planned = rows;
            if let Err(error) = self.run() {
                // The others keep their places until all have been tried.
                self.running[r].abort(error);
            }
        }
    }

    /// Whose turn it is, and with how many rows.
    fn planned(&self) -> Vec<(usize, usize, usize)> {
        let choices = |(r, running): (usize, &Running)| {
            let planned: Vec<usize> = running.choices.iter().map(|choice| choice.planned).collect();
            planned.into_iter().enumerate().map(move |(c, rows)| (r, c, rows)).filter(|(.., rows)| *rows > 0)
        };
        self.running.iter().enumerate().flat_map(choices).collect()
    }

    /// Makes room in the cache for what is planned. A choice for which there is none sits this step out.
    fn reserve(&mut self) {
        let model = self.model.clone();
        let engine = &mut *model.engine();
        for choice in self.running.iter_mut().flat_map(|running| &mut running.choices) {
            let Some(sequence) = choice.sequence.as_mut().filter(|_| choice.planned > 0) else { continue };
            let reserved = reserve(&model, &mut engine.pools, &mut self.prefixes, sequence, choice.planned);
            if reserved.is_err() {
                choice.planned = 0;
            }
        }
    }

    /// Runs what is planned, and takes up what it brought. After an error nothing has changed.
    fn run(&mut self) -> Result<()> {
        self.each(Running::mask);
        let logits = self.running.iter().any(Running::wants_logits);
        let work = if logits { Work::Forward } else { Work::Step };
        let mut feeds = Vec::new();
        self.running.iter_mut().for_each(|running| running.feeds(!logits, &mut feeds));
        let placed = prompts_first(&mut feeds);
        let decoded = feeds.iter().filter(|feed| feed.phase == Phase::Decode).count();
        let prompts = feeds.iter().filter(|feed| feed.phase == Phase::Prompt);
        let read = prompts.map(|feed| feed.tokens.len()).sum();
        let began = Instant::now();
        sequence::run(&self.model, &mut feeds, work, &StopFlag::default(), &mut self.out)?;
        drop(feeds);
        self.pace.observe(decoded, read, began.elapsed());
        self.load.steps += 1;
        let (out, width) = (&self.out, self.model.vocabulary());
        let mut next = 0;
        for running in &mut self.running {
            // A request that fails midway leaves the rows of its other choices unread.
            let mut rows = next..next + running.outputs();
            next = rows.end;
            let outcome = |at: &Outcome<'_>| match rows.next().map(|row| placed[row]) {
                Some(row) if logits => choose(&out.logits[row * width..][..width], at),
                Some(row) => Ok(out.tokens[row].into()),
                None => unreachable!("a row for every choice that chooses"),
            };
            let generated = running.generated();
            if let Err(error) = running.advance(outcome) {
                running.abort(error);
            }
            self.load.generated_tokens += (running.generated() - generated) as u64;
        }
        // First what prompts leave behind: one that is answered with a single token has its end here.
        self.remember();
        self.running.iter_mut().for_each(Running::release);
        Ok(())
    }

    /// Keeps prompts for others: whole blocks as soon as they are read, the rest when the text after it has ended and nobody
    /// writes to that block any more. Only what was fed as a prompt: what was generated may differ from it in the last bits, and a
    /// text must not depend on who came before.
    fn remember(&mut self) {
        let Some(cache) = &mut self.prefixes else { return };
        let engine = &mut *self.model.engine();
        for running in &mut self.running {
            let Some(choice) = running.choices.first() else { continue };
            let Some(sequence) = &choice.sequence else { continue };
            let prompt = &running.job.request.prompt;
            let read = sequence.position().min(prompt.len());
            let kept = if choice.is_finished() { read } else { read / BLOCK * BLOCK };
            if kept > running.remembered {
                running.remembered = kept;
                cache.insert(&mut engine.pools, &prompt[..kept], |index| sequence.blocks(index));
            }
        }
    }

    /// Does something with every request; those with which it fails end.
    fn each(&mut self, mut work: impl FnMut(&mut Running) -> Result<()>) {
        for running in &mut self.running {
            if let Err(error) = work(running) {
                running.abort(error);
            }
        }
    }
}

/// Puts prompts before texts: kernels take prompts in tiles of so many rows of a batch, and one that begins with a tile fills the
/// fewest. The output rows of the feeds that have one, in the order these were in.
fn prompts_first(feeds: &mut [Feed<'_>]) -> Vec<usize> {
    let is_text = |feed: &Feed<'_>| feed.phase == Phase::Decode;
    let chooses = |feed: &&Feed<'_>| matches!(feed.wanted, Wanted::Last);
    let first_of_texts = feeds.iter().filter(chooses).filter(|feed| !is_text(feed)).count();
    let (mut of_prompts, mut of_texts) = (0, first_of_texts);
    let place = |feed: &Feed<'_>| {
        let next = if is_text(feed) { &mut of_texts } else { &mut of_prompts };
        *next += 1;
        *next - 1
    };
    let placed = feeds.iter().filter(chooses).map(place).collect();
    feeds.sort_by_key(is_text);
    placed
}

/// Makes room for `rows` more tokens of a sequence, at the cost of prompts that are kept if it must be.
fn reserve(
    model: &Model,
    pools: &mut Pools,
    prefixes: &mut Option<PrefixCache>,
    sequence: &mut Sequence,
    rows: usize,
) -> Result<()> {
    let mut reserved = sequence.reserve(pools, rows);
    for group in 0..model.0.groups.len() {
        let (Some(cache), Err(Error::CacheFull { needed, .. })) = (&mut *prefixes, &reserved) else { break };
        cache.evict(pools, group, needed.div_ceil(BLOCK));
        reserved = sequence.reserve(pools, rows);
    }
    reserved
}

/// The token the sampler chooses by these logits, and how likely it was.
fn choose(logits: &[f32], at: &Outcome<'_>) -> Result<Chosen> {
    let position = at.history.len() as u32 - 1;
    let mut scratch = Scratch::new(0, 0);
    let token = select(&mut logits.to_vec(), at.sampling, at.history, position, at.mask, &mut scratch)
        .ok_or(akunu_program::Error::NoChoice { position })?;
    let log_probabilities = at.wanted.map(|count| LogProbabilities::new(logits, token, count));
    Ok(Chosen { token, log_probabilities })
}

impl From<u32> for Chosen {
    fn from(token: u32) -> Chosen {
        Chosen { token, log_probabilities: None }
    }
}
