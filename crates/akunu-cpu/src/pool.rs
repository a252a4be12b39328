//! The workers: threads that run one job together, in lock-step.
//!
//! The caller is worker 0. Waiting (for a job, or for the others at a [`Team::barrier`]) spins for some tens of microseconds, then
//! lets others have the processor if they want it, and in the end sleeps. A worker that panics releases all others; the job then
//! fails instead of hanging.

use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Error;
use crate::memory::Turn;

/// How long a worker spins before it offers the processor to others: longer than workers that nobody disturbs wait for one another in
/// decoding, short enough not to be felt by others on the machine.
const SPIN: Duration = Duration::from_micros(60);

/// How long it waits before it sleeps. Who sleeps must be woken, and on a virtual machine whose processors others use, too, a
/// processor that sleeps has lost its turn, and gets it back after milliseconds. So those who wait for others in a job, who come as
/// soon as they can, are patient for longer than a turn (`docs/performance-notes.md` has what that is worth); those who wait for the
/// next job, for longer than it takes to say what was found by the last one.
const PATIENCE: Duration = Duration::from_millis(20);
const PATIENCE_BETWEEN_JOBS: Duration = Duration::from_millis(1);

/// Spins between looks at the clock.
const SPINS_PER_LOOK: u32 = 64;

/// Why a job was cut short, or not begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("a worker failed; this is a bug")]
    Failed,
    #[error(
        "this process was forked from the one that loaded the model, and has no threads to run it: load it after forking"
    )]
    Forked,
}

/// The threads and what they share.
pub(crate) struct Pool {
    team: Arc<Team>,
    threads: Vec<JoinHandle<()>>,
    /// The process the threads belong to.
    process: u32,
    /// Held for the length of a job: one at a time.
    lease: Mutex<()>,
}

type Job = *const (dyn Fn(usize, &Team) -> Result<(), Broken> + Sync);

/// What the workers of a pool share; handed to the job.
pub(crate) struct Team {
    size: u32,
    /// Workers that have arrived at the current barrier.
    arrived: Apart<AtomicU32>,
    /// How often units were taken since the last barrier, or the beginning of the job.
    taken: Apart<AtomicUsize>,
    pace: Pace,
    /// Counts barriers passed.
    passed: Signal,
    /// Counts jobs begun.
    begun: Signal,
    /// Workers still in the current job, the caller not counted.
    busy: AtomicU32,
    finished: Signal,
    broken: AtomicBool,
    closing: AtomicBool,
    job: Turn<Option<Job>>,
}

// SAFETY: the job pointer is to something `Sync`, and is only followed between the `begun` and `finished` signals of the
// job, while `Pool::run_beside` keeps it alive.
unsafe impl Send for Team {}
// SAFETY: as above.
unsafe impl Sync for Team {}

/// How work is divided that is not given out bit by bit: those who were faster lately have more of it. Others on the machine slow
/// down one processor or another for milliseconds, and a product of several rows takes a tenth of one.
struct Pace {
    /// How much each worker has, in proportion to all. Never nothing.
    parts: Vec<AtomicU32>,
    /// Nanoseconds that each worker took since the last barrier; 0 if it did nothing of the kind.
    times: Vec<Apart<AtomicU32>>,
}

impl Pace {
    /// What an even part is.
    const EVEN: f32 = 4096.0;

    /// How far a part moves, of an even one, for who took twice as long as all in the mean, or no time. Larger ones follow a disturbance
    /// sooner, and single late arrivals as well: a fifth to two fifths were best where arrivals had been written down.
    const GAIN: f32 = 0.2;

    /// A part is an even one divided by this at least, and one multiplied by it at most: a worker that stood still gets its work back soon.
    const MOST: f32 = 2.0;

    fn new(workers: u32) -> Pace {
        Pace {
            parts: (0..workers).map(|_| AtomicU32::new(Pace::EVEN as u32)).collect(),
            times: (0..workers).map(|_| Apart::default()).collect(),
        }
    }

