//! [`serve`]: answers `GET /metrics` on a thread of its own.
//!
//! One client is served at a time, within `TIMEOUT`, so the endpoint costs one thread and a few kilobytes whatever
//! its clients do. The thread waits for a client or for the end of its stop socket, whose other end the
//! [`MetricsServer`] holds.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing::{debug, warn};

use crate::address::{self, AddressError};
use crate::http::{self, Request, Status};
use crate::render::render;
use crate::sample::Source;
use crate::window::Window;

/// How long one client may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after a client could not be accepted.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

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

/// A running endpoint. Dropping it stops it: at once, or when the client being served is done, a second at most.
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

/// Serves samples of `source` as Prometheus text on `GET /metrics` at `address` (`A:P`; port 0 takes any free port)
/// until the result is dropped.
///
/// # Errors
/// If `address` is none or cannot be listened on, or no thread can be started.
pub fn serve(address: &str, source: Arc<dyn Source>) -> Result<MetricsServer, MetricsError> {
    let typed = address;
    let refused = |cause| MetricsError::Listen { address: typed.to_owned(), cause };
    let listener = TcpListener::bind(address::parse(typed)?).map_err(refused)?;
    // A client may be gone between poll and accept; accept must not wait for the next one then.
    listener.set_nonblocking(true).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let (stop, stopped) = UnixStream::pair().map_err(refused)?;
    let endpoint = Endpoint { source, window: Window::default(), started: Instant::now() };
    let thread = std::thread::Builder::new()
        .name("yonder-metrics".to_owned())
        .spawn(move || endpoint.run(&listener, &stopped))
        .map_err(MetricsError::Thread)?;
    debug!(%address, "serving metrics");
    Ok(MetricsServer { address, stop: Some(stop), thread: Some(thread) })
}

/// What the thread owns.
struct Endpoint {
    source: Arc<dyn Source>,
    window: Window,
    started: Instant,
}

impl Endpoint {
    fn run(mut self, listener: &TcpListener, stopped: &UnixStream) {
        loop {
            let mut events = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
            match poll(&mut events, None) {
                Ok(_) if !events[1].revents().is_empty() => return,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => {
                    warn!(%error, "metrics are no longer served");
                    return;
                }
            }
            match listener.accept() {
                Ok((stream, peer)) => {
                    if let Err(error) = self.answer(stream) {
                        debug!(%peer, %error, "a client of metrics failed");
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    // Out of descriptors, most likely: the client stays queued, so accepting again at once would spin.
                    warn!(%error, "a client of metrics was not accepted");
                    let _ = poll(&mut [PollFd::new(stopped, PollFlags::IN)], Some(&PAUSE));
                }
            }
        }
    }

    fn answer(&mut self, mut stream: TcpStream) -> io::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        stream.set_nonblocking(false)?;
        match http::read_request(&mut stream, deadline) {
            Ok(Request::Get(path)) if path == "/metrics" => {
                let text = self.text();
                http::write_answer(&mut stream, Status::Ok, &text, deadline)
            }
            Ok(_) => http::write_answer(&mut stream, Status::NotFound, "Only GET /metrics is here.\n", deadline),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                http::write_answer(&mut stream, Status::BadRequest, "Ask for GET /metrics.\n", deadline)
            }
            Err(error) => Err(error),
        }
    }

    fn text(&mut self) -> String {
        let sample = self.source.sample();
        let recent = self.window.recent(self.started.elapsed(), sample.stages());
        render(&sample, &recent)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    use super::*;
    use crate::names;
    use crate::render::tests::full_sample;
    use crate::scrape::Scrape;

    fn running() -> MetricsServer {
        serve("127.0.0.1:0", Arc::new(full_sample)).unwrap()
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
        let text = http::get(server.address(), "/metrics", TIMEOUT).unwrap();
        assert_eq!(Scrape::parse(&text).unwrap().value(names::MAJOR_FAULTS), Some(1_000.0));
        let answer = exchange(server.address(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{answer}");
    }

    #[test]
    fn anything_else_gets_an_error_and_hurts_nobody() {
        let server = running();
        let not_found = http::get(server.address(), "/", TIMEOUT).unwrap_err();
        assert_eq!(not_found.to_string(), "the answer is 404");
        let huge = b"POST /metrics HTTP/1.1\r\nContent-Length: 140737488355328\r\n\r\n";
        assert!(exchange(server.address(), huge).starts_with("HTTP/1.1 404 "));
        assert!(exchange(server.address(), b"\x16\x03\x01 garbage\r\n\r\n").starts_with("HTTP/1.1 400 "));
        let gone = TcpStream::connect(server.address()).unwrap();
        gone.shutdown(Shutdown::Both).unwrap();
        assert!(http::get(server.address(), "/metrics", TIMEOUT * 3).is_ok());
    }

    #[test]
    fn a_silent_client_does_not_keep_others_off() {
        let server = running();
        let _silent = TcpStream::connect(server.address()).unwrap();
        assert!(http::get(server.address(), "/metrics", TIMEOUT * 5).is_ok());
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
