//! How the server is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::app::App;

/// `GET /health`
pub(crate) async fn health(State(app): State<Arc<App>>) -> Json<Value> {
    let mut models: Vec<String> = app.models.loaded().iter().map(|one| one.id().to_owned()).collect();
    models.dedup();
    Json(json!({"status": "ok", "models": models}))
}

/// `GET /metrics`
pub(crate) async fn prometheus(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = app.metrics.text(&app.models.loaded());
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

/// `GET /v1/metrics`
pub(crate) async fn json_metrics(State(app): State<Arc<App>>) -> Json<Value> {
    Json(app.metrics.json(&app.models.loaded(), app.started.elapsed()))
}
