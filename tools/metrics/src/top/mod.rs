//! `yonder top`: attaches to a server's metrics and shows them, live or once.
//!
//! [`run`] scrapes; `model` turns two scrapes into rates and rows; `view` draws them on a `screen`, which `terminal`
//! shows, and `plain` writes them as text. Model, view and text are pure, so they are tested without a terminal or a
//! server.

mod model;
mod plain;
mod quantity;
mod screen;
mod terminal;
mod view;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::model::Model;
use self::terminal::Terminal;
use crate::address::{self, AddressError};
use crate::dial::{Shows, dial};
use crate::http;
use crate::scrape::Scrape;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Shortest time between two scrapes of the live view: `top` must not become the load.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest time between two drawings: a terminal that has changed its size is drawn on anew.
const DRAW_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// What `yonder top` is told.
#[derive(Clone, Debug)]
pub struct TopSettings {
    /// Where the server's metrics are: what it was given as `--metrics`.
    pub address: String,
    /// What is shown to a server that asks who looks.
    pub shows: Shows,
    /// Time between two scrapes.
    pub interval: Duration,
    /// Print one text instead of the live view. Also done when standard output is no terminal.
    pub once: bool,
}

/// Why there is nothing to show. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Nobody listens.
    #[error("nothing serves metrics at {address}: start a server with --metrics {address}")]
    Nobody {
        /// As it was typed.
        address: String,
    },
    /// Somebody listens and does not answer in time.
    #[error(
        "no answer from {address} within {TIMEOUT:?}: check that --attach names what the server was given as --metrics"
    )]
    Silent {
        /// As it was typed.
        address: String,
    },
    /// Somebody answers, but not as a server of Yonder.
    #[error(
        "{address} does not answer with Yonder's metrics ({what}): type --attach with the address given as --metrics"
    )]
    Foreign {
        /// As it was typed.
        address: String,
        /// What is wrong with the answer.
        what: String,
    },
    /// Somebody answers, and not this user; or is not trusted.
    #[error("{address} does not show its metrics: {what}")]
    Refused {
        /// As it was typed.
        address: String,
        /// Why, and what to type.
        what: String,
    },
    /// The network fails.
    #[error("cannot reach {address}: {cause}; check the address given as --attach")]
    Unreachable {
        /// As it was typed.
        address: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The terminal fails, or standard output is closed.
    #[error("cannot write to the terminal: {0}; type --once for plain text")]
    Terminal(#[from] io::Error),
}

/// Shows the metrics at `settings.address`: until the user quits, or once, after one interval.
///
/// # Errors
/// If the address is none, or does not answer with Yonder's metrics, or the terminal fails. Once the live view is up, a
/// server that does not answer is reported in the view and asked again.
pub fn run(settings: &TopSettings) -> Result<(), TopError> {
    let target = Target::new(&settings.address, settings.shows.clone())?;
    let stdout = io::stdout();
    if settings.once || !stdout.is_terminal() {
        return once(&target, settings.interval, &mut stdout.lock());
    }
    let model = Model::new(&target.typed, target.scrape()?);
    live(&mut Terminal::open()?, &target, model, settings.interval.max(INTERVAL_MIN))
}

/// Writes one text, with the rates over `interval`.
fn once(target: &Target, interval: Duration, out: &mut impl Write) -> Result<(), TopError> {
    let mut model = Model::new(&target.typed, target.scrape()?);
    let begun = Instant::now();
    std::thread::sleep(interval);
    model.update(target.scrape()?, begun.elapsed());
    out.write_all(plain::text(&model).as_bytes())?;
    Ok(out.flush()?)
}

fn live(terminal: &mut Terminal, target: &Target, mut model: Model, interval: Duration) -> Result<(), TopError> {
    let mut answered = Instant::now();
    let mut next = answered + interval;
    loop {
        terminal.draw(|screen| view::view(screen, &model))?;
        let wait = next.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            if terminal.quits_within(wait.min(DRAW_INTERVAL_MAX))? {
                return Ok(());
            }
            continue;
        }
        match target.scrape() {
            Ok(scrape) => {
                let now = Instant::now();
                model.update(scrape, now - answered);
                answered = now;
            }
            Err(error) => model.fail(error.to_string()),
        }
        next = Instant::now() + interval;
    }
}

/// A server to look at.
#[derive(Clone, Debug)]
pub struct Target {
    address: SocketAddr,
    typed: String,
    shows: Shows,
}

impl Target {
    /// The server with metrics at `address`, which is shown something if it asks.
    ///
    /// # Errors
    /// If that is no address.
    pub fn new(address: &str, shows: Shows) -> Result<Self, AddressError> {
        Ok(Self { address: address::parse(address)?, typed: address.to_owned(), shows })
    }

