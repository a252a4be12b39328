//! Getting weights to a device. Several threads make the bytes, each in memory of its own that the device copies from, so that
//! reading the file, cutting it into planes and copying go on at the same time.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, available_parallelism, scope};

use akunu_program::{Error, Result};

use crate::host::Host;

/// Bytes of a piece, about: what a thread makes at once.
pub(crate) const PIECE: usize = 2 << 20;

/// Most threads.
const THREADS: usize = 16;

/// Ranges of a buffer whose bytes are made together, and lie one behind the other until they are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where each begins in the buffer, and its bytes.
    pub ranges: [(usize, usize); 4],
}

impl Piece {
    /// Bytes of all ranges.
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// The way of one thread's pieces to a buffer. Pieces may still be under way when the next is made.
pub trait Lane {
    /// Memory for the bytes of a piece; whatever it holds may be overwritten.
    fn room(&mut self, bytes: usize) -> Result<&mut [u8]>;

    /// Copies what lies in that memory to where it belongs; may return before it has arrived.
    fn send(&mut self, piece: &Piece) -> Result<()>;

    /// Waits for all that was sent.
    fn finish(&mut self) -> Result<()>;
}

/// The lane of a host that has no better one: ordinary memory, written piece by piece.
pub(crate) struct Written<'a, H: Host> {
    host: &'a H,
    buffer: &'a H::Buffer,
    bytes: Vec<u8>,
}

impl<'a, H: Host> Written<'a, H> {
    pub(crate) fn new(host: &'a H, buffer: &'a H::Buffer) -> Written<'a, H> {
        Written { host, buffer, bytes: Vec::new() }
    }
}

