//! [`Server`]: a redis-server that a benchmark has started.
//!
//! What stands before the server's own words, as `yonder run` with its flags, is the benchmark's business. Dropping a
//! server ends it, by its number, with whatever has started it.
//!
//! Neighbours: `del_get` and `redis` fill servers and check what they answer.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use yonder_load::Protocol;

use crate::BenchError;
use crate::children::{Child, free_address, lines_of};
use crate::stock::{self, Client};

/// Requests under way at a time where a server is filled or checked.
pub(crate) const DEPTH: usize = 32;
/// How long a server may take to end.
const END_TIME_MAX: Duration = Duration::from_secs(30);
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// How long the last words of a server that does not work are waited for.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_millis(200);

/// A server without persistence. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// The server itself, where another program has started it.
    pid: Option<Pid>,
    address: SocketAddr,
    said: Receiver<String>,
}

impl Server {
    /// Starts a server behind the words that `command` has, and connects to it.
    pub(crate) fn start(mut command: Command) -> Result<(Self, Client), BenchError> {
        let address = free_address()?;
        command.args(stock::command(Protocol::Redis, address.port()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Child::spawn(&mut command, "redis-server")?;
        let said = lines_of(child.take_stderr().expect("it is piped"))?;
        let mut server = Self { child, pid: None, address, said };
        let stream = server.child.connect(address).map_err(|error| server.complaint(&error))?;
        let mut client = Client::new(Protocol::Redis, stream, Duration::ZERO)?;
        server.pid = i32::try_from(client.info("server", "process_id")?).ok().and_then(Pid::from_raw);
        Ok((server, client))
    }

    /// The port that it serves.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn shut_down(mut self, mut client: Client) -> Result<(), BenchError> {
        client.command(&[b"SHUTDOWN", b"NOSAVE"]);
        client.send()?;
        let give_up = Instant::now() + END_TIME_MAX;
        while self.child.is_running() {
            if Instant::now() > give_up {
                return Err(BenchError::Child("redis-server does not end".to_owned()));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        Ok(())
    }

    /// An error with what the server has said last.
    pub(crate) fn complaint(&self, error: &BenchError) -> BenchError {
        let mut text = error.to_string();
        while let Ok(line) = self.said.recv_timeout(LAST_WORDS_TIME_MAX) {
            text = format!("{text}; it said: {line}");
        }
        BenchError::Child(text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its parent, which still runs, has not let its number go.
        if let Some(pid) = self.pid
            && self.child.is_running()
        {
            // It may have ended in this moment.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
