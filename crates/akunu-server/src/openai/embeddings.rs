//! `POST /v1/embeddings`

use akunu::embed::{Embedder, Shape, TooLong};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::app::Call;
use crate::ask::whole;
use crate::error::ApiError;
use crate::log;

/// Most texts in one request, as at OpenAI.
const MOST_TEXTS: usize = 2048;

/// `POST /v1/embeddings`
pub(crate) async fn embed(mut call: Call) -> Result<Response, ApiError> {
    let fields = &mut call.fields;
    let name: Option<String> = fields.take("model")?;
    let input: Value = fields.need("input")?;
    let dimensions: Option<usize> = fields.take("dimensions")?;
    let base64 = match fields.take::<String>("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(ApiError::field("encoding_format", "must be float or base64")),
    };
    let too_long = if fields.take("truncate")?.unwrap_or(false) { TooLong::Cut } else { TooLong::Refuse };
    fields.end()?;

    let shape = Shape { dimensions, ..Shape::default() };
    let vectors =
        vectors(&call, name.as_deref(), "input", Input::read(input, "input")?, shape, too_long).await?;
    let encode = |vector: Vec<f32>| {
        if base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            json!(STANDARD.encode(bytes))
        } else {
            json!(vector)
        }
    };
    let entry = |(index, vector)| json!({"object": "embedding", "index": index, "embedding": encode(vector)});
    let data: Vec<Value> = vectors.vectors.into_iter().enumerate().map(entry).collect();
    let usage = json!({"prompt_tokens": vectors.tokens, "total_tokens": vectors.tokens});
    Ok(whole(&json!({"object": "list", "data": data, "model": vectors.model, "usage": usage})))
}

/// What is to become vectors.
pub(crate) enum Input {
    Texts(Vec<String>),
    Tokens(Vec<Vec<u32>>),
}

impl Input {
    /// One text or several, one list of tokens or several.
    pub(crate) fn read(value: Value, name: &str) -> Result<Input, ApiError> {
        let input = match value {
            Value::String(text) => Input::Texts(vec![text]),
            Value::Array(list) if list.first().is_some_and(Value::is_string) => {
                Input::Texts(serde_json::from_value(Value::Array(list)).map_err(|_| wrong(name))?)
            }
            Value::Array(list) if list.first().is_some_and(Value::is_array) => {
                Input::Tokens(serde_json::from_value(Value::Array(list)).map_err(|_| wrong(name))?)
            }
            Value::Array(list) if !list.is_empty() => {
                Input::Tokens(vec![serde_json::from_value(Value::Array(list)).map_err(|_| wrong(name))?])
            }
            Value::Array(_) => return Err(ApiError::field(name, "is empty")),
            _ => return Err(wrong(name)),
        };
        if input.len() > MOST_TEXTS {
            return Err(ApiError::field(name, format!("has more than {MOST_TEXTS} entries")));
        }
        Ok(input)
    }

    fn len(&self) -> usize {
        match self {
            Input::Texts(texts) => texts.len(),
            Input::Tokens(texts) => texts.len(),
        }
    }

    /// As tokens, each of them checked.
    fn tokens(self, embedder: &Embedder, name: &str, too_long: TooLong) -> Result<Vec<Vec<u32>>, ApiError> {
        let several = self.len() > 1;
        let refuse = |(i, error): (usize, akunu::Error)| {
            let place = if several { format!("{name}[{i}]") } else { name.to_owned() };
            let error = ApiError::from(error);
            ApiError { message: format!("`{place}`: {}", error.message), ..error }.param(place)
        };
        match self {
            Input::Texts(texts) => texts
                .iter()
                .enumerate()
                .map(|(i, text)| embedder.tokens(text, too_long).map_err(|error| refuse((i, error))))
                .collect(),
            Input::Tokens(mut texts) => {
                for (i, tokens) in texts.iter_mut().enumerate() {
                    if too_long == TooLong::Cut {
                        tokens.truncate(embedder.context());
                    }
                    embedder.check(tokens).map_err(|error| refuse((i, error)))?;
                }
                Ok(texts)
            }
        }
    }
}

fn wrong(name: &str) -> ApiError {
    ApiError::field(name, "must be a string, a list of strings, or tokens or lists of them")
}

/// Vectors, and what they took.
pub(crate) struct Vectors {
    pub(crate) vectors: Vec<Vec<f32>>,
    /// The id of the model.
    pub(crate) model: String,
    /// Tokens of all texts.
    pub(crate) tokens: usize,
}

/// Embeds what a request brings in its field `field`, with the model it names.
pub(crate) async fn vectors(
    call: &Call,
    name: Option<&str>,
    field: &'static str,
    input: Input,
    shape: Shape,
    too_long: TooLong,
) -> Result<Vectors, ApiError> {
    let embedding = call.app.models.find_embedder(name).await?;
    let model = embedding.id.clone();
    let most = embedding.batcher.embedder().dimensions();
    if shape.dimensions.is_some_and(|asked| !(1..=most).contains(&asked)) {
        return Err(ApiError::field("dimensions", format!("must be from 1 to {most}")));
    }
    // Long texts take a while to become tokens: not here, where others wait.
    let own = std::sync::Arc::clone(&embedding);
    let work = move || input.tokens(own.batcher.embedder(), field, too_long);
    let texts = tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ApiError::bug()))?;
    let (count, tokens) = (texts.len(), texts.iter().map(Vec::len).sum());
    call.app.metrics.started(&model, tokens, 0);
    log::brought(call.app.config.log, &call.caller, &model, "texts", count);
    let vectors = embedding.batcher.embed(texts, shape).await?;
    embedding.used.touch();
    log::embedded(call.app.config.log, &call.caller, &model, count, tokens);
    Ok(Vectors { vectors, model, tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_tokens_come_alone_and_in_lists() {
        let read = |value: Value| match Input::read(value, "input") {
            Ok(Input::Texts(texts)) => format!("{texts:?}"),
            Ok(Input::Tokens(tokens)) => format!("{tokens:?}"),
            Err(error) => error.param.unwrap_or_default(),
        };
        assert_eq!(read(json!("a")), "[\"a\"]");
        assert_eq!(read(json!(["a", "b"])), "[\"a\", \"b\"]");
        assert_eq!(read(json!([1, 2])), "[[1, 2]]");
        assert_eq!(read(json!([[1], [2, 3]])), "[[1], [2, 3]]");
        for bad in
            [json!([]), json!(["a", 1]), json!([1, "a"]), json!([[1], "a"]), json!([-1]), json!({}), json!(3)]
        {
            assert_eq!(read(bad.clone()), "input", "{bad}");
        }
        assert_eq!(read(json!(vec!["a"; 2049])), "input");
    }
}
