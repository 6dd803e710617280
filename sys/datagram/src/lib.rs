//! Datagrams in batches: many sent or received with one system call.
//!
//! A [`ReceiveBatch`] has room for some datagrams and fills it with one `recvmmsg`; a [`SendBatch`] collects some and
//! sends them with one `sendmmsg`. Their memory is reserved once; nothing here allocates later. [`Address`] is a peer's
//! address in the kernel's form, copied from one to the other without being understood.
//!
//! And what programs need of Unix sockets: [`peer`] says who is at the other end of one, [`NamedSocket`] is one with a
//! name in a folder.
//!
//! Neighbours: the data threads of `runtime/node`, the UDP lanes of `runtime/fabric`, and the server of `apps/kv`.
//!
//! UNSAFETY: system calls on arrays of headers that point into buffers of the same batch, one on an integer, and one on
//! a program for the kernel.

mod address;
mod control;
mod named;
mod path;
pub mod peer;
mod receive;
mod send;
mod steering;

use control::Control;

pub use address::Address;
pub use named::NamedSocket;
pub use path::path_mtu;
pub use receive::{ReceiveBatch, Received, ReceivedMut, Wait};
pub use send::SendBatch;
pub use steering::{Steering, steer};

/// Most datagrams in a batch: the kernel takes no more at a time.
pub const BATCH_MAX: usize = 1024;
/// Most bytes of a datagram: what UDP over IPv4 carries.
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (node, client) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(node.local_addr().unwrap()).unwrap();
        (node, client)
    }

    fn compose(batch: &mut SendBatch, bytes: &[u8], to: Option<&Address>) -> bool {
        let Some(room) = batch.room() else { return false };
        room[..bytes.len()].copy_from_slice(bytes);
        batch.push(bytes.len(), to);
        true
    }

    #[test]
    fn what_is_sent_arrives_and_answers_find_their_way() {
        let (node, client) = pair();
        let (mut out, mut into) = (SendBatch::new(4, 100), ReceiveBatch::new(8, 100));
        for number in 0..4u8 {
            assert!(compose(&mut out, &[number; 10], None));
        }
        assert!(!compose(&mut out, &[9], None), "the batch is full");
        assert_eq!(out.send(client.as_fd()).unwrap(), 4);
        assert!(out.is_empty());
        assert_eq!(into.receive(node.as_fd(), Wait::ForOne).unwrap(), 4);
        let peer = client.local_addr().unwrap();
        assert_eq!(into.datagrams_mut().count(), 4);
        for (number, datagram) in into.datagrams().enumerate() {
            assert_eq!((datagram.bytes, datagram.is_cut), (&[number as u8; 10][..], false));
            assert_eq!(datagram.from.to_string(), peer.to_string());
            assert!(compose(&mut out, &[number as u8 + 100; 3], Some(datagram.from)));
        }
        assert_eq!(out.send(node.as_fd()).unwrap(), 4);
        assert_eq!(into.receive(client.as_fd(), Wait::ForOne).unwrap(), 4);
        let bytes: Vec<u8> = into.datagrams().map(|datagram| datagram.bytes[2]).collect();
        assert_eq!(bytes, [100, 101, 102, 103]);
    }

    #[test]
    fn a_datagram_that_is_too_long_is_seen_to_be_cut() {
        let (node, client) = pair();
        client.send(&[7; 50]).unwrap();
        client.send(&[8; 5]).unwrap();
        let mut into = ReceiveBatch::new(2, 20);
        assert_eq!(into.receive(node.as_fd(), Wait::ForOne).unwrap(), 2);
        let seen: Vec<(usize, bool)> =
            into.datagrams().map(|datagram| (datagram.bytes.len(), datagram.is_cut)).collect();
        assert_eq!(seen, [(20, true), (5, false)]);
    }

    #[test]
    fn nothing_to_receive_is_no_error_and_the_last_batch_is_gone() {
        let (node, client) = pair();
        let mut into = ReceiveBatch::new(2, 20);
        client.send(&[8; 5]).unwrap();
        assert_eq!(into.receive(node.as_fd(), Wait::ForOne).unwrap(), 1);
        assert_eq!(into.receive(node.as_fd(), Wait::Never).unwrap(), 0);
        assert_eq!(into.datagrams().count(), 0);
    }

    #[test]
    fn a_datagram_that_cannot_be_sent_does_not_hold_up_the_others() {
        let (node, client) = pair();
        let too_long = vec![1; 66_000];
        let mut out = SendBatch::new(3, 70_000);
        assert!(compose(&mut out, &[1], None) && compose(&mut out, &too_long, None) && compose(&mut out, &[2], None));
        assert_eq!(out.send(client.as_fd()).unwrap(), 2);
        assert!(out.is_empty());
        let mut into = ReceiveBatch::new(4, 20);
        assert_eq!(into.receive(node.as_fd(), Wait::ForOne).unwrap(), 2);
    }

    /// Datagrams of several lengths to several peers, in trains or not: all arrive, in order, as they were.
    #[test]
    fn trains_are_cut_where_they_were_coupled() {
        let (node, client) = pair();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (to, to_other) = (Address::from(client.local_addr().unwrap()), Address::from(other.local_addr().unwrap()));
        let lengths = [100, 100, 100, 60, 60, 200, 200, 0, 1, 100, 5000, 5000, 5000, 4999, 5000];
        for accepts in [false, true] {
            let (mut out, mut into) = (SendBatch::new(40, 6000), ReceiveBatch::new(64, DATAGRAM_BYTES_MAX));
            if accepts {
                into.accept_trains(client.as_fd());
            }
            for (number, length) in lengths.into_iter().enumerate() {
                let peer = if number == 9 { &to_other } else { &to };
                assert!(compose(&mut out, &vec![number as u8; length], Some(peer)));
            }
            assert_eq!(out.send(node.as_fd()).unwrap(), lengths.len());
            let mut seen = Vec::new();
            let mut trains = 0;
            while seen.len() < lengths.len() - 1 {
                trains += into.receive(client.as_fd(), Wait::ForOne).unwrap();
                seen.extend(into.datagrams().map(|datagram| datagram.bytes.to_vec()));
                assert!(into.datagrams().all(|datagram| !datagram.is_cut));
            }
            let expected = lengths.into_iter().enumerate().filter(|(number, _)| *number != 9);
            let expected: Vec<Vec<u8>> = expected.map(|(number, length)| vec![number as u8; length]).collect();
            assert_eq!(seen, expected);
            assert!(!accepts || trains < seen.len(), "a kernel with trains gives some datagrams as one");
            assert_eq!(other.recv(&mut [0; 200]).unwrap(), 100);
        }
    }

    #[test]
    fn the_loopback_takes_long_datagrams() {
        let (_, client) = pair();
        assert!(path_mtu(client.as_fd()).unwrap() >= 1280);
    }

    #[test]
    fn both_families_have_addresses() {
        let socket = UdpSocket::bind("[::1]:0");
        let Ok(socket) = socket else {
            println!("SKIP: this machine has no IPv6 loopback");
            return;
        };
        let client = UdpSocket::bind("[::1]:0").unwrap();
        client.send_to(&[1], socket.local_addr().unwrap()).unwrap();
        let mut into = ReceiveBatch::new(1, 20);
        assert_eq!(into.receive(socket.as_fd(), Wait::ForOne).unwrap(), 1);
        assert!(path_mtu(client.as_fd()).is_err(), "a socket that is not connected has no path");
        let from = *into.datagrams().next().unwrap().from;
        assert_eq!(from.to_string(), client.local_addr().unwrap().to_string());
        assert_eq!(Address::from(client.local_addr().unwrap()), from);
    }
}
