//! The HTTP server, in a thread of the program.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread::JoinHandle;

use akunu::Scheduler;
use akunu::scheduler::Limits;
use akunu_server::{Config, Server as Http};
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::errors::{OrRaise, usage};
use crate::model::Model;

/// Serves a model over HTTP, with the interfaces of OpenAI, Anthropic and Ollama, until it is stopped or let go of. Port 0 takes
/// one that is free. As many requests run together as the model has sequences; others wait. Clients show `api_key`, where one is
/// set; an address that others can reach needs one, or `allow_public`.
///
/// >>> with akunu.Server(model, name="tiny") as server:
/// ...     body = urllib.request.urlopen(server.url + "/v1/models").read()
/// >>> "tiny" in body.decode()
/// True
#[pyclass(frozen, module = "akunu")]
pub(crate) struct Server {
    address: SocketAddr,
    running: Mutex<Option<Running>>,
}

struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (model, *, name, host="127.0.0.1", port=0, queue=64, api_key=None, allow_public=false))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        model: &Bound<'_, Model>,
        name: &str,
        host: &str,
        port: u16,
        queue: usize,
        api_key: Option<String>,
        allow_public: bool,
    ) -> PyResult<Server> {
        if api_key.as_ref().is_some_and(String::is_empty) {
            return Err(usage("api_key is empty"));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = py.detach(|| runtime.block_on(tokio::net::TcpListener::bind((host, port))))?;
        let address = listener.local_addr()?;
        // The model belongs to the program: clients cannot unload it.
        let config = Config {
            keys: api_key.into_iter().collect(),
            allow_public,
            manage_models: false,
            ..Config::default()
        };
        let config = config.at(address.ip()).map_err(|_| {
            usage(&format!("{host} can be reached by others: give an api_key, or say allow_public=True"))
        })?;
        let limits = Limits { queue, ..Limits::default() };
        let scheduler = Scheduler::new(model.get().model.clone(), &limits).or_raise()?;
        let http = Http::new(config);
        http.add(name, scheduler, None).or_raise()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("akunu server".to_owned()).spawn(move || {
            // What could be wrong with the address was said above.
            let _ = runtime.block_on(http.run(listener, async {
                // An error means that nobody is left to stop it: the same.
                let _ = stopped.await;
            }));
        })?;
        Ok(Server { address, running: Mutex::new(Some(Running { stop, thread })) })
    }

    /// Where it answers, such as "http://127.0.0.1:8080".
    #[getter]
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it, when the answers that are under way are complete.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(mut running) = self.running.try_lock() else {
            return Err(usage("another thread is stopping this server"));
        };
        let Some(running) = running.take() else { return Ok(()) };
        py.detach(|| {
            // A server that ended by itself listens no more.
            let _ = running.stop.send(());
            let _ = running.thread.join();
        });
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.stop(py)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(Some(running)) = self.running.get_mut().map(Option::take) {
            let _ = running.stop.send(());
        }
    }
}
