//! Who may ask, and how often.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::ApiError;

/// A client that has not asked for this long is forgotten.
const FORGET: Duration = Duration::from_secs(300);
/// How many requests pass between two looks for clients to forget.
const LOOK: u32 = 1000;

/// Refuses requests from web pages of other origins. Browsers let pages send some kinds of requests anywhere and only hide the
/// answer, but an unloaded model is unloaded all the same.
pub(crate) fn check_origin(headers: &HeaderMap, allowed: &[String]) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let own = origin.split_once("://").is_some_and(|(_, place)| Some(place) == host);
    if own || allowed.iter().any(|allowed| allowed == "*" || allowed == origin) {
        return Ok(());
    }
    let message = format!("pages of {origin} may not call this server: start it with --cors-origin {origin}");
    Err(ApiError::new(StatusCode::FORBIDDEN, message).code("origin_not_allowed"))
}

/// Refuses requests to a name that is not known to mean this server. A page's owner can have the page's own name lead here, and
/// the browser then takes the two for one origin.
pub(crate) fn check_host(headers: &HeaderMap, origins: &[String]) -> Result<(), ApiError> {
    let Some(host) = headers.get(header::HOST) else { return Ok(()) };
    let host = host.to_str().unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let here = name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok();
    let of =
        |origin: &String| origin == "*" || origin.split_once("://").is_some_and(|(_, place)| place == host);
    if here || origins.iter().any(of) {
        return Ok(());
    }
    let message = format!(
        "this server is not known as {host:?}: ask it by its address or as localhost, start it with --cors-origin http://{host}, or \
         set a key"
    );
    Err(ApiError::new(StatusCode::FORBIDDEN, message).code("host_not_allowed"))
}

/// The keys of which a client must show one. They are kept as hashes alone.
#[derive(Debug)]
pub(crate) struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub(crate) fn new(keys: &[String]) -> Keys {
        Keys(keys.iter().map(|key| Sha256::digest(key).into()).collect())
    }

    /// The hash of the key that was shown; `None` where none is needed.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<Option<[u8; 32]>, ApiError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        let shown = bearer.or_else(|| headers.get("x-api-key")?.to_str().ok());
        let hash: Option<[u8; 32]> = shown.map(|key| Sha256::digest(key).into());
        // All are compared, whichever fits: the time says nothing.
        let known = self.0.iter().fold(0, |known, key| {
            known | hash.map_or(0, |hash| hash.as_slice().ct_eq(key.as_slice()).unwrap_u8())
        });
        if known == 1 {
            return Ok(hash);
        }
        let message = match shown {
            Some(_) => "the API key is not one of this server's",
            None => "an API key is needed: send it as `Authorization: Bearer KEY` or as `x-api-key`",
        };
        Err(ApiError::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key"))
    }
}

/// Tells clients apart: by key where they show one, else by address.
pub(crate) struct Clients(RandomState);

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients(RandomState::new())
    }

    pub(crate) fn number(&self, key: Option<[u8; 32]>, address: Option<IpAddr>) -> u64 {
        match key {
            Some(key) => self.0.hash_one(key),
            None => self.0.hash_one(address),
        }
    }
}

/// Lets each client make so many requests in a minute: a bucket that holds as many and refills steadily.
#[derive(Debug)]
pub(crate) struct RateLimit {
    per_minute: u32,
    state: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    by_client: HashMap<u64, Bucket>,
    passed: u32,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    updated: Instant,
}

impl RateLimit {
    pub(crate) fn new(per_minute: u32) -> RateLimit {
        RateLimit { per_minute, state: Mutex::default() }
    }

