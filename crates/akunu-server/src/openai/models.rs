//! `/v1/models`: what there is, and bringing it into memory and out again.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::app::{App, Call};
use crate::error::ApiError;
use crate::library::Source;

/// `GET /v1/models`
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({"object": "list", "data": app.models.describe()}))
}

/// `GET /v1/models/ID`
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(app.models.entry(Some(&id))?.describe()))
}

/// `POST /v1/models/load`: one that the server knows by its `id`, or a new one from `model`, a path or a name.
pub(crate) async fn load(mut call: Call) -> Result<Json<Value>, ApiError> {
    may_manage(&call.app)?;
    let fields = &mut call.fields;
    let model: Option<String> = fields.take("model")?;
    let model = model.or(fields.take("path")?);
    let id: Option<String> = fields.take("id")?;
    let context: Option<usize> = fields.take("context_length")?;
    let context = context.or(fields.take("max_context")?);
    fields.end()?;
    let models = &call.app.models;
    let known = id.as_deref().or(model.as_deref()).map(|name| models.entry(Some(name)));
    let (entry, is_new) = match (known, model) {
        (Some(Ok(entry)), _) => (entry, false),
        (Some(Err(error)), None) => return Err(error),
        (None, None) => {
            return Err(ApiError::field("model", "is missing").code("missing_required_parameter"));
        }
        (_, Some(model)) => {
            let id = id.unwrap_or_else(|| named(&model));
            (models.insert(&id, Some(Source { model, context }))?, true)
        }
    };
    let began = Instant::now();
    if let Err(error) = models.load(&entry, None).await {
        if is_new {
            models.remove(&entry);
        }
        return Err(error);
    }
    let mut described = entry.describe();
    described["load_ms"] = json!(began.elapsed().as_millis() as u64);
    Ok(Json(described))
}

/// `POST /v1/models/unload`: the model leaves memory when the answers it is giving are complete, and comes back when it is
/// asked for.
pub(crate) async fn unload(mut call: Call) -> Result<Json<Value>, ApiError> {
    may_manage(&call.app)?;
    let id: Option<String> = call.fields.take("id")?;
    let id = id.or(call.fields.take("model")?);
    call.fields.end()?;
    let entry = call.app.models.entry(id.as_deref())?;
    let unloaded = call.app.models.unload(&entry);
    Ok(Json(json!({"id": entry.id, "object": "model", "unloaded": unloaded})))
}

/// `DELETE /v1/models/ID`: the same, for good.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    may_manage(&app)?;
    let entry = app.models.entry(Some(&id))?;
    app.models.remove(&entry);
    Ok(Json(json!({"id": entry.id, "object": "model", "deleted": true})))
}

/// Refuses to load or unload a model where clients may not.
pub(crate) fn may_manage(app: &App) -> Result<(), ApiError> {
    if app.config.manage_models {
        return Ok(());
    }
    let message = "this server does not let clients load and unload models";
    Err(ApiError::new(StatusCode::FORBIDDEN, message).code("not_allowed"))
}

/// The id of a model that is given none: its name, or that of its file.
fn named(model: &str) -> String {
    let stem = FilePath::new(model).file_stem().filter(|_| FilePath::new(model).is_file());
    stem.map_or_else(|| model.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
