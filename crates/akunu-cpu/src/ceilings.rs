//! What this machine can do: what the figures of a profile are held against.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::Shared;
use crate::memory::ask;
use crate::pool::Pool;
use crate::simd::{Kernel, LANES, Simd};
use crate::{Cpu, Isa};

/// Bytes read at least and at most to measure the memory: the latter are more than the caches of most processors hold, though some
/// have hundreds of megabytes.
const READ_LEAST: usize = 4 << 20;
const READ_MOST: usize = 1 << 30;
/// Places that a thread reads at side by side, and how many bytes ahead it asks for what comes next: as products do.
const STREAMS: usize = 4;
const AHEAD: usize = 2 << 10;
/// Turns of the loops that measure arithmetic: some tens of milliseconds.
const ROUNDS: usize = 4 << 20;
/// The best of so many counts.
const TRIES: usize = 5;
/// Sums that do not wait for each other. Few fit the registers of a processor that has few, many hide the latency of one that has many.
const FEW: usize = 6;
const MANY: usize = 10;

/// The most arithmetic a machine did, with all threads of a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// The threads that did it.
    pub threads: usize,
    /// Additions and multiplications of 32-bit floats in a second.
    pub float: f64,
    /// Additions and multiplications of 8-bit integers in a second, where the instruction set has products of them.
    pub int8: Option<f64>,
}

/// Memory that all threads of a backend read, to see how fast they do.
pub struct MemoryReader {
    isa: Isa,
    pool: Arc<Pool>,
    memory: Shared,
    /// Bytes of each worker.
    share: usize,
    workers: usize,
}

impl Cpu {
    /// Measures arithmetic, in about a second.
    pub fn ceilings(&self) -> Ceilings {
        let (isa, pool, threads) = (self.isa, &self.pool, self.threads());
        let few = fastest(pool, |_| isa.run(Multiply::<FEW>));
        let many = fastest(pool, |_| isa.run(Multiply::<MANY>));
        let rate = |amount: usize, time: Duration| (amount * threads) as f64 / time.as_secs_f64();
        Ceilings {
            threads,
            float: rate(ROUNDS * FEW * LANES * 2, few).max(rate(ROUNDS * MANY * LANES * 2, many)),
            int8: int8(isa, pool, &rate),
        }
    }

    /// So many bytes of memory to read, 4 MiB at least and 1 GiB at most: what the caches hold of them is read faster.
    ///
    /// # Errors
    /// There is no memory for so much.
    pub fn memory_reader(&self, bytes: usize) -> akunu_program::Result<MemoryReader> {
        let (isa, pool, workers) = (self.isa, Arc::clone(&self.pool), self.threads());
        let bytes = bytes.clamp(READ_LEAST, READ_MOST);
        let memory = Shared::for_user(bytes, "measuring how fast it is read")?;
        let share = bytes / (workers * STREAMS * READ_UNIT) * STREAMS * READ_UNIT;
        let _ = pool.run(&|worker, _| {
            // Pages that nobody has written are all the same one. SAFETY: each worker's own part.
            unsafe { memory.get_mut::<u8>(worker * share, share) }.fill(1);
            Ok(())
        });
        Ok(MemoryReader { isa, pool, memory, share, workers })
    }
}

impl MemoryReader {
    /// Reads everything so many times, once at least, after some times that do not count. The bytes per second.
    pub fn read(&self, uncounted: usize, times: usize) -> f64 {
        let share = self.share / size_of::<f32>();
        // SAFETY: nobody writes any more.
        let numbers: &[f32] = unsafe { self.memory.get(0, self.workers * share) };
        let read = || time(&self.pool, &|w| self.isa.run(Read(&numbers[w * share..(w + 1) * share])));
        let times = times.max(1);
        for _ in 0..uncounted {
            read();
        }
        let taken: Duration = (0..times).map(|_| read()).sum();
        (times * self.workers * self.share) as f64 / taken.as_secs_f64()
    }
}

/// The time in which all workers do something.
fn time(pool: &Pool, work: &(impl Fn(usize) + Sync)) -> Duration {
    let begin = Instant::now();
    // A worker that fails shows in what comes after; here it only spoils a figure.
    let _ = pool.run(&|worker, _| {
        work(worker);
        Ok(())
    });
    begin.elapsed()
}

