//! Any bytes, read as a GGUF file.

#![no_main]

use akunu_format::gguf::{Gguf, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(gguf) = Gguf::from_bytes(bytes.to_vec()) else { return };
    for (key, value) in gguf.metadata().iter() {
        visit(value);
        assert_eq!(gguf.metadata().value(key).map(|value| value.value_type()), Some(value.value_type()));
        let _ = gguf.metadata().get::<u32>(key);
        let _ = gguf.metadata().get::<Vec<&str>>(key);
    }
    akunu_fuzz::read_tensors(gguf.tensors());
});

fn visit(value: Value<'_>) {
    if let Value::Array(array) = value {
        assert_eq!(array.iter().inspect(|element| visit(*element)).count(), array.len());
    }
}
