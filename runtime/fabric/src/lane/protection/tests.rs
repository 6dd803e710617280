//! Lanes of sessions that cannot be followed, that are not there yet, and of another process.

use std::net::{Ipv4Addr, TcpListener};

use tempfile::TempDir;
use yonder_identity::SharedKey;
use yonder_session::{Cipher, SessionNumber, SessionSecret};
use yonder_wire::HEADER_BYTES;

use super::*;

/// A process that may come to be another one.
#[derive(Clone, Debug)]
struct Mark(Arc<ForkMark>);

impl Process for Mark {
    fn is_here(&self) -> bool {
        self.0.is_here()
    }
}

fn mark() -> Mark {
    Mark(Arc::new(ForkMark::new().unwrap()))
}

/// A line whose session is to be followed from now on, and is over or not.
fn line(address: SocketAddr, is_over: bool, mark: &Mark) -> Arc<Line> {
    let secret = SessionSecret::from_bytes([7; 32], Cipher::best(), Protection::Encrypted);
    let grant = SessionGrant { number: SessionNumber::new(1, 1, 0), secret, incarnation: 1, time: 0, seconds: 1 };
    let now = yonder_clock::now();
    let lasts = if is_over { now } else { now + 3_600_000_000_000 };
    let session = Arc::new(Session::new(grant, lasts, Ipv4Addr::LOCALHOST.into(), 0, now).renewed_from(now));
    assert!(session.is_old(now) && session.is_over(now) == is_over);
    Arc::new(Line::new(address, session, RenewalTimes::USUAL, mark.clone()))
}

/// Sessions of one who has a shared key.
fn sessions(folder: &TempDir) -> Sessions {
    let path = folder.path().join("key");
    SharedKey::generate().unwrap().write(&path).unwrap();
    Sessions::of(Some(Arc::new(Credential::load(&path).unwrap())), Protection::Encrypted)
}

/// A child once could seal with the numbers of its parent: two messages under one, which the cipher does not survive.
#[test]
fn a_lane_seals_nothing_in_another_process() {
    let mark = mark();
    let line = line((Ipv4Addr::LOCALHOST, 1).into(), false, &mark);
    let lane = line.chain.next_lane().unwrap();
    let mut protector = line.protector(line.renewal().last(), lane, Door::Datagrams).unwrap();
    let mut room = [0; 256];
    assert!(protector.seal(&mut room, HEADER_BYTES, 1).is_some());
    let sessions = Sessions::protecting(Protection::Encrypted);
    sessions.lines().push(Arc::clone(&line));
    assert!(sessions.next_lane().is_some());
    // As it is in a child.
    mark.0.erase();
    assert_eq!(protector.seal(&mut room, HEADER_BYTES, 2), None);
    assert!(sessions.next_lane().is_none(), "no lane of the parent's session is opened either");
}

/// A node that does not answer for a moment once kept a program from its memory, whose session had half an hour left.
#[test]
fn a_lane_is_opened_while_its_session_lasts_though_no_other_can_be_had() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for is_over in [false, true] {
        let sessions = sessions(&folder);
        sessions.lines().push(line(nobody, is_over, &mark()));
        assert_eq!(sessions.lane(nobody, Door::Datagrams).is_ok(), !is_over);
        std::fs::remove_file(folder.path().join("key")).unwrap();
    }
}

/// The thread that renews waits for no lane that is being opened.
#[test]
fn a_session_that_is_being_made_is_in_no_ones_way() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = sessions(&folder);
    // It listens, and says nothing.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = silent.local_addr().unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| sessions.lane(address, Door::Datagrams).is_ok());
        let (asked, _) = silent.accept().unwrap();
        assert!(asked.peek(&mut [0]).unwrap() > 0, "it shakes hands");
        assert_eq!(sessions.renew(), Renewed::Nothing);
        assert!(sessions.lines.try_lock().is_ok());
        drop(asked);
        assert!(!opening.join().unwrap());
    });
}
