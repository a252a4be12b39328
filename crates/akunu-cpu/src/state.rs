//! What a run works on: its rows, and how the workers go about them.

use std::ops::Range;

use akunu_program::program::{Domain, FRAMES_PER_TOKEN};
use akunu_program::select::Scratch as SelectScratch;
use akunu_program::slots::{Row, Slots};
use akunu_program::{Batch, Error, Limits, Phase, Span};

use crate::kernels::tiles;
use crate::plan::{BufferId, FEW_ROWS};
use crate::step::{Integers, Maker, Step};

/// Rows of a prompt that go over the context together even if some workers have nothing to do then.
const LEAST_TOGETHER: usize = 8;

/// What a run works on.
pub(crate) struct State {
    pub(crate) slots: Slots,
    pub(crate) rows: Vec<Row>,
    pub(crate) outputs: Vec<u32>,
    /// Rows that attend together: single decode rows, or consecutive prompt rows.
    pub(crate) blocks: Vec<RowBlock>,
    grouping: Grouping,
    /// How products take the rows of tokens.
    rows_in_tiles: InTiles,
    /// How they take frames; empty where there are none.
    frames_in_tiles: InTiles,
    /// Whether every worker does all row steps on its own copies.
    pub(crate) redundant: bool,
    /// Whether attention writes the keys and values of the rows itself.
    pub(crate) writes_late: bool,
    pub(crate) select: SelectScratch,
    pub(crate) error: Option<Error>,
}

/// What of a program decides how the rows of its batches are taken.
pub(crate) struct Grouping {
    /// How many consecutive prompt rows attend together at most.
    pub(crate) together: usize,
    /// Into how many parts a prompt is cut at least, so that there is work for everybody, unless they would be very small.
    pub(crate) parts: usize,
    /// Whether there are frames.
    pub(crate) frames: bool,
    /// Whether all rows are prompts, whatever a batch says: some weights are packed for such alone.
    pub(crate) encodes: bool,
}

/// Which rows products take in tiles.
#[derive(Default)]
pub(crate) struct InTiles {
    /// The blocks of [`tiles::TILE_ROWS`] rows that have prompt rows, if products take those in tiles.
    pub(crate) blocks: Vec<u32>,
    /// All other rows.
    pub(crate) plain: Vec<Range<usize>>,
}

impl InTiles {
    fn with_capacity(rows: usize) -> InTiles {
        InTiles { blocks: Vec::with_capacity(rows), plain: Vec::with_capacity(rows) }
    }

