//! A load on a server that is asked by datagrams: [`load`], and what it reports.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use yonder_load::{LatencyRecorder, LatencySummary, Pace, Rate, RequestSource};
use yonder_units::Nanos;

use crate::Protocol;
use crate::loader::{Assignment, Loader, Seen, connected};
use crate::wire::{Assembly, PIECE_BYTES, Piece, REPLY_HEAD, Status, request_head};

/// Of the measured time, the part that comes before it to warm up.
const WARM_UP_PART: u32 = 4;
/// How often a server that does not answer is asked who it is.
const HELLO_EVERY: Duration = Duration::from_millis(100);
/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// What is asked of a load.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadSettings {
    /// Where the server listens: host and port.
    pub target: String,
    /// Offered load.
    pub rate: Rate,
    /// Measured time; a warm-up of a quarter of it comes before.
    pub duration: Duration,
    /// Threads that ask, each with a socket of its own.
    pub threads: usize,
    /// Requests on their way at a time, over all threads: what a closed loop keeps, and what an open loop may reach.
    pub window: usize,
    /// How long an answer is waited for before it counts as lost.
    pub patience: Duration,
}

/// Why a load failed. Every text is one line that says what is wrong and, where it helps, what to type.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The target is not an address.
    #[error("'{target}' is not an address: type --target HOST:PORT, such as 127.0.0.1:11311")]
    BadTarget {
        /// As typed.
        target: String,
    },
    /// Nobody says who listens at the target.
    #[error("nothing answers at udp {target}: start `yonder serve {app} --listen {target} ...` first")]
    NothingAnswers {
        /// Host and port.
        target: String,
        /// Which application is wanted.
        app: &'static str,
    },
    /// No request was answered in the measured time.
    #[error("the server at udp {target} has answered none of {lost} requests in {patience:?}")]
    ServerGone {
        /// Host and port.
        target: String,
        /// Requests that were not answered.
        lost: u64,
        /// How long each was waited for.
        patience: Duration,
    },
    /// The server's answers cannot be right.
    #[error("{count} wrong answers came back")]
    WrongAnswers {
        /// How many.
        count: u64,
    },
    /// This machine refused something the load needs.
    #[error("the load cannot run on this machine: {0}")]
    System(#[from] io::Error),
}

/// What a load has seen; the fields are a contract with scripts. Times are in microseconds, from the intended start of
/// a request until the last datagram of its answer.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The application.
    pub load: &'static str,
    /// Host and port of the server.
    pub target: String,
    /// Offered load in requests per second; absent in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Requests on their way at a time.
    pub window: usize,
    /// Measured seconds.
    pub seconds: f64,
    /// Requests answered per second of the measured time.
    pub ops_per_s: f64,
    /// Median latency of all requests.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// By kinds of requests. What was lost counts as of the first kind, with the time that was waited.
    pub kinds: BTreeMap<&'static str, LatencySummary>,
    /// Requests that were not sent: too many were on their way.
    pub dropped: u64,
    /// Requests without an answer.
    pub lost: u64,
    /// Requests that the server has refused or could not answer.
    pub failed: u64,
    /// What it said of the first of them.
    pub first_failure: Option<String>,
}

/// Asks the server at `target` who it is, until it answers or `patience` is over.
///
/// # Errors
/// If the target is no address, or nobody answers; `app` is what is hoped for.
pub fn hello(target: &str, app: &'static str, patience: Duration) -> Result<(SocketAddr, String), LoadError> {
    let bad_target = || LoadError::BadTarget { target: target.to_owned() };
    let server = target.to_socket_addrs().ok().and_then(|mut all| all.next()).ok_or_else(bad_target)?;
    let socket = connected(server)?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(HELLO_EVERY))?;
    let start = Instant::now();
    let (id, mut token) = (std::process::id().into(), 0);
    while start.elapsed() < patience {
        let sent = Instant::now();
        match socket.send(&request_head(id, token)).ok().and_then(|_| receive(&socket, id)) {
            Some(Said::Text(text)) => return Ok((server, text)),
            // Asked again at once.
            Some(Said::Prove(new)) => {
                token = new;
                continue;
            }
            None => {}
        }
        // Refused at once: somebody may be about to listen.
        std::thread::sleep(HELLO_EVERY.saturating_sub(sent.elapsed()));
    }
    Err(LoadError::NothingAnswers { target: target.to_owned(), app })
}

