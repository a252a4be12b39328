//! Models from repositories on a Hugging Face hub: `hf:OWNER/REPO`, `hf:OWNER/REPO/FILE`, `hf:OWNER/REPO:Q4_K_M`.
//!
//! A repository has a folder in the cache, `hf/OWNER/REPO`, with its files under their own names and a record of what
//! was pulled. Only what the record names counts: it is written last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cache::{self, Lock, Watch, is_inside, tell};
use super::choose::{Choice, Want, choose};
use super::config::Server;
use super::http::{Client, Promise};
use super::{Listed, Progress};
use crate::{Error, Result};

/// The record's name in a repository's folder.
const RECORD: &str = "pulled.json";

/// A parsed `hf:...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// `OWNER/REPO`
    repository: String,
    want: Want,
}

impl Spec {
    /// Parses what follows `hf:`; `None` when the text does not begin so.
    pub fn parse(text: &str) -> Option<Result<Spec>> {
        Some(Spec::parse_rest(text.strip_prefix("hf:")?).ok_or_else(|| Error::Usage {
            problem: format!("\"{text}\" does not name a repository"),
            hint: "write hf:OWNER/REPO, hf:OWNER/REPO/FILE or hf:OWNER/REPO:QUANTISATION".to_owned(),
        }))
    }

    fn parse_rest(rest: &str) -> Option<Spec> {
        let (owner, rest) = rest.split_once('/')?;
        let (name, want) = match rest.find(['/', ':']) {
            None => (rest, Want::Any),
            Some(at) if rest[at..].starts_with(':') => {
                (&rest[..at], Want::Quantization(rest[at + 1..].to_owned()))
            }
            Some(at) => (&rest[..at], Want::File(rest[at + 1..].to_owned())),
        };
        let word = |text: &str| {
            !text.is_empty()
                && !text.starts_with('.')
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        let sensible = match &want {
            Want::Any => true,
            Want::Quantization(quantization) => word(quantization),
            Want::File(file) => is_inside(file),
        };
        (word(owner) && word(name) && sensible).then(|| Spec { repository: format!("{owner}/{name}"), want })
    }

    fn folder(&self, cache: &Path) -> PathBuf {
        cache.join("hf").join(&self.repository)
    }

    fn lock_name(&self) -> String {
        format!("hf/{}", self.repository)
    }

    /// Where the model is, when it was pulled.
    pub fn cached(&self, cache: &Path) -> Result<Option<PathBuf>> {
        let folder = self.folder(cache);
        let record = Record::read(&folder)?;
        Ok(record
            .0
            .get(&self.to_string())
            .filter(|pulled| pulled.is_whole(&folder))
            .map(|pulled| pulled.entry(&folder)))
    }

    /// Fetches the model; returns what to open.
    pub fn pull(&self, cache: &Path, server: &Server, watch: Watch<'_>) -> Result<PathBuf> {
        let _lock = Lock::take(cache, &self.lock_name(), watch)?;
        if let Some(path) = self.cached(cache)? {
            return Ok(path);
        }
        let client = Client::new(server);
        tell(watch, Progress::Stage(&format!("asking for the files of {}", self.repository)))?;
        let listing: Listing =
            client.json(&format!("/api/models/{}/revision/main?blobs=true", self.repository))?;
        let mut names: Vec<String> =
            listing.siblings.iter().map(|sibling| sibling.rfilename.clone()).collect();
        names.sort();
        let choice = choose(&self.repository, &names, &self.want)?;
        let pulled = self.fetch(&client, &listing, &choice, cache, watch)?;
        let folder = self.folder(cache);
        let entry = pulled.entry(&folder);
        let mut record = Record::read(&folder)?;
        record.0.insert(self.to_string(), pulled);
        record.write(&folder)?;
        Ok(entry)
    }

    fn fetch(
        &self,
        client: &Client<'_>,
        listing: &Listing,
        choice: &Choice,
        cache: &Path,
        watch: Watch<'_>,
    ) -> Result<Pulled> {
        let folder = self.folder(cache);
        let record = Record::read(&folder)?;
        let wanted: Vec<&Sibling> = choice
            .files
            .iter()
            .filter_map(|name| listing.siblings.iter().find(|sibling| sibling.rfilename == *name))
            .collect();
        let total = wanted.iter().map(|sibling| sibling.bytes()).sum::<Option<u64>>();
        let revision = listing.sha.as_deref().unwrap_or("main");
        let mut files = Vec::new();
        let mut before = 0;
        for sibling in wanted {
            let name = &sibling.rfilename;
            if !is_inside(name) {
                return Err(Error::Missing {
                    what: format!("{} lists a file that leaves its folder: {name:?}", self.repository),
                    hint: "do not use this repository".to_owned(),
                });
            }
            let promise = Promise {
                name: name.clone(),
                path: format!("/{}/resolve/{revision}/{}", self.repository, percent_encode(name)),
                size: sibling.bytes(),
                sha256: sibling.lfs.as_ref().map(|lfs| lfs.sha256.to_ascii_lowercase()),
            };
            let to = folder.join(name);
            tell(watch, Progress::Stage(&format!("downloading {name}")))?;
            if !record.holds(&folder, name, promise.sha256.as_deref()) {
                client
                    .download(&promise, &to, watch, &|done| Progress::Bytes { done: before + done, total })?;
            }
            let size = fs::metadata(&to).map_err(Error::io(&to))?.len();
            before += size;
            files.push(PulledFile { path: name.clone(), size, sha256: promise.sha256 });
        }
        Ok(Pulled { model: choice.model.clone(), revision: revision.to_owned(), files })
    }

    /// Deletes the model; returns how many bytes that freed.
    pub fn remove(&self, cache: &Path) -> Result<Option<u64>> {
        let folder = self.folder(cache);
        let Some(_lock) = Lock::take_if_free(cache, &self.lock_name())? else {
            return Err(super::busy(&self.to_string()));
        };
        let mut record = Record::read(&folder)?;
        let pulled = record.0.remove(&self.to_string());
        if record.0.is_empty() {
            // Also what an interrupted pull left to go on from.
            let freed = cache::bytes_below(&folder);
            if freed > 0 {
                cache::remove_folder(&folder)?;
            }
            return Ok((freed > 0).then_some(freed));
        }
        let Some(pulled) = pulled else { return Ok(None) };
        // The record first: a file nobody names is harmless, a name without its file is not.
        record.write(&folder)?;
        let kept: BTreeSet<&str> =
            record.0.values().flat_map(|other| &other.files).map(|file| file.path.as_str()).collect();
        let mut freed = 0;
        for file in pulled.files.iter().filter(|file| !kept.contains(file.path.as_str())) {
            let path = folder.join(&file.path);
            if fs::remove_file(&path).is_ok() {
                freed += file.size;
            }
        }
        Ok(Some(freed))
    }

    /// Everything that was pulled from any repository.
    pub fn all(cache: &Path) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        for owner in folders(&cache.join("hf")) {
            for folder in folders(&owner) {
                for (name, pulled) in Record::read(&folder)?.0 {
                    found.push(Listed {
                        name,
                        description: pulled
                            .model
                            .clone()
                            .unwrap_or_else(|| "SafeTensors checkpoint".to_owned()),
                        license: None,
                        size: pulled.files.iter().map(|file| file.size).sum(),
                        path: pulled.is_whole(&folder).then(|| pulled.entry(&folder)),
                    });
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.want {
            Want::Any => write!(f, "hf:{}", self.repository),
            Want::Quantization(name) => write!(f, "hf:{}:{}", self.repository, name.to_ascii_uppercase()),
            Want::File(name) => write!(f, "hf:{}/{name}", self.repository),
        }
    }
}

/// What the server says of a repository.
#[derive(Deserialize)]
struct Listing {
    /// The commit, so that a download is of one version throughout.
    sha: Option<String>,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: Option<u64>,
}

impl Sibling {
    fn bytes(&self) -> Option<u64> {
        self.lfs.as_ref().and_then(|lfs| lfs.size).or(self.size)
    }
}

/// What was pulled from one repository: the user's spelling and what it stands for.
#[derive(Default, Serialize, Deserialize)]
struct Record(BTreeMap<String, Pulled>);

#[derive(Serialize, Deserialize)]
struct Pulled {
    /// What to open; the folder itself when absent.
    model: Option<String>,
    revision: String,
    files: Vec<PulledFile>,
}

#[derive(Serialize, Deserialize)]
struct PulledFile {
    path: String,
    size: u64,
    sha256: Option<String>,
}

impl Record {
    fn read(folder: &Path) -> Result<Record> {
        let path = folder.join(RECORD);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| Error::Io { path, source: e.into() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Record::default()),
            Err(source) => Err(Error::Io { path, source }),
        }
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let (path, draft) = (folder.join(RECORD), folder.join("pulled.json.partial"));
        let text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::Io { path: path.clone(), source: e.into() })?;
        fs::write(&draft, text).map_err(Error::io(&draft))?;
        fs::rename(&draft, &path).map_err(Error::io(&path))
    }

    /// Whether a file is here already, from another pull, in the version that is wanted.
    fn holds(&self, folder: &Path, name: &str, sha256: Option<&str>) -> bool {
        sha256.is_some()
            && self
                .0
                .values()
                .flat_map(|pulled| &pulled.files)
                .any(|file| file.path == name && file.sha256.as_deref() == sha256 && file.is_whole(folder))
    }
}

impl Pulled {
    fn is_whole(&self, folder: &Path) -> bool {
        self.files.iter().all(|file| file.is_whole(folder))
    }

