//! PyTorch checkpoints against files that torch wrote (`scripts/oracle/torch_files.py`).

use std::fs;
use std::path::{Path, PathBuf};

use akunu_format::torch::TorchCheckpoint;
use akunu_format::{Data, ModelFile};
use serde_json::Value as Json;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch").join(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn error(name: &str) -> String {
    ModelFile::open(fixture(name)).unwrap_err().to_string()
}

#[test]
fn reads_what_torch_wrote() {
    for name in ["whisper", "plain"] {
        let ModelFile::Torch(file) = ModelFile::open(fixture(&format!("{name}.pt"))).unwrap() else {
            panic!()
        };
        let expected: Json =
            serde_json::from_slice(&fs::read(fixture(&format!("{name}.json"))).unwrap()).unwrap();
        for (size, value) in expected["dims"].as_object().unwrap() {
            assert_eq!(file.size(size), value.as_i64());
        }
        assert_eq!(file.size("n_nothing"), None);
        let tensors = expected["tensors"].as_array().unwrap();
        assert_eq!(file.tensors().len(), tensors.len());
        for (tensor, expected) in file.tensors().zip(tensors) {
            assert_eq!(tensor.name, expected["name"]);
            assert_eq!(tensor.dtype_name(), expected["dtype"].as_str().unwrap());
            let shape: Vec<usize> = serde_json::from_value(expected["shape"].clone()).unwrap();
            assert_eq!(tensor.shape, shape);
            let (Data::Blocks { bytes, .. } | Data::Opaque { bytes, .. }) = tensor.data else { panic!() };
            assert_eq!(hex(bytes), expected["bytes"], "{}", tensor.name);
        }
    }
}

#[test]
fn a_function_that_no_state_dict_needs_is_refused_by_name() {
    let error = error("function.pt");
    assert!(error.contains("\"posix.system\" in a checkpoint is not supported"), "{error}");
    assert!(error.contains("nothing is executed"), "{error}");
}

#[test]
fn objects_other_than_dictionaries_are_refused_by_name() {
    let error = error("object.pt");
    assert!(error.contains("\"torch.nn.modules.container.Sequential\""), "{error}");
    assert!(error.contains("state_dict"), "{error}");
}

#[test]
fn tensors_that_do_not_lie_row_by_row_are_refused() {
    let error = error("transposed.pt");
    assert!(error.contains("\"turned\" with strides [1, 4] for [4, 3]"), "{error}");
}

#[test]
fn torchs_old_format_is_refused_with_what_to_do() {
    let error = error("old.pt");
    assert!(error.contains("PyTorch before 1.6, perhaps: load and save it again"), "{error}");
}

#[test]
fn compressed_records_are_refused() {
    let mut bytes = fs::read(fixture("plain.pt")).unwrap();
    // The method of a record in the table, which comes ten bytes after its mark.
    let at = bytes.windows(4).position(|mark| mark == b"PK\x01\x02").unwrap() + 10;
    bytes[at] = 8;
    let error = TorchCheckpoint::from_bytes(bytes).unwrap_err().to_string();
    assert!(error.contains("a compressed or encrypted record"), "{error}");
}

#[test]
fn other_archives_are_refused() {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.start_file("readme.txt", stored).unwrap();
    let bytes = zip.finish().unwrap().into_inner();
    let error = TorchCheckpoint::from_bytes(bytes).unwrap_err().to_string();
    assert!(error.contains("a zip archive without data.pkl is not supported"), "{error}");
}
