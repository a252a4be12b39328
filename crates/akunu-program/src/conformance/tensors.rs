//! Weights in memory, of every dtype.

use akunu_format::{DType, Data, Tensor};

use crate::TensorSource;

/// Tensors by name.
#[derive(Default)]
pub struct Tensors(Vec<Stored>);

struct Stored {
    name: String,
    shape: [usize; 2],
    dtype: DType,
    bytes: Vec<u8>,
}

impl Tensors {
    /// Adds a matrix of any dtype.
    pub fn add(&mut self, name: &str, rows: usize, cols: usize, dtype: DType, bytes: Vec<u8>) {
        self.0.push(Stored { name: name.to_owned(), shape: [rows, cols], dtype, bytes });
    }

    /// Adds a matrix of F32.
    pub fn floats(&mut self, name: &str, rows: usize, cols: usize, values: &[f32]) {
        assert_eq!(values.len(), rows * cols, "{name}");
        self.add(name, rows, cols, DType::F32, values.iter().flat_map(|v| v.to_le_bytes()).collect());
    }
}

impl TensorSource for Tensors {
    fn find(&self, name: &str) -> Option<Tensor<'_>> {
        let stored = self.0.iter().find(|t| t.name == name)?;
        let data = Data::Blocks { dtype: stored.dtype, bytes: &stored.bytes };
        Some(Tensor { name: &stored.name, shape: &stored.shape, data })
    }
}

/// Numbers that are the same every time: uniform in -1..1.
pub fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| random.next() as f32 / (1u64 << 31) as f32 - 1.0).collect()
}

/// A linear congruential generator, its upper 32 bits.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

/// Random blocks of a dtype, with scales that make sense.
pub fn blocks(dtype: DType, seed: u64, rows: usize, cols: usize) -> Vec<u8> {
    let mut random = Random(seed);
    match dtype {
        DType::F32 => return numbers(seed, rows * cols).iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::BF16 => {
            let upper = |v: &f32| (v.to_bits() >> 16) as u16;
            return numbers(seed, rows * cols).iter().flat_map(|v| upper(v).to_le_bytes()).collect();
        }
        DType::F16 => {
            // Signs, exponents of 2^-8 to 2^-1, any mantissa.
            let half = |r: u32| (r & 0x83FF) as u16 | ((7 + (r >> 16 & 7)) << 10) as u16;
            return (0..rows * cols).flat_map(|_| half(random.next()).to_le_bytes()).collect();
        }
        _ => {}
    }
    let size = dtype.block_bytes();
    let mut bytes: Vec<u8> =
        (0..rows * cols / dtype.block_len() * size).map(|_| (random.next() >> 24) as u8).collect();
    for block in bytes.chunks_exact_mut(size) {
        // F16 between 2^-8 and 2^-7.
        let mut half = |at: usize| block[at..at + 2].copy_from_slice(&[(random.next() >> 24) as u8, 0x1C]);
        match dtype {
            DType::Q4_1 | DType::Q5_1 | DType::Q4_K | DType::Q5_K => {
                half(0);
                half(2);
            }
            DType::Q2_K => {
                half(80);
                half(82);
            }
            DType::Q3_K | DType::Q6_K | DType::TQ1_0 | DType::TQ2_0 => half(size - 2),
            DType::IQ1_M => {
                for (i, nibble) in [0, 0, 0xC0, 0x10].into_iter().enumerate() {
                    block[49 + 2 * i] = block[49 + 2 * i] & 15 | nibble;
                }
            }
            DType::MXFP4 => block[0] = 118 + block[0] % 6,
            DType::NVFP4 => block[..4].iter_mut().for_each(|s| *s = 32 + *s % 16),
            _ => half(0),
        }
    }
    bytes
}
