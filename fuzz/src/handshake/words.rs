//! What is said to make a session, and to greet: what is understood is written as the same bytes.

use yonder_session::{GrantBytes, SessionGrant, SessionRequest};
use yonder_wire::{Body as _, Greeting};

use crate::Trail;

/// Bytes of a greeting that say something; those behind make it as long as its answer.
const SAID_BYTES: usize = 4;

pub(super) fn check(bytes: &[u8], trail: &mut Trail) {
    let request = bytes.first_chunk().and_then(SessionRequest::from_bytes);
    if let Some(request) = request {
        assert_eq!(request.to_bytes(), bytes[..SessionRequest::BYTES]);
    }
    let grant = bytes.first_chunk().and_then(|bytes| SessionGrant::from_bytes(&GrantBytes::new(*bytes)));
    if let Some(grant) = &grant {
        assert_eq!(grant.to_bytes()[..], bytes[..SessionGrant::BYTES]);
        assert_eq!(grant.number.lane(), 0, "a session is granted, and no lane");
    }
    let greeting = Greeting::from_bytes(bytes);
    assert_eq!(greeting.is_ok(), bytes.len() == Greeting::BYTES);
    if let Ok(greeting) = greeting {
        let mut written = [0xaa; Greeting::BYTES];
        greeting.write_to(&mut written);
        assert_eq!(written[..SAID_BYTES], bytes[..SAID_BYTES]);
        assert_eq!(Greeting::from_bytes(&written), Ok(greeting));
    }
    let protection = |of: Option<yonder_session::Protection>| of.map_or(0, |protection| protection as u64);
    let asked = protection(request.map(|request| request.protection));
    trail.note([1, asked, protection(grant.map(|grant| grant.secret.protection()))]);
}
