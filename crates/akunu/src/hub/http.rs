//! Resumable downloads over HTTP.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use ureq::http::header::{AUTHORIZATION, CONTENT_RANGE, ETAG, LOCATION, RANGE};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use super::cache::{Watch, hash_file, hex, tell};
use super::{Progress, config::Server};
use crate::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// A server that says nothing for this long is taken for dead.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_REDIRECTS: usize = 8;
/// Attempts in a row that bring nothing more before a download that has begun is given up.
const MAX_FRUITLESS: u32 = 4;
/// A listing of the largest repositories is a few megabytes.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// Talks to one server and whomever it redirects to.
pub(super) struct Client<'a> {
    agent: Agent,
    server: &'a Server,
}

/// What a download is promised to be.
#[derive(Debug)]
pub(super) struct Promise {
    /// The file as the user knows it.
    pub name: String,
    /// Path on the server, with its leading slash.
    pub path: String,
    /// Bytes, where known.
    pub size: Option<u64>,
    /// SHA-256 in hexadecimal, where known.
    pub sha256: Option<String>,
}

impl Promise {
    /// Where the file lies while it is fetched: beside its final name, and named after its version as well, so that an
    /// attempt never continues what belongs to another.
    fn partial(&self, to: &Path) -> PathBuf {
        let version = self.sha256.as_deref().and_then(|hash| hash.get(..12)).unwrap_or("unversioned");
        let mut name = to.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{version}.partial"));
        to.with_file_name(name)
    }

    /// Whether a part of the file is here that the next download goes on from.
    pub fn has_begun(&self, to: &Path) -> bool {
        fs::metadata(self.partial(to)).is_ok_and(|meta| meta.len() > 0)
    }
}

impl<'a> Client<'a> {
    pub fn new(server: &'a Server) -> Self {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .http_status_as_error(false)
            // Redirects are followed here, so that the token stays with the server it belongs to.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("akunu/", env!("CARGO_PKG_VERSION")))
            .tls_config(
                ureq::tls::TlsConfig::builder().root_certs(ureq::tls::RootCerts::PlatformVerifier).build(),
            )
            .build();
        Client { agent: config.into(), server }
    }

