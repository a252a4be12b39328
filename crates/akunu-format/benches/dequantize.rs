//! How fast one core turns stored weights into `f32`, in MB of output a second: `cargo bench -p akunu-format`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use akunu_format::mlx::Affine;
use akunu_format::quant::dequantize;
use akunu_format::{DType, Support};

/// Values decoded at a time: 256 KiB of output, which stays in cache, so that the decoder is what is measured.
const VALUES: usize = 1 << 16;
const TIME_PER_ROW: Duration = Duration::from_millis(200);

fn main() {
    let mut out = vec![0.0; VALUES];
    for &dtype in DType::ALL.iter().filter(|dtype| dtype.support() >= Support::Read) {
        let bytes = codes(VALUES / dtype.block_len() * dtype.block_bytes());
        report(dtype.name(), || dequantize(dtype, black_box(&bytes), &mut out).expect("whole blocks"));
    }
    for bits in [2, 3, 4, 5, 6, 8] {
        let (group_size, row_len) = (64, 4096);
        let packed = codes(VALUES * bits as usize / 8);
        let scales = codes(VALUES / group_size * 2);
        let affine = Affine {
            bits,
            group_size,
            row_len,
            scale_dtype: DType::BF16,
            codes: &packed,
            scales: &scales,
            biases: &scales,
        };
        report(&format!("MLX {bits} bits"), || {
            black_box(affine).dequantize_rows(0..VALUES / row_len, &mut out).expect("whole rows");
        });
    }
}

/// Bytes whose 16-bit words are all small, ordinary F16 and BF16 numbers.
fn codes(len: usize) -> Vec<u8> {
    (0..len).map(|i| if i % 2 == 0 { (i * 37 % 251) as u8 } else { 0x2A }).collect()
}

fn report(name: &str, mut decode: impl FnMut()) {
    let start = Instant::now();
    let mut rounds = 0u32;
    while start.elapsed() < TIME_PER_ROW {
        decode();
        rounds += 1;
    }
    let bytes = f64::from(rounds) * (4 * VALUES) as f64;
    println!("{name:10} {:7.0} MB/s", bytes / start.elapsed().as_secs_f64() / 1e6);
}
