//! Sixteen rows side by side.
//!
//! Rows are zipped in rounds: each vector with the one eight after it, in numbers twice as large every round, until numbers are sixteen
//! bytes. Processors zip within sixteen bytes; longer vectors hold several such, which are put where they belong when they are written.

use crate::Isa;
use crate::memory::ask;
use crate::simd::LANES;

/// Sixteen rows that lie equally far apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) bytes: &'a [u8],
    /// Bytes from the start of a row to that of the next.
    pub(super) stride: usize,
    /// How many bytes behind what is read the processor is asked for more, which need not be there.
    pub(super) ahead: usize,
}

/// Some bytes of a row, in pieces.
#[derive(Clone, Copy)]
pub(super) struct Pieces {
    /// Where the first piece begins.
    pub(super) at: usize,
    /// Bytes from the start of a piece to that of the next.
    pub(super) step: usize,
    /// The bytes of all pieces.
    pub(super) bytes: usize,
    /// The bits of each byte that are turned.
    pub(super) turned: u8,
}

/// The size of pieces, and their step, of what is in one piece: as many bytes as are read at a time at most.
pub(super) const WHOLE: usize = 64;

impl Pieces {
    /// Bytes side by side.
    pub(super) const fn whole(at: usize, bytes: usize) -> Pieces {
        Pieces { at, step: WHOLE, bytes, turned: 0 }
    }

    /// Where the byte is that so many bytes of the pieces come before.
    #[inline(always)]
    const fn place<const PIECE: usize>(&self, byte: usize) -> usize {
        self.at + byte / PIECE * self.step + byte % PIECE
    }
}

/// Puts the numbers of sixteen rows, of `N` bytes each, side by side. They lie in pieces of `PIECE` bytes, of which the last may be
/// shorter.
pub(super) fn interleave<const N: usize, const PIECE: usize>(
    isa: Isa,
    plane: &mut [u8],
    rows: Rows<'_>,
    pieces: Pieces,
) {
    const { assert!(matches!(N, 1 | 2 | 4) && PIECE.is_multiple_of(N) && WHOLE.is_multiple_of(PIECE)) };
    let bytes = pieces.bytes / N * N;
    if bytes == 0 {
        return;
    }
    let last = (LANES - 1) * rows.stride + pieces.place::<PIECE>(bytes - 1);
    assert!(last < rows.bytes.len() && plane.len() >= LANES * bytes);
    assert!(pieces.step >= PIECE && (PIECE < WHOLE || pieces.step == WHOLE));
    let Rows { bytes: from, stride, ahead } = rows;
    let zip = Zip { from: from.as_ptr(), stride, ahead, pieces, to: plane.as_mut_ptr() };
    // SAFETY: the last byte of the last row is the one furthest on, since pieces lie one behind the other: there are so many bytes of each
    // row, and room for those of all. Nobody asks for an instruction set that is not there.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        let done = match isa {
            Isa::Avx512 | Isa::Amx => x86::zip_512::<N, PIECE>(&zip, bytes),
            Isa::Avx2 => x86::zip_256::<N, PIECE>(&zip, bytes),
            Isa::Portable | Isa::Neon => 0,
        };
        #[cfg(not(target_arch = "x86_64"))]
        let (done, _) = (0, isa);
        zip.one_by_one::<N, PIECE>(done, bytes);
    }
}

struct Zip {
    from: *const u8,
    stride: usize,
    ahead: usize,
    pieces: Pieces,
    to: *mut u8,
}

impl Zip {
    /// Where a row has the byte that so many bytes come before.
    ///
    /// # Safety
    /// There is such a byte.
    #[inline(always)]
    unsafe fn from<const PIECE: usize>(&self, row: usize, byte: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { self.from.add(row * self.stride + self.pieces.place::<PIECE>(byte)) }
    }

    /// Some bytes of each row, number by number. Loops count here, since compilers do not always see through iterators side by side, and
    /// then packing takes up to twice as long.
    ///
    /// # Safety
    /// There are so many bytes, and room for them.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn one_by_one<const N: usize, const PIECE: usize>(&self, start: usize, end: usize) {
        for i in start / N..end / N {
            if (N * i).is_multiple_of(WHOLE) {
                for lane in 0..LANES {
                    // SAFETY: the caller's promise. What is asked for need not be there.
                    ask(unsafe { self.from::<PIECE>(lane, N * i) }.wrapping_add(self.ahead));
                }
            }
            // SAFETY: the caller's promise. Bytes need not be aligned.
            unsafe {
                let numbers = &mut *self.to.cast::<[[u8; N]; LANES]>().add(i);
                for lane in 0..LANES {
                    // Not byte by byte, which compilers keep.
                    let mut word = [0; 4];
                    word[..N].copy_from_slice(&*self.from::<PIECE>(lane, N * i).cast::<[u8; N]>());
                    let word = u32::from_ne_bytes(word) ^ u32::from_ne_bytes([self.pieces.turned; 4]);
                    numbers[lane].copy_from_slice(&word.to_ne_bytes()[..N]);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, Zip};
    use crate::memory::ask;

    /// Bytes that are zipped at a time.
    const UNIT: usize = size_of::<__m128i>();

    /// The rows in the order in which rounds leave them as they are in the file: the bits of their numbers turned round.
    const ORDER: [usize; LANES] = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15];

    /// Zips as many of some bytes of each row as whole vectors hold; returns how many.
    ///
    /// # Safety
    /// There are so many bytes, and room for them; the processor has AVX-512.
    #[target_feature(enable = "avx2,avx512f,avx512bw")]
    pub(super) unsafe fn zip_512<const N: usize, const PIECE: usize>(rows: &Zip, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let done = zip::<__m512i, N, PIECE>(rows, 0, bytes);
            let done = zip::<__m256i, N, PIECE>(rows, done, bytes);
            zip::<__m128i, N, PIECE>(rows, done, bytes)
        }
    }

