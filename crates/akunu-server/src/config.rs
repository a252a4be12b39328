//! How a server behaves.

use std::net::IpAddr;
use std::time::Duration;

use akunu::Error;

/// How a server behaves. The defaults are for one person on their own machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Keys of which a client must show one; with none, everybody is served.
    pub keys: Vec<String>,
    /// Whether others may reach the server without a key.
    pub allow_public: bool,
    /// Pages of other origins that may call the server from a browser; `*` for any.
    pub cors_origins: Vec<String>,
    /// Whether the server answers by whatever name it is asked. It does by its addresses, as `localhost` and as the origins above;
    /// by other names, pages that had their own name lead here could ask it too, where they need no key.
    pub any_host: bool,
    /// Whether a model is found by its exact id alone.
    pub strict_models: bool,
    /// Bytes of memory that models may take together; more are loaded only when others can be unloaded.
    pub memory_budget: Option<u64>,
    /// Models that nobody has used for this long are unloaded until they are asked for again.
    pub idle_timeout: Option<Duration>,
    /// Whether clients may load and unload models.
    pub manage_models: bool,
    /// Most tokens of an answer whose request does not say.
    pub default_max_tokens: usize,
    /// Requests a client may make in a minute; 0 for any number.
    pub rate_limit: u32,
    /// Most connections at the same time; others wait until one closes.
    pub connections: usize,
    /// How long a client may take to send the head of a request.
    pub head_timeout: Duration,
    /// Largest body of a request, in bytes.
    pub body_limit: usize,
    /// How long a client may take to send its request's body.
    pub body_timeout: Duration,
    /// How long answers may take to finish once the server was told to stop.
    pub shutdown_grace: Duration,
    /// What is said about each request on stderr.
    pub log: Log,
    /// Whether the log has the prompts, as models read them.
    pub log_prompts: bool,
}

/// How requests are written to stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Not at all.
    Off,
    /// A line for people.
    Text,
    /// A line of JSON.
    Json,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            keys: Vec::new(),
            allow_public: false,
            cors_origins: Vec::new(),
            any_host: false,
            strict_models: false,
            memory_budget: None,
            idle_timeout: None,
            manage_models: true,
            default_max_tokens: 2048,
            rate_limit: 0,
            connections: 512,
            head_timeout: Duration::from_secs(30),
            body_limit: 32 << 20,
            body_timeout: Duration::from_secs(60),
            shutdown_grace: Duration::from_secs(30),
            log: Log::Off,
            log_prompts: false,
        }
    }
}

impl Config {
    /// The same for a server at an address. One that others can reach needs a key, or [`Config::allow_public`]. With a key, or at
    /// such an address, the server answers by any name: a page that reaches it by a name of its own knows no key, and who opens a
    /// server to others has names for it.
    pub fn at(self, address: IpAddr) -> akunu::Result<Config> {
        self.check(address)?;
        let any_host = self.any_host || !self.keys.is_empty() || is_public(address);
        Ok(Config { any_host, ..self })
    }

    /// Refuses an address that others can reach, where that is not meant.
    pub(crate) fn check(&self, address: IpAddr) -> akunu::Result<()> {
        if !is_public(address) || !self.keys.is_empty() || self.allow_public {
            return Ok(());
        }
        Err(Error::Usage {
            problem: format!("{address} can be reached by others, and no key is set"),
            hint: "set a key, or allow everybody".to_owned(),
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    !address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_can_reach_needs_a_key() {
        let at = |address: &str, config: Config| config.at(address.parse().unwrap());
        let open = || Config { allow_public: true, ..Config::default() };
        let keyed = || Config { keys: vec!["k".to_owned()], ..Config::default() };
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(!at(address, Config::default()).unwrap().any_host, "{address}");
            assert!(at(address, keyed()).unwrap().any_host, "{address}");
        }
        for address in ["0.0.0.0", "::", "192.168.1.2"] {
            let error = at(address, Config::default()).unwrap_err().to_string();
            assert_eq!(error, format!("{address} can be reached by others, and no key is set"));
            assert!(at(address, open()).unwrap().any_host && at(address, keyed()).unwrap().any_host);
        }
    }
}
