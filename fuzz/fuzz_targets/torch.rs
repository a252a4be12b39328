//! Any bytes, read as a PyTorch checkpoint: the archive as it is, and the same bytes as the pickle in a sound one.

#![no_main]

use akunu_format::torch::TorchCheckpoint;
use libfuzzer_sys::fuzz_target;

/// A zip archive of one stored record.
fn archive(name: &[u8], bytes: &[u8]) -> Vec<u8> {
    let sizes = [bytes.len() as u32, bytes.len() as u32].map(u32::to_le_bytes).concat();
    let lengths = [name.len() as u16, 0].map(u16::to_le_bytes).concat();
    let mut zip = [b"PK\x03\x04".as_slice(), &[0; 14], &sizes, &lengths, name, bytes].concat();
    let table = zip.len();
    zip.extend([b"PK\x01\x02".as_slice(), &[0; 16], &sizes, &lengths, &[0; 14], name].concat());
    let size = (zip.len() - table) as u32;
    zip.extend([b"PK\x05\x06".as_slice(), &[0; 4], &[1, 0, 1, 0]].concat());
    zip.extend([size.to_le_bytes(), (table as u32).to_le_bytes()].concat());
    zip.extend([0, 0]);
    zip
}

fuzz_target!(|bytes: &[u8]| {
    for file in [bytes.to_vec(), archive(b"a/data.pkl", bytes)] {
        if let Ok(checkpoint) = TorchCheckpoint::from_bytes(file) {
            akunu_fuzz::read_tensors(checkpoint.tensors());
        }
    }
});
