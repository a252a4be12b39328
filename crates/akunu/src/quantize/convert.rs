//! Tensors through a few threads into a file.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use akunu_format::gguf::TensorWriter;
use akunu_format::{DType, quant};

use super::source::Source;
use super::{Planned, Progress};
use crate::{Error, Result};

/// Values a thread converts at a time: 256 KiB of `f32`, which stay in its cache, and some milliseconds of work.
const PIECE_VALUES: usize = 1 << 16;
/// Pieces per thread between two writes.
const PIECES: usize = 8;
/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 24;

/// Writes all tensors and completes the file. `planned` says what becomes of each of `sources`; `path` is where they come
/// from, for errors.
pub(super) fn write(
    path: &Path,
    sources: &[Source<'_>],
    planned: &[Planned],
    threads: NonZero<usize>,
    mut out: TensorWriter,
    watch: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let total = sources.iter().map(|source| source.byte_len() as u64).sum();
    let mut done = 0;
    for (index, (source, plan)) in sources.iter().zip(planned).enumerate() {
        let mut report = |read: u64| {
            let done = done + read;
            let count = planned.len();
            let progress = Progress { tensor: &plan.name, to: plan.to, index, count, done, total };
            if watch(progress).is_break() { Err(Error::Stopped) } else { Ok(()) }
        };
        report(0)?;
        match source.bytes().filter(|_| plan.is_copied()) {
            Some(bytes) => {
                for (i, piece) in bytes.chunks(COPY_BYTES).enumerate() {
                    report((i * COPY_BYTES) as u64)?;
                    out.append(&plan.name, piece)?;
                }
            }
            None => Conversion { source, to: plan.to, path }.run(threads, &mut out, &mut report)?,
        }
        report(source.byte_len() as u64)?;
        done += source.byte_len() as u64;
    }
    Ok(out.finish()?)
}

/// One tensor on its way to another dtype.
struct Conversion<'a> {
    source: &'a Source<'a>,
    to: DType,
    path: &'a Path,
}

impl Conversion<'_> {
    /// Converts slab by slab: all threads take pieces of a slab until none is left, then it is written.
    fn run(
        &self,
        threads: NonZero<usize>,
        out: &mut TensorWriter,
        report: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let (rows, row_len) = (self.source.rows(), self.source.row_len());
        if rows * row_len == 0 {
            return Ok(());
        }
        let row_bytes = self.to.row_bytes(row_len)?;
        let piece_rows = (PIECE_VALUES / row_len).clamp(1, rows);
        let threads = threads.get().min(rows.div_ceil(piece_rows));
        let slab_rows = piece_rows * PIECES * threads;
        let mut slab = vec![0; row_bytes * slab_rows.min(rows)];
        let mut scratch = vec![vec![0.0; piece_rows * row_len]; threads];
        let bytes_per_row = self.source.byte_len() as u64 / rows as u64;
        for first in (0..rows).step_by(slab_rows) {
            let slab = &mut slab[..row_bytes * slab_rows.min(rows - first)];
            self.convert(first, slab, piece_rows * row_bytes, &mut scratch, &mut |row| {
                report(row as u64 * bytes_per_row)
            })?;
            out.append(&self.source.name, slab)?;
        }
        Ok(())
    }

    /// Converts the rows from `first` on that fill `slab`, with one thread for each of `scratch`.
    fn convert(
        &self,
        first: usize,
        slab: &mut [u8],
        piece_bytes: usize,
        scratch: &mut [Vec<f32>],
        report: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let row_bytes = self.to.row_bytes(self.source.row_len())?;
        let pieces = Mutex::new((first..).step_by(piece_bytes / row_bytes).zip(slab.chunks_mut(piece_bytes)));
        let stop = AtomicBool::new(false);
        let work = |values: &mut [f32], report: &mut dyn FnMut(usize) -> Result<()>| {
            let mut one_after_the_other = || {
                while !stop.load(Ordering::Relaxed) {
                    let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((row, piece)) = next else { break };
                    self.convert_piece(row, piece.len() / row_bytes, values, piece)?;
                    report(row)?;
                }
                Ok(())
            };
            let result = one_after_the_other();
            if result.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            result
        };
        let Some((mine, others)) = scratch.split_first_mut() else { return Ok(()) };
        thread::scope(|scope| {
            let helpers: Vec<_> =
                others.iter_mut().map(|values| scope.spawn(|| work(values, &mut |_| Ok(())))).collect();
            let mut result = work(mine, report);
            for helper in helpers {
                result = result.and(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            result
        })
    }

    fn convert_piece(&self, row: usize, rows: usize, values: &mut [f32], out: &mut [u8]) -> Result<()> {
        let row_len = self.source.row_len();
        let values = &mut values[..rows * row_len];
        self.source
            .read(row..row + rows, values)
            .and_then(|()| quant::quantize(self.to, values, out))
            .map_err(|mut source| {
                if let akunu_format::Error::Value { index, .. } = &mut source {
                    *index += row * row_len;
                }
                Error::Tensor {
                    path: self.path.to_owned(),
                    name: self.source.name.clone(),
                    source: source.into(),
                }
            })
    }
}
