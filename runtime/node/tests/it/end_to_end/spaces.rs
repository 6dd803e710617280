//! Address spaces: leases that end, capabilities that do not suffice, and memory that comes back.

use yonder_fabric::Status;
use yonder_wire::{AtomicOperation, ErrorCode, Kind, Permission, Rights};

use crate::end_to_end::raw::{Grant, Raw, allocation};
use crate::end_to_end::testbed::{Client, NETWORKS, PAGE, node, shm_node, wait_for};

#[test]
fn memory_of_a_lease_that_ends_is_free_and_its_owner_is_told() {
    for network in NETWORKS {
        let node = node(network, 8);
        let mut raw = Raw::open(&node);
        let before = node.stats().allocated_bytes;
        // Both are short; one is renewed.
        let (left, kept) = (raw.create_space(1500), raw.create_space(1500));
        let (left_at, kept_at) = (raw.allocate(left, 5).unwrap(), raw.allocate(kept, 1).unwrap());
        raw.write(left, left_at, 0xaa).unwrap();
        raw.write(kept, kept_at, 0xbb).unwrap();
        wait_for(|| {
            raw.ask(&kept.request(Kind::Ping, 0, 0), &[]).expect("a lease that is renewed does not end");
            (node.stats().allocated_bytes == before + PAGE).then_some(())
        });
        assert_eq!(raw.read(left, left_at), Err(ErrorCode::BadCapability));
        assert_eq!(raw.write(left, left_at, 1), Err(ErrorCode::BadCapability));
        assert_eq!(raw.ask(&left.request(Kind::Ping, 0, 0), &[]), Err(ErrorCode::BadCapability));
        assert_eq!(raw.allocate(left, 1), Err(ErrorCode::BadCapability));
        assert_eq!(raw.read(kept, kept_at), Ok(0xbb));
        let (next, start) = raw.create_memory(7);
        for page in 0..7 {
            assert_eq!(raw.read(next, start + page * PAGE), Ok(0), "{network:?}: the last owner's bytes");
        }
    }
}

#[test]
fn a_program_that_drops_its_fabric_gives_its_memory_back_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let shm = shm_node(folder.path(), 64);
    for node in NETWORKS.map(|network| node(network, 64)).into_iter().chain([shm]) {
        let before = node.stats().allocated_bytes;
        let mut stays = Client::of(&node, 1);
        let kept = stays.allocate(1);
        assert_eq!(stays.store(kept, 3), Status::Done);
        let mut goes = Client::of(&node, 1);
        let start = goes.allocate(63);
        goes.store(start, 1);
        drop(goes);
        assert_eq!(node.stats().allocated_bytes, before + PAGE);
        let mut next = Client::of(&node, 1);
        let start = next.allocate(63);
        assert_eq!(next.load(start), (Status::Done, 0));
        assert_eq!(stays.load(kept), (Status::Done, 3));
    }
}

#[test]
fn a_capability_opens_one_address_space_and_allows_what_it_says() {
    for network in NETWORKS {
        let node = node(network, 8);
        let mut raw = Raw::open(&node);
        let (owner, start) = raw.create_memory(2);
        let (stranger, _) = raw.create_memory(1);
        raw.write(owner, start, 7).unwrap();
        let mixed = Grant { pid: owner.pid, capability: stranger.capability };
        let guessed = Grant { capability: owner.capability ^ 1, ..owner };
        let raised = raw.grant(owner, Rights::Read).unwrap();
        let raised = Grant { capability: raised.capability | 3 << 64, ..raised };
        for bad in [mixed, guessed, raised, Grant { pid: 0, ..owner }, Grant { capability: 0, ..owner }] {
            refuses_everything(&mut raw, bad, start);
        }
        let writer = raw.grant(owner, Rights::ReadWrite).unwrap();
        raw.write(writer, start, 8).unwrap();
        let reader = raw.grant(owner, Rights::Read).unwrap();
        assert_eq!(raw.read(reader, start), Ok(8));
        assert_eq!(raw.write(reader, start, 9), Err(ErrorCode::NotAllowed));
        assert_eq!(raw.atomic(reader, start, AtomicOperation::TestAndSet), Err(ErrorCode::NotAllowed));
        for less in [reader, writer] {
            assert_eq!(raw.allocate(less, 1), Err(ErrorCode::NotAllowed));
            assert_eq!(raw.ask(&less.request(Kind::Free, start, 0), &[]), Err(ErrorCode::NotAllowed));
            assert_eq!(raw.ask(&less.request(Kind::DestroySpace, 0, 0), &[]), Err(ErrorCode::NotAllowed));
            assert_eq!(raw.grant(less, Rights::Owner), Err(ErrorCode::NotAllowed));
        }
        assert_eq!(raw.ask(&reader.request(Kind::Discard, start, PAGE as u32), &[]), Err(ErrorCode::NotAllowed));
        assert_eq!(raw.read(owner, start), Ok(8));
    }
}

fn refuses_everything(raw: &mut Raw, bad: Grant, start: u64) {
    let refused = ErrorCode::BadCapability;
    assert_eq!(raw.read(bad, start), Err(refused));
    assert_eq!(raw.write(bad, start, 1), Err(refused));
    assert_eq!(raw.atomic(bad, start, AtomicOperation::TestAndSet), Err(refused));
    assert_eq!(raw.allocate(bad, 1), Err(refused));
    assert_eq!(raw.grant(bad, Rights::Read), Err(refused));
    let kinds = [Kind::Free, Kind::Discard, Kind::Translate, Kind::DestroySpace];
    for kind in kinds {
        assert_eq!(raw.ask(&bad.request(kind, start, PAGE as u32), &[]), Err(refused), "{kind:?}");
    }
}

#[test]
fn read_only_memory_is_not_written_by_its_owner_either() {
    for network in NETWORKS {
        let node = node(network, 8);
        let mut raw = Raw::open(&node);
        let space = raw.create_space(0);
        let (request, body) = allocation(space, 1, Permission::Read);
        let start = raw.ask(&request, &body).unwrap().0.address;
        assert_eq!(raw.write(space, start, 1), Err(ErrorCode::NotAllowed));
        assert_eq!(raw.atomic(space, start, AtomicOperation::TestAndSet), Err(ErrorCode::NotAllowed));
        assert_eq!(raw.read(space, start), Ok(0));
    }
}

#[test]
fn requests_that_no_node_serves_are_refused() {
    for network in NETWORKS {
        let node = node(network, 8);
        let mut raw = Raw::open(&node);
        let (space, start) = raw.create_memory(1);
        assert_eq!(raw.ask(&space.request(Kind::Call, 1 << 40, 0), &[]), Err(ErrorCode::NoOffload));
        assert_eq!(raw.ask(&space.request(Kind::Read, start, 0), &[]), Err(ErrorCode::BadLength));
        assert_eq!(raw.ask(&space.request(Kind::Read, start, u32::MAX), &[]), Err(ErrorCode::BadLength));
        assert_eq!(raw.ask(&space.request(Kind::Write, start, 0), &[]), Err(ErrorCode::BadLength));
        assert_eq!(raw.ask(&space.request(Kind::Allocate, 0, 3), &[1, 2, 3]), Err(ErrorCode::BadLength));
        assert_eq!(raw.ask(&space.request(Kind::Atomic, start, 3), &[1, 2, 3]), Err(ErrorCode::BadLength));
        assert_eq!(raw.read(space, start), Ok(0));
    }
}
