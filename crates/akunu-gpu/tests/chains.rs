//! Chains in pieces, on a device that does nothing before it must: the next piece is asked for while one runs, the tokens are read from
//! what is done, and nothing is written while something runs.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use akunu_format::ModelFile;
use akunu_gpu::{Bind, Command, Emulator, Facts, Gpu, Host, Schedule};
use akunu_program::arch::Architecture;
use akunu_program::conformance::Runner;
use akunu_program::program::Program;
use akunu_program::reference::Reference;
use akunu_program::select::Sampling;
use akunu_program::{Backend, Batch, Error, Result, SlotEdit, SlotId, StopFlag, Work, build};

const CONTEXT: u32 = 128;

/// An emulator whose work waits until something of it is needed.
struct Late {
    emulator: Emulator,
    work: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Lists that were asked for and did not run, and how often they shall.
    waiting: VecDeque<(Arc<<Emulator as Host>::List>, u32)>,
    /// Lists that ran.
    done: usize,
    /// How often each list was asked to run, and how many waited then.
    asked: Vec<(u32, usize)>,
    /// Stopped when something is read while other work waits.
    stop: Option<Arc<StopFlag>>,
}

impl Late {
    fn new() -> Late {
        // With several cores, chains are asked for in pieces.
        Late { emulator: Emulator::ordered(Schedule::InTurn, 3), work: Mutex::default() }
    }

    /// Runs what waits until so many lists ran.
    fn run_until(&self, mark: usize) -> Result<()> {
        let mut work = self.work.lock().unwrap();
        while work.done < mark {
            let Some((list, times)) = work.waiting.pop_front() else { break };
            self.emulator.replay(&list, times)?;
            work.done += 1;
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.work.lock().unwrap().waiting.is_empty()
    }
}

impl Host for Late {
    type Buffer = <Emulator as Host>::Buffer;
    type List = Arc<<Emulator as Host>::List>;
    type Mark = usize;

    fn name(&self) -> &'static str {
        "late"
    }

    fn facts(&self) -> &Facts {
        self.emulator.facts()
    }

    fn allocate(&self, bytes: usize) -> Result<Self::Buffer> {
        self.emulator.allocate(bytes)
    }

    fn write(&self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        assert!(self.is_idle(), "written while something runs");
        self.emulator.write(buffer, offset, bytes)
    }

    fn read(&self, buffer: &Self::Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.wait()?;
        self.emulator.read(buffer, offset, out)
    }

    fn mark(&self) -> Result<usize> {
        let work = self.work.lock().unwrap();
        Ok(work.done + work.waiting.len())
    }

    fn read_after(&self, mark: &usize, buffer: &Self::Buffer, offset: usize, out: &mut [u8]) -> Result<()> {
        self.run_until(*mark)?;
        if let Some(stop) = self.work.lock().unwrap().stop.take() {
            stop.stop();
        }
        self.emulator.read(buffer, offset, out)
    }

    fn copy(&self, buffer: &Self::Buffer, from: usize, to: usize, bytes: usize) -> Result<()> {
        self.wait()?;
        self.emulator.copy(buffer, from, to, bytes)
    }

    unsafe fn record<'b>(
        &self,
        commands: &[Command],
        buffer: &dyn Fn(Bind) -> &'b Self::Buffer,
    ) -> Result<Self::List> {
        // SAFETY: the caller's promise.
        Ok(Arc::new(unsafe { self.emulator.record(commands, buffer)? }))
    }

    fn replay(&self, list: &Self::List, times: u32) -> Result<()> {
        let mut work = self.work.lock().unwrap();
        let waiting = work.waiting.len();
        work.asked.push((times, waiting));
        work.waiting.push_back((Arc::clone(list), times));
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        self.run_until(usize::MAX)
    }
}

fn model() -> (ModelFile, Program) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/tiny/llama/model.gguf");
    let file = ModelFile::open(path).unwrap();
    let (arch, names) = Architecture::of(&file).unwrap();
    let program = build(&arch, &names, &file, CONTEXT as usize).unwrap();
    (file, program)
}

#[test]
fn the_next_piece_is_asked_for_while_one_runs_and_each_is_twice_as_long() {
    let (file, program) = model();
    let gpu = Gpu::new(Late::new());
    let sampled = Sampling { temperature: 1.3, seed: 5, ..Sampling::GREEDY };
    for sampling in [Sampling::GREEDY, sampled] {
        let [actual, expected] = [&gpu as &dyn Backend, &Reference].map(|backend| {
            let mut runner = Runner::new(backend, &program, &file, 2, CONTEXT).unwrap();
            let edits = [SlotEdit::Sampling { slot: SlotId(1), sampling: sampling.clone() }];
            runner.run(&Batch { edits: &edits, ..Batch::default() }, Work::Forward).unwrap();
            // Two sequences, and more turns than the device remembers.
            runner.feed(&[(0, 0, &[3]), (1, 0, &[7])], Work::Chain(70)).unwrap();
            runner.out.tokens
        });
        assert_eq!(actual, expected, "{sampling:?}");
        let asked = std::mem::take(&mut gpu.host().work.lock().unwrap().asked);
        assert_eq!(asked.iter().map(|(times, _)| times).sum::<u32>(), 70);
        assert_eq!(asked[..2], [(1, 0), (2, 1)], "the second is asked for before the first is done");
        assert!(asked[1..].iter().all(|(times, waiting)| *waiting == 1 && *times <= 16), "{asked:?}");
        assert!(asked.windows(2).all(|pair| pair[1].0 <= 2 * pair[0].0), "{asked:?}");
    }
    assert!(gpu.host().is_idle());
}

#[test]
fn a_chain_that_is_stopped_leaves_nothing_running() {
    let (file, program) = model();
    let gpu = Gpu::new(Late::new());
    let mut runner = Runner::new(&gpu, &program, &file, 2, CONTEXT).unwrap();
    let pieces = [(0, 0, &[3][..])];
    runner.feed(&pieces, Work::Chain(20)).unwrap();
    let expected = runner.out.tokens.clone();
    // Asked for while the first piece is read, when the second is under way.
    gpu.host().work.lock().unwrap().stop = Some(Arc::clone(&runner.stop));
    assert!(matches!(runner.feed(&pieces, Work::Chain(20)), Err(Error::Stopped)));
    assert!(gpu.host().is_idle());
    runner.stop.clear();
    runner.feed(&pieces, Work::Chain(20)).unwrap();
    assert_eq!(runner.out.tokens, expected);
}
