//! What a client is told when something is wrong, in the words of the interface it speaks.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: Option<&'static str>,
    /// The field that is to blame.
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    /// Seconds after which trying again makes sense.
    pub(crate) retry_after: Option<u64>,
}

/// Whose interface a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Dialect {
    pub(crate) fn of(path: &str) -> Dialect {
        if path.starts_with("/v1/messages") {
            Dialect::Anthropic
        } else if path.starts_with("/api/") {
            Dialect::Ollama
        } else {
            Dialect::OpenAi
        }
    }
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, code: None, param: None, message: message.into(), retry_after: None }
    }

    /// A request that makes no sense.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// A panic on the way to an answer.
    pub(crate) fn bug() -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request met a bug in the server")
    }

    /// A field that makes no sense.
    pub(crate) fn field(param: impl Into<String>, problem: impl std::fmt::Display) -> ApiError {
        let param = param.into();
        ApiError::invalid(format!("`{param}` {problem}")).param(param)
    }

    /// A field that asks for something this server cannot do.
    pub(crate) fn unsupported(param: &str, problem: impl std::fmt::Display) -> ApiError {
        ApiError::field(param, problem).code("unsupported_parameter")
    }

    pub(crate) fn code(mut self, code: &'static str) -> ApiError {
        self.code = Some(code);
        self
    }

    pub(crate) fn param(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(param.into());
        self
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// The body of the answer.
    pub(crate) fn body(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::OpenAi => json!({"error": {
                "message": self.message, "type": self.kind(), "param": self.param, "code": self.code,
            }}),
            Dialect::Anthropic => {
                json!({"type": "error", "error": {"type": self.anthropic_kind(), "message": self.message}})
            }
            Dialect::Ollama => json!({"error": self.message}),
        }
    }

    /// The answer.
    pub(crate) fn respond(&self, dialect: Dialect) -> Response {
        let mut response = (self.status, Json(self.body(dialect))).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// In OpenAI's words; the outermost layer rewrites it for other dialects.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.respond(Dialect::OpenAi);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<akunu::Error> for ApiError {
    fn from(error: akunu::Error) -> ApiError {
        use akunu::{Error, Kind};
        let message = match error.hint() {
            Some(hint) => format!("{error}: {hint}"),
            None => error.to_string(),
        };
        match (&error, error.kind()) {
            (Error::TooLong { .. }, _) => {
                ApiError::invalid(message).code("context_length_exceeded").param("messages")
            }
            (Error::Busy { .. }, _) => ApiError {
                retry_after: Some(1),
                ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("overloaded")
            },
            (Error::Stopped, _) => ApiError {
                retry_after: Some(5),
                ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
                    .code("shutting_down")
            },
            // A template that refuses a conversation refuses what the client sent.
            (Error::BrokenTemplate { source, .. }, _) => ApiError::invalid(source.to_string()),
            (Error::Template(_), _) | (_, Kind::Usage) => ApiError::invalid(message),
            (_, Kind::NotFound) => ApiError::new(StatusCode::NOT_FOUND, message),
            (_, Kind::Unsupported) => ApiError::invalid(message),
            (_, Kind::Unavailable) => {
                ApiError { retry_after: Some(1), ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message) }
            }
            _ => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message),
        }
    }
}