    /// Fetches and parses a JSON document.
    pub fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let url = format!("{}{path}", self.server.endpoint);
        let (mut response, _) = self.get(&url, 0)?;
        check_status(&url, &response, self.server.token.is_some())?;
        response
            .body_mut()
            .with_config()
            .limit(MAX_JSON_BYTES)
            .read_json()
            .map_err(|e| network(&url, &e.to_string()))
    }

    /// Downloads a file to `to`, going on from an earlier attempt's partial file. `on_bytes` hears how much of it is
    /// here. When this returns `Ok`, the file is whole and checked; before, there is nothing under its name.
    pub fn download(
        &self,
        promise: &Promise,
        to: &Path,
        watch: Watch<'_>,
        on_bytes: &dyn Fn(u64) -> Progress<'static>,
    ) -> Result<()> {
        let mut partial = Partial::open(to, promise)?;
        let mut fruitless = 0;
        loop {
            let before = partial.size;
            match self.attempt(promise, &mut partial, watch, on_bytes) {
                Ok(()) => break,
                Err(error @ Error::Network { .. }) => {
                    fruitless = if partial.size > before { 0 } else { fruitless + 1 };
                    let limit = if partial.size > 0 { MAX_FRUITLESS } else { self.server.attempts };
                    if fruitless >= limit {
                        return Err(error);
                    }
                    self.pause(fruitless, watch)?;
                }
                Err(error) => return Err(error),
            }
        }
        partial.accept(to, promise)
    }

    /// Waits a little longer after each attempt that brought nothing.
    fn pause(&self, fruitless: u32, watch: Watch<'_>) -> Result<()> {
        let steps = if fruitless == 0 { 1 } else { 1 << fruitless };
        for _ in 0..steps {
            thread::sleep(self.server.patience);
            tell(watch, Progress::Waiting)?;
        }
        Ok(())
    }

    /// One request for what is missing. `Ok` means that the server has sent everything it has.
    fn attempt(
        &self,
        promise: &Promise,
        partial: &mut Partial,
        watch: Watch<'_>,
        on_bytes: &dyn Fn(u64) -> Progress<'static>,
    ) -> Result<()> {
        if partial.size > 0 && promise.size == Some(partial.size) {
            return Ok(());
        }
        let url = format!("{}{}", self.server.endpoint, promise.path);
        let (response, linked) = self.get(&url, partial.size)?;
        match response.status().as_u16() {
            206 if range_start(response.headers()) == Some(partial.size) => {}
            // Ranges are not offered here, or what we have is more than there is: begin again.
            200 => partial.restart()?,
            206 | 416 => {
                partial.restart()?;
                return Err(network(&url, "the server sent another part of the file than was asked for"));
            }
            _ => check_status(&url, &response, self.server.token.is_some())?,
        }
        partial.stated_sha256 = linked.or_else(|| sha256_in(response.headers(), ETAG.as_str()));
        let expected = promise.size.or_else(|| {
            let length = response.headers().get("content-length")?.to_str().ok()?.parse::<u64>().ok()?;
            Some(partial.size + length)
        });

        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 18];
        loop {
            let count = body.read(&mut buffer).map_err(|e| network(&url, &e.to_string()))?;
            if count == 0 {
                break;
            }
            partial.append(&buffer[..count])?;
            if let Some(expected) = expected.filter(|&expected| partial.size > expected) {
                let (actual, file) = (partial.size.to_string(), promise.name.clone());
                partial.restart()?;
                return Err(Error::Mismatch { file, what: "size", expected: expected.to_string(), actual });
            }
            tell(watch, on_bytes(partial.size))?;
        }
        match expected {
            Some(expected) if partial.size < expected => Err(network(
                &url,
                &format!("the connection ended after {} of {expected} bytes", partial.size),
            )),
            _ => Ok(()),
        }
    }

    /// Sends a request for `url` from byte `start` on and follows redirects. The token goes to the configured server
    /// alone. Also returns the hash the server itself stated before it redirected.
    fn get(&self, url: &str, start: u64) -> Result<(Response<Body>, Option<String>)> {
        let mut url = url.to_owned();
        let mut linked = None;
        for _ in 0..MAX_REDIRECTS {
            let mut request = self.agent.get(&url);
            let ours = origin(&url) == origin(&self.server.endpoint);
            if let Some(token) = self.server.token.as_ref().filter(|_| ours) {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            if start > 0 {
                request = request.header(RANGE, format!("bytes={start}-"));
            }
            let response = request.call().map_err(|e| network(&url, &e.to_string()))?;
            if ours && linked.is_none() {
                linked = sha256_in(response.headers(), "x-linked-etag");
            }
            if !response.status().is_redirection() {
                return Ok((response, linked));
            }
            let target = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            url = target
                .and_then(|target| follow(&url, target))
                .ok_or_else(|| network(&url, "the server redirects to nowhere"))?;
        }
        Err(network(&url, "too many redirects"))
    }
}

/// A file being downloaded.
struct Partial {
    path: PathBuf,
    file: File,
    hasher: Sha256,
    size: u64,
    /// What the server says the whole file hashes to.
    stated_sha256: Option<String>,
}

