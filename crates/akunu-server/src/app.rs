//! What all requests share, and what is known of each.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, Method, StatusCode};

use crate::config::Config;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::guard::{Clients, Keys, RateLimit, check_host, check_origin};
use crate::library::Library;
use crate::metrics::Metrics;
use crate::models::Models;

/// What all requests share.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) models: Arc<Models>,
    pub(crate) metrics: Metrics,
    pub(crate) started: Instant,
    keys: Keys,
    clients: Clients,
    rate_limit: RateLimit,
    requests: AtomicU64,
}

/// What is known of a request before its body is read.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The number of the request.
    pub(crate) id: u64,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Tells clients apart.
    pub(crate) client: u64,
    pub(crate) began: Instant,
}

impl App {
    pub(crate) fn new(config: Config, library: Option<Arc<dyn Library>>) -> App {
        App {
            models: Arc::new(Models::new(config.strict_models, config.memory_budget, library)),
            metrics: Metrics::new(),
            started: Instant::now(),
            keys: Keys::new(&config.keys),
            clients: Clients::new(),
            rate_limit: RateLimit::new(config.rate_limit),
            requests: AtomicU64::new(0),
            config,
        }
    }

    /// The number of the next request.
    pub(crate) fn next_id(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The client that a request comes from, if it may ask: not from a page that is not ours, with a key, and not too often.
    pub(crate) fn admit(
        &self,
        headers: &HeaderMap,
        address: Option<IpAddr>,
        now: Instant,
    ) -> Result<u64, ApiError> {
        if !self.config.any_host {
            check_host(headers, &self.config.cors_origins)?;
        }
        check_origin(headers, &self.config.cors_origins)?;
        let key = self.keys.check(headers).or_else(|refusal| {
            // Guesses count as well, for the address they come from.
            self.rate_limit.take(self.clients.number(None, address), now).and(Err(refusal))
        })?;
        let client = self.clients.number(key, address);
        self.rate_limit.take(client, now)?;
        Ok(client)
    }
}

/// A request with a JSON body, on its way to a model.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) fields: Fields,
}

impl FromRequest<Arc<App>> for Call {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Call, ApiError> {
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "no caller"))?;
        let body = read(request.into_body(), &app.config).await?;
        Ok(Call { app: Arc::clone(app), caller, fields: Fields::parse(&body)? })
    }
}

/// All of a body, within the limits.
pub(crate) async fn read(body: Body, config: &Config) -> Result<Bytes, ApiError> {
    let too_large = || {
        let message = format!("the body is larger than {} bytes", config.body_limit);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("request_too_large")
    };
    match tokio::time::timeout(config.body_timeout, to_bytes(body, config.body_limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time").code("timeout"))
        }
    }
}
