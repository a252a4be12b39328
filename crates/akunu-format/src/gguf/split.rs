//! Models cut into several files, `NAME-00001-of-00003.gguf` and so on.
//!
//! Every shard says which it is (`split.no`, from 0) and how many there are (`split.count`); the first holds the
//! model's metadata and the number of tensors in all of them (`split.tensors.count`).

use std::path::{Path, PathBuf};

use super::header::{self, Header};
use super::metadata::Metadata;
use crate::mapped::MappedFile;
use crate::table::Entry;
use crate::{Error, Result};

const NUMBER_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSORS_KEY: &str = "split.tensors.count";

/// A file's place among the shards of a model, as its name gives it.
#[derive(Debug, PartialEq, Eq)]
struct ShardName<'a> {
    prefix: &'a str,
    /// From 1.
    number: u32,
    count: u32,
}

impl<'a> ShardName<'a> {
    /// Takes `NAME-00002-of-00003.gguf` apart.
    fn parse(path: &'a Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = split_number(stem)?;
        let (prefix, number) = split_number(rest.strip_suffix("-of")?)?;
        (1..=count).contains(&number).then_some(Self { prefix, number, count })
    }

    fn sibling(&self, path: &Path, number: u32) -> PathBuf {
        path.with_file_name(format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count))
    }
}

/// Takes five digits and the dash before them off the end of `text`.
fn split_number(text: &str) -> Option<(&str, u32)> {
    let (rest, digits) = text.rsplit_once('-')?;
    let five_digits = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    five_digits.then_some((rest, digits.parse().ok()?))
}

/// The files of a model, their headers and all their tensors. The first header is the model's.
pub(super) type Shards = (Vec<MappedFile>, Vec<Header>, Vec<Entry>);

/// Opens the file at `path` and, if it is a shard, the others beside it.
pub(super) fn open(path: &Path) -> Result<Shards> {
    let file = MappedFile::open(path)?;
    let name = ShardName::parse(path).filter(|name| name.count > 1);
    // Read as the first file; a shard is read again in its place.
    let (header, entries) = header::read(&file, 0)?;
    let metadata = header.metadata(&file);
    let count = metadata.get::<u32>(COUNT_KEY)?.unwrap_or(1);
    match name {
        None if count <= 1 => Ok((vec![file], vec![header], entries)),
        None => {
            let problem = format!(
                "this is one of {count} shards, and the others can only be found if it is called \
                 NAME-00001-of-{count:05}.gguf or the like"
            );
            Err(malformed(path, metadata, COUNT_KEY, problem))
        }
        Some(name) => open_shards(path, &name),
    }
}

fn open_shards(path: &Path, name: &ShardName<'_>) -> Result<Shards> {
    let (mut files, mut headers, mut entries) = Shards::default();
    for number in 1..=name.count {
        let file = MappedFile::open(&name.sibling(path, number))?;
        let (header, shard_entries) = header::read(&file, files.len())?;
        check_shard(&file, header.metadata(&file), number, name.count)?;
        files.push(file);
        headers.push(header);
        entries.extend(shard_entries);
    }
    let metadata = headers[0].metadata(&files[0]);
    let expected: usize = metadata.require(TENSORS_KEY)?;
    if entries.len() != expected {
        let problem = format!("{expected}, but the shards hold {} tensors", entries.len());
        return Err(malformed(files[0].path(), metadata, TENSORS_KEY, problem));
    }
    Ok((files, headers, entries))
}

fn check_shard(file: &MappedFile, metadata: Metadata<'_>, number: u32, count: u32) -> Result<()> {
    for (key, expected) in [(COUNT_KEY, count), (NUMBER_KEY, number - 1)] {
        let found: u32 = metadata.require(key)?;
        if found != expected {
            let problem = format!("{found}, but the file's name asks for {expected}");
            return Err(malformed(file.path(), metadata, key, problem));
        }
    }
    Ok(())
}

fn malformed(path: &Path, metadata: Metadata<'_>, key: &str, problem: String) -> Error {
    let offset = metadata.offset(key).unwrap_or_default() as usize;
    Error::malformed(path, format_args!("\"{key}\""), offset, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_a_shards_place() {
        let parse =
            |name| ShardName::parse(Path::new(name)).map(|n| (n.prefix.to_owned(), n.number, n.count));
        assert_eq!(parse("d/big-00002-of-00003.gguf"), Some(("big".to_owned(), 2, 3)));
        assert_eq!(parse("a-b-00001-of-00001.gguf"), Some(("a-b".to_owned(), 1, 1)));
        for name in [
            "big.gguf",
            "big-00004-of-00003.gguf",
            "big-00000-of-00003.gguf",
            "big-2-of-3.gguf",
            "big-00002-of-00003",
            "big-+0002-of-00003.gguf",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn siblings_lie_in_the_same_directory() {
        let path = Path::new("d/big-00002-of-00003.gguf");
        let sibling = ShardName::parse(path).unwrap().sibling(path, 1);
        assert_eq!(sibling, Path::new("d/big-00001-of-00003.gguf"));
    }
}
