//! Sixteen rows side by side.
//!
//! Rows are zipped in four rounds: each with the one eight after it, what comes of that with what is four after it, and so on.
//! Processors zip sixteen bytes at a time; longer vectors hold several such, which are zipped at once.

use crate::Isa;
use crate::simd::LANES;

/// Puts the numbers of sixteen rows, of `N` bytes each and equally many, side by side.
pub(super) fn interleave<const N: usize>(isa: Isa, plane: &mut [u8], rows: [&[u8]; LANES]) {
    const { assert!(N == 1 || N == 2 || N == 4) };
    let bytes = rows[0].len() / N * N;
    assert!(rows.iter().all(|row| row.len() >= bytes) && plane.len() >= LANES * bytes);
    // Not by `map`, which would be called.
    let mut from = [plane.as_ptr(); LANES];
    for (from, row) in from.iter_mut().zip(rows) {
        *from = row.as_ptr();
    }
    let rows = Rows { from, to: plane.as_mut_ptr() };
    // SAFETY: there are so many bytes of each row, and room for those of all; nobody asks for an instruction set that is not there.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        let done = match isa {
            Isa::Avx512 | Isa::Amx => x86::zip_512::<N>(&rows, bytes),
            Isa::Avx2 => x86::zip_256::<N>(&rows, bytes),
            Isa::Portable | Isa::Neon => 0,
        };
        #[cfg(not(target_arch = "x86_64"))]
        let (done, _) = (0, isa);
        rows.one_by_one::<N>(done, bytes);
    }
}

struct Rows {
    from: [*const u8; LANES],
    to: *mut u8,
}

impl Rows {
    /// Some bytes of each row, number by number. Loops count here, since compilers do not always see through iterators side by side, and
    /// then packing takes up to twice as long.
    ///
    /// # Safety
    /// There are so many bytes, and room for them.
    #[allow(clippy::needless_range_loop)]
    unsafe fn one_by_one<const N: usize>(&self, start: usize, end: usize) {
        for i in start / N..end / N {
            // SAFETY: the caller's promise. Bytes need not be aligned.
            unsafe {
                let numbers = &mut *self.to.cast::<[[u8; N]; LANES]>().add(i);
                for lane in 0..LANES {
                    numbers[lane] = *self.from[lane].cast::<[u8; N]>().add(i);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, Rows};

    /// Bytes that are zipped at a time.
    const STEP: usize = size_of::<__m128i>();

    /// Zips as many of some bytes of each row as whole vectors hold; returns how many.
    ///
    /// # Safety
    /// There are so many bytes, and room for them; the processor has AVX-512.
    #[target_feature(enable = "avx2,avx512f,avx512bw")]
    pub(super) unsafe fn zip_512<const N: usize>(rows: &Rows, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let done = zip::<__m512i, N>(rows, 0, bytes);
            let done = zip::<__m256i, N>(rows, done, bytes);
            zip::<__m128i, N>(rows, done, bytes)
        }
    }

    /// # Safety
    /// As [`zip_512`], with AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn zip_256<const N: usize>(rows: &Rows, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let done = zip::<__m256i, N>(rows, 0, bytes);
            zip::<__m128i, N>(rows, done, bytes)
        }
    }

    /// # Safety
    /// There are so many bytes, and room for them; the processor has such vectors.
    #[inline(always)]
    unsafe fn zip<V: Vector, const N: usize>(rows: &Rows, start: usize, bytes: usize) -> usize {
        let mut at = start;
        while at + size_of::<V>() <= bytes {
            // SAFETY: the caller's promise.
            unsafe {
                // Not by `map`, whose closure would be called.
                let mut vectors = [V::load(rows.from[0].add(at)); LANES];
                for (vector, from) in vectors.iter_mut().zip(&rows.from).skip(1) {
                    *vector = V::load(from.add(at));
                }
                let vectors = round::<V, N>(round::<V, N>(round::<V, N>(round::<V, N>(vectors))));
                for (i, four) in vectors.as_chunks::<4>().0.iter().enumerate() {
                    V::store(*four, rows.to.add(LANES * at + 4 * STEP * i));
                }
            }
            at += size_of::<V>();
        }
        at
    }

