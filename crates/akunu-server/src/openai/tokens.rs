//! `/v1/tokenize` and `/v1/detokenize`: not OpenAI's, but beside it everywhere.

use akunu_text::tokenizer::{AddSpecial, Special};
use axum::Json;
use serde_json::{Value, json};

use crate::app::Call;
use crate::error::ApiError;

/// `POST /v1/tokenize`: the tokens of a text. Names of special tokens in it are text unless `parse_special` says otherwise.
pub(crate) async fn tokenize(mut call: Call) -> Result<Json<Value>, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref()).await?;
    let text: String = fields.need("text")?;
    let add = if fields.take("add_special")?.unwrap_or(true) { AddSpecial::Yes } else { AddSpecial::No };
    let special =
        if fields.take("parse_special")?.unwrap_or(false) { Special::Parse } else { Special::Plain };
    call.fields.end()?;
    let tokens = served.scheduler.model().tokenizer()?.encode(&text, special, add);
    Ok(Json(json!({"tokens": tokens, "count": tokens.len()})))
}

/// `POST /v1/detokenize`: the text of tokens.
pub(crate) async fn detokenize(mut call: Call) -> Result<Json<Value>, ApiError> {
    let fields = &mut call.fields;
    let served = call.app.models.find(fields.take::<String>("model")?.as_deref()).await?;
    let tokens: Vec<u32> = fields.need("tokens")?;
    call.fields.end()?;
    let model = served.scheduler.model();
    if let Some(token) = tokens.iter().find(|&&token| token as usize >= model.vocabulary()) {
        return Err(ApiError::field("tokens", format!("has {token}, and there is no such token")));
    }
    let text = model.tokenizer()?.decode(&tokens);
    Ok(Json(json!({"text": String::from_utf8_lossy(&text)})))
}
