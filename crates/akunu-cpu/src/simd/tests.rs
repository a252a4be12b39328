//! Every instruction set this processor has, against plain arithmetic.

use super::{Kernel, LANES, LOW_BITS, Simd};
use crate::Isa;

/// Runs a kernel with each available instruction set, and with what each has for few rows.
fn everywhere<K: Kernel>(kernel: impl Fn(Isa) -> K) {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        isa.run(kernel(isa));
        isa.run_few(kernel(isa));
    }
}

struct Functions(Isa);

impl Kernel for Functions {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let apply = |f: fn(S::F) -> S::F, x: [f32; LANES]| {
            let mut y = [0.0; LANES];
            S::store(f(S::load(&x)), &mut y);
            y
        };
        for step in -1200..1200 {
            let x: [f32; LANES] = std::array::from_fn(|i| (step as f32 + i as f32 / 16.0) * 0.09);
            let (e, t, f) = (apply(S::exp, x), apply(S::tanh, x), apply(S::erf, x));
            assert_eq!(e, apply(super::exp::<S>, x), "{}", self.0);
            for i in 0..LANES {
                let exact = f64::from(x[i]).exp();
                if x[i] >= -87.3 && x[i] <= 88.3 {
                    assert!(
                        (f64::from(e[i]) / exact - 1.0).abs() < 2.4e-7,
                        "{}: exp({}) = {}",
                        self.0,
                        x[i],
                        e[i]
                    );
                } else if x[i] < -87.3 {
                    assert_eq!(e[i], 0.0, "{}: exp({})", self.0, x[i]);
                }
                assert!(
                    (f64::from(t[i]) - f64::from(x[i]).tanh()).abs() < 2e-7,
                    "{}: tanh({})",
                    self.0,
                    x[i]
                );
                assert!(f[i].abs() <= 1.0 && f[i] * x[i] >= 0.0, "{}: erf({}) = {}", self.0, x[i], f[i]);
            }
        }
        for step in 0..2000 {
            let x: [f32; LANES] = std::array::from_fn(|i| 8.0 - 0.07 * (step as f32 + i as f32 / 16.0));
            for (x, y) in x.into_iter().zip(apply(S::exp2, x)) {
                let exact = f64::from(x).exp2();
                let near =
                    (f64::from(y) - exact).abs() <= 2e-7 * exact + if x < -126.0 { 2e-44 } else { 0.0 };
                assert!(near || x < -126.0 && y == 0.0, "{}: 2^{x} = {y}", self.0);
            }
        }
        let exp2 = |x: f32| apply(S::exp2, [x; LANES])[0];
        assert_eq!([exp2(0.0), exp2(f32::NEG_INFINITY), exp2(-1e9)], [1.0, 0.0, 0.0], "{}", self.0);
        assert!(exp2(f32::NAN).is_nan(), "{}", self.0);
        for step in 0..1260 {
            let x: [f32; LANES] = std::array::from_fn(|i| (step as f32 * 0.1 + i as f32 * 0.006).exp2());
            for (x, y) in x.into_iter().zip(apply(S::reciprocal, x)) {
                assert!((f64::from(x) * f64::from(y) - 1.0).abs() < 2e-7, "{}: 1 / {x} = {y}", self.0);
            }
        }
        let large = apply(S::reciprocal, [f32::INFINITY; LANES]);
        assert!(large.iter().all(|y| (0.0..1.2e-38).contains(y)), "{}: {large:?}", self.0);
        assert_eq!(apply(S::erf, [f32::INFINITY; LANES]), [1.0; LANES], "{}", self.0);
        let f = apply(S::erf, [0.5; LANES])[0];
        assert!((f - 0.520_499_9).abs() < 2e-7, "{}: erf(0.5) = {f}", self.0);
        let exp = |x: f32| apply(S::exp, [x; LANES])[0];
        assert_eq!([exp(f32::NEG_INFINITY), exp((-87.3f32).next_down())], [0.0; 2], "{}", self.0);
        assert_eq!([exp(88.3f32.next_up()), exp(f32::INFINITY)], [exp(88.3); 2], "{}", self.0);
        assert!(exp(-87.3) > 1e-38 && exp(88.3) > 2e38 && exp(f32::NAN).is_nan(), "{}", self.0);
    }
}

