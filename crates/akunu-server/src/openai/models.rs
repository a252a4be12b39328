//! `/v1/models`

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;

/// `GET /v1/models`
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let data: Vec<Value> = app.models.all().iter().map(|served| served.describe()).collect();
    Json(json!({"object": "list", "data": data}))
}

/// `GET /v1/models/ID`
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(app.models.find(Some(&id))?.describe()))
}
