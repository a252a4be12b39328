//! The fixtures of `akunu-program`.

use std::path::{Path, PathBuf};

use akunu_format::ModelFile;
use akunu_program::arch::Architecture;
use akunu_program::build;
use akunu_program::program::Program;

pub const CONTEXT: u32 = 128;

pub struct Model {
    pub file: ModelFile,
    pub program: Program,
}

impl Model {
    pub fn open(path: &Path) -> Model {
        let file = ModelFile::open(path).unwrap();
        let (arch, names) = Architecture::of(&file).unwrap();
        let program = build(&arch, &names, &file, CONTEXT as usize).unwrap();
        Model { file, program }
    }

    #[allow(dead_code)] // as below
    pub fn vocabulary(&self) -> usize {
        self.program.value(self.program.logits).width
    }
}

pub fn fixtures(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures").join(kind)
}

/// The folders of all tiny models with what to open in them: the GGUF files of every family, and MLX's checkpoints.
#[allow(dead_code)] // not every test target looks at all of them
pub fn tiny() -> Vec<(PathBuf, PathBuf)> {
    let folders = |kind: &str| {
        let entries = std::fs::read_dir(fixtures(kind)).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    };
    let files = folders("tiny").map(|folder| (folder.clone(), folder.join("model.gguf")));
    let mut found: Vec<_> = files.chain(folders("mlx").map(|folder| (folder.clone(), folder))).collect();
    found.sort();
    assert!(found.len() >= 23, "fixtures are missing: {found:?}");
    found
}