#[test]
fn exponentials_are_close_to_the_real_ones() {
    everywhere(Functions);
}

struct Lanes(Isa);

impl Kernel for Lanes {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let x: [f32; LANES] = std::array::from_fn(|i| i as f32 * 1.5 - 7.0);
        assert_eq!(S::sum(S::load(&x)), x.iter().sum::<f32>());
        assert_eq!(S::largest(S::load(&x)), 15.5);
        assert!(!S::any_above(S::load(&x), S::load(&x)), "{}", self.0);
        for lane in 0..LANES {
            let (mut above, mut unknown) = (x, x);
            above[lane] += 1.0;
            unknown[lane] = f32::NAN;
            let [x, above, unknown] = [S::load(&x), S::load(&above), S::load(&unknown)];
            assert!(S::any_above(above, x) && !S::any_above(x, above), "{}: {lane}", self.0);
            assert!(!S::any_above(unknown, x) && !S::any_above(x, unknown), "{}: {lane}", self.0);
            assert!(S::any_unknown(unknown, x) && S::any_unknown(x, unknown), "{}: {lane}", self.0);
        }
        assert!(!S::any_unknown(S::load(&x), S::splat(f32::INFINITY)), "{}", self.0);
        let both: [u8; LANES] = std::array::from_fn(|i| (i * 0x1f + 7) as u8);
        let nibbles = S::load_nibbles(&both).map(|x| {
            let mut to = [0.0; LANES];
            S::store(x, &mut to);
            to
        });
        assert_eq!(nibbles, [both.map(|b| f32::from(b & 15)), both.map(|b| f32::from(b >> 4))], "{}", self.0);
        let rounded = S::round(S::load(&x));
        let (mut bytes, mut halves, mut back) = ([0i8; LANES], [0u16; LANES], [0f32; LANES]);
        S::store_i8(rounded, &mut bytes);
        assert_eq!(bytes, x.map(|x| x.round_ties_even() as i8), "{}", self.0);
        assert_eq!(S::sum_i(rounded), bytes.iter().map(|b| i32::from(*b)).sum::<i32>());
        S::store(S::load_i8(&bytes), &mut back);
        assert_eq!(back, bytes.map(f32::from));
        S::store_f16(S::load(&x), &mut halves);
        S::store(S::load_f16(&halves), &mut back);
        assert_eq!(back, x);
        S::store(S::load_bf16(&x.map(|x| (x.to_bits() >> 16) as u16)), &mut back);
        assert_eq!(back, x);
    }
}

#[test]
fn lanes_keep_their_order() {
    everywhere(Lanes);
}

struct Dots;

impl Kernel for Dots {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let mut seed = 1u32;
        let mut byte = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        for round in 0..200 {
            // The extremes first, where narrow sums would overflow.
            let codes: [[u8; 64]; 8] =
                std::array::from_fn(|_| std::array::from_fn(|_| if round < 2 { 255 } else { byte() }));
            let (high, low): ([i8; 32], [i8; 32]) = match round {
                0 => ([127; 32], [64; 32]),
                1 => ([-127; 32], [-64; 32]),
                _ => {
                    let mut within = |most: i8| std::array::from_fn(|_| (byte() as i8).clamp(-most, most));
                    (within(127), within(64))
                }
            };
            let words = |x: &[i8; 32]| -> [i32; 8] {
                std::array::from_fn(|i| i32::from_le_bytes(std::array::from_fn(|j| x[4 * i + j] as u8)))
            };
            let x: [i32; 32] = std::array::from_fn(|i| (i32::from(high[i]) << LOW_BITS) + i32::from(low[i]));
            let (high, low) = (words(&high), words(&low));
            let sum: i32 = x.iter().sum();
            let expected = |mask: u8, init: i32| -> [f32; LANES] {
                std::array::from_fn(|r| {
                    let product = |k: usize| i32::from(codes[k / 4][4 * r + k % 4] & mask) * x[k];
                    (init + (0..32).map(product).sum::<i32>()) as f32
                })
            };
            let mut actual = [0.0; LANES];
            let loaded = codes.map(|c| S::codes(&c));
            S::store(S::to_float(S::dot(8, -128 * sum, &loaded, &high, &low)), &mut actual);
            assert_eq!(actual, expected(255, -128 * sum));
            let narrow = |bits: usize| loaded.map(|c| S::and(c, (1 << bits) - 1));
            for bits in 2..=6 {
                S::store(S::to_float(S::dot(bits, -32 * sum, &narrow(bits), &high, &low)), &mut actual);
                assert_eq!(actual, expected((1 << bits) - 1, -32 * sum));
            }
            let narrow = narrow(6);
            beside::<S, 8>(narrow, &high, &low);
            beside::<S, 4>([narrow[0], narrow[5], narrow[6], narrow[7]], &[high[0]; 4], &[low[7]; 4]);
            if S::MANY_APART {
                word_dots::<S, 8>(&codes, &x, &high, &low);
                word_dots::<S, 4>(codes.first_chunk().unwrap(), &x, &high, &low);
            }
            if S::BYTE_DOTS {
                byte_dots::<S>(&codes, &x, &high, &low);
            }
        }
    }
}

