//! `POST /v1/rerank`, as Jina, Cohere and others have it: texts in the order of how well they answer a question.

use akunu::embed::{Ranker, TooLong};
use axum::response::Response;
use serde_json::{Value, json};

use crate::app::Call;
use crate::ask::whole;
use crate::error::ApiError;
use crate::log;

/// Most documents in one request.
const MOST_DOCUMENTS: usize = 2048;

/// `POST /v1/rerank`
pub(crate) async fn rerank(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let name: Option<String> = fields.take("model")?;
    let query: String = fields.need("query")?;
    let documents = documents(fields.need("documents")?)?;
    let most = fields.take("top_n")?.unwrap_or(usize::MAX);
    let has_documents = fields.take("return_documents")?.unwrap_or(true);
    let too_long = if fields.take("truncate")?.unwrap_or(true) { TooLong::Cut } else { TooLong::Refuse };
    fields.end()?;
    if most == 0 {
        return Err(ApiError::field("top_n", "must be a whole number from 1 on"));
    }

    let ranking = call.app.models.find_ranker(name.as_deref()).await?;
    let model = ranking.id.clone();
    // Long texts take a while to become tokens: not here, where others wait.
    let own = std::sync::Arc::clone(&ranking);
    let work = move || {
        let ranker = own.ranker.as_ref().ok_or_else(ApiError::bug)?;
        Ok((pairs(ranker, &query, &documents, too_long)?, documents))
    };
    let (pairs, documents) =
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ApiError::bug()))?;
    let (count, tokens) = (pairs.len(), pairs.iter().map(Vec::len).sum());
    call.app.metrics.started(&model, tokens, 0);
    log::brought(call.app.config.log, &call.caller, &model, "texts", count);
    let vectors = ranking.batcher.embed(pairs, Ranker::SHAPE).await?;
    ranking.used.touch();
    log::embedded(call.app.config.log, &call.caller, &model, count, tokens);

    let ranker = ranking.ranker.as_ref().ok_or_else(ApiError::bug)?;
    let ranked = Ranker::order(vectors.iter().map(|vector| ranker.score(vector)));
    let result = |&(index, score): &(usize, f32)| {
        let mut result = json!({"index": index, "relevance_score": score});
        if has_documents {
            result["document"] = json!({"text": documents[index]});
        }
        result
    };
    let results: Vec<Value> = ranked.iter().take(most).map(result).collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    Ok(whole(&json!({"object": "list", "model": model, "results": results, "usage": usage})))
}

/// The texts of the documents: strings, or objects with a text.
fn documents(list: Vec<Value>) -> Result<Vec<String>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::field("documents", "is empty"));
    }
    if list.len() > MOST_DOCUMENTS {
        return Err(ApiError::field("documents", format!("has more than {MOST_DOCUMENTS} entries")));
    }
    let text = |(i, document): (usize, Value)| match document {
        Value::String(text) => Ok(text),
        Value::Object(mut fields) => match fields.remove("text") {
            Some(Value::String(text)) => Ok(text),
            _ => Err(ApiError::field(format!("documents[{i}].text"), "must be a string")),
        },
        _ => Err(ApiError::field(format!("documents[{i}]"), "must be a string, or an object with a text")),
    };
    list.into_iter().enumerate().map(text).collect()
}

/// The tokens of the query with each document.
fn pairs(
    ranker: &Ranker,
    query: &str,
    documents: &[String],
    too_long: TooLong,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let query = ranker.query(query)?;
    let pair = |(i, document): (usize, &String)| {
        ranker.tokens(&query, document, too_long).map_err(|error| {
            let (place, error) = (format!("documents[{i}]"), ApiError::from(error));
            ApiError { message: format!("`{place}`: {}", error.message), ..error }.param(place)
        })
    };
    documents.iter().enumerate().map(pair).collect()
}
