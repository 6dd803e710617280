//! [`serve`]: the page, looks and changes over HTTP, on a thread of its own.
//!
//! The thread has a runtime of its own and only passes requests on; what waits for servers and processes waits on
//! another thread of the runtime, one at a time, so nobody who asks keeps the page from others.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;
use tokio::sync::oneshot;
use yonder_metrics::page;

use crate::guard::{Guard, Stranger, reachable};
use crate::listener::Listener;
use crate::look::{Change, Folders, Looker, WatchedServer};

/// Longest request for a change, in bytes.
const CHANGE_BYTES_MAX: usize = 2 << 10;

/// What is shown, and where.
pub struct WebSettings {
    /// Where browsers find it. Port 0 takes any that is free.
    pub address: String,
    /// A server with metrics, if one is looked at.
    pub server: Option<WatchedServer>,
    /// Where processes are asked.
    pub folders: Folders,
}

/// Why there is no page. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The address cannot be listened on.
    #[error("cannot serve the page on {address}: {cause}; type --web with a free port, such as 127.0.0.1:0 for any")]
    Listen {
        /// As it was typed.
        address: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The system has no thread or no random numbers for it.
    #[error("cannot start the page: {0}; raise the limit of threads (ulimit -u)")]
    Start(io::Error),
}

/// A running page. Dropping it ends it.
#[derive(Debug)]
pub struct WebServer {
    address: SocketAddr,
    url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WebServer {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open, with the key.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the panic hook, and there is nothing to do about it here.
            let _ = thread.join();
        }
    }
}

/// Serves the page until the result is dropped.
///
/// # Errors
/// If the address cannot be listened on, or the thread cannot be started.
pub fn serve(settings: WebSettings) -> Result<WebServer, WebError> {
    let WebSettings { address: typed, server, folders } = settings;
    let refused = |cause| WebError::Listen { address: typed.clone(), cause };
    let listener = TcpListener::bind(&typed).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let guard = Guard::new(address).map_err(WebError::Start)?;
    let url = format!("http://{}/#key={}", reachable(address), guard.key());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(1)
        .thread_name("yonder-web-look")
        .build()
        .map_err(WebError::Start)?;
    let shared = Arc::new(Shared { guard, looker: Mutex::new(Looker::new(server, folders)), page: page::for_top() });
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        runtime.block_on(answer_until(stopped, listener, shared));
        // A process that is being asked just now may take its time, which nobody waits for any more.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("yonder-web".to_owned()).spawn(run).map_err(WebError::Start)?;
    Ok(WebServer { address, url, stop: Some(stop), thread: Some(thread) })
}

async fn answer_until(stopped: oneshot::Receiver<()>, listener: TcpListener, shared: Arc<Shared>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => Listener::new(listener),
        Err(error) => return tracing::warn!(%error, "the page is not served"),
    };
    let serving = axum::serve(listener, router(shared));
    tokio::select! {
        ended = serving.into_future() => tracing::warn!(?ended, "the page is no longer served"),
        _ = stopped => {}
    }
}

/// Everything that answers share.
struct Shared {
    guard: Guard,
    looker: Mutex<Looker>,
    page: String,
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/api/look", get(look))
        .route("/api/set", post(set))
        .fallback(file)
        .layer(DefaultBodyLimit::max(CHANGE_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&shared), admit))
        .with_state(shared)
}

/// Turns away who may not ask, and says to browsers what they must not do with what is answered.
async fn admit(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let head = request.headers();
    let admitted = match request.uri().path() {
        "/api/look" => shared.guard.admit_to_look(head),
        path if path.starts_with("/api/") => shared.guard.admit_to_change(head),
        _ => shared.guard.admit(head),
    };
    let mut response = match admitted {
        Ok(()) => next.run(request).await,
        Err(stranger) => turned_away(stranger),
    };
    let head = response.headers_mut();
    for (name, value) in page::HEADERS {
        head.insert(name, HeaderValue::from_static(value));
    }
    head.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Answers a path that is a file of the page.
async fn file(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path();
    match page::file(path) {
        Some(file) if request.method() == "GET" || request.method() == "HEAD" => {
            let text = if path == "/" { shared.page.clone() } else { file.text.to_owned() };
            answer(StatusCode::OK, file.kind, text)
        }
        _ => failed(StatusCode::NOT_FOUND, "there is no such file: open /"),
    }
}

async fn look(State(shared): State<Arc<Shared>>) -> Response {
    match waits(shared, Looker::look).await {
        Some(text) => answer(StatusCode::OK, JSON, text),
        None => failed(StatusCode::INTERNAL_SERVER_ERROR, "the look has failed: start yonder top again"),
    }
}

async fn set(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let Ok(change) = serde_json::from_slice::<Change>(&body) else {
        return failed(StatusCode::BAD_REQUEST, "a change has an id, a name and a value");
    };
    match waits(shared, move |looker| looker.set(&change)).await {
        Some(Ok(changed)) => json(StatusCode::OK, &changed),
        Some(Err(why)) => failed(StatusCode::BAD_REQUEST, &why),
        None => failed(StatusCode::INTERNAL_SERVER_ERROR, "the change has failed: start yonder top again"),
    }
}

/// What a looker answers, on a thread that may wait; `None` if it has panicked.
async fn waits<T: Send + 'static>(
    shared: Arc<Shared>,
    ask: impl FnOnce(&mut Looker) -> T + Send + 'static,
) -> Option<T> {
    let asks = move || ask(&mut shared.looker.lock().unwrap_or_else(PoisonError::into_inner));
    tokio::task::spawn_blocking(asks).await.ok()
}

const JSON: &str = "application/json";

#[derive(Serialize)]
struct Failed<'a> {
    error: &'a str,
}

fn turned_away(stranger: Stranger) -> Response {
    failed(stranger.status(), stranger.why())
}

fn failed(status: StatusCode, error: &str) -> Response {
    json(status, &Failed { error })
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    answer(status, JSON, serde_json::to_string(value).expect("names are texts"))
}

fn answer(status: StatusCode, kind: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
