//! [`Server`]: a redis-server that a benchmark has started; [`Client`]: a connection to it, with many requests under
//! way at a time.
//!
//! What stands before the server's own words, as `yonder run` with its flags, is the benchmark's business. Dropping a
//! server ends it, by its number, with whatever has started it.
//!
//! Neighbours: `del_get` and `redis` fill servers and check what they answer; `programs` has a client of its own, which
//! measures each get.

use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::BenchError;
use crate::children::{Child, lines_of};

/// Requests under way at a time.
const DEPTH: usize = 32;
/// Room for replies.
const ROOM_BYTES: usize = 256 << 10;
/// How long an answer may take. It only decides when a hang is called one.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
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
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        command.args(["redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
        command.args(["--port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Child::spawn(&mut command, "redis-server")?;
        let said = lines_of(child.take_stderr().expect("it is piped"))?;
        let mut server = Self { child, pid: None, address: (Ipv4Addr::LOCALHOST, port).into(), said };
        let stream = server.child.connect(server.address).map_err(|error| server.complaint(&error))?;
        let mut client = Client::new(stream)?;
        server.pid = i32::try_from(client.info("server", "process_id")?).ok().and_then(Pid::from_raw);
        Ok((server, client))
    }

    /// The port that it serves.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn shut_down(mut self, mut client: Client) -> Result<(), BenchError> {
        client.stream.write_all(b"SHUTDOWN NOSAVE\r\n")?;
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

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    line: String,
    value: Vec<u8>,
}

impl Client {
    fn new(stream: TcpStream) -> Result<Self, BenchError> {
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        let replies = BufReader::with_capacity(ROOM_BYTES, stream.try_clone()?);
        Ok(Self { stream, replies, line: String::new(), value: Vec::new() })
    }

    /// Sends what `ask` writes for each item, and returns for how many `is_right` has found the answer wrong.
    pub(crate) fn all<Item: Copy>(
        &mut self,
        items: &[Item],
        mut ask: impl FnMut(Item, &mut Vec<u8>),
        mut is_right: impl FnMut(&mut Self, Item) -> Result<bool, BenchError>,
    ) -> Result<u64, BenchError> {
        let (mut requests, mut wrong) = (Vec::new(), 0);
        for items in items.chunks(DEPTH) {
            requests.clear();
            items.iter().for_each(|item| ask(*item, &mut requests));
            self.stream.write_all(&requests).map_err(unanswered)?;
            for item in items {
                wrong += u64::from(!is_right(self, *item)?);
            }
        }
        Ok(wrong)
    }

    /// A line of the answer.
    pub(crate) fn line(&mut self) -> Result<&str, BenchError> {
        self.line.clear();
        if self.replies.read_line(&mut self.line).map_err(unanswered)? == 0 {
            return Err(BenchError::Child("redis-server has hung up".to_owned()));
        }
        Ok(self.line.trim_end())
    }

    /// A string of the answer; `None` if there is none.
    pub(crate) fn string(&mut self) -> Result<Option<&[u8]>, BenchError> {
        let Some(bytes) = self.count('$')? else { return Ok(None) };
        self.value.resize(bytes + 2, 0);
        self.replies.read_exact(&mut self.value).map_err(unanswered)?;
        Ok(self.value.strip_suffix(b"\r\n"))
    }

    /// How many strings follow; `None` if there is no list.
    pub(crate) fn list(&mut self) -> Result<Option<usize>, BenchError> {
        self.count('*')
    }

    /// A number that the server tells of itself.
    pub(crate) fn info(&mut self, section: &str, name: &str) -> Result<u64, BenchError> {
        self.stream.write_all(format!("INFO {section}\r\n").as_bytes())?;
        let text = String::from_utf8_lossy(self.string()?.unwrap_or_default()).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok());
        value.ok_or_else(|| BenchError::Child(format!("redis-server tells no {name}: {text}")))
    }

    /// The number behind `mark`; -1 means nothing.
    fn count(&mut self, mark: char) -> Result<Option<usize>, BenchError> {
        let line = self.line()?;
        match line.strip_prefix(mark).map(str::parse::<i64>) {
            Some(Ok(-1)) => Ok(None),
            Some(Ok(count)) if count >= 0 => Ok(Some(count as usize)),
            _ => Err(BenchError::Child(format!("redis-server answers '{line}'"))),
        }
    }
}

/// Names a time limit that has passed.
fn unanswered(error: Error) -> BenchError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            BenchError::Child(format!("redis-server has not answered for {} s", ANSWER_TIME_MAX.as_secs()))
        }
        _ => error.into(),
    }
}

/// Writes a command in Redis' protocol.
pub(crate) fn write_command(words: &[&[u8]], to: &mut Vec<u8>) {
    to.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 24];
            stream.read_exact(&mut asked).unwrap();
            stream.write_all(b"$4\r\na\r\nb\r\n$-1\r\n*2\r\n-OOM command not allowed\r\n").unwrap();
            asked
        });
        let mut client = Client::new(TcpStream::connect(address).unwrap()).unwrap();
        let answers = [Some(&b"a\r\nb"[..]), Some(b"else")];
        let ask = |_, to: &mut Vec<u8>| to.extend_from_slice(b"GET the key\n");
        let wrong = client.all(&[0, 1], ask, |client, item: usize| Ok(client.string()? == answers[item])).unwrap();
        assert_eq!((wrong, client.list().unwrap()), (1, Some(2)));
        assert!(client.string().unwrap_err().to_string().contains("-OOM command not allowed"));
        assert_eq!(&server.join().unwrap(), b"GET the key\nGET the key\n");
        assert!(client.line().unwrap_err().to_string().contains("hung up"));
    }

    #[test]
    fn commands_may_have_any_bytes() {
        let mut written = Vec::new();
        write_command(&[b"GET", b"a\r\n b"], &mut written);
        assert_eq!(written, b"*2\r\n$3\r\nGET\r\n$5\r\na\r\n b\r\n");
    }
}
