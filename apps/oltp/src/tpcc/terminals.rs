//! [`Terminals`]: what is asked of a server over datagrams, and how.
//!
//! Requests and replies are spelt as `postcard` has them. Whether a reply is right is not seen in it alone: the server
//! checks its tables when it ends.

use yonder_load::RequestSource;
use yonder_serve::{Protocol, spelling};

use super::request::{Reply, Request, Requests};
use super::scale::Scale;

/// TPC-C over datagrams.
pub struct Datagrams;

impl Protocol for Datagrams {
    type Request = Request;
    type Answer = Reply;

    fn put_request(request: &Request, to: &mut Vec<u8>) {
        spelling::put(request, to);
    }

    fn request(bytes: &[u8]) -> Result<Request, String> {
        let request: Request = spelling::get(bytes).map_err(|error| format!("no transaction: {error}"))?;
        request.check()?;
        Ok(request)
    }

    fn put_answer(reply: &Reply, to: &mut Vec<u8>) {
        spelling::put(reply, to);
    }

    fn answer(bytes: &[u8]) -> Option<Reply> {
        spelling::get(bytes).ok()
    }
}

/// What terminals ask for.
pub struct Terminals {
    requests: Requests,
    now: u64,
}

impl Terminals {
    /// Of a database of that scale.
    #[must_use]
    pub fn new(scale: Scale, seed: u64) -> Self {
        // Everything was loaded at 1.
        Self { requests: Requests::new(scale, seed), now: 1 }
    }
}

impl RequestSource for Terminals {
    type Request = Request;
    type Answer = Reply;
    const KINDS: &'static [&'static str] = &["new_order", "payment", "order_status", "delivery", "stock_level"];

    fn next_request(&mut self) -> Request {
        self.now += 1;
        self.requests.next(self.now)
    }

    fn verify(&self, reply: &Reply) -> Option<usize> {
        Some(match reply {
            Reply::Ordered { .. } | Reply::RolledBack => 0,
            Reply::Paid { .. } => 1,
            Reply::Status { .. } => 2,
            Reply::Delivered(_) => 3,
            Reply::Low(_) => 4,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tpcc::{CustomerBy, LastName, Line, NewOrder};

    fn spelt(request: &Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        Datagrams::put_request(request, &mut bytes);
        bytes
    }

    #[test]
    fn whatever_terminals_ask_for_comes_back() {
        let mut terminals = Terminals::new(Scale::full(65_535), 4);
        for _ in 0..10_000 {
            let request = terminals.next_request();
            let bytes = spelt(&request);
            assert!(bytes.len() <= yonder_serve::REQUEST_BYTES_MAX);
            assert_eq!(Datagrams::request(&bytes), Ok(request));
        }
    }

    #[test]
    fn what_tables_must_not_be_asked_is_refused() {
        let line = Line { item: 1, supplier: 1, quantity: 1 };
        let order = NewOrder { warehouse: 1, district: 1, customer: 1, entered: 2, lines: vec![line; 5] };
        let lines = |count| Request::NewOrder(NewOrder { lines: vec![line; count], ..order.clone() });
        assert!(Datagrams::request(&spelt(&lines(15))).is_ok());
        let status = |warehouse, district| Request::OrderStatus {
            warehouse,
            district,
            customer: CustomerBy::Name(LastName::new(999)),
        };
        for (request, reason) in [
            (lines(0), "an order of 0 lines: 1 to 15 are possible"),
            (lines(16), "an order of 16 lines: 1 to 15 are possible"),
            (status(0, 1), "there is no warehouse 0: 1 to 65535 are possible"),
            (status(65_536, 1), "there is no warehouse 65536: 1 to 65535 are possible"),
            (status(1, 11), "there is no district 11: 1 to 10 are possible"),
        ] {
            assert_eq!(Datagrams::request(&spelt(&request)), Err(reason.to_owned()));
        }
        // The last byte but the variant's is the name's number: 1000 is none.
        let mut bytes = spelt(&status(1, 1));
        let end = bytes.len();
        bytes[end - 2..].copy_from_slice(&[0xE8, 0x07]);
        assert!(Datagrams::request(&bytes).unwrap_err().starts_with("no transaction: "));
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Datagrams::request(&bytes);
            let _ = Datagrams::answer(&bytes);
        }
    }
}
