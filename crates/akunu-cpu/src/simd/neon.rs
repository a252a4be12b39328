//! NEON with the dot product instructions: four registers a vector.
//!
//! The conversions from and to F16 and the dot products are written as assembly, because their intrinsics are not stable.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{Kernel, LANES, LOW_BITS, Simd};

/// Four 128-bit registers.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

/// Runs a kernel with the features on.
///
/// # Safety
/// The processor has the features.
#[target_feature(enable = "neon,dotprod")]
pub(crate) unsafe fn launch<K: Kernel>(kernel: K) {
    kernel.run::<Neon>();
}

/// The four quarters of an array.
#[inline(always)]
fn quarters<T>(x: &[T; LANES]) -> [&[T; 4]; 4] {
    let [a, b, c, d] = x.as_chunks::<4>().0 else { unreachable!() };
    [a, b, c, d]
}

/// Does something with every quarter.
macro_rules! each {
    ($x:ident in $quarters:expr => $body:expr) => {{
        let quarters = $quarters;
        each!(@ $x, quarters, $body; 0, 1, 2, 3)
    }};
    (@ $x:ident, $quarters:ident, $body:expr; $($i:literal),+) => {
        [$({
            let $x = $quarters[$i];
            unsafe { $body }
        }),+]
    };
}

/// Applies an intrinsic to every quarter of some vectors.
macro_rules! all {
    ($f:path; $($x:expr),+) => {
        [
            unsafe { $f($($x[0]),+) },
            unsafe { $f($($x[1]),+) },
            unsafe { $f($($x[2]),+) },
            unsafe { $f($($x[3]),+) },
        ]
    };
}

/// Sixteen signed bytes.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn bytes_to_float(bytes: int8x16_t) -> [float32x4_t; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
        Neon::to_float([
            vmovl_s16(vget_low_s16(low)),
            vmovl_high_s16(low),
            vmovl_s16(vget_low_s16(high)),
            vmovl_high_s16(high),
        ])
    }
}

