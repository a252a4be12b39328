//! Which files hold a directory's weights, and whether they are what its index says.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::config::Config;
use super::json::Json;
use super::safetensors::RawTensor;
use crate::mapped::MappedFile;
use crate::{Error, Result};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// The weight files of a directory, and the index that lists them if there is one.
pub(super) struct WeightFiles {
    pub(super) paths: Vec<PathBuf>,
    index: Option<Config>,
}

/// Finds the weights: `model.safetensors`, or what the index lists, or every `model*.safetensors`, or every
/// `*.safetensors`.
pub(super) fn find(directory: &Path) -> Result<WeightFiles> {
    let single = directory.join(SINGLE_FILE);
    if single.is_file() {
        return Ok(WeightFiles { paths: vec![single], index: None });
    }
    let index = directory.join(INDEX_FILE);
    if index.is_file() {
        let index = Config::open(&index)?;
        let mut shards = BTreeSet::new();
        for_each_weight(&index, &mut |_, shard, at| {
            shards.insert(shard_path(directory, shard, at)?);
            Ok(())
        })?;
        if shards.is_empty() {
            let problem = "it lists no tensor";
            return Err(Error::malformed(index.path(), "weight_map", 0, problem));
        }
        return Ok(WeightFiles { paths: shards.into_iter().collect(), index: Some(index) });
    }
    let paths = list_safetensors(directory)?;
    if paths.is_empty() {
        return Err(Error::unsupported(
            directory,
            "a directory without *.safetensors",
            format!("it holds {}", describe(directory)),
        ));
    }
    Ok(WeightFiles { paths, index: None })
}

impl WeightFiles {
    /// Checks that every tensor of the index is in the shard it gives. `tensors` are sorted by name.
    pub(super) fn check_index(
        &self,
        directory: &Path,
        files: &[MappedFile],
        tensors: &[RawTensor],
    ) -> Result<()> {
        let Some(index) = &self.index else { return Ok(()) };
        for_each_weight(index, &mut |name, shard, at| {
            let path = shard_path(directory, shard, at)?;
            let found = tensors.binary_search_by(|tensor| tensor.name.as_ref().cmp(name));
            match found.map(|i| files[tensors[i].file].path()) {
                Ok(file) if file == path => Ok(()),
                _ => {
                    Err(at
                        .malformed(&format!("weight_map \"{name}\""), format!("{shard} has no such tensor")))
                }
            }
        })
    }
}

/// Calls `each` with every tensor's name, its shard, and where the shard is written.
fn for_each_weight(index: &Config, each: &mut dyn FnMut(&str, &str, Json<'_>) -> Result<()>) -> Result<()> {
    let weight_map = index
        .find("weight_map")?
        .ok_or_else(|| Error::NoKey { path: index.path().to_owned(), key: "weight_map".to_owned() })?;
    weight_map.for_each_member("weight_map", &mut |name, value| {
        let shard: Cow<'_, str> = value.parse(&format!("weight_map \"{name}\""))?;
        each(&name, &shard, value)
    })
}

/// The path of a shard, which must stay inside the directory and be a SafeTensors file by its name.
fn shard_path(directory: &Path, shard: &str, at: Json<'_>) -> Result<PathBuf> {
    let inside = Path::new(shard).components().all(|component| matches!(component, Component::Normal(_)));
    if !inside {
        return Err(at.malformed("weight_map", format!("\"{shard}\" leads out of the directory")));
    }
    if !shard.ends_with(".safetensors") {
        return Err(at.malformed("weight_map", format!("\"{shard}\" is not a .safetensors file")));
    }
    Ok(directory.join(shard))
}

/// The SafeTensors files of a directory, by name.
fn list_safetensors(directory: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::Io { path: directory.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            paths.push(path);
        }
    }
    paths.sort();
    // Some publishers put the same weights beside them once more, in their own layout.
    let is_model =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"model"));
    if paths.iter().any(is_model) {
        paths.retain(is_model);
    }
    Ok(paths)
}

/// A few of the names in a directory, for an error.
pub(super) fn describe(directory: &Path) -> String {
    const SHOWN: usize = 5;
    let Ok(entries) = fs::read_dir(directory) else { return "nothing that can be listed".to_owned() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    match names.len() {
        0 => "nothing".to_owned(),
        len if len <= SHOWN => names.join(", "),
        len => format!("{} and {} more", names[..SHOWN].join(", "), len - SHOWN),
    }
}