    /// # Safety
    /// As [`zip_512`], with AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn zip_256<const N: usize, const PIECE: usize>(rows: &Zip, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let done = zip::<__m256i, N, PIECE>(rows, 0, bytes);
            zip::<__m128i, N, PIECE>(rows, done, bytes)
        }
    }

    /// # Safety
    /// There are so many bytes, and room for them; the processor has such vectors.
    #[inline(always)]
    unsafe fn zip<V: Vector, const N: usize, const PIECE: usize>(
        rows: &Zip,
        start: usize,
        bytes: usize,
    ) -> usize {
        // Smaller pieces are not zipped.
        if PIECE < UNIT {
            return 0;
        }
        let mut at = start;
        while at + size_of::<V>() <= bytes {
            // SAFETY: the caller's promise.
            unsafe {
                // Not by `map`, whose closure would be called.
                let mut vectors = [V::all(rows.pieces.turned); LANES];
                for (vector, row) in vectors.iter_mut().zip(ORDER) {
                    let from = rows.from::<PIECE>(row, at);
                    ask(from.wrapping_add(rows.ahead));
                    *vector = vector.xor(V::load::<PIECE>(from, rows.pieces.step));
                }
                let to = rows.to.add(LANES * at);
                if N == 4 {
                    let v = round::<V, 8>(round::<V, 4>(vectors));
                    for i in 0..4 {
                        V::store([v[i], v[8 + i], v[4 + i], v[12 + i]], to.add(4 * UNIT * i));
                    }
                } else if N == 2 {
                    let v = round::<V, 8>(round::<V, 4>(round::<V, 2>(vectors)));
                    for i in 0..4 {
                        V::store([v[2 * i], v[8 + 2 * i], v[2 * i + 1], v[9 + 2 * i]], to.add(4 * UNIT * i));
                    }
                } else {
                    let v = round::<V, 8>(round::<V, 4>(round::<V, 2>(round::<V, 1>(vectors))));
                    for i in 0..4 {
                        V::store([v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]], to.add(4 * UNIT * i));
                    }
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
        /// From pieces that are `step` apart.
        ///
        /// # Safety
        /// The bytes may be read, and the processor has such vectors, here and below.
        unsafe fn load<const PIECE: usize>(from: *const u8, step: usize) -> Self;

        /// A byte everywhere.
        unsafe fn all(byte: u8) -> Self;

        unsafe fn xor(self, other: Self) -> Self;

        /// Zips the lower halves of each sixteen bytes, and the upper ones, in numbers of `N`.
        unsafe fn zip<const N: usize>(self, other: Self) -> [Self; 2];

        /// Writes the first sixteen bytes of all four, then the next ones where those of the next sixteen of all rows begin.
        ///
        /// # Safety
        /// There is room for them.
        unsafe fn store(four: [Self; 4], to: *mut u8);
    }

    macro_rules! vector {
        ($vector:ty: $all:ident, $xor:ident, [$low1:ident, $high1:ident], [$low2:ident, $high2:ident], [$low4:ident, $high4:ident],
            [$low8:ident, $high8:ident], |$from:ident, $step:ident| $load:expr, |$four:ident, $to:ident| $store:expr) => {
            impl Vector for $vector {
                #[inline(always)]
                unsafe fn load<const PIECE: usize>($from: *const u8, $step: usize) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $load }
                }
                #[inline(always)]
                unsafe fn all(byte: u8) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $all(byte as i8) }
                }
                #[inline(always)]
                unsafe fn xor(self, other: Self) -> Self {
                    // SAFETY: the caller's promise.
                    unsafe { $xor(self, other) }
                }
                #[inline(always)]
                unsafe fn zip<const N: usize>(self, other: Self) -> [Self; 2] {
                    // SAFETY: the caller's promise.
                    unsafe {
                        match N {
                            1 => [$low1(self, other), $high1(self, other)],
                            2 => [$low2(self, other), $high2(self, other)],
                            4 => [$low4(self, other), $high4(self, other)],
                            _ => [$low8(self, other), $high8(self, other)],
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

    vector!(__m128i: _mm_set1_epi8, _mm_xor_si128, [_mm_unpacklo_epi8, _mm_unpackhi_epi8], [_mm_unpacklo_epi16, _mm_unpackhi_epi16],
    [_mm_unpacklo_epi32, _mm_unpackhi_epi32],
    [_mm_unpacklo_epi64, _mm_unpackhi_epi64], |from, _step| _mm_loadu_si128(from.cast()), |four, to| {
        for (i, part) in four.into_iter().enumerate() {
            _mm_storeu_si128(to.add(UNIT * i).cast(), part);
        }
    });
    vector!(__m256i: _mm256_set1_epi8, _mm256_xor_si256, [_mm256_unpacklo_epi8, _mm256_unpackhi_epi8],
    [_mm256_unpacklo_epi16, _mm256_unpackhi_epi16], [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32],
    [_mm256_unpacklo_epi64, _mm256_unpackhi_epi64], |from, step| {
        if PIECE == UNIT { _mm256_loadu2_m128i(from.add(step).cast(), from.cast()) } else { _mm256_loadu_si256(from.cast()) }
    }, |four, to| {
        for (i, [a, b]) in four.as_chunks().0.iter().enumerate() {
            let to = to.add(2 * UNIT * i);
            _mm256_storeu_si256(to.cast(), _mm256_permute2x128_si256::<0x20>(*a, *b));
            _mm256_storeu_si256(to.add(LANES * UNIT).cast(), _mm256_permute2x128_si256::<0x31>(*a, *b));
        }
    });
    vector!(__m512i: _mm512_set1_epi8, _mm512_xor_si512, [_mm512_unpacklo_epi8, _mm512_unpackhi_epi8],
    [_mm512_unpacklo_epi16, _mm512_unpackhi_epi16], [_mm512_unpacklo_epi32, _mm512_unpackhi_epi32],
    [_mm512_unpacklo_epi64, _mm512_unpackhi_epi64], |from, step| {
        // Halves of what is loaded by halves of a vector.
        if PIECE == 64 { _mm512_loadu_si512(from.cast()) } else {
            let next = 2 * UNIT / PIECE * step;
            let [low, high] = [__m256i::load::<PIECE>(from, step), __m256i::load::<PIECE>(from.add(next), step)];
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
    }, |four, to| {
        let [a, b, c, d] = four;
        // Of two vectors the first two sixteen bytes of each, and the last two; then every second one of those.
        let (ab, cd) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        _mm512_storeu_si512(to.cast(), _mm512_shuffle_i32x4::<0x88>(ab, cd));
        _mm512_storeu_si512(to.add(LANES * UNIT).cast(), _mm512_shuffle_i32x4::<0xDD>(ab, cd));
        let (ab, cd) = (_mm512_shuffle_i32x4::<0xEE>(a, b), _mm512_shuffle_i32x4::<0xEE>(c, d));
        _mm512_storeu_si512(to.add(2 * LANES * UNIT).cast(), _mm512_shuffle_i32x4::<0x88>(ab, cd));
        _mm512_storeu_si512(to.add(3 * LANES * UNIT).cast(), _mm512_shuffle_i32x4::<0xDD>(ab, cd));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const N: usize, const PIECE: usize>(isa: Isa, count: usize, step: usize) {
        let stride = 7 + (N * count).div_ceil(PIECE) * step;
        let mut plane = vec![0; N * LANES * count + 1];
        let pieces = Pieces { at: 5, step, bytes: N * count, turned: 0x81 };
        // To the last byte that is asked for: what is read behind it is not there.
        let end = (LANES - 1) * stride + if count > 0 { pieces.place::<PIECE>(N * count - 1) + 1 } else { 0 };
        let bytes: Vec<u8> = (0..end).map(|i| (i / stride * 89 + i % stride * 7) as u8).collect();
        // What is asked for is not read: nothing is there.
        interleave::<N, PIECE>(isa, &mut plane, Rows { bytes: &bytes, stride, ahead: 1 << 40 }, pieces);
        for (i, numbers) in plane.chunks_exact(N * LANES).enumerate() {
            for (row, number) in numbers.chunks_exact(N).enumerate() {
                let from = row * stride + 5 + N * i / PIECE * step + N * i % PIECE;
                let expected = bytes[from..from + N].iter().map(|byte| byte ^ 0x81);
                assert!(number.iter().copied().eq(expected), "{isa} {N} {PIECE} {count}: {i} of {row}");
            }
        }
        assert_eq!(plane[N * LANES * count], 0);
    }

    fn check_pieces<const N: usize>(isa: Isa, count: usize) {
        check::<N, WHOLE>(isa, count, WHOLE);
        check::<N, 32>(isa, count, 34);
        check::<N, 16>(isa, count, 18);
        check::<N, N>(isa, count, 9);
    }

    #[test]
    fn every_number_gets_its_place() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for count in [0, 1, 3, 4, 7, 8, 16, 31, 33, 64, 117, 300] {
                check_pieces::<1>(isa, count);
                check_pieces::<2>(isa, count);
                check_pieces::<4>(isa, count);
            }
        }
    }
}
