//! A small memcached for the tests: one thread per connection, one map, and a fault that it commits on purpose.
//!
//! Key type: [`Server`]. It serves until it is dropped; connections end when their client leaves.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// What the server does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Flips a bit in every hundredth value that it returns.
    FlipBits,
    /// Acknowledges sets of keys that it has, without storing them.
    LoseUpdates,
    /// Returns the value of another key.
    SwapKeys,
    /// Has no keys that end in 7.
    Forget,
    /// Refuses every set.
    RefuseSets,
    /// Closes each connection after this many requests.
    HangUp(u64),
    /// Answers nothing while its gate is shut.
    Gate,
}

/// A running server.
pub(crate) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    fault: Fault,
    items: Mutex<HashMap<String, Vec<u8>>>,
    gets: AtomicU64,
    stopping: AtomicBool,
    gate_is_open: Mutex<bool>,
    gate: Condvar,
}

impl Server {
    /// Starts a server on a free port of the loopback. A gate starts shut.
    pub(crate) fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            fault,
            items: Mutex::default(),
            gets: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            gate_is_open: Mutex::new(fault != Fault::Gate),
            gate: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for socket in listener.incoming() {
                if accepting.stopping.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.serve(socket.unwrap()));
            }
        });
        Self { shared, address }
    }

    pub(crate) fn target(&self) -> String {
        self.address.to_string()
    }

    /// Lets the server answer from now on.
    pub(crate) fn open_gate(&self) {
        *self.shared.gate_is_open.lock().unwrap() = true;
        self.shared.gate.notify_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.open_gate();
        // The accepting thread looks at the flag when somebody connects.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    /// Serves one connection; any error of the socket ends it.
    fn serve(&self, socket: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(socket.try_clone().ok()?);
        let mut output = Vec::new();
        let mut served = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            self.answer(line.trim_end(), &mut reader, &mut output)?;
            served += 1;
            if matches!(self.fault, Fault::HangUp(after) if served == after) {
                return socket.shutdown(std::net::Shutdown::Both).ok();
            }
            if reader.buffer().is_empty() {
                (&socket).write_all(&output).ok()?;
                output.clear();
            }
        }
    }

    fn answer(&self, line: &str, reader: &mut impl Read, output: &mut Vec<u8>) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["stats"] => self.stats(output),
            ["get", ref keys @ ..] => {
                self.pass_gate();
                keys.iter().for_each(|key| self.get(key, output));
                output.extend_from_slice(b"END\r\n");
            }
            ["set", key, _, _, bytes] => {
                let mut value = vec![0; bytes.parse::<usize>().unwrap() + 2];
                reader.read_exact(&mut value).ok()?;
                self.pass_gate();
                value.truncate(value.len() - 2);
                self.set(key, value, output);
            }
            _ => output.extend_from_slice(b"ERROR\r\n"),
        }
        Some(())
    }

    fn pass_gate(&self) {
        let is_open = self.gate_is_open.lock().unwrap();
        drop(self.gate.wait_while(is_open, |is_open| !*is_open).unwrap());
    }

    fn stats(&self, output: &mut Vec<u8>) {
        let gets = self.gets.load(Ordering::Relaxed);
        write!(output, "STAT pid 1\r\nSTAT major_faults {gets}\r\nSTAT fetched_bytes {}\r\nEND\r\n", gets * 4096)
            .unwrap();
    }

    fn get(&self, key: &str, output: &mut Vec<u8>) {
        let gets = self.gets.fetch_add(1, Ordering::Relaxed);
        let items = self.items.lock().unwrap();
        let other = items.keys().find(|other| *other != key);
        let stored = match self.fault {
            Fault::Forget if key.ends_with('7') => None,
            Fault::SwapKeys => items.get(other.map_or(key, String::as_str)),
            _ => items.get(key),
        };
        if let Some(stored) = stored {
            let mut value = stored.clone();
            if self.fault == Fault::FlipBits && gets % 100 == 99 {
                let middle = value.len() / 2;
                value[middle] ^= 4;
            }
            write!(output, "VALUE {key} 0 {}\r\n", value.len()).unwrap();
            output.extend_from_slice(&value);
            output.extend_from_slice(b"\r\n");
        }
    }

    fn set(&self, key: &str, value: Vec<u8>, output: &mut Vec<u8>) {
        if self.fault == Fault::RefuseSets {
            return output.extend_from_slice(b"SERVER_ERROR out of memory storing object\r\n");
        }
        let mut items = self.items.lock().unwrap();
        if self.fault != Fault::LoseUpdates || !items.contains_key(key) {
            items.insert(key.to_owned(), value);
        }
        output.extend_from_slice(b"STORED\r\n");
    }
}
