//! A proxy between a client and a node that cuts the byte streams in odd places, and cuts connections on command.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::end_to_end::testbed::Dice;

/// A proxy. Dropping it cuts everything and stops listening.
pub(crate) struct Proxy {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    stopped: Arc<AtomicBool>,
}

impl Proxy {
    /// Forwards to `node` in pieces of 1 to `piece_max` bytes.
    pub(crate) fn to(node: String, piece_max: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (streams, stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, ended) = (Arc::clone(&streams), Arc::clone(&stopped));
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (client, node) = (client.unwrap(), TcpStream::connect(&node).unwrap());
                let mut all = kept.lock().unwrap();
                for (from, to) in [(&client, &node), (&node, &client)] {
                    to.set_nodelay(true).unwrap();
                    all.push(from.try_clone().unwrap());
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let dice = Dice(0x9e37_79b9 + number as u64);
                    thread::spawn(move || forward(from, to, piece_max, dice));
                }
            }
        });
        Self { address, streams, stopped }
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> String {
        format!("tcp://{}", self.address)
    }

    /// Cuts all connections that stand. New ones are taken.
    pub(crate) fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            // The other half of the pair may have been cut a moment ago.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the listening thread, which then sees that it is to stop.
        let _ = TcpStream::connect(self.address);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, piece_max: u64, mut dice: Dice) {
    let mut bytes = vec![0; piece_max as usize];
    loop {
        let piece = 1 + dice.below(piece_max) as usize;
        match from.read(&mut bytes[..piece]) {
            Ok(0) => break,
            Ok(read) if to.write_all(&bytes[..read]).is_ok() => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
