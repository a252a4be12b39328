//! Where every intermediate result lies: one arena, shared by buffers that are not alive at the same time.
//!
//! Time is counted in *epochs*: the stretches between the barriers that every run has (after each matrix product and each
//! attention). Inside an epoch workers are not in step, so memory read in one epoch may be used again from the next on.

use akunu_program::program::{Domain, FRAMES_PER_TOKEN};

use crate::memory::ALIGN;

/// Batches of at most this many rows are worked on *redundantly*: every worker computes all row-wise steps on its own
/// copy, which costs less than the barriers it saves.
pub(crate) const FEW_ROWS: usize = 4;

/// Index into [`Plan::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferId(pub(crate) usize);

/// A buffer of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) domain: Domain,
    pub(crate) row_bytes: usize,
    /// Whether each worker has a copy of its own in redundant runs.
    pub(crate) private: bool,
    /// There is room for a multiple of so many rows.
    multiple: usize,
    /// Bytes from the start of the arena.
    pub(crate) offset: usize,
    first: usize,
    last: usize,
}

/// All buffers of an executable.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) buffers: Vec<Buffer>,
    /// The current epoch.
    epoch: usize,
}

impl Plan {
    pub(crate) fn add(&mut self, domain: Domain, row_bytes: usize, private: bool) -> BufferId {
        let epoch = self.epoch;
        self.buffers.push(Buffer {
            domain,
            row_bytes,
            private,
            multiple: 1,
            offset: 0,
            first: epoch,
            last: epoch,
        });
        BufferId(self.buffers.len() - 1)
    }

    /// A shared buffer with room for whole blocks of so many rows.
    pub(crate) fn add_blocks(&mut self, domain: Domain, row_bytes: usize, multiple: usize) -> BufferId {
        let id = self.add(domain, row_bytes, false);
        self.buffers[id.0].multiple = multiple;
        id
    }

    /// The buffer is read in the current epoch.
    pub(crate) fn read(&mut self, id: BufferId) {
        self.buffers[id.0].last = self.epoch;
    }

    /// The buffer is read after the last step.
    pub(crate) fn keep(&mut self, id: BufferId) {
        self.buffers[id.0].last = usize::MAX;
    }

    pub(crate) fn next_epoch(&mut self) {
        self.epoch += 1;
    }

    /// A buffer is written by what is before the step it was added for.
    pub(crate) fn write_early(&mut self, id: BufferId) {
        self.buffers[id.0].first -= 1;
    }

    /// Gives every buffer its place, first fit in the order of their first epochs; returns the size of the arena.
    pub(crate) fn place(&mut self, rows: usize, outputs: usize, workers: usize) -> usize {
        let mut placed: Vec<(usize, usize, usize)> = Vec::new(); // offset, end, last epoch
        let mut size = 0;
        let mut order: Vec<&mut Buffer> = self.buffers.iter_mut().collect();
        order.sort_by_key(|buffer| buffer.first);
        for buffer in order {
            let rows = match buffer.domain {
                Domain::Tokens => rows,
                Domain::Outputs => outputs,
                Domain::Frames => FRAMES_PER_TOKEN * rows,
            };
            let rows = if buffer.private { rows.max(workers * FEW_ROWS) } else { rows };
            let rows = rows.next_multiple_of(buffer.multiple);
            let bytes = (rows * buffer.row_bytes).next_multiple_of(ALIGN);
            placed.retain(|p| p.2 >= buffer.first);
            placed.sort_unstable();
            let mut offset = 0;
            for &(start, end, _) in &placed {
                if offset + bytes <= start {
                    break;
                }
                offset = offset.max(end);
            }
            buffer.offset = offset;
            placed.push((offset, offset + bytes, buffer.last));
            size = size.max(offset + bytes);
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_only_in_a_later_epoch() {
        let mut plan = Plan::default();
        let a = plan.add(Domain::Tokens, 64, false);
        plan.next_epoch();
        plan.read(a);
        let b = plan.add(Domain::Tokens, 64, false);
        plan.next_epoch();
        let c = plan.add(Domain::Tokens, 64, false);
        plan.read(b);
        plan.keep(c);
        let size = plan.place(10, 1, 2);
        let offset = |id: BufferId| plan.buffers[id.0].offset;
        assert_ne!(offset(a), offset(b));
        assert_eq!(offset(c), offset(a));
        assert_eq!(size, 1280);
    }

    #[test]
    fn what_is_written_early_is_apart_from_what_is_read_then() {
        let mut plan = Plan::default();
        let a = plan.add(Domain::Tokens, 64, false);
        plan.next_epoch();
        let b = plan.add(Domain::Tokens, 64, false);
        plan.write_early(b);
        plan.place(1, 1, 1);
        assert_ne!(plan.buffers[a.0].offset, plan.buffers[b.0].offset);
    }

    #[test]
    fn private_buffers_have_room_for_every_worker() {
        let mut plan = Plan::default();
        plan.add(Domain::Outputs, 64, true);
        assert_eq!(plan.place(8, 1, 4), 64 * FEW_ROWS * 4);
    }
}
