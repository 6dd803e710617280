//! Nodes and clients of other users on this machine.

use std::fs::Permissions;
use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tempfile::TempDir;
use yonder_fabric::open;
use yonder_wire::{Body as _, Greeting, HEADER_BYTES, Kind, Welcome, split};

use crate::end_to_end::testbed::{address, shm_node, unreachable_cause};

/// A user who is not this one.
const STRANGER: u32 = 65534;
/// Bytes that a false node says it has.
const MEMORY_BYTES: u64 = 1 << 20;

/// A folder that all users may reach.
fn public_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Runs in a thread that is another user; `None` where that is not allowed.
fn as_stranger<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
    let ran = thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            let uid = rustix::process::Uid::from_raw(STRANGER);
            // Of this thread alone: the C library, which would ask all of them, is not asked.
            rustix::thread::set_thread_res_uid(uid, uid, uid).ok()?;
            Some(run())
        });
        stranger.join().unwrap()
    });
    if ran.is_none() {
        println!("SKIP: another user: only root may become one");
    }
    ran
}

#[test]
fn the_socket_is_its_users_alone_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let node = shm_node(folder.path(), 4);
    let mode = std::fs::metadata(address(&node)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_client_of_another_user_gets_no_memory() {
    let folder = public_folder();
    let node = shm_node(folder.path(), 4);
    let path = address(&node);
    // As an operator may do who wants to be helpful.
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let url = format!("shm://{path}");
    let Some(cause) = as_stranger(|| unreachable_cause(open(&url))) else { return };
    assert!(cause.contains("does not allow this"), "{cause}");
    drop(open(&url).expect("its own user is served"));
}

#[test]
fn a_node_of_another_user_is_told_nothing() {
    let folder = public_folder();
    let path = folder.path().join("node.sock");
    let Some(listener) = as_stranger(|| UnixListener::bind(&path).unwrap()) else { return };
    let cause = unreachable_cause(open(&format!("shm://{}", path.display())));
    assert!(cause.contains(&format!("user {STRANGER}")), "{cause}");
    let mut said = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut said).unwrap();
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn memory_that_can_be_cut_off_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.sock");
    let url = format!("shm://{}", path.display());
    let listener = UnixListener::bind(&path).unwrap();
    let cause = thread::scope(|scope| {
        scope.spawn(|| welcome_with_unsealed_memory(&listener.accept().unwrap().0));
        unreachable_cause(open(&url))
    });
    assert!(cause.contains("cut off"), "{cause}");
}

/// Answers a greeting as a node would, but with memory that it may shorten.
fn welcome_with_unsealed_memory(mut client: &UnixStream) {
    let mut greeting = [0; HEADER_BYTES + Greeting::BYTES];
    client.read_exact(&mut greeting).unwrap();
    let hello = split(&greeting).unwrap().unwrap().header;
    assert_eq!(hello.kind, Kind::Hello);
    let file = rustix::fs::memfd_create(c"node", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, MEMORY_BYTES).unwrap();
    let welcome = Welcome { home: 0, page_bytes: 4096, memory_bytes: MEMORY_BYTES, incarnation: 1 };
    let mut payload = [0; Welcome::BYTES];
    welcome.write_to(&mut payload);
    let header = hello.answer(1, Welcome::BYTES as u32);
    let message = [&header.seal(&payload)[..], &payload].concat();
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    rustix::net::sendmsg(client, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL).unwrap();
}