impl<H: Host> Lane for Written<'_, H> {
    fn room(&mut self, bytes: usize) -> Result<&mut [u8]> {
        self.bytes.resize(bytes, 0);
        Ok(&mut self.bytes)
    }

    fn send(&mut self, piece: &Piece) -> Result<()> {
        let mut rest = &self.bytes[..];
        for (at, bytes) in piece.ranges {
            let (range, after) = rest.split_at(bytes);
            self.host.write(self.buffer, at, range)?;
            rest = after;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Makes the bytes of a piece, by its number.
type Fill<'a> = dyn Fn(usize, &mut [u8]) -> Result<()> + Sync + 'a;

/// Uploads pieces to a buffer; what is asked of the device after this finds them there. `sent` is told the number of each when its
/// bytes were made and are on their way, on the thread that calls; a break ends the upload with [`Error::Stopped`].
pub(crate) fn upload<H: Host>(
    host: &H,
    buffer: &H::Buffer,
    pieces: &[Piece],
    fill: &Fill<'_>,
    sent: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<()> {
    let total: usize = pieces.iter().map(Piece::bytes).sum();
    let largest = pieces.iter().map(Piece::bytes).max().unwrap_or(0);
    let cores = available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(THREADS).min(total.div_ceil(PIECE)).max(1);
    in_lanes(threads, &|| host.lane(buffer, largest), pieces, fill, sent)
}

/// What is left to do when a thread ends: nothing at the end, after an error or a panic, or when nobody wants more.
struct Rest<'a> {
    next: &'a AtomicUsize,
    end: usize,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.next.store(self.end, Ordering::Relaxed);
    }
}

/// Uploads on so many threads, each with a lane.
fn in_lanes<'l>(
    threads: usize,
    lane: &(dyn Fn() -> Result<Box<dyn Lane + 'l>> + Sync),
    pieces: &[Piece],
    fill: &Fill<'_>,
    sent: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = |tell: &Sender<usize>| {
        let mut lane = lane()?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = pieces.get(number) else { return lane.finish() };
            fill(number, lane.room(piece.bytes())?)?;
            lane.send(piece)?;
            // Who waits for it hears of all of them, unless it panicked or wants no more.
            let _ = tell.send(number);
        }
    };
    scope(|scope| {
        let (tell, told) = channel();
        let mut workers = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (tell, next) = (tell.clone(), &next);
            // Made by the thread: one that could not be started leaves the others their work.
            let worker = move || {
                let _rest = Rest { next, end: pieces.len() };
                work(&tell)
            };
            let spawned = Builder::new().name("upload".to_owned()).spawn_scoped(scope, worker);
            match spawned {
                Ok(worker) => workers.push(worker),
                // Fewer do as well.
                Err(_) if !workers.is_empty() => break,
                Err(error) => return Err(Error::Device(format!("no thread could be started: {error}"))),
            }
        }
        drop(tell);
        let rest = Rest { next: &next, end: pieces.len() };
        let ended = told.into_iter().try_for_each(sent);
        drop(rest);
        let mut result = if ended.is_break() { Err(Error::Stopped) } else { Ok(()) };
        for worker in workers {
            let done = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(done);
        }
        result
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Mutex;

    use super::*;

    /// A device whose copies happen late: a piece arrives when its memory is needed again, or at the end.
    struct Late<'a> {
        arrived: &'a Mutex<Vec<u8>>,
        /// Memory, and what in it is under way.
        ring: Vec<(Vec<u8>, Option<Piece>)>,
        turn: usize,
        /// Fails when so many bytes have arrived.
        fails_at: Option<usize>,
    }

    impl Late<'_> {
        fn arrive(&mut self, turn: usize) -> Result<()> {
            let (bytes, piece) = &mut self.ring[turn];
            let Some(piece) = piece.take() else { return Ok(()) };
            let (mut arrived, mut from) = (self.arrived.lock().unwrap(), 0);
            for (at, count) in piece.ranges {
                arrived[at..at + count].copy_from_slice(&bytes[from..from + count]);
                from += count;
            }
            let count = arrived.iter().filter(|byte| **byte != 0).count();
            match self.fails_at {
                Some(most) if count >= most => Err(Error::Device("the copy failed".to_owned())),
                _ => Ok(()),
            }
        }
    }

    impl Lane for Late<'_> {
        fn room(&mut self, bytes: usize) -> Result<&mut [u8]> {
            self.turn = (self.turn + 1) % self.ring.len();
            self.arrive(self.turn)?;
            // What was there is garbage.
            self.ring[self.turn].0 = vec![0xEE; bytes];
            Ok(&mut self.ring[self.turn].0)
        }

        fn send(&mut self, piece: &Piece) -> Result<()> {
            self.ring[self.turn].1 = Some(*piece);
            Ok(())
        }

        fn finish(&mut self) -> Result<()> {
            (0..self.ring.len()).try_for_each(|turn| self.arrive(turn))
        }
    }

    const BYTES: usize = 10_000;

    /// Pieces of different sizes, each of two ranges: one from the front, one from the back.
    fn pieces() -> Vec<Piece> {
        let (mut pieces, mut front, mut back) = (Vec::new(), 0, BYTES);
        while front < back {
            let first = (17 + pieces.len() % 50).min(back - front);
            let second = (pieces.len() % 7).min(back - front - first);
            back -= second;
            pieces.push(Piece { ranges: [(front, first), (back, second), (0, 0), (0, 0)] });
            front += first;
        }
        pieces
    }

    fn byte(at: usize) -> u8 {
        (at % 251) as u8 + 1
    }

    /// What arrives, and which pieces were told of; on so many threads with so much memory each.
    fn run(
        threads: usize,
        ring: usize,
        fails_at: Option<usize>,
        fill: &Fill<'_>,
    ) -> (Result<()>, Vec<u8>, Vec<usize>) {
        let (arrived, pieces) = (Mutex::new(vec![0; BYTES]), pieces());
        let lane = || {
            let ring = vec![(Vec::new(), None); ring];
            Ok(Box::new(Late { arrived: &arrived, ring, turn: 0, fails_at }) as Box<dyn Lane + '_>)
        };
        let mut told = Vec::new();
        let done = in_lanes(threads, &lane, &pieces, fill, &mut |number| {
            told.push(number);
            ControlFlow::Continue(())
        });
        (done, arrived.into_inner().unwrap(), told)
    }

    fn fill(number: usize, out: &mut [u8]) -> Result<()> {
        let places = pieces()[number].ranges.into_iter().flat_map(|(at, count)| at..at + count);
        out.iter_mut().zip(places).for_each(|(out, at)| *out = byte(at));
        Ok(())
    }

    #[test]
    fn every_byte_arrives_whatever_the_threads_and_their_memory() {
        for (threads, ring) in [(1, 1), (1, 2), (3, 1), (4, 2), (16, 3)] {
            let (done, arrived, mut told) = run(threads, ring, None, &fill);
            done.unwrap();
            assert!(arrived.iter().enumerate().all(|(at, found)| *found == byte(at)), "{threads}, {ring}");
            told.sort_unstable();
            assert_eq!(told, (0..pieces().len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_fails_is_told_and_ends_the_upload() {
        for (threads, ring) in [(1, 1), (4, 2)] {
            let (done, arrived, told) = run(threads, ring, Some(1000), &fill);
            assert_eq!(done.unwrap_err().to_string(), Error::Device("the copy failed".into()).to_string());
            assert!(arrived.contains(&0) && told.len() < pieces().len());
            let damaged = |number: usize, out: &mut [u8]| match number {
                40 => Err(Error::NoWeight("w40".to_owned())),
                _ => fill(number, out),
            };
            let (done, _, told) = run(threads, ring, None, &damaged);
            assert!(matches!(done, Err(Error::NoWeight(name)) if name == "w40"));
            assert!(!told.contains(&40));
        }
        // At the very end.
        let (done, ..) = run(1, 8, Some(BYTES), &fill);
        assert!(done.is_err());
    }

    #[test]
    fn an_upload_ends_when_nobody_wants_it() {
        for threads in [1, 4] {
            let arrived = Mutex::new(vec![0; BYTES]);
            let lane = || {
                let ring = vec![(Vec::new(), None); 2];
                Ok(Box::new(Late { arrived: &arrived, ring, turn: 0, fails_at: None }) as Box<dyn Lane + '_>)
            };
            let mut told = 0;
            let done = in_lanes(threads, &lane, &pieces(), &fill, &mut |_| {
                told += 1;
                if told == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(matches!(done, Err(Error::Stopped)) && told == 3);
        }
    }

    #[test]
    fn nothing_is_uploaded_without_harm() {
        let lane = || Err(Error::Device("no memory".to_owned()));
        let nothing = in_lanes(1, &lane, &[], &fill, &mut |_| ControlFlow::Continue(()));
        assert!(nothing.is_err());
        let mut told = 0;
        let (arrived, ring) = (Mutex::new(Vec::new()), vec![(Vec::new(), None)]);
        let lane = || {
            let late = Late { arrived: &arrived, ring: ring.clone(), turn: 0, fails_at: None };
            Ok(Box::new(late) as Box<dyn Lane + '_>)
        };
        in_lanes(1, &lane, &[], &fill, &mut |_| {
            told += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(told, 0);
    }
}
