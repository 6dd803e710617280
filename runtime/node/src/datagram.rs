//! A data thread that serves datagrams: one socket, batches in, batches out.
//!
//! The socket shares its port with those of the other threads; the kernel gives all datagrams of one client's socket to
//! the same thread, as long as no socket comes or goes. So a retry meets the thread that remembers its first attempt.
//! The thread keeps nothing about clients.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use yonder_datagram::{DATAGRAM_BYTES_MAX, ReceiveBatch, SendBatch, Wait};
use yonder_wire::Direction;

use crate::forward::AnswerTo;
use crate::gate::Arrived;
use crate::polling::{Polling, Waiting};
use crate::serve::{Served, Server, refuse};
use crate::stats::Batch;

/// Datagrams received and sent with one system call.
const BATCH_DATAGRAMS: usize = 32;
/// Room for the longest datagram.
const DATAGRAM_BYTES: usize = 64 << 10;

const _: () = assert!(DATAGRAM_BYTES_MAX <= DATAGRAM_BYTES);

/// The body of the thread: serves until the node stops.
pub(crate) fn serve(mut server: Server, socket: &Arc<UdpSocket>, polling: Polling) {
    let shared = Arc::clone(&server.shared);
    let (mut received, mut replies) =
        (ReceiveBatch::new(BATCH_DATAGRAMS, DATAGRAM_BYTES), SendBatch::new(BATCH_DATAGRAMS, DATAGRAM_BYTES));
    received.accept_trains(socket.as_fd());
    let mut waiting = Waiting::new(polling);
    while !shared.stop.load(Ordering::Acquire) {
        let wait = if waiting.asks_again() { Wait::Never } else { Wait::ForOne };
        match received.receive(socket.as_fd(), wait) {
            Ok(0) => waiting.pause(),
            Ok(_) => {
                waiting.end();
                serve_batch(&mut server, &mut received, &mut replies, socket);
                waiting.begin();
            }
            // What the network says of an earlier answer concerns nobody here: its client will ask again, or is gone.
            Err(error) => tracing::debug!("receiving a datagram failed: {error}"),
        }
    }
}

fn serve_batch(server: &mut Server, received: &mut ReceiveBatch, replies: &mut SendBatch, socket: &Arc<UdpSocket>) {
    let shared = Arc::clone(&server.shared);
    let mut batch = Batch::default();
    let visit = Server::begin(&shared, server.number());
    let now = yonder_clock::now();
    for datagram in received.datagrams_mut() {
        let arrived =
            if datagram.is_cut { Arrived::Dropped } else { server.gate.open(datagram.bytes, datagram.from, now) };
        if replies.is_full() {
            send(replies, socket);
        }
        // Answers that the socket has not taken are lost like those that the network loses.
        let Some(reply) = replies.room() else { continue };
        let (message, wrap) = match arrived {
            Arrived::Message(message, wrap) => (message, wrap),
            Arrived::Refused(request, code) => {
                if request.direction == Direction::Answer {
                    batch.bad_datagrams += 1;
                    continue;
                }
                batch.answered(&request, code as u16);
                let bytes = refuse(&request, now, code, reply);
                replies.push(bytes, Some(datagram.from));
                continue;
            }
            Arrived::Dropped => {
                batch.bad_datagrams += 1;
                continue;
            }
        };
        let answer_to = || Some(AnswerTo::Datagram { socket: Arc::clone(socket), to: *datagram.from, wrap });
        let room = DATAGRAM_BYTES_MAX - wrap.bytes();
        match server.serve(&message, &mut reply[..room], &mut batch, wrap, answer_to) {
            Served::Answered(bytes) => {
                let bytes = server.gate.close(wrap, reply, bytes);
                replies.push(bytes, Some(datagram.from));
            }
            Served::Forwarded => {}
            Served::NotARequest => batch.bad_datagrams += 1,
        }
    }
    drop(visit);
    server.end_batch(&batch);
    send(replies, socket);
}

fn send(replies: &mut SendBatch, socket: &UdpSocket) {
    if let Err(error) = replies.send(socket.as_fd()) {
        tracing::debug!("sending answers failed: {error}");
    }
}
