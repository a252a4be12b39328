//! The HTTP surface of akunu: OpenAI's interface, Anthropic's and Ollama's over the engine's
//! [`Scheduler`]s, [`Embedder`]s and [`Transcriber`]s.
//!
//! A [`Server`] has a [`Config`] and models; [`Server::run`] answers on a listener until it is told to stop. Requests are read
//! field by field: what would change an answer and is not understood is refused by name, and every refusal has the form the
//! client's interface gives it.
//!
//! ```no_run
//! use akunu::scheduler::{Limits, Scheduler};
//! use akunu::{Model, Options};
//! use akunu_server::{Config, Server};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::load("model.gguf", &Options { sequences: 4, ..Options::default() })?;
//! let server = Server::new(Config::default());
//! server.add("my-model", Scheduler::new(model, &Limits::default())?, None)?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! server.run(listener, std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```

mod anthropic;
mod app;
mod ask;
mod batcher;
mod calls;
mod config;
mod constraints;
mod conversation;
mod disk;
mod error;
mod fields;
mod form;
mod guard;
mod library;
mod listen;
mod log;
mod metrics;
mod models;
mod ollama;
mod openai;
mod openapi;
mod page;
mod rerank;
mod resident;
mod routes;
mod status;
mod thinking;
mod tls;
mod tools;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use akunu::embed::{Embedder, Ranker};
use akunu::scheduler::Scheduler;
use akunu::speech::Transcriber;
use akunu_text::chat::ChatTemplate;
use app::App;
use tokio::net::TcpListener;

pub use config::{Config, Log};
pub use library::{Library, Loaded, Source, Task};
pub use tls::{Tls, TlsError};

/// How long connections have to close once their answers were ended.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Models and how to reach them.
pub struct Server {
    app: Arc<App>,
    tls: Option<Tls>,
}

impl Server {
    /// A server without models.
    pub fn new(config: Config) -> Server {
        Server { app: Arc::new(App::new(config, None)), tls: None }
    }

    /// A server that has its models from a library: it loads them when they are asked for, and unloads them to make room.
    pub fn with_library(config: Config, library: impl Library) -> Server {
        Server { app: Arc::new(App::new(config, Some(Arc::new(library)))), tls: None }
    }

    /// The same, spoken to over TLS alone.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Server {
        Server { tls: Some(tls), ..self }
    }

    /// Adds a model that stays in memory, under an id by which requests name it, with a chat template in place of its own if
    /// one is given.
    pub fn add(&self, id: &str, scheduler: Scheduler, template: Option<ChatTemplate>) -> akunu::Result<()> {
        self.app.models.add(id, Loaded::Writer { scheduler, template })
    }

    /// Adds a model that turns texts into vectors, and stays in memory.
    pub fn add_embedder(&self, id: &str, embedder: Embedder) -> akunu::Result<()> {
        self.app.models.add(id, Loaded::Embedder(embedder))
    }

    /// Adds a model that tells how well texts answer a question, and stays in memory.
    pub fn add_ranker(&self, id: &str, ranker: Ranker) -> akunu::Result<()> {
        self.app.models.add(id, Loaded::Ranker(ranker))
    }

    /// Adds a model that writes down speech, and stays in memory.
    pub fn add_transcriber(&self, id: &str, transcriber: Transcriber) -> akunu::Result<()> {
        self.app.models.add(id, Loaded::Transcriber(Box::new(transcriber)))
    }

    /// Adds a model of the library under an id, and loads it if there is memory for it. False if it will be loaded when
    /// it is first asked for.
    pub fn load(&self, id: &str, source: &Source) -> akunu::Result<bool> {
        self.app.models.load_first(id, source)
    }

    /// Answers until `stop` comes. Answers that are under way then have the configured time to finish, and are ended after it.
    /// An error at once if others can reach the listener and the configuration does not let them, see [`Config::at`].
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> akunu::Result<()> {
        let Server { app, tls } = self;
        if let Ok(address) = listener.local_addr() {
            app.config.check(address.ip())?;
        }
        let sweeper = app.config.idle_timeout.map(|timeout| {
            let models = Arc::clone(&app.models);
            tokio::spawn(async move { models.sweep(timeout).await })
        });
        let open = listen::accept(listener, routes::router(&app), &app.config, tls.as_ref(), stop).await;
        let mut closed = std::pin::pin!(open.shutdown());
        if tokio::time::timeout(app.config.shutdown_grace, &mut closed).await.is_ok() {
            return Ok(());
        }
        if let Some(sweeper) = sweeper {
            sweeper.abort();
        }
        app.models.abort();
        // What does not close by then has no one at its other end.
        let _ = tokio::time::timeout(LAST_MOMENT, closed).await;
        Ok(())
    }
}