    fn entry(&self, folder: &Path) -> PathBuf {
        self.model.as_ref().map_or_else(|| folder.to_path_buf(), |model| folder.join(model))
    }
}

impl PulledFile {
    fn is_whole(&self, folder: &Path) -> bool {
        is_inside(&self.path)
            && fs::metadata(folder.join(&self.path)).is_ok_and(|meta| meta.len() == self.size)
    }
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Escapes what a URL's path cannot hold.
fn percent_encode(path: &str) -> String {
    path.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_parsed_and_written_back() {
        for text in ["hf:o/r", "hf:o/r/a/b.gguf", "hf:o/r:Q4_K_M", "hf:o-1/r.2_x"] {
            assert_eq!(Spec::parse(text).unwrap().unwrap().to_string(), text);
        }
        assert_eq!(Spec::parse("hf:o/r:q4_k_m").unwrap().unwrap().to_string(), "hf:o/r:Q4_K_M");
        assert!(Spec::parse("smollm2").is_none());
    }

    #[test]
    fn nonsense_after_hf_is_a_usage_error() {
        for text in
            ["hf:", "hf:o", "hf:o/", "hf:../r", "hf:o/..", "hf:o/r/../../x", "hf:o/r:", "hf:o/r?x", "hf:o/r/"]
        {
            let error = Spec::parse(text).unwrap().unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Usage, "{text}");
        }
    }

    #[test]
    fn odd_characters_are_escaped_in_urls() {
        assert_eq!(percent_encode("a b/ü#?.gguf"), "a%20b/%C3%BC%23%3F.gguf");
    }
}
