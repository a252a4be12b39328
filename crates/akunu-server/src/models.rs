//! The models a server has.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use akunu::scheduler::Scheduler;
use akunu_text::chat::ChatTemplate;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::error::ApiError;

/// A model that answers.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) id: String,
    pub(crate) scheduler: Scheduler,
    /// The model's chat template; `None` if it was not made for conversations.
    pub(crate) template: Option<ChatTemplate>,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The size of its file.
    pub(crate) bytes: u64,
}

/// All models, by id.
#[derive(Debug, Default)]
pub(crate) struct Models {
    /// Whether only the exact id finds a model.
    strict: bool,
    by_id: RwLock<BTreeMap<String, Arc<Served>>>,
}

impl Models {
    pub(crate) fn new(strict: bool) -> Models {
        Models { strict, by_id: RwLock::default() }
    }

    /// Adds a model, unless there is one of that id, with this template in place of its own.
    pub(crate) fn add(
        &self,
        id: &str,
        scheduler: Scheduler,
        template: Option<ChatTemplate>,
    ) -> akunu::Result<()> {
        let templates = scheduler.model().templates();
        let template = match templates.names().next() {
            _ if template.is_some() => template,
            Some(_) => Some(templates.choose(None, false)?),
            None => None,
        };
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let bytes = std::fs::metadata(scheduler.model().path()).map_or(0, |file| file.len());
        let served = Served { id: id.to_owned(), scheduler, template, created, bytes };
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        if by_id.contains_key(id) {
            return Err(akunu::Error::Usage {
                problem: format!("there are two models \"{id}\""),
                hint: "give one of them another name".to_owned(),
            });
        }
        by_id.insert(id.to_owned(), Arc::new(served));
        Ok(())
    }

    /// All of them, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Served>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The model a request names: exactly, in other capitals, or by a part of the name that no other has. Without a name, the
    /// only one.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Arc<Served>, ApiError> {
        let all = self.all();
        let ids = || all.iter().map(|served| served.id.as_str()).collect::<Vec<_>>().join(", ");
        let Some(name) = name else {
            return match all.as_slice() {
                [only] => Ok(Arc::clone(only)),
                _ => Err(ApiError::field("model", format!("is missing; there is: {}", ids()))
                    .code("missing_required_parameter")),
            };
        };
        // Ollama's clients name a tag with every model.
        let name = name.strip_suffix(":latest").unwrap_or(name);
        if let Some(served) = all.iter().find(|served| served.id == name) {
            return Ok(Arc::clone(served));
        }
        let lower = name.to_lowercase();
        let same = |served: &&Arc<Served>| served.id.to_lowercase() == lower;
        let part = |served: &&Arc<Served>| !lower.is_empty() && served.id.to_lowercase().contains(&lower);
        for like in [&same as &dyn Fn(&&Arc<Served>) -> bool, &part] {
            let found: Vec<_> = all.iter().filter(like).collect();
            match found.as_slice() {
                _ if self.strict => break,
                [] => {}
                [only] => return Ok(Arc::clone(only)),
                several => {
                    let ids: Vec<&str> = several.iter().map(|served| served.id.as_str()).collect();
                    let problem = format!("\"{name}\" could be any of: {}", ids.join(", "));
                    return Err(ApiError::field("model", problem).code("model_ambiguous"));
                }
            }
        }
        let message = format!("there is no model \"{name}\"; there is: {}", ids());
        Err(ApiError::new(StatusCode::NOT_FOUND, message).code("model_not_found").param("model"))
    }
}

impl Served {
    /// The model as `/v1/models` lists it.
    pub(crate) fn describe(&self) -> Value {
        let model = self.scheduler.model();
        json!({
            "id": self.id,
            "object": "model",
            "created": self.created,
            "owned_by": "akunu",
            "family": model.architecture().family,
            "context_length": model.context(),
            "parallel": model.sequences(),
            "size": self.bytes,
            "backend": model.backend(),
        })
    }
}