// SAFETY of every block below: these methods run only inside `launch`, so the processor has the features; loads and
// stores go through references to arrays of exactly their size; the assembly reads and writes its operands alone.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Neon {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];
    type C = [uint8x16_t; 4];

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        unsafe { [vdupq_n_f32(x); 4] }
    }
    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self::F {
        each!(x in quarters(from) => vld1q_f32(x.as_ptr()))
    }
    #[inline(always)]
    fn store(x: Self::F, to: &mut [f32; LANES]) {
        for (to, x) in to.as_chunks_mut::<4>().0.iter_mut().zip(x) {
            unsafe { vst1q_f32(to.as_mut_ptr(), x) }
        }
    }
    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self::F {
        each!(x in quarters(from) => {
            let bits = vld1_u16(x.as_ptr());
            let wide: float32x4_t;
            asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) bits, options(pure, nomem, nostack));
            wide
        })
    }
    #[inline(always)]
    fn store_f16(x: Self::F, to: &mut [u16; LANES]) {
        for (to, x) in to.as_chunks_mut::<4>().0.iter_mut().zip(x) {
            unsafe {
                let bits: uint16x4_t;
                asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) bits, in(vreg) x, options(pure, nomem, nostack));
                vst1_u16(to.as_mut_ptr(), bits);
            }
        }
    }
    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self::F {
        each!(x in quarters(from) => vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(x.as_ptr()))))
    }
    #[inline(always)]
    fn load_nibbles(from: &[u8; LANES]) -> [Self::F; 2] {
        unsafe {
            let both = vreinterpretq_s8_u8(vld1q_u8(from.as_ptr()));
            let lower = vandq_s8(both, vdupq_n_s8(15));
            let upper = vreinterpretq_s8_u8(vshrq_n_u8::<4>(vreinterpretq_u8_s8(both)));
            [bytes_to_float(lower), bytes_to_float(upper)]
        }
    }
    #[inline(always)]
    fn load_i8(from: &[i8; LANES]) -> Self::F {
        unsafe { bytes_to_float(vld1q_s8(from.as_ptr())) }
    }
    #[inline(always)]
    fn add(x: Self::F, y: Self::F) -> Self::F {
        all!(vaddq_f32; x, y)
    }
    #[inline(always)]
    fn sub(x: Self::F, y: Self::F) -> Self::F {
        all!(vsubq_f32; x, y)
    }
    #[inline(always)]
    fn mul(x: Self::F, y: Self::F) -> Self::F {
        all!(vmulq_f32; x, y)
    }
    #[inline(always)]
    fn div(x: Self::F, y: Self::F) -> Self::F {
        all!(vdivq_f32; x, y)
    }
    #[inline(always)]
    fn fma(x: Self::F, y: Self::F, z: Self::F) -> Self::F {
        all!(vfmaq_f32; z, x, y)
    }
    #[inline(always)]
    fn max(x: Self::F, y: Self::F) -> Self::F {
        all!(vmaxq_f32; x, y)
    }
    #[inline(always)]
    fn min(x: Self::F, y: Self::F) -> Self::F {
        all!(vminq_f32; x, y)
    }
    #[inline(always)]
    fn select_less(x: Self::F, y: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        let less = all!(vcltq_f32; x, y);
        all!(vbslq_f32; less, yes, no)
    }
    #[inline(always)]
    fn sum(x: Self::F) -> f32 {
        unsafe { vaddvq_f32(vaddq_f32(vaddq_f32(x[0], x[1]), vaddq_f32(x[2], x[3]))) }
    }
    #[inline(always)]
    fn largest(x: Self::F) -> f32 {
        unsafe { vmaxvq_f32(vmaxq_f32(vmaxq_f32(x[0], x[1]), vmaxq_f32(x[2], x[3]))) }
    }
    #[inline(always)]
    fn any_above(x: Self::F, y: Self::F) -> bool {
        unsafe {
            let low = vorrq_u32(vcgtq_f32(x[0], y[0]), vcgtq_f32(x[1], y[1]));
            let high = vorrq_u32(vcgtq_f32(x[2], y[2]), vcgtq_f32(x[3], y[3]));
            vmaxvq_u32(vorrq_u32(low, high)) != 0
        }
    }
    #[inline(always)]
    fn any_unknown(x: Self::F, y: Self::F) -> bool {
        // A number is equal to itself.
        let [a, b, c, d] = each!(x in x => vceqq_f32(x, x));
        let [e, f, g, h] = each!(y in y => vceqq_f32(y, y));
        unsafe {
            let first = vandq_u32(vandq_u32(a, b), vandq_u32(c, d));
            let second = vandq_u32(vandq_u32(e, f), vandq_u32(g, h));
            vminvq_u32(vandq_u32(first, second)) == 0
        }
    }
    #[inline(always)]
    fn round(x: Self::F) -> Self::I {
        each!(x in x => vcvtnq_s32_f32(x))
    }
    #[inline(always)]
    fn to_float(x: Self::I) -> Self::F {
        each!(x in x => vcvtq_f32_s32(x))
    }
    #[inline(always)]
    fn power_of_two(x: Self::I) -> Self::F {
        each!(x in x => vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(x, vdupq_n_s32(127)))))
    }
    #[inline(always)]
    fn store_i8(x: Self::I, to: &mut [i8; LANES]) {
        unsafe {
            let low = vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1]));
            let high = vcombine_s16(vmovn_s32(x[2]), vmovn_s32(x[3]));
            vst1q_s8(to.as_mut_ptr(), vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        }
    }
    #[inline(always)]
    fn sum_i(x: Self::I) -> i32 {
        unsafe { vaddvq_s32(vaddq_s32(vaddq_s32(x[0], x[1]), vaddq_s32(x[2], x[3]))) }
    }
    #[inline(always)]
    fn codes(from: &[u8; 64]) -> Self::C {
        let [a, b, c, d] = from.as_chunks::<16>().0 else { unreachable!() };
        each!(x in [a, b, c, d] => vld1q_u8(x.as_ptr()))
    }
    #[inline(always)]
    fn store_codes(x: Self::C, to: &mut [u8; 64]) {
        for (x, to) in x.into_iter().zip(to.as_chunks_mut::<16>().0) {
            unsafe { vst1q_u8(to.as_mut_ptr(), x) }
        }
    }
    #[inline(always)]
    fn and(x: Self::C, mask: u8) -> Self::C {
        each!(x in x => vandq_u8(x, vdupq_n_u8(mask)))
    }
    #[inline(always)]
    fn or(x: Self::C, y: Self::C) -> Self::C {
        all!(vorrq_u8; x, y)
    }
    #[inline(always)]
    fn shift_right<const BITS: u32>(x: Self::C) -> Self::C {
        each!(x in x => vshlq_u8(x, vdupq_n_s8(-(BITS as i8))))
    }
    #[inline(always)]
    fn shift_left<const BITS: u32>(x: Self::C) -> Self::C {
        each!(x in x => vshlq_u8(x, vdupq_n_s8(BITS as i8)))
    }
    #[inline(always)]
    fn lookup(x: Self::C, table: &[u8; 16]) -> Self::C {
        each!(x in x => vqtbl1q_u8(vld1q_u8(table.as_ptr()), vandq_u8(x, vdupq_n_u8(15))))
    }
    #[inline(always)]
    fn dot<const N: usize>(
        bits: usize,
        init: i32,
        codes: &[Self::C; N],
        high: &[i32; N],
        low: &[i32; N],
    ) -> Self::I {
        // Products here are of signed bytes: codes with all eight bits are taken around 128, which `init` is for.
        let (mut upper, mut lower) =
            unsafe { ([vdupq_n_s32(0); 4], [vdupq_n_s32(if bits == 8 { 0 } else { init }); 4]) };
        for i in 0..N {
            unsafe {
                let (high, low) = (vdupq_n_s32(high[i]), vdupq_n_s32(low[i]));
                for part in 0..4 {
                    let code = codes[i][part];
                    let code = if bits == 8 { veorq_u8(code, vdupq_n_u8(128)) } else { code };
                    asm!(
                        "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
                        inout(vreg) upper[part], in(vreg) code, in(vreg) high, options(pure, nomem, nostack)
                    );
                    asm!(
                        "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
                        inout(vreg) lower[part], in(vreg) code, in(vreg) low, options(pure, nomem, nostack)
                    );
                }
            }
        }
        let upper = each!(x in upper => vshlq_n_s32::<{ LOW_BITS as i32 }>(x));
        all!(vaddq_s32; upper, lower)
    }
}
