//! From a tensor's row, as its file lays it out, to codes and scales.

use akunu_format::mlx::Affine;
use akunu_format::{DType, Data, SUPER_BLOCK, Tensor};
use half::f16;

use super::fit::fit_group;
use super::form::{Codes, Form, TILE};

/// One row taken apart: what goes into each plane, in column order. Numbers of more than a byte are little-endian.
pub(super) struct RowParts {
    /// The values themselves, for float forms.
    pub(super) plain: Vec<u8>,
    /// One code per element; of four bits two to a byte, element `i` of a tile's first half below that of its second.
    pub(super) codes: Vec<u8>,
    pub(super) scales: Vec<u8>,
    pub(super) mins: Vec<u8>,
    pub(super) supers: Vec<u8>,
    pub(super) super_mins: Vec<u8>,
    /// Room for decoded values.
    values: Vec<f32>,
}

impl RowParts {
    pub(super) fn new(cols: usize) -> RowParts {
        RowParts {
            plain: Vec::new(),
            codes: Vec::with_capacity(cols),
            scales: Vec::new(),
            mins: Vec::new(),
            supers: Vec::new(),
            super_mins: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Takes a row of the tensor apart; false when it holds something that is not finite.
    pub(super) fn extract(&mut self, tensor: &Tensor<'_>, form: Form, row: usize) -> bool {
        for part in [
            &mut self.plain,
            &mut self.codes,
            &mut self.scales,
            &mut self.mins,
            &mut self.supers,
            &mut self.super_mins,
        ] {
            part.clear();
        }
        let cols = tensor.row_len();
        match tensor.data {
            Data::Blocks { dtype, bytes } => {
                let Ok(size) = dtype.row_bytes(cols) else { return false };
                let bytes = &bytes[row * size..(row + 1) * size];
                match form {
                    Form::F32 | Form::F16 | Form::Bf16 => {
                        self.plain.extend_from_slice(bytes);
                        self.plain_is_finite(form)
                    }
                    Form::Int { .. } => self.blocks(tensor, dtype, bytes, row),
                    Form::Pairs => false,
                }
            }
            Data::Affine(affine) => self.affine(&affine, form, row),
            Data::Opaque { .. } => false,
        }
    }

    fn plain_is_finite(&self, form: Form) -> bool {
        let halves = |mask: u16| {
            self.plain.as_chunks().0.iter().all(|&x: &[u8; 2]| u16::from_le_bytes(x) & mask != mask)
        };
        match form {
            Form::F16 => halves(0x7C00),
            Form::Bf16 => halves(0x7F80),
            _ => self.plain.as_chunks().0.iter().all(|&x: &[u8; 4]| f32::from_le_bytes(x).is_finite()),
        }
    }

    fn blocks(&mut self, tensor: &Tensor<'_>, dtype: DType, bytes: &[u8], row: usize) -> bool {
        let blocks = bytes.chunks_exact(dtype.block_bytes());
        match dtype {
            DType::Q4_0 | DType::IQ4_NL => blocks.for_each(|b| {
                self.scales.extend_from_slice(&b[..2]);
                self.codes.extend_from_slice(&b[2..18]);
            }),
            DType::Q4_1 => blocks.for_each(|b| {
                self.scales.extend_from_slice(&b[..2]);
                self.mins.extend_from_slice(&b[2..4]);
                self.codes.extend_from_slice(&b[4..20]);
            }),
            DType::Q5_0 => blocks.for_each(|b| {
                self.scales.extend(&b[..2]);
                self.five_bits(&b[2..6], &b[6..22]);
            }),
            DType::Q5_1 => blocks.for_each(|b| {
                self.scales.extend(&b[..2]);
                self.mins.extend(&b[2..4]);
                self.five_bits(&b[4..8], &b[8..24]);
            }),
            DType::Q8_0 => blocks.for_each(|b| {
                self.scales.extend(&b[..2]);
                self.codes.extend(b[2..34].iter().map(|q| q ^ 0x80));
            }),
            DType::Q2_K => blocks.for_each(|b| {
                let (scales, qs) = (&b[..16], &b[16..80]);
                self.scales.extend(scales.iter().map(|s| s & 15));
                self.mins.extend(scales.iter().map(|s| s >> 4));
                self.two_bits(qs);
                self.supers.extend(&b[80..82]);
                self.super_mins.extend(negative(&b[82..84]));
            }),
            DType::Q3_K => blocks.for_each(|b| {
                let (high, qs, scales) = (&b[..32], &b[32..96], &b[96..108]);
                self.scales.extend((0..16).map(|i| {
                    let low = scales[i % 8] >> (i / 8 * 4) & 15;
                    let upper = scales[8 + i % 4] >> (i / 4 * 2) & 3;
                    (low | upper << 4).wrapping_sub(32)
                }));
                self.two_bits(qs);
                self.add_bits(high, 2);
                self.supers.extend(&b[108..110]);
            }),
            DType::Q4_K => blocks.for_each(|b| {
                self.k_scales(&b[..16]);
                b[16..144].as_chunks::<32>().0.iter().for_each(|qs| self.two_tiles(qs));
            }),
            DType::Q5_K => blocks.for_each(|b| {
                self.k_scales(&b[..16]);
                b[48..176].chunks_exact(32).for_each(|qs| self.nibbles(qs));
                self.add_bits(&b[16..48], 4);
            }),
            DType::Q6_K => blocks.for_each(|b| {
                let (low, high) = (&b[..128], &b[128..192]);
                for (low, high) in low.chunks_exact(64).zip(high.chunks_exact(32)) {
                    for group in 0..4 {
                        let low = &low[32 * (group & 1)..];
                        let (down, place) = (group / 2 * 4, 2 * group);
                        let code = |(l, h): (&u8, &u8)| l >> down & 15 | (h >> place & 3) << 4;
                        self.codes.extend(low.iter().zip(high).map(code));
                    }
                }
                self.scales.extend(&b[192..208]);
                self.supers.extend(&b[208..210]);
            }),
            _ => return self.fitted(tensor, row),
        }
        let finite =
            |scales: &[u8]| scales.as_chunks().0.iter().all(|&x: &[u8; 2]| f16::from_le_bytes(x).is_finite());
        match dtype {
            DType::Q2_K | DType::Q3_K | DType::Q4_K | DType::Q5_K | DType::Q6_K => {
                finite(&self.supers) && finite(&self.super_mins)
            }
            _ => finite(&self.scales) && finite(&self.mins),
        }
    }

    /// Two tiles of four-bit codes: the low nibbles, then the high ones.
    fn two_tiles(&mut self, bytes: &[u8; 32]) {
        const HALF: usize = TILE / 2;
        let mut tiles = [0; 2 * HALF];
        for i in 0..HALF {
            let (a, b) = (bytes[i], bytes[HALF + i]);
            tiles[i] = a & 15 | b << 4;
            tiles[HALF + i] = a >> 4 | b & 0xF0;
        }
        self.codes.extend_from_slice(&tiles);
    }

    /// All low nibbles, then all high ones.
    fn nibbles(&mut self, bytes: &[u8]) {
        self.codes.extend(bytes.iter().map(|b| b & 15));
        self.codes.extend(bytes.iter().map(|b| b >> 4));
    }

    /// Thirty-two codes of Q5_0 and Q5_1: one bit of each, then the other four.
    fn five_bits(&mut self, high: &[u8], low: &[u8]) {
        self.nibbles(low);
        let from = self.codes.len() - TILE;
        for (i, code) in self.codes[from..].iter_mut().enumerate() {
            *code |= (high[i / 8] >> (i % 8) & 1) << 4;
        }
    }

    /// The low two bits of Q2_K and Q3_K: 32 bytes hold 128 elements.
    fn two_bits(&mut self, qs: &[u8]) {
        for qs in qs.chunks_exact(32) {
            for place in [0, 2, 4, 6] {
                self.codes.extend(qs.iter().map(|q| q >> place & 3));
            }
        }
    }

    /// Gives the codes of the last super-block another bit, at `place`: 32 bytes hold one of every 32 elements each.
    fn add_bits(&mut self, high: &[u8], place: u32) {
        let from = self.codes.len() - SUPER_BLOCK;
        for (i, codes) in self.codes[from..].chunks_exact_mut(32).enumerate() {
            codes.iter_mut().zip(high).for_each(|(code, high)| *code |= (high >> i & 1) << place);
        }
    }

    /// The head of a Q4_K or Q5_K block: `d`, `dmin`, eight 6-bit scales and minima in twelve bytes.
    fn k_scales(&mut self, head: &[u8]) {
        self.supers.extend(&head[..2]);
        self.super_mins.extend(negative(&head[2..4]));
        let packed = &head[4..16];
        let six_bits = |first: usize, i: usize, low: u8| match i {
            0..4 => packed[first + i] & 63,
            _ => low | packed[first + i - 4] >> 6 << 4,
        };
        self.scales.extend((0..8).map(|i| six_bits(0, i, packed[8 + i % 4] & 15)));
        self.mins.extend((0..8).map(|i| six_bits(4, i, packed[8 + i % 4] >> 4)));
    }

    /// Any dtype whose groups of 16 are small integers under one scale.
    fn fitted(&mut self, tensor: &Tensor<'_>, row: usize) -> bool {
        self.values.resize(tensor.row_len(), 0.0);
        if tensor.dequantize_rows(row..row + 1, &mut self.values).is_err() {
            return false;
        }
        for group in self.values.as_chunks::<16>().0 {
            let (scale, codes) = fit_group(group);
            self.scales.extend(scale.to_le_bytes());
            self.codes.extend(codes.map(|c| c as u8 ^ 0x80));
        }
        self.values.iter().all(|v| v.is_finite())
    }

    /// MLX's groups of 32, 64 or 128: the scale and bias of each, repeated for every tile of it.
    fn affine(&mut self, affine: &Affine<'_>, form: Form, row: usize) -> bool {
        let bits = affine.bits as usize;
        let size = affine.row_len * bits / 8;
        let codes = &affine.codes[row * size..(row + 1) * size];
        self.codes.extend((0..affine.row_len).map(|k| {
            let (byte, shift) = (k * bits / 8, k * bits % 8);
            let word = u16::from(codes[byte]) | u16::from(codes.get(byte + 1).copied().unwrap_or(0)) << 8;
            (word >> shift) as u8 & (0xFF >> (8 - bits))
        }));
        if bits == 4 {
            for byte in 0..affine.row_len / 2 {
                let code = byte / (TILE / 2) * TILE + byte % (TILE / 2);
                self.codes[byte] = self.codes[code] | self.codes[code + TILE / 2] << 4;
            }
            self.codes.truncate(affine.row_len / 2);
        }
        let groups = affine.row_len / affine.group_size;
        let (mut scales, mut biases) = (vec![0.0; groups], vec![0.0; groups]);
        let Ok(size) = affine.scale_dtype.row_bytes(groups) else { return false };
        let at = row * size..(row + 1) * size;
        let decode = akunu_format::quant::dequantize;
        if decode(affine.scale_dtype, &affine.scales[at.clone()], &mut scales).is_err()
            || decode(affine.scale_dtype, &affine.biases[at], &mut biases).is_err()
        {
            return false;
        }
        // Eight-bit codes are used as signed numbers around 128.
        let wide = matches!(form, Form::Int { codes: Codes::B8, .. });
        for (scale, bias) in scales.iter().zip(&biases) {
            let min = if wide { bias + 128.0 * scale } else { *bias };
            for _ in 0..affine.group_size / TILE {
                self.scales.extend(scale.to_le_bytes());
                self.mins.extend(min.to_le_bytes());
            }
        }
        scales.iter().chain(&biases).all(|x| x.is_finite())
    }
}

/// An F16 with its sign turned: K-quants subtract their minima, packed forms add them.
fn negative(bytes: &[u8]) -> [u8; 2] {
    [bytes[0], bytes[1] ^ 0x80]
}
