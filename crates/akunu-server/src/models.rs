//! The models a server has: those in memory, and those that can be brought back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use akunu::scheduler::Scheduler;
use akunu_text::chat::ChatTemplate;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::library::{Library, Loaded, Source};

type Result<T> = std::result::Result<T, ApiError>;

/// How often idle models are looked for, at most.
const LOOK: Duration = Duration::from_secs(30);

/// A model that answers. Whoever holds it keeps it in memory: nothing is freed under a running request.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) id: String,
    pub(crate) scheduler: Scheduler,
    /// The model's chat template; `None` if it was not made for conversations.
    pub(crate) template: Option<ChatTemplate>,
    /// Seconds since 1970.
    created: u64,
    /// The size of its file.
    bytes: u64,
    /// What it takes in memory; 0 where nobody counts.
    pub(crate) memory: u64,
    used: Mutex<Instant>,
}

/// A model by its id, in memory or not.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    /// How it is brought back; `None` for one that was handed over in memory.
    source: Option<Source>,
    served: RwLock<Option<Arc<Served>>>,
    /// What was said of it when it was in memory last.
    described: RwLock<Value>,
}

/// All models, by id.
pub(crate) struct Models {
    /// Whether only the exact id finds a model.
    strict: bool,
    /// Bytes that models may take together.
    budget: Option<u64>,
    library: Option<Arc<dyn Library>>,
    by_id: RwLock<BTreeMap<String, Arc<Entry>>>,
    /// Held while a model is loaded: one at a time, so that two do not count on the same memory.
    loading: tokio::sync::Mutex<()>,
    /// Models that were unloaded while they answered, until they are done.
    leaving: Mutex<Vec<Weak<Served>>>,
}

impl Models {
    pub(crate) fn new(strict: bool, budget: Option<u64>, library: Option<Arc<dyn Library>>) -> Models {
        let (loading, leaving) = (tokio::sync::Mutex::default(), Mutex::default());
        Models { strict, budget, library, by_id: RwLock::default(), loading, leaving }
    }

    /// Adds a model that is in memory and stays there.
    pub(crate) fn add(&self, id: &str, loaded: Loaded) -> akunu::Result<()> {
        let served = Served::new(id, loaded, 0)?;
        self.insert(id, None)?.set(Arc::new(served));
        Ok(())
    }

    /// Adds a model of the library, and loads it if there is memory for it: before the server runs. Whether it was loaded.
    pub(crate) fn load_first(&self, id: &str, source: &Source) -> akunu::Result<bool> {
        let entry = self.insert(id, Some(source.clone()))?;
        let Some(library) = &self.library else { return Ok(false) };
        let memory = library.memory(source)?;
        let fits = self.budget.is_none_or(|budget| self.memory().saturating_add(memory) <= budget);
        if fits {
            entry.set(Arc::new(Served::new(id, library.load(source)?, memory)?));
        }
        Ok(fits)
    }

    /// Adds a model without loading it, unless there is one of that id.
    pub(crate) fn insert(&self, id: &str, source: Option<Source>) -> akunu::Result<Arc<Entry>> {
        let described = RwLock::new(json!({
            "id": id, "object": "model", "created": unix_time(), "owned_by": "akunu", "loaded": false,
        }));
        let entry = Arc::new(Entry { id: id.to_owned(), source, served: RwLock::default(), described });
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        if by_id.contains_key(id) {
            return Err(akunu::Error::Usage {
                problem: format!("there are two models \"{id}\""),
                hint: "give one of them another name".to_owned(),
            });
        }
        by_id.insert(id.to_owned(), Arc::clone(&entry));
        Ok(entry)
    }

    /// Forgets a model.
    pub(crate) fn remove(&self, entry: &Entry) {
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&entry.id);
        self.unload(entry);
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Those in memory, by id.
    pub(crate) fn loaded(&self) -> Vec<Arc<Served>> {
        self.entries().iter().filter_map(|entry| entry.served()).collect()
    }

