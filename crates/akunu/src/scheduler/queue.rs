//! Requests that wait, and what both sides know of each other.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Job;
use crate::{Error, Result};

/// What a scheduler is doing, and has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that are being served.
    pub running: usize,
    /// Tokens whose keys and values are kept for prompts to come.
    pub kept_tokens: usize,
    /// Runs of the model.
    pub steps: u64,
    /// Tokens of the prompts that were begun.
    pub prompt_tokens: u64,
    /// Of those, tokens that were in the cache already.
    pub cached_tokens: u64,
    /// Tokens that were generated.
    pub generated_tokens: u64,
}

/// Whether requests are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closing {
    /// They are.
    Open,
    /// Those that are here are finished.
    Draining,
    /// Everything ends.
    Now,
}

/// Requests that wait for a sequence.
pub(super) struct Queue {
    /// Most requests that wait although no sequence is free.
    limit: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// In the order they came.
    waiting: Vec<Job>,
    /// Sequences nobody uses.
    free: usize,
    closing: Closing,
    load: Load,
}

impl Queue {
    pub(super) fn new(limit: usize, sequences: usize) -> Queue {
        let state =
            State { waiting: Vec::new(), free: sequences, closing: Closing::Open, load: Load::default() };
        Queue { limit, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change to the state is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: Job) -> Result<()> {
        let mut state = self.state();
        if state.closing != Closing::Open {
            return Err(Error::Stopped);
        }
        // Those who went away wait no longer.
        state.waiting.retain(|job| !job.events.is_closed());
        if state.waiting.len() >= self.limit + state.free {
            return Err(Error::Busy { waiting: state.waiting.len() });
        }
        state.waiting.push(job);
        self.changed.notify_all();
        Ok(())
    }

    pub(super) fn close(&self, closing: Closing) {
        let mut state = self.state();
        state.closing = state.closing.max(closing);
        self.changed.notify_all();
    }

    pub(super) fn load(&self) -> Load {
        let state = self.state();
        Load { waiting: state.waiting.len(), ..state.load }
    }

    /// The requests that are to run next to those of `running` clients, given that so many sequences are `free`. Waits for one
    /// when nothing runs. `None` when there is nothing left to do.
    pub(super) fn take(&self, running: &[u64], mut free: usize, load: Load) -> Option<Vec<Job>> {
        let mut state = self.state();
        state.load = load;
        while running.is_empty() && state.waiting.is_empty() && state.closing == Closing::Open {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let idle = running.is_empty() && state.waiting.is_empty();
        if state.closing == Closing::Now || (state.closing == Closing::Draining && idle) {
            return None;
        }
        state.waiting.retain(|job| !job.events.is_closed());
        let mut running = running.to_vec();
        let mut taken = Vec::new();
        while let Some(next) = next(&state.waiting, &running) {
            // One that needs many sequences is not passed by.
            if state.waiting[next].request.choices > free {
                break;
            }
            let job = state.waiting.remove(next);
            free -= job.request.choices;
            running.push(job.request.client);
            taken.push(job);
        }
        state.free = free;
        Some(taken)
    }

    /// Ends: what still waits is told, and nothing more is taken.
    pub(super) fn end(&self) -> Vec<Job> {
        let mut state = self.state();
        state.closing = Closing::Now;
        std::mem::take(&mut state.waiting)
    }
}

/// Of those that wait, the first whose client has the fewest running.
fn next(waiting: &[Job], running: &[u64]) -> Option<usize> {
    let served = |job: &Job| running.iter().filter(|client| **client == job.request.client).count();
    (0..waiting.len()).min_by_key(|&i| served(&waiting[i]))
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use crate::scheduler::{Event, Request};

    fn job(client: u64, choices: usize) -> (Job, UnboundedReceiver<Event>) {
        let (events, receiver) = unbounded_channel();
        let request = Request { choices, client, ..Request::new(vec![1]) };
        let job = Job { request, transcripts: Vec::new(), matcher: None, events, submitted: Instant::now() };
        (job, receiver)
    }

    /// The clients of the requests that are taken.
    fn taken(queue: &Queue, running: &[u64], free: usize) -> Vec<u64> {
        let jobs = queue.take(running, free, Load::default()).unwrap();
        jobs.iter().map(|job| job.request.client).collect()
    }

    #[test]
    fn refuses_more_than_may_wait_until_one_goes_away() {
        let queue = Queue::new(2, 1);
        let mut receivers = Vec::new();
        for client in 0..3 {
            let (job, receiver) = job(client, 1);
            queue.push(job).unwrap();
            receivers.push(receiver);
        }
        assert!(matches!(queue.push(job(3, 1).0), Err(Error::Busy { waiting: 3 })));
        drop(receivers.remove(1));
        queue.push(job(3, 1).0).unwrap();
        assert_eq!(taken(&queue, &[], 1), [0]);
        // Nothing is free now, and one waits: another may.
        let (last, _receiver) = job(4, 1);
        queue.push(last).unwrap();
        assert!(matches!(queue.push(job(5, 1).0), Err(Error::Busy { waiting: 2 })));
    }

    #[test]
    fn one_client_does_not_keep_others_out() {
        let queue = Queue::new(16, 1);
        let jobs: Vec<_> = [7, 7, 7, 8, 9].map(|client| job(client, 1)).into_iter().collect();
        let (jobs, _receivers): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        jobs.into_iter().for_each(|job| queue.push(job).unwrap());
        assert_eq!(taken(&queue, &[], 2), [7, 8]);
        assert_eq!(taken(&queue, &[7], 3), [9, 7, 7]);
    }

    #[test]
    fn a_request_that_needs_many_sequences_is_not_passed_by() {
        let queue = Queue::new(16, 4);
        let (jobs, _receivers): (Vec<_>, Vec<_>) = [job(1, 3), job(2, 1)].into_iter().unzip();
        jobs.into_iter().for_each(|job| queue.push(job).unwrap());
        assert_eq!(taken(&queue, &[5], 2), [0; 0]);
        assert_eq!(taken(&queue, &[5], 4), [1, 2]);
    }

    #[test]
    fn ends_when_closed_and_empty() {
        let queue = Queue::new(16, 1);
        let (waiting, _receiver) = job(1, 1);
        queue.push(waiting).unwrap();
        queue.close(Closing::Draining);
        assert!(matches!(queue.push(job(2, 1).0), Err(Error::Stopped)));
        assert_eq!(taken(&queue, &[], 1), [1]);
        assert!(queue.take(&[], 1, Load::default()).is_none());
    }
}
