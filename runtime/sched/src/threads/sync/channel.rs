//! [`channel`]: a bounded queue of messages between many senders and many receivers.
//!
//! A receiver that is woken has a message promised, and a sender that is woken a place: those that come later leave
//! them alone, so nobody who has been woken waits again, and none is woken for nothing.
//!
//! Invariants: where receivers wait, all messages that are there are promised; where senders wait, all places that are
//! free are. Users' values are dropped outside the lock.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::queue::WaitQueue;
use crate::threads::guarded::Guarded;
use crate::threads::parker::{Wait, Waiter};
use crate::threads::wait_word::Signal;

/// The other side is gone, or the channel was closed: the message that could not be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// The other side is gone, or the channel was closed, and so are its messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the channel is empty, and closed or without senders")]
pub struct RecvError;

/// The side of a channel that sends. It can be cloned; the channel is closed when the last is dropped.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The side of a channel that receives. It can be cloned, and each message is received once; the channel is closed, and
/// its messages are dropped, when the last is dropped.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

type Shared<T> = Guarded<State<T>>;

struct State<T> {
    messages: VecDeque<T>,
    bound: usize,
    /// Messages that are promised to receivers that have been woken.
    promised_messages: usize,
    /// Places that are promised to senders that have been woken.
    promised_places: usize,
    senders: usize,
    receivers: usize,
    is_closed: bool,
    waiting_senders: WaitQueue,
    waiting_receivers: WaitQueue,
}

/// A channel with room for `bound` messages.
///
/// # Panics
/// If `bound` is zero.
#[must_use]
pub fn channel<T: Send>(bound: usize) -> (Sender<T>, Receiver<T>) {
    assert!(bound > 0, "a channel has room for at least one message");
    let shared = Arc::new(Guarded::new(State {
        messages: VecDeque::new(),
        bound,
        promised_messages: 0,
        promised_places: 0,
        senders: 1,
        receivers: 1,
        is_closed: false,
        waiting_senders: WaitQueue::new(),
        waiting_receivers: WaitQueue::new(),
    }));
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared })
}

impl<T> State<T> {
    fn has_place(&self) -> bool {
        self.messages.len() + self.promised_places < self.bound
    }

    /// Whether a message that is sent would be received by nobody.
    fn takes_no_more(&self) -> bool {
        self.receivers == 0 || self.is_closed
    }

    fn has_message(&self) -> bool {
        self.messages.len() > self.promised_messages
    }

    /// Puts a message into a place that is the caller's, and promises it to the first receiver that waits.
    fn put(&mut self, message: T) -> Option<Waiter> {
        self.messages.push_back(message);
        let receiver = self.waiting_receivers.pop();
        self.promised_messages += usize::from(receiver.is_some());
        receiver
    }

    /// Takes a message that is the caller's, and promises its place to the first sender that waits.
    fn take(&mut self) -> (T, Option<Waiter>) {
        let message = self.messages.pop_front().expect("a message is there for whom it was promised to");
        let sender = self.waiting_senders.pop();
        self.promised_places += usize::from(sender.is_some());
        (message, sender)
    }
}

fn wake(waiter: Option<Waiter>) {
    if let Some(waiter) = waiter {
        assert!(waiter.grant(), "who waits at a channel waits until it is served, or the channel closed");
    }
}

/// What a sender or receiver found at the channel.
enum Found<R> {
    /// It was served.
    Served(R),
    /// The other side is gone.
    Closed,
    /// It has to wait, and is queued.
    Queued,
}

impl<T: Send> Sender<T> {
    /// Sends a message, and waits for room if there is none.
    ///
    /// # Errors
    /// If all receivers are gone; the message comes back.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut message = Some(message);
        let wait = Wait::begin();
        let found = self.shared.with(|state| {
            if state.takes_no_more() {
                Found::Closed
            } else if state.has_place() {
                Found::Served(message.take().and_then(|message| state.put(message)))
            } else {
                state.waiting_senders.push(&wait);
                Found::Queued
            }
        });
        match found {
            Found::Served(receiver) => wake(receiver),
            Found::Closed => {}
            Found::Queued if wait.park() == Signal::Granted => self.send_promised(&mut message),
            Found::Queued => {}
        }
        message.map_or(Ok(()), |message| Err(SendError(message)))
    }

    /// Sends a message if there is room now.
    ///
    /// # Errors
    /// If there is none, or all receivers are gone; the message comes back.
    pub fn try_send(&self, message: T) -> Result<(), SendError<T>> {
        let mut message = Some(message);
        let receiver = self.shared.with(|state| {
            let has_place = !state.takes_no_more() && state.has_place();
            if has_place { message.take().and_then(|message| state.put(message)) } else { None }
        });
        wake(receiver);
        message.map_or(Ok(()), |message| Err(SendError(message)))
    }

    /// Closes the channel for all: nothing more is sent, also by who waits for room, and what was sent is received.
    pub fn close(&self) {
        let unserved = self.shared.with(|state| {
            state.is_closed = true;
            [std::mem::take(&mut state.waiting_senders), std::mem::take(&mut state.waiting_receivers)]
        });
        unserved.into_iter().for_each(WaitQueue::close_all);
    }

    /// Whether [`close`](Self::close) was called, or all receivers are gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.with(|state| state.takes_no_more())
    }

    /// Puts a message where a place was promised, unless nobody will take it.
    fn send_promised(&self, message: &mut Option<T>) {
        let receiver = self.shared.with(|state| {
            state.promised_places -= 1;
            if state.takes_no_more() { None } else { message.take().and_then(|message| state.put(message)) }
        });
        wake(receiver);
    }
}