    /// All of them as `/v1/models` lists them.
    pub(crate) fn describe(&self) -> Vec<Value> {
        self.entries().iter().map(|entry| entry.describe()).collect()
    }

    /// The model a request names: exactly, in other capitals, or by a part of the name that no other has. Without a name, the
    /// only one.
    pub(crate) fn entry(&self, name: Option<&str>) -> Result<Arc<Entry>> {
        let all = self.entries();
        let ids = || all.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>().join(", ");
        let Some(name) = name else {
            return match all.as_slice() {
                [only] => Ok(Arc::clone(only)),
                _ => Err(ApiError::field("model", format!("is missing; there is: {}", ids()))
                    .code("missing_required_parameter")),
            };
        };
        // Ollama's clients name a tag with every model.
        let name = name.strip_suffix(":latest").unwrap_or(name);
        if let Some(entry) = all.iter().find(|entry| entry.id == name) {
            return Ok(Arc::clone(entry));
        }
        let lower = name.to_lowercase();
        let same = |entry: &&Arc<Entry>| entry.id.to_lowercase() == lower;
        let part = |entry: &&Arc<Entry>| !lower.is_empty() && entry.id.to_lowercase().contains(&lower);
        for like in [&same as &dyn Fn(&&Arc<Entry>) -> bool, &part] {
            let found: Vec<_> = all.iter().filter(like).collect();
            match found.as_slice() {
                _ if self.strict => break,
                [] => {}
                [only] => return Ok(Arc::clone(only)),
                several => {
                    let ids: Vec<&str> = several.iter().map(|entry| entry.id.as_str()).collect();
                    let problem = format!("\"{name}\" could be any of: {}", ids.join(", "));
                    return Err(ApiError::field("model", problem).code("model_ambiguous"));
                }
            }
        }
        let message = format!("there is no model \"{name}\"; there is: {}", ids());
        Err(ApiError::new(StatusCode::NOT_FOUND, message).code("model_not_found").param("model"))
    }

    /// The model a request names, brought into memory if it is not there.
    pub(crate) async fn find(self: &Arc<Models>, name: Option<&str>) -> Result<Arc<Served>> {
        let entry = self.entry(name)?;
        let served = match entry.served() {
            Some(served) => served,
            None => self.load(&entry).await?,
        };
        served.touch();
        Ok(served)
    }

    /// Brings a model into memory. That goes on when the client leaves: others may wait for the same model.
    pub(crate) async fn load(self: &Arc<Models>, entry: &Arc<Entry>) -> Result<Arc<Served>> {
        let (models, entry) = (Arc::clone(self), Arc::clone(entry));
        let task = tokio::spawn(async move {
            let _turn = models.loading.lock().await;
            match entry.served() {
                Some(served) => Ok(served),
                None => models.bring(&entry).await,
            }
        });
        task.await.unwrap_or_else(|_| Err(met_a_bug()))
    }

