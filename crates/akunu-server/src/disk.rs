//! What a model is on disk: a file, or a directory of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use akunu_format::ModelFile;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Bytes at the beginning of a file that tell it from others. All of a large one would take minutes to read.
const BEGINNING: u64 = 1 << 20;

/// How large a model is on disk, how its weights are stored, and a name for just this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnDisk {
    bytes: u64,
    /// 64 hexadecimal digits, others as soon as a file changes; empty where there is nothing to read.
    digest: String,
    /// What kind of file it is, such as `gguf`; empty where that cannot be told.
    format: &'static str,
    parameters: u64,
    /// The dtype that most bytes have.
    dtype: String,
}

impl OnDisk {
    /// What is at a path; nothing of what cannot be read.
    pub(crate) fn of(path: &Path) -> OnDisk {
        let mut hash = Sha256::new();
        let mut bytes = 0;
        for file in files(path) {
            let Ok(about) = fs::metadata(&file) else { continue };
            let changed = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let mut beginning = Vec::new();
            let read = File::open(&file).and_then(|file| file.take(BEGINNING).read_to_end(&mut beginning));
            if read.is_err() {
                continue;
            }
            bytes += about.len();
            hash.update(file.strip_prefix(path).unwrap_or(&file).as_os_str().as_encoded_bytes());
            hash.update(about.len().to_le_bytes());
            hash.update(changed.unwrap_or_default().as_nanos().to_le_bytes());
            hash.update(&beginning);
        }
        let digits = || hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = if bytes > 0 { digits() } else { String::new() };
        let mut found = OnDisk { bytes, digest, ..OnDisk::default() };
        if let Ok(file) = ModelFile::open(path) {
            found.weigh(&file);
        }
        found
    }

    fn weigh(&mut self, file: &ModelFile) {
        self.format = match file {
            ModelFile::Gguf(_) => "gguf",
            ModelFile::Checkpoint(_) => "safetensors",
            ModelFile::WhisperGgml(_) => "ggml",
            ModelFile::Torch(_) => "torch",
        };
        let mut shares: BTreeMap<String, usize> = BTreeMap::new();
        for tensor in file.tensors() {
            self.parameters += tensor.len() as u64;
            *shares.entry(tensor.dtype_name().into_owned()).or_default() += tensor.byte_len();
        }
        let largest = shares.into_iter().max_by_key(|(_, bytes)| *bytes);
        self.dtype = largest.map(|(dtype, _)| dtype).unwrap_or_default();
    }

    /// Adds what is known to what is said of the model.
    pub(crate) fn describe(&self, described: &mut Value) {
        described["size"] = json!(self.bytes);
        described["digest"] = json!(self.digest);
        if !self.format.is_empty() {
            described["format"] = json!(self.format);
            described["parameters"] = json!(self.parameters);
            described["dtype"] = json!(self.dtype);
        }
    }
}

/// A file itself, or those of a directory, in the order of their names.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return vec![path.to_owned()] };
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_as_large_as_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        fs::write(&file, "12345").unwrap();
        fs::write(directory.path().join("b"), "678").unwrap();
        let (whole, alone) = (OnDisk::of(directory.path()), OnDisk::of(&file));
        assert_eq!((whole.bytes, alone.bytes), (8, 5));
        assert!(whole.digest.len() == 64 && alone.digest.len() == 64 && whole.digest != alone.digest);
        fs::write(&file, "12346").unwrap();
        let changed = OnDisk::of(directory.path());
        assert!(changed.bytes == 8 && changed.digest != whole.digest);
        assert_eq!(OnDisk::of(&directory.path().join("none")), OnDisk::default());
    }
}
