//! [`serve`]: answers `GET /metrics`, and browsers with a page, on a thread of its own; [`bind`] first takes the
//! address.
//!
//! All clients are served at once and none is waited for: each has `TIMEOUT` for its one request, and of more than
//! `CLIENTS_MAX` the one that has been there for longest goes. So silent and slow ones hold up no other, and the
//! endpoint costs one thread and some kilobytes for each client, whatever its clients do. The thread ends with its stop
//! socket, whose other end the [`MetricsServer`] holds.
//!
//! A server with a credential asks who looks, as any HTTPS server that wants certificates of its clients: operators,
//! and the server's own member, see what it counts. Of too many clients those go first who have not shown who they are.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing::{debug, warn};
use yonder_identity::{Credential, Peer, Role, ServerEnd};

use crate::address::{self, AddressError};
use crate::connection::{Connection, Going, Visitor};
use crate::http::{self, Request, Status};
use crate::page;
use crate::render::render;
use crate::sample::Source;
use crate::window::Window;

/// How long one client may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Clients at a time.
const CLIENTS_MAX: usize = 32;
/// How long to wait after a client could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// What is said of any other path.
const NOT_HERE: &str = "GET /metrics is here, and a page for browsers at GET /.\n";

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address cannot be listened on.
    #[error("cannot serve metrics on {address}: {cause}; type --metrics with a free port, such as 127.0.0.1:0 for any")]
    Listen {
        /// As it was typed.
        address: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread for metrics: {0}; raise the limit of threads (ulimit -u)")]
    Thread(io::Error),
}

/// A running endpoint. Dropping it stops it, at once or when the sample that is being taken is there.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Where it listens, with the port that was chosen if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the source has been reported by the panic hook; the server that is ending needs no metrics.
            let _ = thread.join();
        }
    }
}

/// A bound endpoint that nothing is answered at yet: what takes rights may be given up before threads are made.
#[derive(Debug)]
pub struct BoundMetrics {
    address: SocketAddr,
    listener: TcpListener,
    stop: UnixStream,
    stopped: UnixStream,
}

/// Binds `address` (`A:P`; port 0 takes any free port).
///
/// # Errors
/// If `address` is none or cannot be listened on.
pub fn bind(address: &str) -> Result<BoundMetrics, MetricsError> {
    let typed = address;
    let refused = |cause| MetricsError::Listen { address: typed.to_owned(), cause };
    let listener = TcpListener::bind(address::parse(typed)?).map_err(refused)?;
    // A client may be gone between poll and accept; accept must not wait for the next one then.
    listener.set_nonblocking(true).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let (stop, stopped) = UnixStream::pair().map_err(refused)?;
    Ok(BoundMetrics { address, listener, stop, stopped })
}

impl BoundMetrics {
    /// Serves samples of `source` as Prometheus text on `GET /metrics`, and the page, until the result is dropped. With
    /// a credential over TLS, to members of its cluster that may see them.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn serve(
        self,
        source: Arc<dyn Source>,
        credential: Option<Arc<Credential>>,
    ) -> Result<MetricsServer, MetricsError> {
        let Self { address, listener, stop, stopped } = self;
        let service = Service { listener, stopped, endpoint: Endpoint::new(source, credential), clients: Vec::new() };
        let thread = std::thread::Builder::new()
            .name("yonder-metrics".to_owned())
            .spawn(move || service.run())
            .map_err(MetricsError::Thread)?;
        debug!(%address, "serving metrics");
        Ok(MetricsServer { address, stop: Some(stop), thread: Some(thread) })
    }
}

/// [`bind`], and then [`BoundMetrics::serve`] to all who can reach it.
///
/// # Errors
/// Of both.
pub fn serve(address: &str, source: Arc<dyn Source>) -> Result<MetricsServer, MetricsError> {
    bind(address)?.serve(source, None)
}

/// What is answered.
struct Endpoint {
    source: Arc<dyn Source>,
    credential: Option<Arc<Credential>>,
    window: Window,
    started: Instant,
}

impl Endpoint {
    fn new(source: Arc<dyn Source>, credential: Option<Arc<Credential>>) -> Self {
        Self { source, credential, window: Window::default(), started: Instant::now() }
    }

    fn answer(&mut self, visitor: &Visitor, request: Request) -> Vec<u8> {
        match (visitor, request) {
            (_, Request::Bad) => http::answer(Status::BadRequest, "Ask for GET /metrics.\n"),
            (Visitor::Nameless, _) => http::answer(
                Status::Forbidden,
                "it asks who you are: type --identity FILE or --key FILE, or ask https with a certificate\n",
            ),
            (Visitor::Member(peer), _) if !self.may_see(peer) => {
                let reason = format!("it shows them to operators, and not to {peer}: use an operator's identity\n");
                http::answer(Status::Forbidden, &reason)
            }
            (_, Request::Get(path)) if path == "/metrics" => http::answer(Status::Ok, &self.text()),
            (_, Request::Get(path)) => match page::file(&path) {
                Some(file) => http::page(file),
                None => http::answer(Status::NotFound, NOT_HERE),
            },
            (_, Request::Other) => http::answer(Status::NotFound, NOT_HERE),
        }
    }