/// The shortest time in which all workers do something.
fn fastest(pool: &Pool, work: impl Fn(usize) + Sync) -> Duration {
    (0..TRIES).map(|_| time(pool, &work)).min().unwrap_or_default()
}

/// Bytes that a stream reads at a time.
const READ_UNIT: usize = size_of::<[f32; LANES]>();

/// Adds up numbers, in several places side by side.
struct Read<'a>(&'a [f32]);

impl Kernel for Read<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let mut sums = [S::splat(0.0); STREAMS];
        let (vectors, _) = self.0.as_chunks::<LANES>();
        let stream = vectors.len() / STREAMS;
        for i in 0..stream {
            for (j, sum) in sums.iter_mut().enumerate() {
                let vector = &vectors[j * stream + i];
                ask(vector.as_ptr().cast::<u8>().wrapping_add(AHEAD));
                *sum = S::add(*sum, S::load(vector));
            }
        }
        black_box(total::<S>(&sums));
    }
}

/// Multiplies and adds.
struct Multiply<const CHAINS: usize>;

impl<const CHAINS: usize> Kernel for Multiply<CHAINS> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let (x, y) = (S::splat(black_box(0.999)), S::splat(black_box(0.001)));
        let mut sums = [S::splat(black_box(1.0)); CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = S::fma(*sum, x, y);
            }
        }
        black_box(total::<S>(&sums));
    }
}

#[inline(always)]
fn total<S: Simd>(sums: &[S::F]) -> f32 {
    sums.iter().map(|&sum| S::sum(sum)).sum()
}

#[cfg(target_arch = "x86_64")]
fn int8(isa: Isa, pool: &Pool, rate: &dyn Fn(usize, Duration) -> f64) -> Option<f64> {
    let (time, products) = match isa {
        // SAFETY: the backend refuses instruction sets the processor lacks.
        Isa::Avx512 | Isa::Amx => (fastest(pool, |_| unsafe { x86::dots_512() }), MANY * 64),
        // SAFETY: as above.
        Isa::Avx2 => (fastest(pool, |_| unsafe { x86::dots_256() }), FEW * 32),
        Isa::Portable | Isa::Neon => return None,
    };
    Some(rate(ROUNDS * products * 2, time))
}

#[cfg(not(target_arch = "x86_64"))]
fn int8(_: Isa, _: &Pool, _: &dyn Fn(usize, Duration) -> f64) -> Option<f64> {
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm256_add_epi32, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_set1_epi8, _mm256_set1_epi16,
        _mm256_set1_epi32, _mm256_setzero_si256, _mm512_dpbusd_epi32, _mm512_set1_epi8, _mm512_setzero_si512,
    };
    use std::hint::black_box;

    use super::{FEW, MANY, ROUNDS};

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn dots_512() {
        let x = _mm512_set1_epi8(black_box(3));
        let mut sums = [_mm512_setzero_si512(); MANY];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, x, x);
            }
        }
        black_box(sums);
    }

    /// Products of bytes, their sums in pairs, and those in pairs again.
    #[target_feature(enable = "avx2")]
    pub(super) fn dots_256() {
        let ones = _mm256_set1_epi16(1);
        let mut xs = [_mm256_setzero_si256(); FEW];
        for (i, x) in xs.iter_mut().enumerate() {
            *x = _mm256_set1_epi8(black_box(i as i8));
        }
        let mut sums = [_mm256_setzero_si256(); FEW];
        for round in 0..ROUNDS {
            // Another factor each time, or the compiler would multiply once.
            let factor = _mm256_set1_epi32(round as i32);
            for (sum, &x) in sums.iter_mut().zip(&xs) {
                let products = _mm256_maddubs_epi16(x, factor);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(products, ones));
            }
        }
        black_box(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ceiling_is_above_nothing() {
        let cpu = Cpu::new(1).unwrap();
        let (Ceilings { float, int8, .. }, read) = (cpu.ceilings(), cpu.memory_reader(0).unwrap().read(1, 2));
        assert!(read > 1e8 && float > 1e7, "{read} {float}");
        assert!(int8.is_none_or(|rate| rate > 1e7), "{int8:?}");
    }
}