    /// Changes the parts, for the last worker to arrive at a barrier: nobody else looks at them meanwhile.
    fn adapt(&self) {
        let times = || self.times.iter().map(|time| time.0.load(Ordering::Relaxed));
        if times().all(|time| time == 0) {
            return;
        }
        if times().all(|time| time > 0) {
            let mean = times().map(|time| time as f32).sum::<f32>() / self.parts.len() as f32;
            for (part, time) in self.parts.iter().zip(times()) {
                let early = (1.0 - time as f32 / mean).max(-1.0);
                let then = part.load(Ordering::Relaxed) as f32 + Pace::GAIN * Pace::EVEN * early;
                let then = then.clamp(Pace::EVEN / Pace::MOST, Pace::EVEN * Pace::MOST);
                part.store(then.round() as u32, Ordering::Relaxed);
            }
        }
        self.times.iter().for_each(|time| time.0.store(0, Ordering::Relaxed));
    }
}

/// A worker's turns at units of work, of which each begins with those of its own number and takes more when it is done
/// with them: units may be of different sizes, and workers of different speed.
pub(crate) struct Turns<'a> {
    team: &'a Team,
    /// Units that are taken together.
    together: usize,
    /// The unit that the worker does.
    pub(crate) unit: usize,
    /// The one it does after that, which can be asked for meanwhile.
    pub(crate) next: usize,
}