    /// Whether a member may see what this server counts of others: those who run the cluster, and the one who has the
    /// server's own identity.
    fn may_see(&self, peer: &Peer) -> bool {
        let itself = self.credential.as_ref().map(|credential| credential.itself());
        let is_itself = itself.is_some_and(|own| own.role() == peer.role() && own.name() == peer.name());
        peer.has(Role::Operator) || is_itself
    }

    fn text(&mut self) -> String {
        let sample = self.source.sample();
        let recent = self.window.recent(self.started.elapsed(), sample.stages());
        render(&sample, &recent)
    }
}

/// What the thread owns.
struct Service {
    listener: TcpListener,
    stopped: UnixStream,
    endpoint: Endpoint,
    /// The oldest first.
    clients: Vec<Connection>,
}

impl Service {
    fn run(mut self) {
        let mut pause = None;
        while let Some(ready) = self.wait(pause.take()) {
            self.step(&ready.clients);
            if ready.listener {
                pause = self.accept();
            }
        }
    }

    /// Waits until there is something to do; `None` if that is to end. After a `pause` for those that are accepted
    /// next.
    fn wait(&self, pause: Option<Duration>) -> Option<Ready> {
        let mut events = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        events.extend(self.clients.iter().map(|client| PollFd::new(&client.socket, client.awaits())));
        if pause.is_none() {
            events.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let now = Instant::now();
        let until = self.clients.iter().map(|client| client.deadline.saturating_duration_since(now)).chain(pause).min();
        let timeout = until.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut events, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                warn!(%error, "metrics are no longer served");
                return None;
            }
        }
        let mut is_ready = events.iter().map(|event| !event.revents().is_empty());
        if is_ready.next() == Some(true) {
            return None;
        }
        let clients = is_ready.by_ref().take(self.clients.len()).collect();
        Some(Ready { clients, listener: is_ready.next() == Some(true) })
    }

    /// Does what can be done for the clients that are ready, and lets go those that are done or late.
    fn step(&mut self, is_ready: &[bool]) {
        let Self { endpoint, clients, .. } = self;
        let (now, mut is_ready) = (Instant::now(), is_ready.iter());
        clients.retain_mut(|client| {
            let going = match is_ready.next() {
                Some(true) => client.step(|visitor, request| endpoint.answer(&visitor, request)),
                _ => Ok(Going::On),
            };
            match going {
                Ok(going) => going == Going::On && now < client.deadline,
                Err(error) => {
                    debug!(%error, "a client of metrics failed");
                    false
                }
            }
        });
    }

    /// Accepts a client. How long to wait before the next, if the system could not.
    fn accept(&mut self) -> Option<Duration> {
        let accepted = self.listener.accept().and_then(|(socket, _)| socket.set_nonblocking(true).map(|()| socket));
        match accepted {
            Ok(socket) => {
                let end = match self.endpoint.credential.as_deref().map(ServerEnd::new).transpose() {
                    Ok(end) => end,
                    Err(error) => {
                        debug!(%error, "a client of metrics was not let in");
                        return None;
                    }
                };
                if self.clients.len() >= CLIENTS_MAX {
                    let goes = self.clients.iter().position(|client| !client.is_known()).unwrap_or(0);
                    self.clients.remove(goes);
                }
                self.clients.push(Connection::new(socket, end, Instant::now() + TIMEOUT));
                None
            }
            // It is gone again.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
            Err(error) => {
                // Out of descriptors, most likely: the client stays queued, so accepting again at once would spin.
                warn!(%error, "a client of metrics was not accepted");
                Some(PAUSE)
            }
        }
    }
}

