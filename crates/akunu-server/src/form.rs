//! A request whose body is a form with files: `multipart/form-data`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use multer::Multipart;

use crate::app::{App, Caller, read};
use crate::error::ApiError;

/// A form, on its way to a model. Fields are taken one by one: what is left over at the end was not understood.
pub(crate) struct Form {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    /// Names and what they hold.
    left: Vec<(String, Held)>,
}

enum Held {
    Text(String),
    File { name: String, bytes: Vec<u8> },
}

impl FromRequest<Arc<App>> for Form {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Form, ApiError> {
        let caller = request.extensions().get::<Caller>().cloned().ok_or_else(ApiError::bug)?;
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let boundary = kind.and_then(|kind| multer::parse_boundary(kind).ok()).ok_or_else(|| {
            let message = "the body must be multipart/form-data, with its boundary in the content type";
            ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).code("invalid_form")
        })?;
        let body = read(request.into_body(), &app.config).await?;
        let stream = tokio_stream::once(Ok::<_, Infallible>(body));
        let mut parts = Multipart::new(stream, boundary);
        let mut left = Vec::new();
        while let Some(part) = parts.next_field().await.map_err(|error| malformed(&error))? {
            let Some(name) = part.name().map(str::to_owned) else {
                return Err(ApiError::invalid("a part of the form has no name").code("invalid_form"));
            };
            let file = part.file_name().map(str::to_owned);
            let bytes = part.bytes().await.map_err(|error| malformed(&error))?;
            let held = match file {
                Some(file) => Held::File { name: file, bytes: bytes.to_vec() },
                None => match String::from_utf8(bytes.to_vec()) {
                    Ok(text) => Held::Text(text),
                    Err(_) => return Err(ApiError::field(name, "is not UTF-8")),
                },
            };
            left.push((name, held));
        }
        Ok(Form { app: Arc::clone(app), caller, left })
    }
}

fn malformed(error: &multer::Error) -> ApiError {
    ApiError::invalid(format!("the form is malformed: {error}")).code("invalid_form")
}

impl Form {
    fn take(&mut self, name: &str) -> Option<Held> {
        let at = self.left.iter().position(|(own, _)| own == name)?;
        Some(self.left.remove(at).1)
    }

    /// A field of text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Held::Text(text)) => Ok(Some(text)),
            Some(Held::File { .. }) => Err(ApiError::field(name, "must be text and not a file")),
        }
    }

    /// All fields of a name.
    pub(crate) fn texts(&mut self, name: &str) -> Vec<String> {
        let own = self.left.extract_if(.., |(own, held)| own == name && matches!(held, Held::Text(_)));
        own.filter_map(|(_, held)| if let Held::Text(text) = held { Some(text) } else { None }).collect()
    }

    /// A file that must be there: its name and what is in it.
    pub(crate) fn file(&mut self, name: &str) -> Result<(String, Vec<u8>), ApiError> {
        match self.take(name) {
            Some(Held::File { name, bytes }) => Ok((name, bytes)),
            Some(Held::Text(_)) => Err(ApiError::field(name, "must be a file, with its name")),
            None => Err(ApiError::field(name, "is missing").code("missing_required_parameter")),
        }
    }

    /// Refuses a field by name if it is there.
    pub(crate) fn refuse(&mut self, name: &str) -> Result<(), ApiError> {
        match self.take(name) {
            None => Ok(()),
            Some(_) => Err(ApiError::unsupported(name, "is not available")),
        }
    }

    /// Everything was read; whatever is left is refused by name.
    pub(crate) fn end(&self) -> Result<(), ApiError> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(ApiError::field(name, "is not known to this server").code("unknown_parameter"))
            }
        }
    }
}