/// What a server that is asked who it is says.
enum Said {
    Text(String),
    /// Nothing before it is asked with this token.
    Prove(u64),
}

/// The reply to request `id`, a single datagram.
fn receive(socket: &UdpSocket, id: u64) -> Option<Said> {
    let mut datagram = [0; REPLY_HEAD + PIECE_BYTES];
    let bytes = socket.recv(&mut datagram).ok()?;
    let piece = Piece::of(&datagram[..bytes]).filter(|piece| piece.id == id)?;
    if let Some(token) = piece.token() {
        return Some(Said::Prove(token));
    }
    match Assembly::default().take(piece)? {
        (Status::Answer, text) => String::from_utf8(text).ok().map(Said::Text),
        _ => None,
    }
}

/// Loads the server at `server` with the requests of the source that `source` makes for each thread. `progress` is told
/// the share of the time that is over.
///
/// # Errors
/// If this machine refuses sockets or threads, an answer is wrong, or nothing is answered at all.
///
/// # Panics
/// If the duration or the number of threads is zero.
pub fn load<P, Q>(
    app: &'static str,
    settings: &LoadSettings,
    server: SocketAddr,
    source: impl Fn(usize) -> Q,
    progress: &mut dyn FnMut(f64),
) -> Result<LoadReport, LoadError>
where
    P: Protocol,
    Q: RequestSource<Request = P::Request, Answer = P::Answer> + Send,
{
    let LoadSettings { rate, duration, threads, window, patience, .. } = *settings;
    assert!(!duration.is_zero() && threads > 0, "{threads} threads for {duration:?}");
    let warm_up = (duration / WARM_UP_PART).as_nanos() as Nanos;
    let measured = warm_up..warm_up + duration.as_nanos() as Nanos;
    let start = Instant::now();
    let loader = |thread: usize| {
        let assignment = Assignment {
            pace: Pace::new(rate, threads, 7 + thread as u64),
            window: (window * (thread + 1) / threads - window * thread / threads).max(1),
            measured: measured.clone(),
            patience: patience.as_nanos() as Nanos,
        };
        Loader::<P, Q>::new(assignment, source(thread), server, start)
    };
    let loaders = (0..threads).map(loader).collect::<io::Result<Vec<_>>>()?;
    let mut seen = Seen::new(Q::KINDS.len());
    std::thread::scope(|scope| {
        let (at_work, none_at_work) = channel::<()>();
        let threads: Vec<_> = loaders
            .into_iter()
            .map(|loader| {
                let at_work = at_work.clone();
                scope.spawn(move || {
                    let _at_work = at_work;
                    loader.run()
                })
            })
            .collect();
        drop(at_work);
        while none_at_work.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
            progress(start.elapsed().as_nanos() as f64 / measured.end as f64);
        }
        threads.into_iter().try_for_each(|thread| {
            seen.merge(thread.join().expect("a loading thread does not panic")?);
            Ok::<(), io::Error>(())
        })
    })?;
    if seen.wrong > 0 {
        return Err(LoadError::WrongAnswers { count: seen.wrong });
    }
    if seen.answered + seen.failed == 0 {
        return Err(LoadError::ServerGone { target: settings.target.clone(), lost: seen.lost, patience });
    }
    Ok(report::<Q>(app, settings, seen))
}

fn report<Q: RequestSource>(app: &'static str, settings: &LoadSettings, seen: Seen) -> LoadReport {
    let mut all = LatencyRecorder::new();
    seen.latency.iter().for_each(|kind| all.merge(kind));
    let seconds = settings.duration.as_secs_f64();
    LoadReport {
        load: app,
        target: settings.target.clone(),
        offered_per_s: match settings.rate {
            Rate::Max => None,
            Rate::PerSecond(rate) => Some(rate),
        },
        window: settings.window,
        seconds,
        ops_per_s: seen.answered as f64 / seconds,
        p50_us: all.percentile_us(50.0),
        p99_us: all.percentile_us(99.0),
        p999_us: all.percentile_us(99.9),
        kinds: Q::KINDS.iter().copied().zip(seen.latency.iter().map(LatencyRecorder::summary)).collect(),
        dropped: seen.dropped,
        lost: seen.lost,
        failed: seen.failed,
        first_failure: seen.first_failure,
    }
}