    /// Zips each vector with the one eight after it. What is zipped takes twice as many vectors, and so is where the next round looks
    /// for it. Without a loop: vectors of one that the compiler leaves would be in memory.
    ///
    /// # Safety
    /// The processor has such vectors.
    #[inline(always)]
    unsafe fn round<V: Vector, const N: usize>(v: [V; LANES]) -> [V; LANES] {
        // SAFETY: the caller's promise.
        unsafe {
            let [a, b] = v[0].zip::<N>(v[8]);
            let [c, d] = v[1].zip::<N>(v[9]);
            let [e, f] = v[2].zip::<N>(v[10]);
            let [g, h] = v[3].zip::<N>(v[11]);
            let [i, j] = v[4].zip::<N>(v[12]);
            let [k, l] = v[5].zip::<N>(v[13]);
            let [m, n] = v[6].zip::<N>(v[14]);
            let [o, p] = v[7].zip::<N>(v[15]);
            [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
        }
    }

    /// Bytes.
    trait Vector: Copy {
        /// # Safety
        /// The bytes may be read, and the processor has such vectors, here and below.
        unsafe fn load(from: *const u8) -> Self;

        /// Zips the lower halves of each sixteen bytes, and the upper ones, in numbers of `N`.
        unsafe fn zip<const N: usize>(self, other: Self) -> [Self; 2];

        /// Writes the first sixteen bytes of all four, then the next ones where those of the next sixteen of all rows begin.
        ///
        /// # Safety
        /// There is room for them.
        unsafe fn store(four: [Self; 4], to: *mut u8);
    }

    macro_rules! vector {
        ($vector:ty: $load:ident, [$low1:ident, $high1:ident], [$low2:ident, $high2:ident], [$low4:ident, $high4:ident],
            |$four:ident, $to:ident| $store:expr) => {
            impl Vector for $vector {
                #[inline(always)]
                unsafe fn load(from: *const u8) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $load(from.cast()) }
                }
                #[inline(always)]
                unsafe fn zip<const N: usize>(self, other: Self) -> [Self; 2] {
                    // SAFETY: the caller's promise.
                    unsafe {
                        match N {
                            1 => [$low1(self, other), $high1(self, other)],
                            2 => [$low2(self, other), $high2(self, other)],
                            _ => [$low4(self, other), $high4(self, other)],
                        }
                    }
                }
                #[inline(always)]
                unsafe fn store($four: [Self; 4], $to: *mut u8) {
                    // SAFETY: the caller's promise.
                    unsafe { $store }
                }
            }
        };
    }

    vector!(__m128i: _mm_loadu_si128, [_mm_unpacklo_epi8, _mm_unpackhi_epi8], [_mm_unpacklo_epi16, _mm_unpackhi_epi16],
    [_mm_unpacklo_epi32, _mm_unpackhi_epi32], |four, to| {
        for (i, part) in four.into_iter().enumerate() {
            _mm_storeu_si128(to.add(STEP * i).cast(), part);
        }
    });
    vector!(__m256i: _mm256_loadu_si256, [_mm256_unpacklo_epi8, _mm256_unpackhi_epi8],
    [_mm256_unpacklo_epi16, _mm256_unpackhi_epi16], [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32], |four, to| {
        for (i, [a, b]) in four.as_chunks().0.iter().enumerate() {
            let to = to.add(2 * STEP * i);
            _mm256_storeu_si256(to.cast(), _mm256_permute2x128_si256::<0x20>(*a, *b));
            _mm256_storeu_si256(to.add(LANES * STEP).cast(), _mm256_permute2x128_si256::<0x31>(*a, *b));
        }
    });
    vector!(__m512i: _mm512_loadu_si512, [_mm512_unpacklo_epi8, _mm512_unpackhi_epi8],
    [_mm512_unpacklo_epi16, _mm512_unpackhi_epi16], [_mm512_unpacklo_epi32, _mm512_unpackhi_epi32], |four, to| {
        let [a, b, c, d] = four;
        // Of two vectors the first two sixteen bytes of each, and the last two; then every second one of those.
        let (ab, cd) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        _mm512_storeu_si512(to.cast(), _mm512_shuffle_i32x4::<0x88>(ab, cd));
        _mm512_storeu_si512(to.add(LANES * STEP).cast(), _mm512_shuffle_i32x4::<0xDD>(ab, cd));
        let (ab, cd) = (_mm512_shuffle_i32x4::<0xEE>(a, b), _mm512_shuffle_i32x4::<0xEE>(c, d));
        _mm512_storeu_si512(to.add(2 * LANES * STEP).cast(), _mm512_shuffle_i32x4::<0x88>(ab, cd));
        _mm512_storeu_si512(to.add(3 * LANES * STEP).cast(), _mm512_shuffle_i32x4::<0xDD>(ab, cd));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const N: usize>(isa: Isa, count: usize) {
        let rows: Vec<Vec<u8>> =
            (0..LANES).map(|row| (0..N * count + row).map(|i| (row * 89 + i * 7) as u8).collect()).collect();
        let mut plane = vec![0; N * LANES * count + 1];
        interleave::<N>(isa, &mut plane, std::array::from_fn(|row| &rows[row][..N * count]));
        for (i, numbers) in plane.chunks_exact(N * LANES).enumerate() {
            for (row, number) in numbers.chunks_exact(N).enumerate() {
                assert_eq!(*number, rows[row][N * i..N * (i + 1)], "{isa} {N} {count}: {i} of {row}");
            }
        }
        assert_eq!(plane[N * LANES * count], 0);
    }

    #[test]
    fn every_number_gets_its_place() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for count in [0, 1, 3, 4, 7, 8, 16, 31, 33, 64, 117, 300] {
                check::<1>(isa, count);
                check::<2>(isa, count);
                check::<4>(isa, count);
            }
        }
    }
}
