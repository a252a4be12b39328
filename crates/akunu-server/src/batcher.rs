//! Texts of many requests, embedded together.
//!
//! One thread owns an embedder. In every step it takes texts from all requests that wait, in turn, so that a request with
//! thousands of texts does not hold up one with a single text, and small requests share a step.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use akunu::embed::{Embedder, Shape};
use tokio::sync::oneshot;

use crate::error::ApiError;

/// Most tokens of a step, unless one text has more.
const STEP_TOKENS: usize = 512;
/// Most texts of a step.
const STEP_TEXTS: usize = 64;

type Vectors = Result<Vec<Vec<f32>>, ApiError>;

/// An embedder and those who wait for it.
#[derive(Debug)]
pub(crate) struct Batcher {
    embedder: Arc<Embedder>,
    shared: Arc<Shared>,
    /// Most requests that wait.
    most: usize,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// The one whose turn is first comes first.
    jobs: VecDeque<Job>,
    closed: bool,
}

/// One request.
#[derive(Debug)]
struct Job {
    /// Texts as tokens.
    texts: Vec<Vec<u32>>,
    /// As many as are done.
    vectors: Vec<Vec<f32>>,
    shape: Shape,
    reply: oneshot::Sender<Vectors>,
}

impl Batcher {
    pub(crate) fn new(embedder: Arc<Embedder>, most: usize) -> std::io::Result<Batcher> {
        let shared = Arc::new(Shared::default());
        let (own, jobs) = (Arc::clone(&embedder), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("embedder".to_owned()).spawn(move || {
            let closing = Closing(jobs);
            closing.0.run(&own);
        })?;
        Ok(Batcher { embedder, shared, most, thread: Some(thread) })
    }

    pub(crate) fn embedder(&self) -> &Embedder {
        &self.embedder
    }

    /// Requests that are not done.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// Vectors of texts given as tokens. A caller that goes away is forgotten.
    pub(crate) async fn embed(&self, texts: Vec<Vec<u32>>, shape: Shape) -> Vectors {
        let (reply, answer) = oneshot::channel();
        {
            let mut queue = self.shared.lock();
            if queue.closed {
                return Err(akunu::Error::Stopped.into());
            }
            if queue.jobs.len() >= self.most {
                return Err(akunu::Error::Busy { waiting: queue.jobs.len() }.into());
            }
            queue.jobs.push_back(Job { texts, vectors: Vec::new(), shape, reply });
        }
        self.shared.changed.notify_one();
        answer.await.unwrap_or_else(|_| Err(akunu::Error::Stopped.into()))
    }

    /// Takes no more requests, and ends those it has.
    pub(crate) fn abort(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.abort();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// Lets nobody wait for a thread that has ended, in whatever way.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        queue.jobs.clear();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, embedder: &Embedder) {
        let mut queue = self.lock();
        loop {
            queue.jobs.retain(|job| !job.reply.is_closed());
            if queue.closed {
                return;
            }
            let Some(first) = queue.jobs.front() else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let shape = first.shape;
            let counts = share(&queue.jobs, shape);
            let taken = queue.jobs.iter().zip(&counts).flat_map(|(job, &count)| job.left()[..count].to_vec());
            let texts: Vec<Vec<u32>> = taken.collect();
            // Others may come meanwhile; they stand behind.
            drop(queue);
            let vectors = embedder.embed(&texts, shape).map_err(ApiError::from);
            queue = self.lock();
            let mut vectors = vectors.map(Vec::into_iter);
            for (mut job, count) in std::mem::take(&mut queue.jobs)
                .into_iter()
                .zip(counts.into_iter().chain(std::iter::repeat(0)))
            {
                match &mut vectors {
                    Ok(vectors) => job.vectors.extend(vectors.take(count)),
                    Err(error) if count > 0 => {
                        let _ = job.reply.send(Err(error.clone()));
                        continue;
                    }
                    Err(_) => {}
                }
                if job.left().is_empty() {
                    // Whoever asked may be gone.
                    let _ = job.reply.send(Ok(job.vectors));
                } else {
                    queue.jobs.push_back(job);
                }
            }
            if !queue.jobs.is_empty() {
                queue.jobs.rotate_left(1);
            }
        }
    }
}

impl Job {
    fn left(&self) -> &[Vec<u32>] {
        &self.texts[self.vectors.len()..]
    }
}

/// How many texts of each job a step takes: one of each that wants this shape in turn, as long as they fit; one at least.
fn share(jobs: &VecDeque<Job>, shape: Shape) -> Vec<usize> {
    let mut counts = vec![0; jobs.len()];
    let (mut texts, mut tokens) = (0, 0);
    loop {
        let before = texts;
        for (job, count) in jobs.iter().zip(&mut counts).filter(|(job, _)| job.shape == shape) {
            let Some(next) = job.left().get(*count) else { continue };
            if texts > 0 && (texts == STEP_TEXTS || tokens + next.len() > STEP_TOKENS) {
                return counts;
            }
            *count += 1;
            texts += 1;
            tokens += next.len();
        }
        if texts == before {
            return counts;
        }
    }
}

#[cfg(test)]
mod tests {
    use akunu::embed::EmbedOptions;

    use super::*;

    fn job(lengths: &[usize], shape: Shape) -> Job {
        let texts = lengths.iter().map(|&length| vec![0; length]).collect();
        Job { texts, vectors: Vec::new(), shape, reply: oneshot::channel().0 }
    }

    #[test]
    fn nobody_waits_for_an_embedder_that_has_ended() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../akunu-program/tests/fixtures/encoders/bert/model.gguf");
        let batcher =
            Batcher::new(Arc::new(Embedder::load(path, &EmbedOptions::default()).unwrap()), 4).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let embed = || runtime.block_on(batcher.embed(vec![vec![1, 2]], Shape::default()));
        assert_eq!(embed().unwrap().len(), 1);
        batcher.abort();
        assert!(embed().is_err());
    }

    #[test]
    fn requests_take_turns_and_share_a_step() {
        let (plain, other) = (Shape::default(), Shape { dimensions: Some(3), normalize: true });
        let jobs = |list: Vec<Job>| VecDeque::from(list);
        assert_eq!(share(&jobs(vec![job(&[5; 1000], plain), job(&[5], plain)]), plain), [63, 1]);
        assert_eq!(share(&jobs(vec![job(&[200; 9], plain), job(&[200; 9], plain)]), plain), [1, 1]);
        // One that is too long for a step still has its own.
        assert_eq!(share(&jobs(vec![job(&[9000, 1], plain), job(&[1], plain)]), plain), [1, 0]);
        assert_eq!(share(&jobs(vec![job(&[1], plain), job(&[1], other)]), plain), [1, 0]);
        assert_eq!(share(&jobs(vec![job(&[1, 2], plain)]), plain), [2]);
    }
}