/// What a wait has found to do.
struct Ready {
    clients: Vec<bool>,
    listener: bool,
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};

    use super::*;
    use crate::dial::{Shows, dial};
    use crate::names;
    use crate::render::tests::full_sample;
    use crate::sample::{Extra, ExtraKind, Sample};
    use crate::scrape::Scrape;

    fn running() -> MetricsServer {
        serve("127.0.0.1:0", Arc::new(full_sample)).unwrap()
    }

    fn get(address: SocketAddr, path: &str, timeout: Duration) -> io::Result<String> {
        get_as(address, path, timeout, &Shows::Nothing)
    }

    fn get_as(address: SocketAddr, path: &str, timeout: Duration, shows: &Shows) -> io::Result<String> {
        let deadline = Instant::now() + timeout;
        http::get(&dial(address, shows, deadline)?, address, path, deadline)
    }

    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_scrape_gets_the_sample() {
        let server = running();
        let text = get(server.address(), "/metrics", TIMEOUT).unwrap();
        assert_eq!(Scrape::parse(&text).unwrap().value(names::MAJOR_FAULTS), Some(1_000.0));
        let answer = exchange(server.address(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{answer}");
    }

    #[test]
    fn a_browser_gets_the_page_and_may_do_nothing_else_with_it() {
        let server = running();
        for file in &page::FILES {
            assert_eq!(get(server.address(), file.path, TIMEOUT).unwrap(), file.text, "{}", file.path);
        }
        let answer = exchange(server.address(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html"), "{answer}");
        assert!(answer.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{answer}");
    }

    #[test]
    fn anything_else_gets_an_error_and_hurts_nobody() {
        let server = running();
        let not_found = get(server.address(), "/page/none.js", TIMEOUT).unwrap_err();
        assert_eq!(not_found.to_string(), "the answer is 404");
        let huge = b"POST /metrics HTTP/1.1\r\nContent-Length: 140737488355328\r\n\r\n";
        assert!(exchange(server.address(), huge).starts_with("HTTP/1.1 404 "));
        assert!(exchange(server.address(), b"\x16\x03\x01 garbage\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let gone = TcpStream::connect(server.address()).unwrap();
        gone.shutdown(Shutdown::Both).unwrap();
        assert!(get(server.address(), "/metrics", TIMEOUT * 3).is_ok());
    }

    #[test]
    fn silent_clients_and_one_that_drips_do_not_keep_others_off() {
        let server = running();
        let connect = || TcpStream::connect(server.address()).unwrap();
        let _silent: Vec<_> = (0..50).map(|_| connect()).collect();
        let mut dripping = connect();
        for byte in b"GET /" {
            // Nor is it served for longer than its time.
            let _ = dripping.write_all(&[*byte]);
            get(server.address(), "/metrics", TIMEOUT).unwrap();
        }
    }

    #[test]
    fn slow_readers_do_not_keep_others_off() {
        // More than the sockets of both sides hold.
        let help: &'static str = "x".repeat(16 << 20).leak();
        let long = Extra::new("yonder_kv_items", ExtraKind::Gauge, 1, help);
        let sample = move || Sample { extra: vec![long.clone()], ..Sample::default() };
        let server = serve("127.0.0.1:0", Arc::new(sample)).unwrap();
        let ask = |_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream
        };
        let slow: Vec<_> = (0..5).map(ask).collect();
        // Its answer has begun.
        assert!(slow[0].peek(&mut [0; 4]).unwrap() > 0);
        let other = get(server.address(), "/none", TIMEOUT).unwrap_err();
        assert_eq!(other.to_string(), "the answer is 404");
    }

    #[test]
    fn a_client_has_its_time_and_no_more() {
        let server = running();
        let mut streams = [(); 2].map(|()| TcpStream::connect(server.address()).unwrap());
        streams[1].write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        for stream in &mut streams {
            stream.set_read_timeout(Some(TIMEOUT * 20)).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "the server hangs up");
        }
    }

    #[test]
    fn of_too_many_clients_the_oldest_go() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = UnixStream::pair().unwrap();
        let endpoint = Endpoint::new(Arc::new(full_sample), None);
        let mut service = Service { listener, stopped, endpoint, clients: Vec::new() };
        let clients: Vec<_> = (0..CLIENTS_MAX + 3).map(|_| TcpStream::connect(address).unwrap()).collect();
        for _ in &clients {
            assert!(service.wait(None).unwrap().listener);
            assert_eq!(service.accept(), None);
        }
        let kept: Vec<_> = service.clients.iter().map(|client| client.socket.peer_addr().unwrap()).collect();
        let latest: Vec<_> = clients[3..].iter().map(|client| client.local_addr().unwrap()).collect();
        assert_eq!(kept, latest);
    }

    #[test]
    fn dropping_it_frees_the_address() {
        let server = running();
        let address = server.address();
        drop(server);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_bad_address_says_what_to_type() {
        let said = |address: &str| serve(address, Arc::new(full_sample)).unwrap_err().to_string();
        assert_eq!(said("nowhere"), "'nowhere' is not an address: type a host and a port, such as 127.0.0.1:9185");
        let server = running();
        let taken = said(&server.address().to_string());
        assert!(taken.starts_with(&format!("cannot serve metrics on {}: ", server.address())), "{taken}");
        assert!(taken.ends_with("; type --metrics with a free port, such as 127.0.0.1:0 for any"), "{taken}");
    }
}