    /// Its address, as it was typed.
    #[must_use]
    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// What it counts, in Prometheus' format.
    ///
    /// # Errors
    /// If it does not answer in time, or with something else.
    pub fn text(&self) -> Result<String, TopError> {
        self.ask().map(|(text, _)| text)
    }

    fn scrape(&self) -> Result<Scrape, TopError> {
        self.ask().map(|(_, scrape)| scrape)
    }

    /// A text, and what it says.
    fn ask(&self) -> Result<(String, Scrape), TopError> {
        let address = self.typed.clone();
        let deadline = Instant::now() + TIMEOUT;
        let asked = dial(self.address, &self.shows, deadline)
            .and_then(|stream| http::get(&stream, self.address, "/metrics", deadline));
        let text = asked.map_err(|cause| self.failed(cause))?;
        match Scrape::parse(&text) {
            Ok(scrape) => Ok((text, scrape)),
            Err(wrong) => Err(TopError::Foreign { address, what: wrong.to_string() }),
        }
    }

    fn failed(&self, cause: io::Error) -> TopError {
        let address = self.typed.clone();
        match cause.kind() {
            ErrorKind::ConnectionRefused => TopError::Nobody { address },
            ErrorKind::TimedOut => TopError::Silent { address },
            ErrorKind::PermissionDenied => TopError::Refused { address, what: cause.to_string() },
            ErrorKind::InvalidData => TopError::Foreign { address, what: cause.to_string() },
            _ => TopError::Unreachable { address, cause },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::render::tests::full_sample;
    use crate::server::serve;

    fn target(address: SocketAddr) -> Target {
        Target { address, typed: address.to_string(), shows: Shows::Nothing }
    }

    fn settings(address: &str) -> TopSettings {
        TopSettings { address: address.to_owned(), shows: Shows::Nothing, interval: Duration::ZERO, once: true }
    }

    /// What `top` says of a peer that answers every request with `answer`.
    fn said_of(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = target(listener.local_addr().unwrap());
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let request = BufReader::new(&stream).lines().map_while(Result::ok);
            assert!(request.take_while(|line| !line.is_empty()).count() > 0);
            // The other side may hang up before it has read everything.
            let _ = stream.write_all(answer);
        });
        let said = target.scrape().unwrap_err().to_string();
        peer.join().unwrap();
        said.replace(&target.typed, "A:P")
    }

    #[test]
    fn once_prints_what_a_server_serves() {
        let server = serve("127.0.0.1:0", Arc::new(full_sample)).unwrap();
        let mut out = Vec::new();
        once(&target(server.address()), Duration::ZERO, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("resident") && text.contains("39.1 MiB"), "{text}");
    }

    #[test]
    fn nobody_listening() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let settings = settings(&address.to_string());
        let said = run(&settings).unwrap_err().to_string();
        assert_eq!(said, format!("nothing serves metrics at {address}: start a server with --metrics {address}"));
    }

    #[test]
    fn an_address_that_is_none() {
        let settings = settings("here");
        assert!(
            run(&settings).unwrap_err().to_string().starts_with("'here' is not an address: type a host and a port")
        );
    }

    #[test]
    fn peers_that_are_no_server_of_yonder() {
        let foreign = |what| {
            format!(
                "A:P does not answer with Yonder's metrics ({what}): type --attach with the address given as --metrics"
            )
        };
        assert_eq!(said_of(b"ERROR\r\n"), foreign("the answer is not HTTP"));
        assert_eq!(said_of(b"\xff\xfe\x00"), foreign("the answer is not text"));
        assert_eq!(said_of(b"HTTP/1.1 503 Busy\r\n\r\n"), foreign("the answer is 503"));
        assert_eq!(said_of(b"HTTP/1.1 200 OK\r\n\r\n<html>\n"), foreign("line 1 is no metric"));
        assert_eq!(said_of(b"HTTP/1.1 200 OK\r\n\r\nup 1\n"), foreign("it has no metric named yonder_..."));
        static ENDLESS: [u8; 2 << 20] = [b'x'; 2 << 20];
        assert_eq!(said_of(&ENDLESS), foreign("the answer is too long"));
    }

    #[test]
    fn a_peer_that_says_nothing() {
        // The listener's queue accepts the connection; nobody ever reads it.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = target(listener.local_addr().unwrap());
        let said = target.scrape().unwrap_err().to_string();
        assert!(said.starts_with(&format!("no answer from {} within 1s: ", target.typed)), "{said}");
    }
}