/// Two panels, the second of which has the vectors of the first the other way round, side by side and each by itself.
#[inline(always)]
fn beside<S: Simd, const N: usize>(codes: [S::C; N], high: &[i32; N], low: &[i32; N]) {
    let mut turned = codes;
    turned.reverse();
    let [a, b] = S::dots_beside(6, -7, [&codes, &turned], high, low);
    let alone = [S::dot(6, -7, &codes, high, low), S::dot(6, -7, &turned, high, low)];
    for (dot, alone) in [(a, alone[0]), (b, alone[1])] {
        let (mut actual, mut expected) = ([0.0; LANES], [0.0; LANES]);
        S::store(S::to_float(dot), &mut actual);
        S::store(S::to_float(alone), &mut expected);
        assert_eq!(actual, expected);
    }
}

/// Of two panels, the second of which has the vectors of the first the other way round, and four rows that are the same.
#[inline(always)]
fn byte_dots<S: Simd>(codes: &[[u8; 64]; 8], x: &[i32; 32], high: &[i32; 8], low: &[i32; 8]) {
    let both: [[[u8; 64]; 2]; 8] = std::array::from_fn(|i| [codes[i], codes[7 - i]]);
    let (all, half): (i32, i32) = (x.iter().sum(), x[..16].iter().sum());
    let upper = S::byte_dots::<8, true>([-all; 4], &both, [high; 4], [low; 4]);
    let lower = S::byte_dots::<8, false>([-128 * all; 4], &both, [high; 4], [low; 4]);
    let first = |x: &[i32; 8]| -> [i32; 4] { std::array::from_fn(|i| x[i]) };
    let (h, l) = (first(high), first(low));
    let of_half = S::byte_dots::<4, true>([-half; 4], &both.as_chunks().0[0], [&h; 4], [&l; 4]);
    let mut actual = [0.0; LANES];
    for row in 0..4 {
        for panel in 0..2 {
            let expected = |count: usize| -> [f32; LANES] {
                std::array::from_fn(|r| {
                    let code = |k: usize| i32::from(both[k / 4][panel][4 * r + k % 4]) - 128;
                    (0..count).map(|k| code(k) * x[k]).sum::<i32>() as f32
                })
            };
            for (dots, count) in [(&upper, 32), (&lower, 32), (&of_half, 16)] {
                S::store(S::to_float(dots[row][panel]), &mut actual);
                assert_eq!(actual, expected(count));
            }
        }
    }
}

