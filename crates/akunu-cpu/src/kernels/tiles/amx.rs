//! The instructions themselves.
//!
//! Tile registers are not known to the compiler, which therefore never touches them: 0 to 3 hold sums, 4 activations, 6 and 7
//! weights.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

use super::{TILE_BYTES, TILE_ROWS};

/// Whether the processor has tiles of bf16 and of bytes and the system lets this process use them. Asks the system once.
pub(crate) fn is_available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| has_tiles() && is_permitted())
}

fn has_tiles() -> bool {
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    const BYTES: u32 = 1 << 25;
    const ALL: u32 = BF16 | TILES | BYTES;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & ALL == ALL
}

/// Linux gives the room that the tile registers need in signal frames and context switches to those who ask.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: a system call that reads and writes no memory of ours.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// The shape of the tile registers.
#[repr(C, align(64))]
pub(super) struct Shape {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shape {
    /// Sums of so many rows and sixteen outputs; activations and weights of so many bytes of columns.
    pub(super) const fn of(rows: u8, bytes: u8) -> Shape {
        let (x, lines) = (bytes as u16, bytes / 4);
        Shape {
            palette: 1,
            start: 0,
            reserved: [0; 14],
            row_bytes: [64, 64, 64, 64, x, x, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            rows: [rows, rows, rows, rows, rows, rows, lines, lines, 0, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// Eight registers of sixteen rows of 64 bytes.
pub(super) static WHOLE: Shape = Shape::of(16, 64);

const _: () = assert!(size_of::<Shape>() == 64 && TILE_BYTES == 64 * TILE_ROWS);

/// Tile registers in use by this thread; dropping it gives them back, so that the system need not save them.
pub(super) struct Tiles(());

impl Tiles {
    /// # Safety
    /// [`is_available`].
    pub(super) unsafe fn configure(shape: &Shape) -> Tiles {
        // SAFETY: the caller's promise; the shape is a valid one.
        unsafe { asm!("ldtilecfg [{}]", in(reg) shape, options(nostack, readonly)) };
        Tiles(())
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: nothing is lost but the registers' contents.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Loads a tile to the register of rows or of weights and adds a product of both to sums.
macro_rules! load_and_add {
    ($register:literal, $at:literal, $sums:literal) => {
        concat!(
            apart!(concat!("tileloadd tmm", $register, ", [", $at, "]")),
            apart!(concat!("tdpbf16ps tmm", $sums, ", tmm4, tmm6")),
        )
    };
}

/// Steps of two row tiles by two panels, of which one is changed for each product. There is one register for either: where another
/// thread runs on the same core, more of them would leave too few for renaming. `$begin` multiplies low weights, if there are any, and
/// the second rows with the first panel's high ones, which it leaves in their registers.
macro_rules! two_rows {
    ($begin:expr) => {
        concat!(
            "2:\n",
            $begin,
            load_and_add!("6", "{b1} + {line}*1", "3"),
            load_and_add!("4", "{a0} + {line}*1", "1"),
            load_and_add!("6", "{b0} + {line}*1", "0"),
            load_and_add!("4", "{a0} + {line}*1 + 1024", "0"),
            load_and_add!("6", "{b1} + {line}*1", "1"),
            load_and_add!("4", "{a1} + {line}*1 + 1024", "3"),
            load_and_add!("6", "{b0} + {line}*1", "2"),
            "add {a0}, 2048\n",
            "add {a1}, 2048\n",
            "add {b0}, {step}\n",
            "add {b1}, {step}\n",
            "dec {steps}\n",
            "jnz 2b\n",
        )
    };
}

macro_rules! one_row {
    ($low:expr, $high:expr) => {
        concat!(
            "2:\n",
            $low,
            apart!("tileloadd tmm6, [{b0} + {line}*1]"),
            $high,
            apart!("tdpbf16ps tmm0, tmm4, tmm6"),
            apart!("tileloadd tmm7, [{b1} + {line}*1]"),
            apart!("tdpbf16ps tmm1, tmm4, tmm7"),
            apart!("tileloadd tmm4, [{a0} + {line}*1 + 1024]"),
            apart!("tdpbf16ps tmm0, tmm4, tmm6"),
            apart!("tdpbf16ps tmm1, tmm4, tmm7"),
            "add {a0}, 2048\n",
            "add {b0}, {step}\n",
            "add {b1}, {step}\n",
            "dec {steps}\n",
            "jnz 2b\n",
        )
    };
}

/// Tiles of activations and weights to multiply: `steps` tiles each, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    /// Split tiles of two blocks of sixteen rows.
    pub(super) a: [*const u8; 2],
    /// Tiles of two panels.
    pub(super) b: [*const u8; 2],
    pub(super) steps: usize,
}

/// Adds products of two blocks of rows with two panels to `c`: four tiles of sums, `[block][panel]`. `SPLIT`: weights
/// have low parts. `FRESH`: the sums begin at zero.
///
/// # Safety
/// Tiles are configured on this thread; all tiles can be read, and `c` written.
#[inline(always)]
pub(super) unsafe fn multiply_two<const SPLIT: bool, const FRESH: bool>(s: Stretch, c: *mut u8) {
    let Stretch { a: [a0, a1], b: [b0, b1], steps } = s;
    // SAFETY: the caller's promise.
    unsafe {
        if FRESH {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        } else {
            asm!(
                apart!("tileloadd tmm0, [{c} + {line}*1]"),
                apart!("tileloadd tmm1, [{c} + {line}*1 + 1024]"),
                apart!("tileloadd tmm2, [{c} + {line}*1 + 2048]"),
                apart!("tileloadd tmm3, [{c} + {line}*1 + 3072]"),
                c = in(reg) c,
                line = in(reg) 64usize,
                options(nostack, readonly),
            );
        }
        if SPLIT {
            asm!(
                two_rows!(concat!(
                    apart!("tileloadd tmm4, [{a0} + {line}*1]"),
                    load_and_add!("6", "{b0} + {line}*1 + 1024", "0"),
                    load_and_add!("6", "{b1} + {line}*1 + 1024", "1"),
                    load_and_add!("4", "{a1} + {line}*1", "3"),
                    load_and_add!("6", "{b0} + {line}*1 + 1024", "2"),
                    load_and_add!("6", "{b0} + {line}*1", "2"),
                )),
                a0 = inout(reg) a0 => _,
                a1 = inout(reg) a1 => _,
                b0 = inout(reg) b0 => _,
                b1 = inout(reg) b1 => _,
                steps = inout(reg) steps => _,
                step = const 2048,
                line = in(reg) 64usize,
                options(nostack, readonly),
            );
        } else {
            asm!(
                two_rows!(concat!(
                    apart!("tileloadd tmm4, [{a1} + {line}*1]"),
                    load_and_add!("6", "{b0} + {line}*1", "2"),
                )),
                a0 = inout(reg) a0 => _,
                a1 = inout(reg) a1 => _,
                b0 = inout(reg) b0 => _,
                b1 = inout(reg) b1 => _,
                steps = inout(reg) steps => _,
                step = const 1024,
                line = in(reg) 64usize,
                options(nostack, readonly),
            );
        }
        asm!(
            apart!("tilestored [{c} + {line}*1], tmm0"),
            apart!("tilestored [{c} + {line}*1 + 1024], tmm1"),
            apart!("tilestored [{c} + {line}*1 + 2048], tmm2"),
            apart!("tilestored [{c} + {line}*1 + 3072], tmm3"),
            c = in(reg) c,
            line = in(reg) 64usize,
            options(nostack),
        );
    }
}

/// As [`multiply_two`], with the first block of rows alone.
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn multiply_one<const SPLIT: bool, const FRESH: bool>(s: Stretch, c: *mut u8) {
    let Stretch { a: [a0, _], b: [b0, b1], steps } = s;
    // SAFETY: the caller's promise.
    unsafe {
        if FRESH {
            asm!("tilezero tmm0", "tilezero tmm1", options(nostack, nomem));
        } else {
            asm!(
                apart!("tileloadd tmm0, [{c} + {line}*1]"),
                apart!("tileloadd tmm1, [{c} + {line}*1 + 1024]"),
                c = in(reg) c,
                line = in(reg) 64usize,
                options(nostack, readonly),
            );
        }
        if SPLIT {
            asm!(
                one_row!(
                    concat!(
                        apart!("tileloadd tmm6, [{b0} + {line}*1 + 1024]"),
                        apart!("tileloadd tmm4, [{a0} + {line}*1]"),
                        apart!("tdpbf16ps tmm0, tmm4, tmm6"),
                        apart!("tileloadd tmm7, [{b1} + {line}*1 + 1024]"),
                        apart!("tdpbf16ps tmm1, tmm4, tmm7"),
                    ),
                    ""
                ),
                a0 = inout(reg) a0 => _,
                b0 = inout(reg) b0 => _,
                b1 = inout(reg) b1 => _,
                steps = inout(reg) steps => _,
                step = const 2048,
                line = in(reg) 64usize,
                options(nostack, readonly),
            );
        } else {
            asm!(
                one_row!("", apart!("tileloadd tmm4, [{a0} + {line}*1]")),
                a0 = inout(reg) a0 => _,
                b0 = inout(reg) b0 => _,
                b1 = inout(reg) b1 => _,
                steps = inout(reg) steps => _,
                step = const 1024,
                line = in(reg) 64usize,
                options(nostack, readonly),
            );
        }
        asm!(
            apart!("tilestored [{c} + {line}*1], tmm0"),
            apart!("tilestored [{c} + {line}*1 + 1024], tmm1"),
            c = in(reg) c,
            line = in(reg) 64usize,
            options(nostack),
        );
    }
}