    async fn bring(&self, entry: &Entry) -> Result<Arc<Served>> {
        let (Some(library), Some(source)) = (&self.library, &entry.source) else {
            let message = format!("{} was unloaded, and this server cannot load it again", entry.id);
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("model_unloaded"));
        };
        let (from, what) = (Arc::clone(library), source.clone());
        let memory = blocking(move || from.memory(&what)).await?;
        self.make_room(memory).await?;
        let (from, what) = (Arc::clone(library), source.clone());
        let loaded = blocking(move || from.load(&what)).await?;
        let served = Arc::new(Served::new(&entry.id, loaded, memory)?);
        entry.set(Arc::clone(&served));
        Ok(served)
    }

    /// Unloads idle models, those used longest ago first, until so many bytes are free.
    async fn make_room(&self, needed: u64) -> Result<()> {
        let Some(budget) = self.budget else { return Ok(()) };
        loop {
            let used = self.memory();
            if used.saturating_add(needed) <= budget {
                return Ok(());
            }
            let idle = self.entries().into_iter().filter_map(|entry| Some((entry.idle_since()?, entry)));
            let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) else {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                let message = format!(
                    "the model takes {} MiB of memory, and {} of the {} MiB for models are in use",
                    mib(needed),
                    mib(used),
                    mib(budget),
                );
                return Err(ApiError {
                    retry_after: (needed <= budget).then_some(5),
                    ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).code("insufficient_memory")
                });
            };
            oldest.unload_if_idle().await;
        }
    }

    /// Bytes that models take.
    fn memory(&self) -> u64 {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|served| served.strong_count() > 0);
        let leaving = leaving.iter().filter_map(Weak::upgrade).map(|served| served.memory).sum::<u64>();
        leaving + self.loaded().iter().map(|served| served.memory).sum::<u64>()
    }

    /// Takes a model out of memory, as soon as the answers it is giving are complete. False if it was not there.
    pub(crate) fn unload(&self, entry: &Entry) -> bool {
        let Some(served) = entry.take(|_| true) else { return false };
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&served));
        true
    }

    /// Ends everything that is being answered.
    pub(crate) fn abort(&self) {
        let leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let leaving: Vec<Arc<Served>> = leaving.iter().filter_map(Weak::upgrade).collect();
        for served in self.loaded().iter().chain(&leaving) {
            served.scheduler.abort();
        }
    }

    /// Unloads models that nobody has used for so long, again and again.
    pub(crate) async fn sweep(&self, timeout: Duration) {
        let period = LOOK.min(timeout / 2).max(Duration::from_millis(10));
        loop {
            tokio::time::sleep(period).await;
            for entry in self.entries() {
                if entry.idle_since().is_some_and(|since| since.elapsed() >= timeout) {
                    entry.unload_if_idle().await;
                }
            }
        }
    }
}

impl Entry {
    fn served(&self) -> Option<Arc<Served>> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, served: Arc<Served>) {
        *self.described.write().unwrap_or_else(PoisonError::into_inner) = served.describe();
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = Some(served);
    }

    /// Takes the model out if `condition` holds, in which nobody can get hold of it in between.
    fn take(&self, condition: impl FnOnce(&Arc<Served>) -> bool) -> Option<Arc<Served>> {
        let mut place = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let served = place.take_if(|served| condition(served))?;
        self.described.write().unwrap_or_else(PoisonError::into_inner)["loaded"] = json!(false);
        Some(served)
    }

    /// Since when nobody uses it; `None` if somebody does, or if it cannot be brought back.
    fn idle_since(&self) -> Option<Instant> {
        let place = self.served.read().unwrap_or_else(PoisonError::into_inner);
        let served =
            place.as_ref().filter(|served| self.source.is_some() && Arc::strong_count(served) == 1)?;
        Some(*served.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Frees the model's memory, unless somebody has come to use it.
    async fn unload_if_idle(&self) {
        let taken = self.take(|served| Arc::strong_count(served) == 1);
        // The scheduler's thread is waited for, and much memory given back: not here, where others wait.
        let _ = tokio::task::spawn_blocking(move || drop(taken)).await;
    }

    /// The model as `/v1/models` lists it, in memory or as it was.
    pub(crate) fn describe(&self) -> Value {
        self.described.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Served {
    fn new(id: &str, loaded: Loaded, memory: u64) -> akunu::Result<Served> {
        let Loaded { scheduler, template } = loaded;
        let templates = scheduler.model().templates();
        let template = match templates.names().next() {
            _ if template.is_some() => template,
            Some(_) => Some(templates.choose(None, false)?),
            None => None,
        };
        let bytes = std::fs::metadata(scheduler.model().path()).map_or(0, |file| file.len());
        let used = Mutex::new(Instant::now());
        Ok(Served { id: id.to_owned(), scheduler, template, created: unix_time(), bytes, memory, used })
    }

    /// It is being used.
    pub(crate) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn describe(&self) -> Value {
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
            "memory": self.memory,
            "backend": model.backend(),
            "loaded": true,
        })
    }
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Does something that takes time where nobody waits for the thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> akunu::Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(met_a_bug()),
    }
}

fn met_a_bug() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "loading the model met a bug in the server")
}