impl<T: Send> Receiver<T> {
    /// Receives a message, and waits for one if there is none.
    ///
    /// # Errors
    /// If all senders are gone, and so are the messages.
    pub fn recv(&self) -> Result<T, RecvError> {
        let wait = Wait::begin();
        let found = self.shared.with(|state| {
            if state.has_message() {
                Found::Served(state.take())
            } else if state.senders == 0 || state.is_closed {
                Found::Closed
            } else {
                state.waiting_receivers.push(&wait);
                Found::Queued
            }
        });
        let (message, sender) = match found {
            Found::Served(served) => served,
            Found::Closed => return Err(RecvError),
            Found::Queued if wait.park() == Signal::Granted => self.shared.with(|state| {
                state.promised_messages -= 1;
                state.take()
            }),
            Found::Queued => return Err(RecvError),
        };
        wake(sender);
        Ok(message)
    }

    /// Receives a message if there is one that nobody was promised. Whether one may still come is to be asked before
    /// ([`Sender::is_closed`]): behind this look one can have been sent, and the channel closed.
    #[must_use]
    pub fn try_recv(&self) -> Option<T> {
        let (message, sender) = self.shared.with(|state| state.has_message().then(|| state.take()))?;
        wake(sender);
        Some(message)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.with(|state| state.senders += 1);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.with(|state| state.receivers += 1);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let unserved = self.shared.with(|state| {
            state.senders -= 1;
            if state.senders == 0 { std::mem::take(&mut state.waiting_receivers) } else { WaitQueue::new() }
        });
        unserved.close_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let (unserved, unreceived) = self.shared.with(|state| {
            state.receivers -= 1;
            if state.receivers > 0 {
                return (WaitQueue::new(), VecDeque::new());
            }
            (std::mem::take(&mut state.waiting_senders), std::mem::take(&mut state.messages))
        });
        unserved.close_all();
        drop(unreceived);
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is closed or has no receivers any more")
    }
}

impl<T> std::error::Error for SendError<T> {}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_once_and_in_order() {
        let (sender, receiver) = channel(3);
        std::thread::scope(|scope| {
            scope.spawn(move || (0..20_000).for_each(|number| sender.send(number).unwrap()));
            (0..20_000).for_each(|number| assert_eq!(receiver.recv(), Ok(number)));
            assert_eq!(receiver.recv(), Err(RecvError));
        });
    }

    #[test]
    fn many_to_many_loses_nothing() {
        let (sender, receiver) = channel(2);
        let sum: u64 = std::thread::scope(|scope| {
            for _ in 0..3 {
                let sender = sender.clone();
                scope.spawn(move || (1..=5_000u64).for_each(|number| sender.send(number).unwrap()));
            }
            drop(sender);
            let receivers: Vec<_> = (0..3)
                .map(|_| {
                    let receiver = receiver.clone();
                    scope.spawn(move || std::iter::from_fn(|| receiver.recv().ok()).sum::<u64>())
                })
                .collect();
            receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum()
        });
        assert_eq!(sum, 3 * 5_000 * 5_001 / 2);
    }

    #[test]
    fn a_sender_that_waits_gets_its_message_back_when_the_receivers_go() {
        let (sender, receiver) = channel(1);
        sender.send("first").unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| sender.send("second"));
            while sender.shared.with(|state| state.waiting_senders.is_empty()) {
                std::thread::yield_now();
            }
            drop(receiver);
            assert_eq!(waits.join().unwrap(), Err(SendError("second")));
        });
        assert_eq!(sender.send("third"), Err(SendError("third")));
    }

    #[test]
    fn a_message_without_room_comes_back() {
        let (sender, receiver) = channel(1);
        assert_eq!((sender.try_send("first"), sender.try_send("second")), (Ok(()), Err(SendError("second"))));
        assert_eq!((receiver.try_recv(), sender.try_send("second")), (Some("first"), Ok(())));
        assert_eq!(receiver.recv(), Ok("second"));
        sender.close();
        assert_eq!(sender.try_send("third"), Err(SendError("third")));
    }

    #[test]
    fn a_closed_channel_gives_out_what_was_sent_and_takes_no_more() {
        let (sender, receiver) = channel(1);
        sender.send("first").unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| sender.send("second"));
            while sender.shared.with(|state| state.waiting_senders.is_empty()) {
                std::thread::yield_now();
            }
            sender.close();
            assert_eq!(waits.join().unwrap(), Err(SendError("second")));
        });
        assert_eq!((receiver.recv(), receiver.recv()), (Ok("first"), Err(RecvError)));
        assert_eq!(sender.send("third"), Err(SendError("third")));
    }

    #[test]
    fn a_place_that_was_promised_is_of_no_use_after_the_close() {
        let (sender, receiver) = channel(1);
        sender.send("first").unwrap();
        let wait = Wait::begin();
        sender.shared.with(|state| state.waiting_senders.push(&wait));
        std::thread::scope(|scope| assert_eq!(scope.spawn(|| receiver.recv()).join().unwrap(), Ok("first")));
        sender.close();
        let mut message = Some("second");
        assert_eq!(wait.park(), Signal::Granted);
        sender.send_promised(&mut message);
        assert_eq!((message, receiver.recv()), (Some("second"), Err(RecvError)));
    }

    #[test]
    fn a_receiver_that_waits_learns_that_the_senders_are_gone() {
        let (sender, receiver) = channel::<u8>(1);
        assert_eq!(receiver.try_recv(), None);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| receiver.recv());
            while receiver.shared.with(|state| state.waiting_receivers.is_empty()) {
                std::thread::yield_now();
            }
            drop(sender);
            assert_eq!(waits.join().unwrap(), Err(RecvError));
        });
    }
}
