//! Where requests go, and what each of them passes through first.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use crate::app::{App, Caller};
use crate::error::{ApiError, Dialect};
use crate::log::{self, Logged};
use crate::{anthropic, ollama, openai, openapi, page, rerank, status};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// All paths.
pub(crate) fn router(app: &Arc<App>) -> Router {
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
        .route("/v1/rerank", post(rerank::rerank))
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
        .layer(from_fn_with_state(Arc::clone(app), admit));
    let router = match cors(&app.config.cors_origins) {
        Some(cors) => router.layer(cors),
        None => router,
    };
    router.with_state(Arc::clone(app))
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

/// Every request passes here first: it gets a number, shows its key, and is counted; and every refusal passes last, to be put
/// into the words of the client's interface.
async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let address: Option<IpAddr> =
        request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
    let mut caller = Caller {
        id: app.next_id(),
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        client: 0,
        began: Instant::now(),
    };
    let admitted = match page::is_open(&caller.path) {
        true => Ok(()),
        false => app.admit(request.headers(), address, caller.began).map(|client| caller.client = client),
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
