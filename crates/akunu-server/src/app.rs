//! What all requests share, and what each of them passes through first.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use crate::config::Config;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::guard::{Clients, Keys, RateLimit, check_host, check_origin};
use crate::library::Library;
use crate::log::{self, Logged};
use crate::metrics::Metrics;
use crate::models::Models;
use crate::{anthropic, ollama, openai, openapi, page, status};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

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

    /// All paths.
    pub(crate) fn router(self: &Arc<App>) -> Router {
        let router = Router::new()
            .route("/", get(page::index))
            .route("/assets/page.css", get(page::style))
            .route("/assets/page.js", get(page::script))
            .route("/assets/docs.js", get(openapi::script))
            .route("/docs", get(openapi::docs))
            .route("/openapi.json", get(openapi::description))
            .route("/health", get(status::health))
            .route("/metrics", get(status::prometheus))
            .route("/v1/metrics", get(status::json_metrics))
            .route("/v1/models", get(openai::models::list))
            .route("/v1/models/load", post(openai::models::load))
            .route("/v1/models/unload", post(openai::models::unload))
            .route("/v1/models/{id}", get(openai::models::one).delete(openai::models::delete))
            .route("/v1/chat/completions", post(openai::chat::complete))
            .route("/v1/completions", post(openai::completions::complete))
            .route("/v1/responses", post(openai::responses::respond))
            .route("/v1/embeddings", post(openai::embeddings::embed))
            .route("/v1/audio/transcriptions", post(openai::audio::transcribe))
            .route("/v1/audio/translations", post(openai::audio::translate))
            .route("/v1/tokenize", post(openai::tokens::tokenize))
            .route("/v1/detokenize", post(openai::tokens::detokenize))
            .route("/v1/messages", post(anthropic::messages))
            .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
            .route("/api/version", get(ollama::version))
            .route("/api/tags", get(ollama::tags))
            .route("/api/ps", get(ollama::running))
            .route("/api/show", post(ollama::show))
            .route("/api/chat", post(ollama::chat))
            .route("/api/generate", post(ollama::generate))
            .route("/api/embed", post(ollama::embed))
            .route("/api/embeddings", post(ollama::embed_one))
            .fallback(no_such_path)
            .method_not_allowed_fallback(no_such_method)
            .layer(CatchPanicLayer::custom(|_| ApiError::bug().into_response()))
            .layer(from_fn_with_state(Arc::clone(self), admit));
        let router = match cors(&self.config.cors_origins) {
            Some(cors) => router.layer(cors),
            None => router,
        };
        router.with_state(Arc::clone(self))
    }
}

/// What browsers are told about pages of other origins; nothing by default, and then they refuse.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::from(Any)
    } else if origins.is_empty() {
        return None;
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    Some(
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods(Any)
            .allow_headers(AllowHeaders::mirror_request()),
    )
}

/// Refuses what a page that is not ours made a browser send.
fn check_caller(config: &Config, headers: &HeaderMap) -> Result<(), ApiError> {
    if !config.any_host {
        check_host(headers, &config.cors_origins)?;
    }
    check_origin(headers, &config.cors_origins)
}

/// Every request passes here first: it gets a number, shows its key, and is counted; and every refusal passes last, to be put
/// into the words of the client's interface.
async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let address: Option<IpAddr> =
        request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
    let mut caller = Caller {
        id: app.requests.fetch_add(1, Ordering::Relaxed) + 1,
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        client: 0,
        began: Instant::now(),
    };
    let admitted = match caller.path.as_str() {
        path if page::is_open(path) => Ok(()),
        _ => check_caller(&app.config, request.headers()).and_then(|()| {
            let key = app.keys.check(request.headers()).or_else(|refusal| {
                // Guesses count as well, for the address they come from.
                app.rate_limit.take(app.clients.number(None, address), caller.began).and(Err(refusal))
            })?;
            caller.client = app.clients.number(key, address);
            app.rate_limit.take(caller.client, caller.began)
        }),
    };
    let mut response = match admitted {
        Ok(()) => {
            request.extensions_mut().insert(caller.clone());
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    let dialect = Dialect::of(&caller.path);
    if let Some(error) = response.extensions_mut().remove::<ApiError>()
        && dialect != Dialect::OpenAi
    {
        response = error.respond(dialect);
    }
    if let Ok(id) = HeaderValue::from_str(&format!("req-{}", caller.id)) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    app.metrics.answered(response.status().as_u16());
    if response.extensions().get::<Logged>().is_none() {
        log::plain(app.config.log, &caller, response.status().as_u16());
    }
    response
}

async fn no_such_path(method: Method, uri: axum::http::Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no {method} {}", uri.path())).code("unknown_url")
}

async fn no_such_method(method: Method, uri: axum::http::Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed")
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