    /// Takes one request of the client's.
    pub(crate) fn take(&self, client: u64, now: Instant) -> Result<(), ApiError> {
        if self.per_minute == 0 {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.passed += 1;
        if state.passed >= LOOK {
            state.passed = 0;
            state.by_client.retain(|_, bucket| now.saturating_duration_since(bucket.updated) < FORGET);
        }
        let (most, per_second) = (f64::from(self.per_minute), f64::from(self.per_minute) / 60.0);
        let bucket = state.by_client.entry(client).or_insert(Bucket { left: most, updated: now });
        let since = now.saturating_duration_since(bucket.updated).as_secs_f64();
        bucket.left = (bucket.left + since * per_second).min(most);
        bucket.updated = now;
        if bucket.left < 1.0 {
            let wait = ((1.0 - bucket.left) / per_second).ceil() as u64;
            let message =
                format!("more than {} requests in a minute: try again in {wait} s", self.per_minute);
            return Err(ApiError {
                retry_after: Some(wait),
                ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).code("rate_limit_exceeded")
            });
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn any_of_the_keys_opens_in_either_header() {
        let keys = Keys::new(&["one".to_owned(), "two".to_owned()]);
        for (name, value) in
            [("authorization", "Bearer one"), ("authorization", "bearer two"), ("x-api-key", "two")]
        {
            assert!(keys.check(&headers(name, value)).unwrap().is_some(), "{name}: {value}");
        }
        for (name, value) in [
            ("authorization", "Bearer three"),
            ("authorization", "one"),
            ("x-api-key", ""),
            ("cookie", "one"),
        ] {
            let error = keys.check(&headers(name, value)).unwrap_err();
            assert_eq!((error.status, error.code), (StatusCode::UNAUTHORIZED, Some("invalid_api_key")));
        }
        assert_eq!(Keys::new(&[]).check(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn only_the_servers_own_page_and_those_it_names_may_call() {
        let ask = |origin: &str, allowed: &[&str]| {
            let mut headers = headers("origin", origin);
            headers.insert(header::HOST, "127.0.0.1:8080".parse().unwrap());
            let allowed: Vec<String> = allowed.iter().map(|&origin| origin.to_owned()).collect();
            check_origin(&headers, &allowed).is_ok()
        };
        assert!(check_origin(&HeaderMap::new(), &[]).is_ok());
        assert!(ask("http://127.0.0.1:8080", &[]));
        for other in
            ["http://evil.example", "null", "http://127.0.0.1:9090", "https://127.0.0.1:8080.evil.example"]
        {
            assert!(!ask(other, &[]), "{other}");
            assert!(ask(other, &["*"]) && ask(other, &["https://b", other]), "{other}");
        }
    }

    #[test]
    fn only_names_that_mean_this_machine_lead_here() {
        let ask = |host: &str, origins: &[String]| check_host(&headers("host", host), origins).is_ok();
        assert!(check_host(&HeaderMap::new(), &[]).is_ok());
        for host in [
            "127.0.0.1:8080",
            "localhost",
            "LocalHost:8080",
            "akunu.localhost:1",
            "[::1]:8080",
            "192.168.1.2",
        ] {
            assert!(ask(host, &[]), "{host}");
        }
        for host in
            ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "", "[evil.example]"]
        {
            assert!(!ask(host, &["https://a.example".to_owned()]), "{host}");
            assert!(ask(host, &["*".to_owned()]), "{host}");
        }
        assert!(ask("a.example", &["https://a.example".to_owned()]));
    }

    #[test]
    fn a_bucket_empties_refills_and_is_forgotten() {
        let limit = RateLimit::new(3);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        for _ in 0..3 {
            limit.take(1, at(0)).unwrap();
        }
        let error = limit.take(1, at(0)).unwrap_err();
        assert_eq!((error.status, error.retry_after), (StatusCode::TOO_MANY_REQUESTS, Some(20)));
        limit.take(2, at(0)).unwrap();
        limit.take(1, at(20)).unwrap();
        assert!(limit.take(1, at(21)).is_err());
        for _ in 0..LOOK {
            let _ = limit.take(3, at(400));
        }
        assert_eq!(limit.state.lock().unwrap().by_client.len(), 1);
        for _ in 0..100 {
            RateLimit::new(0).take(1, at(0)).unwrap();
        }
    }
}
