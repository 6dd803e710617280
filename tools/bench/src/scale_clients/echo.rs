//! The control of `bench scale-clients`: datagrams that come back as they are, without anything of Yonder.
//!
//! [`EchoServer`] is a thread that sends every datagram back to where it came from; [`EchoClient`] asks it and waits.
//! Both block in the kernel and do nothing else, so what a round trip takes is what the machine takes to wake two
//! processes and to carry two datagrams. What a read of a node takes beyond that is Yonder's.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::BenchError;
use crate::children::run_time;

/// What the URL of an echo server begins with.
pub(super) const SCHEME: &str = "echo://";
/// Bytes of a datagram besides those that are read, as Yonder's answers have them.
const HEADER_BYTES: usize = 64;
/// Bytes of a datagram that tell one round trip from the next.
const NUMBER_BYTES: usize = 8;
/// Longest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// How long an answer may take before the datagram is sent again, and how often that is done.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
const TRIES_MAX: usize = 10;

/// A thread that sends datagrams back. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct EchoServer {
    address: SocketAddr,
    /// Where the kernel counts what the thread runs.
    task: PathBuf,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// One that asks an echo server.
#[derive(Debug)]
pub(super) struct EchoClient {
    socket: UdpSocket,
    number: u64,
    datagram: Vec<u8>,
    answer: Vec<u8>,
}

impl EchoServer {
    pub(super) fn start() -> Result<Self, BenchError> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = socket.local_addr()?;
        let ending = Arc::new(AtomicBool::new(false));
        let (sender, thread_id) = channel();
        let ended = Arc::clone(&ending);
        let thread = std::thread::Builder::new().name("yonder-echo".to_owned()).spawn(move || {
            // Whoever starts this waits for it.
            let _ = sender.send(rustix::thread::gettid());
            echo(&socket, &ended);
        })?;
        let thread_id = thread_id.recv().expect("the thread says who it is").as_raw_nonzero();
        let task = Path::new("/proc/self/task").join(thread_id.to_string());
        Ok(Self { address, task, ending, thread: Some(thread) })
    }

    /// What clients are told.
    pub(super) fn url(&self) -> String {
        format!("{SCHEME}{}", self.address)
    }

    /// CPU time that it has used; none where the kernel does not tell.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        run_time(&self.task)
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        // It looks up at the next datagram, whose sender does not wait for it to come back.
        let woken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.send_to(&[], self.address));
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            thread.join().expect("the echo does not panic");
        }
    }
}

fn echo(socket: &UdpSocket, ending: &AtomicBool) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    while !ending.load(Ordering::Relaxed) {
        // What cannot be received or sent is lost, and its sender asks again.
        if let Ok((bytes, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..bytes], from);
        }
    }
}

impl EchoClient {
    /// One whose datagrams are as long as the answers to reads of `read_bytes`.
    pub(super) fn connect(address: &str, read_bytes: usize) -> Result<Self, BenchError> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        let bytes = HEADER_BYTES + read_bytes;
        Ok(Self { socket, number: 0, datagram: vec![0; bytes], answer: vec![0; bytes] })
    }

    /// Sends a datagram and waits until it is back.
    pub(super) fn round_trip(&mut self) -> Result<(), BenchError> {
        self.number += 1;
        self.datagram[..NUMBER_BYTES].copy_from_slice(&self.number.to_le_bytes());
        for _ in 0..TRIES_MAX {
            self.socket.send(&self.datagram)?;
            if self.receive()? {
                return Ok(());
            }
        }
        Err(BenchError::Child("the echo does not answer".to_owned()))
    }

    /// Whether the datagram came back in time. Others that come late are passed over.
    fn receive(&mut self) -> Result<bool, BenchError> {
        loop {
            match self.socket.recv(&mut self.answer) {
                Ok(_) if self.answer == self.datagram => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// How long the kernel may take until it has counted something.
    const COUNT_TIME_MAX: Duration = Duration::from_secs(20);

    #[test]
    fn datagrams_come_back_to_whoever_sent_them() {
        let started = Instant::now();
        let server = EchoServer::start().unwrap();
        let url = server.url();
        let address = url.strip_prefix(SCHEME).unwrap();
        let mut clients = [16, 1000].map(|bytes| EchoClient::connect(address, bytes).unwrap());
        for _ in 0..100 {
            clients.iter_mut().for_each(|client| client.round_trip().unwrap());
        }
        assert!(clients.iter().all(|client| client.number == 100 && client.answer == client.datagram));
        // A kernel that counts by its tick may count nothing of a server that sleeps at once; it is asked until it has.
        let counted = loop {
            match server.cpu_time() {
                Some(Duration::ZERO) if started.elapsed() < COUNT_TIME_MAX => clients[0].round_trip().unwrap(),
                counted => break counted,
            }
        };
        match counted {
            // One thread runs no longer than time passes, but for a tick.
            Some(time) => {
                assert!(time > Duration::ZERO && time < started.elapsed() + Duration::from_secs(1), "{time:?}")
            }
            None => println!("SKIP: this kernel does not tell how long a thread ran"),
        }
    }

    #[test]
    fn a_late_answer_is_not_taken_for_the_next() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = EchoClient::connect(&server.local_addr().unwrap().to_string(), 16).unwrap();
        let mut late = client.datagram.clone();
        late[0] = 9;
        let mut asked = vec![0; late.len()];
        let answering = std::thread::spawn(move || {
            let (_, from) = server.recv_from(&mut asked).unwrap();
            for answer in [late, asked] {
                server.send_to(&answer, from).unwrap();
            }
        });
        client.round_trip().unwrap();
        assert_eq!(client.answer[0], 1);
        answering.join().unwrap();
    }

    #[test]
    fn an_echo_server_ends_when_it_is_dropped() {
        let server = EchoServer::start().unwrap();
        let address = server.address;
        drop(server);
        UdpSocket::bind(address).expect("nobody has the port any more");
    }
}