    /// Sorts rows by whether they are taken in tiles.
    fn sort(&mut self, rows: impl Iterator<Item = bool>) {
        self.blocks.clear();
        self.plain.clear();
        for (i, tiled) in rows.enumerate() {
            let block = (i / tiles::TILE_ROWS) as u32;
            if tiled {
                if self.blocks.last() != Some(&block) {
                    self.blocks.push(block);
                }
            } else if let Some(rows) = self.plain.last_mut().filter(|rows| rows.end == i) {
                rows.end += 1;
            } else {
                self.plain.push(i..i + 1);
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct RowBlock {
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) phase: Phase,
}

impl State {
    pub(crate) fn new(slots: Slots, limits: &Limits, select: SelectScratch, grouping: Grouping) -> State {
        let rows = limits.rows as usize;
        let frames = if grouping.frames { FRAMES_PER_TOKEN * rows } else { 0 };
        State {
            slots,
            rows: Vec::with_capacity(rows),
            outputs: Vec::with_capacity(limits.outputs as usize),
            blocks: Vec::with_capacity(rows),
            grouping,
            rows_in_tiles: InTiles::with_capacity(rows),
            frames_in_tiles: InTiles::with_capacity(frames),
            redundant: false,
            writes_late: false,
            select,
            error: None,
        }
    }

    /// How products take the rows of a domain in which some may be in tiles.
    pub(crate) fn in_tiles(&self, domain: Domain) -> &InTiles {
        if domain == Domain::Frames { &self.frames_in_tiles } else { &self.rows_in_tiles }
    }

    /// Whether attention rotates the queries and keys of the rows itself: each worker those of the heads it has.
    pub(crate) fn rotates_late(&self) -> bool {
        self.writes_late && !self.redundant
    }

    /// Whether the integers of a row have been made by the step before. Where that made tiles of prompt rows instead, nobody asks for
    /// their integers: such tiles are what all that follows takes.
    pub(crate) fn is_made(&self, by: Maker, row: usize) -> bool {
        !self.redundant
            && match by {
                Maker::Step => false,
                Maker::Product => true,
                Maker::Attention => self.rows[row].phase == Phase::Decode,
            }
    }

    /// Whether a row step has nothing to do in this run.
    pub(crate) fn is_idle(&self, step: &Step, domain: impl Fn(BufferId) -> Domain) -> bool {
        match step {
            Step::Rotate(_) => self.rotates_late(),
            Step::Merge { .. } => !self.redundant,
            Step::Split { out, .. } => self.in_tiles(domain(*out)).blocks.is_empty(),
            Step::Integers(Integers { by, .. }) => (0..self.rows.len()).all(|row| self.is_made(*by, row)),
            _ => false,
        }
    }

    /// Whether a row that is not in tiles is one of several in its block.
    pub(crate) fn is_one_of_several(&self, domain: Domain, row: usize) -> bool {
        let all = 0..self.outputs.len();
        let plain = match domain {
            Domain::Outputs => std::slice::from_ref(&all),
            Domain::Tokens | Domain::Frames => self.in_tiles(domain).plain.as_slice(),
        };
        let rows = plain.iter().find(|rows| rows.contains(&row));
        rows.is_some_and(|rows| {
            let block = row / tiles::TILE_ROWS * tiles::TILE_ROWS;
            tiles::are_several(rows.end.min(block + tiles::TILE_ROWS) - rows.start.max(block))
        })
    }

    /// Decides how the workers go about this batch, `in_tiles` if products take prompt rows so.
    pub(crate) fn begin(&mut self, batch: &Batch<'_>, in_tiles: bool) {
        self.outputs.clear();
        self.outputs.extend_from_slice(batch.outputs);
        self.blocks.clear();
        let mut first = 0;
        for span in batch.spans {
            let (end, together) = match span.phase {
                Phase::Decode => (first + span.rows as usize, 1),
                Phase::Prompt => {
                    let rows = (span.rows as usize).div_ceil(self.grouping.parts).max(LEAST_TOGETHER);
                    (first + span.rows as usize, self.grouping.together.min(rows))
                }
            };
            while first < end {
                let rows = together.min(end - first);
                self.blocks.push(RowBlock { first, rows, phase: span.phase });
                first += rows;
            }
        }
        if self.grouping.encodes {
            self.rows.iter_mut().for_each(|row| row.phase = Phase::Prompt);
        }
        let tiled = |row: &Row| in_tiles && row.phase == Phase::Prompt;
        self.rows_in_tiles.sort(self.rows.iter().map(tiled));
        if self.grouping.frames {
            let frames = self.rows.iter().flat_map(|row| [tiled(row); FRAMES_PER_TOKEN]);
            self.frames_in_tiles.sort(frames);
        }
        self.redundant =
            self.rows.len() <= FEW_ROWS && self.rows_in_tiles.blocks.is_empty() && !self.grouping.frames;
        // A row that nobody else in the batch can see may be written by whoever attends to its position.
        let decode = |s: &Span| s.rows == 1 && s.phase == Phase::Decode;
        let apart = |i: usize| batch.spans[..i].iter().all(|s| s.slot != batch.spans[i].slot);
        self.writes_late =
            batch.spans.iter().all(|s| s.rows == 0 || decode(s)) && (0..batch.spans.len()).all(apart);
        self.error = None;
    }
}
