//! [`Served`]: an application's handler, with answers as bytes.

use std::fmt::Display;
use std::marker::PhantomData;

use yonder::sched::Handler;
use yonder_datagram::Address;

use crate::Protocol;
use crate::wire::{Status, pieces_of};

/// A request and who has asked.
#[derive(Clone, Debug)]
pub struct Asked<R> {
    pub(crate) from: From,
    pub(crate) request: R,
}

/// Whose request it is: where the reply goes and what it is called there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct From {
    pub(crate) peer: Address,
    pub(crate) id: u64,
}

/// A reply, as it is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    pub(crate) to: From,
    pub(crate) status: Status,
    pub(crate) body: Vec<u8>,
}

/// A handler whose answers are spelt by the worker, so that the dispatcher only sends them.
pub struct Served<P, H> {
    handler: H,
    protocol: PhantomData<fn(P)>,
}

impl<P, H> Served<P, H> {
    /// Serves what `handler` answers.
    pub fn new(handler: H) -> Self {
        Self { handler, protocol: PhantomData }
    }

    /// What answers.
    pub fn handler(&self) -> &H {
        &self.handler
    }
}

impl<P, H, E> Handler for Served<P, H>
where
    P: Protocol,
    H: Handler<Request = P::Request, Reply = Result<P::Answer, E>>,
    E: Display + Send + 'static,
{
    type Request = Asked<P::Request>;
    type Reply = Answered;

    fn handle(&self, Asked { from: to, request }: Self::Request) -> Answered {
        let mut body = Vec::new();
        let status = match self.handler.handle(request) {
            Ok(answer) => {
                P::put_answer(&answer, &mut body);
                Status::Answer
            }
            Err(error) => {
                body.extend_from_slice(error.to_string().as_bytes());
                Status::Failed
            }
        };
        if pieces_of(body.len()).is_none() {
            let text = format!("the answer is {} bytes, too long for a reply: ask for less", body.len());
            return Answered { to, status: Status::BadRequest, body: text.into_bytes() };
        }
        Answered { to, status, body }
    }

    fn key(&self, asked: &Self::Request) -> Option<u64> {
        self.handler.key(&asked.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::PIECE_BYTES;

    /// Zeros, as many as are asked for.
    struct Zeros;

    impl Protocol for Zeros {
        type Request = usize;
        type Answer = usize;

        fn put_request(bytes: &usize, to: &mut Vec<u8>) {
            to.extend_from_slice(&bytes.to_le_bytes());
        }

        fn request(bytes: &[u8]) -> Result<usize, String> {
            Ok(usize::from_le_bytes(bytes.try_into().map_err(|_| "no number".to_owned())?))
        }

        fn put_answer(bytes: &usize, to: &mut Vec<u8>) {
            to.resize(*bytes, 0);
        }

        fn answer(bytes: &[u8]) -> Option<usize> {
            Some(bytes.len())
        }
    }

    impl Handler for Zeros {
        type Request = usize;
        type Reply = Result<usize, String>;

        fn handle(&self, bytes: usize) -> Self::Reply {
            Ok(bytes)
        }
    }

    #[test]
    fn an_answer_that_is_too_long_for_a_reply_is_refused() {
        let from = From { peer: std::net::SocketAddr::from(([127, 0, 0, 1], 1)).into(), id: 4 };
        let served = Served::<Zeros, _>::new(Zeros);
        let most = usize::from(u16::MAX) * PIECE_BYTES;
        let reply = |request| served.handle(Asked { from, request });
        let whole = reply(most);
        assert_eq!((whole.to, whole.status, whole.body.len()), (from, Status::Answer, most));
        let refused = reply(most + 1);
        assert_eq!((refused.to, refused.status), (from, Status::BadRequest));
        assert!(refused.body.ends_with(b"too long for a reply: ask for less"));
    }
}
