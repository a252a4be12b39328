//! Connections: how many there may be, and how slow.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::tls::Tls;

/// How long to wait when the system has no connection to give, for want of file descriptors say.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes connections until `stop` comes. What it returns waits for those that are open then.
pub(crate) async fn accept(
    listener: TcpListener,
    router: Router,
    config: &Config,
    tls: Option<&Tls>,
    stop: impl Future<Output = ()>,
) -> GracefulShutdown {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(config.connections));
    let mut stop = std::pin::pin!(stop);
    loop {
        // Whoever finds no place waits in the system's queue.
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = &mut stop => return graceful,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => return graceful,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let router = router.clone().layer(Extension(ConnectInfo::<SocketAddr>(address)));
        let (watcher, tls, head_timeout) = (graceful.watcher(), tls.cloned(), config.head_timeout);
        tokio::spawn(async move {
            greet(stream, tls, router, watcher, head_timeout).await;
            drop(place);
        });
    }
}

async fn greet(
    stream: TcpStream,
    tls: Option<Tls>,
    router: Router,
    watcher: Watcher,
    head_timeout: Duration,
) {
    // Small pieces of text leave at once. Where that cannot be had, they leave a little later.
    let _ = stream.set_nodelay(true);
    let Some(Tls(acceptor)) = tls else { return talk(stream, router, watcher, head_timeout).await };
    // Whoever does not speak TLS, or slowly, is let go.
    if let Ok(Ok(stream)) = tokio::time::timeout(head_timeout, acceptor.accept(stream)).await {
        talk(stream, router, watcher, head_timeout).await;
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    watcher: Watcher,
    head_timeout: Duration,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Errors here are clients that went away or sent what is not HTTP.
    let _ = watcher.watch(connection).await;
}
