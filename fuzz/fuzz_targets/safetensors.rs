//! A checkpoint: the first line is its `config.json`, the second the header of its weights, the rest their data. Without
//! two lines, all of it is the weights' file.

#![no_main]

use akunu_format::checkpoint::{Checkpoint, Config};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(3, |&byte| byte == b'\n');
    let (weights, config) = match (parts.next(), parts.next(), parts.next()) {
        (Some(config), Some(header), Some(data)) => {
            let Ok(Ok(config)) = std::str::from_utf8(config).map(Config::from_json) else { return };
            let _ = config.get::<Vec<u32>>("eos_token_id");
            let _ = config.get::<&str>("model_type");
            ([&(header.len() as u64).to_le_bytes(), header, data].concat(), Some(config))
        }
        _ => (bytes.to_vec(), None),
    };
    if let Ok(checkpoint) = Checkpoint::from_bytes(weights, config) {
        akunu_fuzz::read_tensors(checkpoint.tensors());
    }
});
