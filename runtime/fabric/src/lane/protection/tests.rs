//! Lanes of sessions that cannot be followed, that are not there yet, and of another process.

use std::net::{Ipv4Addr, TcpListener};

use tempfile::TempDir;
use yonder_identity::SharedKey;
use yonder_session::Cipher;
use yonder_wire::HEADER_BYTES;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A chain with one lane, whose session is to be followed from now on and lasts for so long.
fn chain(address: SocketAddr, lasts: Duration) -> Arc<Chain> {
    let now = Instant::now();
    let made = Arc::new(Made {
        number: SessionNumber::new(1, 1, 0),
        secret: SessionSecret::from_bytes([7; 32], Cipher::best(), Protection::Encrypted),
        incarnation: 1,
        own: Ipv4Addr::LOCALHOST.into(),
        time: 0,
        made: 0,
        renewed_at: now,
        over_at: now + lasts,
        next: OnceLock::new(),
    });
    Arc::new(Chain {
        address,
        last: Mutex::new((made, now)),
        lanes: AtomicU8::new(1),
        heard: AtomicU64::new(0),
        is_silent: AtomicBool::new(false),
        mark: ForkMark::new().unwrap(),
    })
}

fn first_lane(chain: &Arc<Chain>) -> Protector {
    Protector::new(chain, &chain.last().0, 1)
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
    let chain = chain((Ipv4Addr::LOCALHOST, 1).into(), HOUR);
    let mut protector = first_lane(&chain);
    let mut room = [0; 256];
    assert!(protector.seal(&mut room, HEADER_BYTES, 1).is_some());
    let sessions = Sessions::protecting(Protection::Encrypted);
    sessions.chains.lock().unwrap().push(Arc::clone(&chain));
    assert!(sessions.next_lane().is_some());
    // As it is in a child.
    chain.mark.erase();
    assert_eq!(protector.seal(&mut room, HEADER_BYTES, 2), None);
    assert!(sessions.next_lane().is_none(), "no lane of the parent's session is opened either");
}

/// A node that does not answer for a moment once kept a program from its memory, whose session had half an hour left.
#[test]
fn a_lane_is_opened_while_its_session_lasts_though_no_other_can_be_had() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for (lasts, is_opened) in [(HOUR, true), (Duration::ZERO, false)] {
        let sessions = sessions(&folder);
        sessions.chains.lock().unwrap().push(chain(nobody, lasts));
        assert_eq!(sessions.lane(nobody).is_ok(), is_opened);
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
        let opening = scope.spawn(|| sessions.lane(address).is_ok());
        let (asked, _) = silent.accept().unwrap();
        assert!(asked.peek(&mut [0]).unwrap() > 0, "it shakes hands");
        assert_eq!(sessions.renew(), Renewal::Nothing);
        assert!(sessions.chains.try_lock().is_ok());
        drop(asked);
        assert!(!opening.join().unwrap());
    });
}