/// Of two panels, the second of which has the vectors of the first the other way round, and two rows, of which the second has all activations
/// four columns later.
#[inline(always)]
fn word_dots<S: Simd, const N: usize>(codes: &[[u8; 64]; N], x: &[i32; 32], high: &[i32; 8], low: &[i32; 8]) {
    let mut weights = [[[[0; LANES]; 2]; 2]; N];
    for (i, [first, second]) in weights.iter_mut().enumerate() {
        for (panel, (first, second)) in first.iter_mut().zip(second).enumerate() {
            let step = if panel == 0 { i } else { N - 1 - i };
            S::store_words(S::codes(&codes[step]), 128, [first, second]);
        }
    }
    let rows = [0, 1].map(|later| {
        let turned = |x: &[i32; 8]| -> [i32; 8] { std::array::from_fn(|i| x[(i + later) % 8]) };
        let mut words = [[0; 2]; 8];
        S::activation_words(&turned(high), &turned(low), &mut words);
        words
    });
    let dots = S::word_dots(&weights, [&rows[0].as_chunks().0[0], &rows[1].as_chunks().0[0]]);
    let mut actual = [0.0; LANES];
    for (row, dots) in dots.into_iter().enumerate() {
        for (panel, dot) in dots.into_iter().enumerate() {
            let expected: [f32; LANES] = std::array::from_fn(|r| {
                let step = |k: usize| if panel == 0 { k / 4 } else { N - 1 - k / 4 };
                let code = |k: usize| i32::from(codes[step(k)][4 * r + k % 4]) - 128;
                (0..4 * N).map(|k| code(k) * x[(k + 4 * row) % 32]).sum::<i32>() as f32
            });
            S::store(S::to_float(dot), &mut actual);
            assert_eq!(actual, expected, "row {row}, panel {panel}");
        }
    }
}

#[test]
fn integer_dots_are_exact() {
    everywhere(|_| Dots);
}

struct Fields(Isa);

impl Kernel for Fields {
    #[inline(always)]
    fn run<S: Simd>(self) {
        for first in [0, 64, 128, 192] {
            let bytes: [u8; 64] = std::array::from_fn(|i| first + i as u8);
            let x = S::codes(&bytes);
            macro_rules! fields {
                ($($from:literal, $width:literal, $to:literal);+) => {
                    $({
                        let expected = bytes.map(|byte| (byte >> $from) % (1 << $width) << $to);
                        let actual = bytes_of::<S>(S::field::<$from, $width, $to>(x));
                        assert_eq!(actual, expected, "{}: {}, {}, {}", self.0, $from, $width, $to);
                    })+
                };
            }
            fields!(0, 4, 0; 4, 4, 0; 0, 2, 0; 2, 2, 0; 4, 2, 0; 6, 2, 0; 0, 2, 4; 2, 2, 4; 4, 2, 4; 6, 2, 4);
            fields!(0, 2, 6; 6, 2, 6; 0, 1, 5; 0, 1, 6; 0, 1, 7; 7, 1, 7);
            fields!(0, 1, 2; 1, 1, 2; 2, 1, 2; 3, 1, 2; 4, 1, 2; 5, 1, 2; 6, 1, 2; 7, 1, 2);
            fields!(0, 1, 4; 1, 1, 4; 2, 1, 4; 3, 1, 4; 4, 1, 4; 5, 1, 4; 6, 1, 4; 7, 1, 4);
            let table: [u8; 16] = std::array::from_fn(|i| (i * 37 + 11) as u8);
            let expected = bytes.map(|byte| table[usize::from(byte & 15)]);
            assert_eq!(bytes_of::<S>(S::lookup(x, &table)), expected, "{}", self.0);
        }
    }
}

/// The bytes of codes, each by a dot with one that takes it alone.
#[inline(always)]
fn bytes_of<S: Simd>(x: S::C) -> [u8; 64] {
    let mut bytes = [0; 64];
    for column in 0..4 {
        let mut to = [0.0; LANES];
        let sum = 1 << LOW_BITS;
        let dot = S::dot(8, -128 * sum, &[x; 2], &[1 << (8 * column), 0], &[0; 2]);
        S::store(S::to_float(dot), &mut to);
        for row in 0..LANES {
            bytes[4 * row + column] = (to[row] as i32 / sum + 128) as u8;
        }
    }
    bytes
}

#[test]
fn fields_of_bytes_are_cut_out_and_looked_up() {
    everywhere(Fields);
}
