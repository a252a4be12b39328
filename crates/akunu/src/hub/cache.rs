//! The folder models are kept in, and the promises about it: a name is locked while it changes, and a file under its
//! final name is whole and checked.

use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use std::{env, thread};

use sha2::{Digest, Sha256};

use super::Progress;
use crate::{Error, Result};

/// Who is told how far a pull has come, and may stop it.
pub(super) type Watch<'a> = &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>;

/// Passes a report on; an error when the watcher wants to stop.
pub(super) fn tell(watch: Watch<'_>, progress: Progress<'_>) -> Result<()> {
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Stopped),
    }
}

/// The cache folder: `$AKUNU_CACHE`, else the platform's place for caches.
pub(super) fn folder() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME");
    let platform = if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Caches"))
    } else if cfg!(windows) {
        set("LOCALAPPDATA")
    } else {
        // The XDG specification has relative paths ignored.
        set("XDG_CACHE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| home().map(|home| home.join(".cache")))
    };
    set("AKUNU_CACHE").or_else(|| platform.map(|path| path.join("akunu"))).ok_or_else(|| Error::Usage {
        problem: "there is no home folder to keep models in".to_owned(),
        hint: "set AKUNU_CACHE to a folder".to_owned(),
    })
}

/// Holds the lock of one name until dropped.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Locks `name`, waiting while another process holds it.
    pub fn take(cache: &Path, name: &str, watch: Watch<'_>) -> Result<Lock> {
        let mut waiting = false;
        loop {
            if let Some(lock) = Lock::try_take(cache, name)? {
                return Ok(lock);
            }
            if !waiting {
                tell(
                    watch,
                    Progress::Stage(&format!("waiting for another akunu that is working on {name}")),
                )?;
                waiting = true;
            }
            thread::sleep(Duration::from_millis(100));
            tell(watch, Progress::Waiting)?;
        }
    }

    /// Locks `name` unless another process goes on holding it. Half a second of patience: a child that a thread of
    /// ours has just started shares the lock until it runs its program.
    pub fn take_if_free(cache: &Path, name: &str) -> Result<Option<Lock>> {
        for _ in 0..20 {
            if let Some(lock) = Lock::try_take(cache, name)? {
                return Ok(Some(lock));
            }
            thread::sleep(Duration::from_millis(25));
        }
        Ok(None)
    }

    fn try_take(cache: &Path, name: &str) -> Result<Option<Lock>> {
        let folder = cache.join("locks");
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let path = folder.join(format!("{}.lock", name.replace('/', "--")));
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(Error::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(Error::Io { path, source }),
        }
    }
}

/// Whether `path` stays inside the folder it is joined to.
pub(super) fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', ':', '\0'])
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Deletes a folder in two steps, so that an interruption never leaves half a model under its name.
pub(super) fn remove_folder(path: &Path) -> Result<()> {
    let doomed = path.with_extension("removing");
    clear(&doomed)?;
    fs::rename(path, &doomed).map_err(Error::io(path))?;
    clear(&doomed)
}

/// Deletes a folder that may not exist.
pub(super) fn clear(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io { path: path.to_path_buf(), source: error })
        }
        _ => Ok(()),
    }
}

/// Bytes of all files below a folder; files that vanish meanwhile count nothing.
pub(super) fn bytes_below(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// A hash in hexadecimal.
pub(super) fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Feeds a whole file to a hasher; returns its length.
pub(super) fn hash_file(path: &Path, hasher: &mut Sha256) -> Result<u64> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        let count = file.read(&mut buffer).map_err(Error::io(path))?;
        if count == 0 {
            return Ok(total);
        }
        hasher.update(&buffer[..count]);
        total += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_their_folder_are_refused() {
        for path in ["", "..", "../x", "a/../../x", "/etc/passwd", "a\\b", "c:x", "./x"] {
            assert!(!is_inside(path), "{path:?}");
        }
        assert!(is_inside("1_Pooling/config.json"));
    }

    #[test]
    fn a_name_is_locked_once() {
        let cache = tempfile::tempdir().unwrap();
        let held = Lock::take_if_free(cache.path(), "hf/a/b").unwrap();
        assert!(held.is_some());
        assert!(Lock::take_if_free(cache.path(), "hf/a/b").unwrap().is_none());
        assert!(Lock::take_if_free(cache.path(), "other").unwrap().is_some());
        drop(held);
        assert!(Lock::take_if_free(cache.path(), "hf/a/b").unwrap().is_some());
    }

    #[test]
    fn removing_a_folder_clears_what_an_interrupted_removal_left() {
        let cache = tempfile::tempdir().unwrap();
        let model = cache.path().join("model");
        fs::create_dir_all(cache.path().join("model.removing/old")).unwrap();
        fs::create_dir_all(model.join("inner")).unwrap();
        remove_folder(&model).unwrap();
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    }
}