impl<'a> Turns<'a> {
    pub(crate) fn new(team: &'a Team, worker: usize, together: usize) -> Turns<'a> {
        let unit = worker * together;
        Turns { team, together, unit, next: after(team, unit, together) }
    }

    /// Goes on to the next unit.
    pub(crate) fn pass(&mut self) {
        self.unit = self.next;
        self.next = after(self.team, self.unit, self.together);
    }
}

/// The unit that a worker does after another.
fn after(team: &Team, unit: usize, together: usize) -> usize {
    if (unit + 1).is_multiple_of(together) { (team.size() + team.take()) * together } else { unit + 1 }
}

/// Something that has cache lines of its own (two, since they are fetched in pairs): workers that wait on one counter are not
/// disturbed by changes of another.
#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

/// A counter one can wait on.
#[derive(Default)]
#[repr(align(128))]
struct Signal {
    count: AtomicU32,
    sleepers: AtomicU32,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Signal {
    fn raise(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
    }

    /// Waits until the counter is no longer `old`, asleep once its patience is at an end.
    fn wait(&self, old: u32, patience: Duration) {
        let mut begin = None;
        loop {
            for _ in 0..SPINS_PER_LOOK {
                if self.count.load(Ordering::Acquire) != old {
                    return;
                }
                std::hint::spin_loop();
            }
            let waited = begin.get_or_insert_with(Instant::now).elapsed();
            if waited > patience {
                break;
            }
            if waited > SPIN {
                thread::yield_now();
            }
        }
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.count.load(Ordering::SeqCst) == old {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// How many workers there are.
    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }

    /// How many times units have been taken since the last barrier, the first ones of each worker left out: whoever is faster takes more.
    /// Between two barriers there is one count, for one kind of work.
    fn take(&self) -> usize {
        self.taken.0.fetch_add(1, Ordering::Relaxed)
    }

    /// A worker's part of work that is divided by the workers' pace, and what all of it is. The same until the next barrier.
    pub(crate) fn part(&self, worker: usize) -> (Range<usize>, usize) {
        let sum = |parts: &[AtomicU32]| parts.iter().map(|part| part.load(Ordering::Relaxed) as usize).sum();
        let parts = &self.pace.parts;
        (sum(&parts[..worker])..sum(&parts[..=worker]), sum(parts))
    }

    /// Remembers how long a worker took for its part.
    pub(crate) fn worked(&self, worker: usize, time: Duration) {
        let nanoseconds = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX).max(1);
        self.pace.times[worker].0.store(nanoseconds, Ordering::Relaxed);
    }

    /// Waits until every worker has come here. An error when one never will.
    pub(crate) fn barrier(&self) -> Result<(), Broken> {
        if self.size == 1 {
            self.taken.0.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let now = self.passed.count.load(Ordering::Acquire);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.taken.0.store(0, Ordering::Relaxed);
            self.pace.adapt();
            self.passed.raise();
        } else if !self.broken.load(Ordering::SeqCst) {
            // A panic from here on raises the signal, so this cannot wait for ever.
            self.passed.wait(now, PATIENCE);
        }
        if self.broken.load(Ordering::Relaxed) { Err(Broken::Failed) } else { Ok(()) }
    }

    /// Does one worker's part of a job; a panic sets everyone free.
    fn take_part(&self, part: impl FnOnce(&Team) -> Result<(), Broken>) -> Result<(), Broken> {
        let result = panic::catch_unwind(AssertUnwindSafe(|| part(self)));
        if result.is_err() {
            self.broken.store(true, Ordering::SeqCst);
            self.passed.raise();
        }
        result.unwrap_or(Err(Broken::Failed))
    }

    fn serve(&self, worker: usize) {
        let mut seen = 0;
        loop {
            self.begun.wait(seen, PATIENCE_BETWEEN_JOBS);
            seen = seen.wrapping_add(1);
            if self.closing.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: written before `begun` was raised, and not again before this worker has left `busy`.
            if let Some(job) = unsafe { *self.job.get() } {
                // SAFETY: `Pool::run_beside` keeps the job alive until every worker has finished.
                let job = unsafe { &*job };
                // The caller learns of a panic from `broken`.
                let _ = self.take_part(|team| job(worker, team));
            }
            if self.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finished.raise();
            }
        }
    }
}

impl Pool {
    /// A pool of `threads` workers, the caller of each job included.
    pub(crate) fn new(threads: usize) -> Result<Pool, Error> {
        let size = u32::try_from(threads).ok().filter(|&size| size > 0).ok_or(Error::Threads(threads))?;
        let team = Arc::new(Team {
            size,
            arrived: Apart::default(),
            taken: Apart::default(),
            pace: Pace::new(size),
            passed: Signal::default(),
            begun: Signal::default(),
            busy: AtomicU32::new(0),
            finished: Signal::default(),
            broken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            job: Turn::new(None),
        });
        let mut pool = Pool { team, threads: Vec::new(), process: process::id(), lease: Mutex::new(()) };
        for worker in 1..threads {
            let team = Arc::clone(&pool.team);
            let thread = thread::Builder::new()
                .name(format!("akunu-cpu-{worker}"))
                .spawn(move || team.serve(worker))
                .map_err(Error::Spawn)?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Runs `job(worker, team)` on every worker and waits for all.
    pub(crate) fn run(
        &self,
        job: &(dyn Fn(usize, &Team) -> Result<(), Broken> + Sync),
    ) -> Result<(), Broken> {
        self.run_beside(job, |team| job(0, team))
    }

    /// The same, where the caller's part of the job is one of its own, which may use what other threads must not.
    pub(crate) fn run_beside(
        &self,
        job: &(dyn Fn(usize, &Team) -> Result<(), Broken> + Sync),
        own: impl FnOnce(&Team) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        if process::id() != self.process {
            return Err(Broken::Forked);
        }
        let _lease = lock(&self.lease);
        let team = &*self.team;
        team.arrived.0.store(0, Ordering::Relaxed);
        team.taken.0.store(0, Ordering::Relaxed);
        team.broken.store(false, Ordering::Relaxed);
        let before = team.finished.count.load(Ordering::Relaxed);
        // SAFETY: only the lifetime changes; no worker follows the pointer after `finished`, which is awaited below.
        let erased: Job =
            unsafe { std::mem::transmute::<&(dyn Fn(usize, &Team) -> Result<(), Broken> + Sync), Job>(job) };
        if team.size > 1 {
            // SAFETY: no job is running: the lease is held and the last job's workers have all finished.
            unsafe { *team.job.get_mut() = Some(erased) };
            team.busy.store(team.size - 1, Ordering::Relaxed);
            team.begun.raise();
        }
        let result = team.take_part(own);
        if team.size > 1 {
            team.finished.wait(before, PATIENCE);
        }
        if team.broken.load(Ordering::SeqCst) { Err(Broken::Failed) } else { result }
    }

    pub(crate) fn size(&self) -> usize {
        self.team.size()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if process::id() != self.process {
            // The threads are the other process's.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.team.closing.store(true, Ordering::SeqCst);
        self.team.begun.raise();
        for thread in self.threads.drain(..) {
            // A worker's panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_meet_at_every_barrier() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads).unwrap();
            let counts: Vec<AtomicU32> = (0..threads).map(|_| AtomicU32::new(0)).collect();
            for _ in 0..20 {
                counts.iter().for_each(|c| c.store(0, Ordering::Relaxed));
                pool.run(&|worker, team| {
                    for step in 1..=100 {
                        counts[worker].store(step, Ordering::Relaxed);
                        team.barrier()?;
                        for count in &counts {
                            assert_eq!(count.load(Ordering::Relaxed), step);
                        }
                        team.barrier()?;
                    }
                    Ok(())
                })
                .unwrap();
            }
        }
    }

    #[test]
    fn each_unit_is_taken_once_between_barriers() {
        for (threads, together) in [(1, 1), (3, 1), (3, 4)] {
            let pool = Pool::new(threads).unwrap();
            let taken: Vec<AtomicU32> = (0..50).map(|_| AtomicU32::new(0)).collect();
            for run in 0..4 {
                pool.run(&|worker, team| {
                    for step in 1..=20 {
                        let mut turns = Turns::new(team, worker, together);
                        while let Some(unit) = taken.get(turns.unit) {
                            unit.fetch_add(1, Ordering::Relaxed);
                            turns.pass();
                        }
                        team.barrier()?;
                        assert!(taken.iter().all(|t| t.load(Ordering::Relaxed) == 20 * run + step));
                        team.barrier()?;
                    }
                    Ok(())
                })
                .unwrap();
            }
        }
    }

    #[test]
    fn faster_workers_get_more_and_nobody_nothing() {
        let pool = Pool::new(3).unwrap();
        let team = &pool.team;
        let parts = || [0, 1, 2].map(|worker| team.part(worker));
        let even = 4096;
        assert_eq!(parts(), [0..even, even..2 * even, 2 * even..3 * even].map(|part| (part, 3 * even)));
        let work = |speeds: [f32; 3]| {
            for (worker, (speed, (part, _))) in speeds.into_iter().zip(parts()).enumerate() {
                team.worked(worker, Duration::from_nanos((10.0 * part.len() as f32 / speed) as u64));
            }
            team.pace.adapt();
        };
        (0..100).for_each(|_| work([2.0, 1.0, 1.0]));
        let [a, b, c] = parts().map(|(part, all)| part.len() as f32 / all as f32);
        assert!((a - 0.5).abs() < 0.01 && (b - 0.25).abs() < 0.01 && b == c, "{a} {b} {c}");
        (0..100).for_each(|_| work([1e9, 1e-9, 1e9]));
        let shares = parts();
        assert!(shares.iter().all(|(part, all)| *all == shares[2].0.end && 12 * part.len() >= *all));
        // Who has nothing to do at times says nothing about its speed.
        team.worked(0, Duration::from_nanos(100));
        team.pace.adapt();
        assert_eq!(parts(), shares);
        (0..100).for_each(|_| work([1.0, 1.0, 1.0]));
        assert!(parts().into_iter().all(|(part, all)| (3 * part.len()).abs_diff(all) < all / 100));
    }

    #[test]
    fn a_panic_in_any_worker_is_an_error_and_the_pool_lives_on() {
        let pool = Pool::new(3).unwrap();
        for culprit in 0..3 {
            let result = pool.run(&|worker, team| {
                team.barrier()?;
                assert!(worker != culprit, "on purpose");
                team.barrier()?;
                team.barrier()
            });
            assert!(result.is_err(), "worker {culprit}");
            assert!(pool.run(&|_, team| team.barrier()).is_ok());
        }
    }

    #[test]
    fn a_worker_that_fell_asleep_is_woken() {
        let pool = Pool::new(2).unwrap();
        pool.run(&|worker, team| {
            if worker == 0 {
                thread::sleep(2 * PATIENCE);
            }
            team.barrier()
        })
        .unwrap();
        thread::sleep(2 * PATIENCE_BETWEEN_JOBS);
        pool.run(&|_, team| team.barrier()).unwrap();
    }

    #[test]
    fn no_threads_is_an_error() {
        assert!(matches!(Pool::new(0), Err(Error::Threads(0))));
    }
}
