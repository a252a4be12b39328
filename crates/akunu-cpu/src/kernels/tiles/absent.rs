//! Processors without AVX-512: no rows are in tiles, so nothing here is ever called.

use std::ops::Range;

use akunu_program::program::Activation;

use crate::Isa;
use crate::kernels::cache::Tile;
use crate::kernels::product::Product;
use crate::pack::{Form, Matrix};
use crate::simd::LANES;
use crate::step::TileForm;

const CALLED: &str = "there are no tiles on this kind of processor";

pub(crate) const TILE_ROWS: usize = 16;

pub(crate) fn row_bytes(_: TileForm, _: usize) -> usize {
    unreachable!("{CALLED}")
}

pub(crate) fn gate_panels(_: TileForm) -> usize {
    unreachable!("{CALLED}")
}

pub(crate) unsafe fn pack_pairs(_: &[[f32; LANES]], _: &mut [i32], _: &mut [f32]) {
    unreachable!("{CALLED}")
}

#[allow(dead_code)] // as in the real one
pub(crate) struct Words<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) block: *mut u8,
    pub(crate) line: usize,
}

impl Words<'_> {
    pub(crate) unsafe fn run(self) {
        unreachable!("{CALLED}")
    }
}

#[allow(dead_code)] // as in the real one
pub(crate) struct Pairs<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) block: *mut u8,
    pub(crate) line: usize,
}

impl Pairs<'_> {
    pub(crate) unsafe fn run(self) {
        unreachable!("{CALLED}")
    }
}

#[allow(dead_code)] // as in the real one
pub(crate) struct Split<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) factor: f32,
    pub(crate) out: *mut u8,
}

impl Split<'_> {
    pub(crate) unsafe fn run(self) {
        unreachable!("{CALLED}")
    }
}

pub(crate) struct Scratch;

impl Scratch {
    pub(crate) fn new() -> Scratch {
        unreachable!("{CALLED}")
    }
}

#[allow(dead_code)] // as in the real one
pub(crate) struct TileProduct<'a> {
    pub(crate) product: Product<'a>,
    pub(crate) kernel: TileProductFn,
    pub(crate) tiles: &'a [u8],
    pub(crate) blocks: &'a [u32],
    pub(crate) scratch: &'a Scratch,
}

impl TileProduct<'_> {
    pub(crate) fn run(&self) {
        unreachable!("{CALLED}")
    }

    pub(crate) fn run_activated(&self, _: Activation, _: *mut u8) {
        unreachable!("{CALLED}")
    }

    pub(crate) fn run_gated(&self, _: &TileProduct<'_>, _: Activation, _: TileForm, _: *mut u8) {
        unreachable!("{CALLED}")
    }
}

pub(crate) type TileProductFn = fn();

pub(crate) fn tile_product_fn(_: Isa, _: Form) -> TileProductFn {
    unreachable!("{CALLED}")
}

pub(crate) fn are_several(_: usize) -> bool {
    false
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaidForm {}

#[derive(Clone, Copy)]
pub(crate) struct Laid;

impl Laid {
    pub(crate) const fn bytes(_: LaidForm, _: usize) -> usize {
        0
    }

    pub(crate) fn new(_: *mut u8, _: LaidForm, _: usize, _: usize) -> Laid {
        unreachable!("{CALLED}")
    }
}

#[allow(dead_code)] // as in the real one
pub(crate) struct Lay<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) out: Laid,
    pub(crate) first: usize,
    pub(crate) line: usize,
    pub(crate) sums: bool,
}

impl Lay<'_> {
    pub(crate) unsafe fn run(self) {
        unreachable!("{CALLED}")
    }
}

#[allow(dead_code)] // as in the real one
pub(crate) struct Lines<'a> {
    pub(crate) laid: Laid,
    pub(crate) rows: Range<usize>,
    pub(crate) scratch: &'a Scratch,
}

pub(crate) type SeveralFn = fn(&Product<'_>, &Lines<'_>);

pub(crate) fn several_fn(_: Isa, _: &Matrix) -> Option<(LaidForm, SeveralFn)> {
    None
}

pub(crate) const QUERIES_TOGETHER: usize = 0;

pub(crate) struct AttentionScratch;

impl AttentionScratch {
    pub(crate) fn new(_: usize, _: usize) -> AttentionScratch {
        unreachable!("{CALLED}")
    }
}

#[allow(dead_code)] // as in the real one
pub(crate) struct TileAttention<'a> {
    pub(crate) scratch: &'a AttentionScratch,
    pub(crate) queries: usize,
    pub(crate) dim: usize,
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
}

impl TileAttention<'_> {
    pub(crate) unsafe fn take(&self, _: usize, _: &[f32]) {
        unreachable!("{CALLED}")
    }

    pub(crate) fn clear(&self) {
        unreachable!("{CALLED}")
    }

    pub(crate) unsafe fn block<T: Tile>(&self, _: T, _: &[[u8; 2]]) {
        unreachable!("{CALLED}")
    }

    pub(crate) unsafe fn finish(&self, _: usize, _: &mut [f32]) {
        unreachable!("{CALLED}")
    }
}
