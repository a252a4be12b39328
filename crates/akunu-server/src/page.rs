//! The chat page, from the binary. Its source is in `page/`; `scripts/page` builds it and drives it in a browser.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// The page may load what this server has and nothing else, run no script but its own, and be framed by nobody.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`
pub(crate) async fn index() -> Response {
    asset("text/html; charset=utf-8", include_str!("../page/index.html"))
}

/// `GET /assets/page.css`
pub(crate) async fn style() -> Response {
    asset("text/css; charset=utf-8", include_str!("../page/page.css"))
}

/// `GET /assets/page.js`
pub(crate) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", include_str!("../page/built/page.js"))
}

/// Whether a path is the same for everybody and needs no key.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(path, "/" | "/docs" | "/health" | "/openapi.json") || path.starts_with("/assets/")
}

/// A part of a page.
pub(crate) fn asset(content_type: &'static str, text: &'static str) -> Response {
    let headers: [(HeaderName, HeaderValue); 5] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        // Another version of the server has another page.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, text).into_response()
}