impl Partial {
    fn open(to: &Path, promise: &Promise) -> Result<Partial> {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(Error::io(parent))?;
        }
        let path = promise.partial(to);
        let file = File::options().create(true).append(true).open(&path).map_err(Error::io(&path))?;
        let mut hasher = Sha256::new();
        let size = hash_file(&path, &mut hasher)?;
        let mut partial = Partial { path, file, hasher, size, stated_sha256: None };
        // Without a hash there is no telling whether the rest would fit to what is here.
        if promise.sha256.is_none() || promise.size.is_some_and(|size| partial.size > size) {
            partial.restart()?;
        }
        Ok(partial)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(Error::io(&self.path))?;
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).map_err(Error::io(&self.path))?;
        self.hasher = Sha256::new();
        self.size = 0;
        Ok(())
    }

    /// Checks the hash and gives the file its name; a wrong file is deleted.
    fn accept(self, to: &Path, promise: &Promise) -> Result<()> {
        let actual = hex(self.hasher);
        if let Some(expected) =
            promise.sha256.as_ref().or(self.stated_sha256.as_ref()).filter(|h| **h != actual)
        {
            fs::remove_file(&self.path).map_err(Error::io(&self.path))?;
            return Err(Error::Mismatch {
                file: promise.name.clone(),
                what: "sha256",
                expected: expected.clone(),
                actual,
            });
        }
        self.file.sync_all().map_err(Error::io(&self.path))?;
        fs::rename(&self.path, to).map_err(Error::io(to))
    }
}

/// Turns a status that is no success into an error that helps.
fn check_status(url: &str, response: &Response<Body>, with_token: bool) -> Result<()> {
    let status = response.status();
    let reason = response.headers().get("x-error-message").and_then(|value| value.to_str().ok());
    match status.as_u16() {
        200..=299 => Ok(()),
        code @ (401 | 403) => Err(Error::Denied {
            url: url.to_owned(),
            status: code,
            hint: match (reason, with_token) {
                (Some(reason), true) => format!("the server says: {reason}"),
                (None, true) => {
                    "the token that was sent (HF_TOKEN or the token file) does not open it; check the \
                                 spelling, and accept the model's terms on its page"
                        .to_owned()
                }
                (_, false) => {
                    "check the spelling; for a private or gated model accept its terms on its page, then \
                               set HF_TOKEN to an access token of yours"
                        .to_owned()
                }
            },
        }),
        404 => Err(Error::Missing {
            what: format!("{url}: there is no such thing (404)"),
            hint: "check the spelling of owner, repository and file".to_owned(),
        }),
        _ => Err(network(
            url,
            &format!("the server answered {status}{}", reason.map(|r| format!(": {r}")).unwrap_or_default()),
        )),
    }
}

fn network(url: &str, problem: &str) -> Error {
    Error::Network {
        // Signed links carry secrets and fill the screen.
        url: url.split('?').next().unwrap_or(url).to_owned(),
        problem: problem.to_owned(),
        hint: "run it again to go on from where it stopped".to_owned(),
    }
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> Option<&str> {
    let host = url.find("://")? + 3;
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    Some(&url[..end])
}

/// The URL a `Location` header leads to from `url`.
fn follow(url: &str, location: &str) -> Option<String> {
    if location.starts_with("https://") || location.starts_with("http://") {
        Some(location.to_owned())
    } else if location.starts_with("//") {
        Some(format!("{}:{location}", url.split(':').next()?))
    } else if location.starts_with('/') {
        Some(format!("{}{location}", origin(url)?))
    } else {
        None
    }
}

/// A header's value where it is a SHA-256, quoted or not.
fn sha256_in(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?.trim_matches('"');
    (value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit())).then(|| value.to_ascii_lowercase())
}

/// The first byte of `Content-Range: bytes START-END/TOTAL`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        assert_eq!(origin("https://a.b:1/c?d"), Some("https://a.b:1"));
        assert_eq!(origin("http://a.b"), Some("http://a.b"));
        assert_ne!(origin("https://a.b/"), origin("https://a.b.evil/"));
        assert_ne!(origin("https://a.b/"), origin("http://a.b/"));
        assert_ne!(origin("https://a.b@evil/"), origin("https://a.b/"));
    }

    #[test]
    fn redirects_may_be_absolute_or_relative_to_the_host() {
        assert_eq!(follow("http://a/x", "https://b/y").as_deref(), Some("https://b/y"));
        assert_eq!(follow("http://a/x", "/y").as_deref(), Some("http://a/y"));
        assert_eq!(follow("https://a/x", "//b/y").as_deref(), Some("https://b/y"));
        assert_eq!(follow("http://a/x", "file:///etc/passwd"), None);
    }
}
