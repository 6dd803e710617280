//! `yonder://…?disk=/path`: pages at a node, and a little later in a file on a local disk.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use yonder_fabric::{FileFabric, Status};
use yonder_units::PAGE_BYTES;

use super::scene::{REGION, Scene, until};
use super::shares::{check, store};
use super::spread::{counter, url};
use crate::end_to_end::testbed::{Client, PAGE as SMALL, page};

/// Pages of 4 KiB, in three groups.
const PAGES: u64 = 3 * REGION / SMALL;

/// A program whose pages are on a disk too; `None` if there is no disk for that here.
fn program(scene: &Scene, folder: &Path) -> Option<Client> {
    if let Err(error) = FileFabric::open(&format!("file://{}", folder.display())) {
        eprintln!("SKIP: a file cannot keep pages: {error}");
        return None;
    }
    Some(Client::new(&format!("{}?disk={}", url(scene), folder.display()), 4))
}

fn counts<const N: usize>(client: &Client, names: [&str; N]) -> [u64; N] {
    names.map(|name| counter(client, &format!("spread_{name}")))
}

fn until_none_is_late(client: &mut Client) {
    until("every page is on the disk", || {
        client.poll();
        (counts(client, ["late_pages", "degraded_pages"]) == [0; 2]).then_some(())
    });
}

fn pages() -> impl Iterator<Item = u64> {
    (0..PAGES).step_by(3)
}

#[test]
fn nodes_end_one_after_the_other_and_what_is_on_the_disk_stays() {
    let (scene, folder) = (Scene::new(2), tempfile::tempdir().unwrap());
    let mut node = scene.node(96);
    let Some(mut client) = program(&scene, folder.path()) else { return };
    let start = client.allocate(PAGES);
    assert_eq!(node.stats().allocated_bytes, PAGES * SMALL, "one copy is in memory");
    pages().for_each(|index| store(&mut client, start, index, 0));
    for round in 1..=10 {
        until_none_is_late(&mut client);
        drop(node);
        // Nothing but the disk is there.
        pages().for_each(|index| check(&mut client, start, index, round - 1));
        pages().step_by(2).for_each(|index| store(&mut client, start, index, round));
        pages().step_by(2).for_each(|index| check(&mut client, start, index, round));
        node = scene.node(96);
        until("another node has every page", || {
            client.poll();
            (counts(&client, ["degraded_pages", "places_missing", "late_pages"]) == [0; 3]).then_some(())
        });
        pages().step_by(2).for_each(|index| check(&mut client, start, index, round));
        pages().for_each(|index| store(&mut client, start, index, round));
        pages().for_each(|index| check(&mut client, start, index, round));
    }
    client.fabric.release(start).unwrap();
    assert_eq!(node.stats().allocated_bytes, 0);
}

#[test]
fn what_is_late_when_its_node_is_lost_is_not() {
    let (scene, folder) = (Scene::new(2), tempfile::tempdir().unwrap());
    let mut node = scene.node(96);
    let Some(mut client) = program(&scene, folder.path()) else { return };
    let start = client.allocate(PAGES);
    let mut most = 0;
    for round in 0..6 {
        for index in pages() {
            store(&mut client, start, index, round);
            let [late, late_max] = counts(&client, ["late_pages", "late_pages_max"]);
            assert!(late <= late_max, "{late} pages are late");
            most = most.max(late);
        }
        // A disk that stood still for seconds was not waited for: the mender brings what did not go along.
        until("what is not on the disk is on its way there", || {
            client.poll();
            (counts(&client, ["degraded_pages"]) == [0]).then_some(())
        });
        // It is there in a moment.
        drop(node);
        for index in pages() {
            until("it is on the disk", || {
                let id = client.read(page(start, index), 0);
                (client.finish(1)[&id] == Status::Done).then_some(())
            });
            check(&mut client, start, index, round);
        }
        node = scene.node(96);
        until("another node has every page", || {
            client.poll();
            (counts(&client, ["degraded_pages", "places_missing"]) == [0; 2]).then_some(())
        });
    }
    assert!(most > 0, "none was ever late");
}

#[test]
fn a_disk_that_lies_is_believed_nothing() {
    let (scene, folder) = (Scene::new(2), tempfile::tempdir().unwrap());
    let node = scene.node(96);
    let Some(mut client) = program(&scene, folder.path()) else { return };
    let start = client.allocate(PAGES);
    pages().for_each(|index| store(&mut client, start, index, 0));
    until_none_is_late(&mut client);
    // The file has no name: it is found among those that this process has open.
    let files = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &std::path::PathBuf| fs::read_link(path).is_ok_and(|to| to.starts_with(folder.path()));
    let path = files.into_iter().find(is_it).expect("its file is open");
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut found = vec![0; bytes.try_into().unwrap()];
    file.read_exact_at(&mut found, 0).unwrap();
    found.iter_mut().skip(PAGE_BYTES).for_each(|byte| *byte ^= 0x40);
    file.write_all_at(&found, 0).unwrap();
    file.sync_all().unwrap();

    pages().for_each(|index| check(&mut client, start, index, 0));
    drop(node);
    for index in pages() {
        let id = client.read(page(start, index), 0);
        assert_ne!(client.finish(1)[&id], Status::Done, "page {index} is believed");
    }
    until("the disk is used no more", || (counts(&client, ["places_missing"]) == [3]).then_some(()));
}

#[test]
fn what_is_discarded_or_of_the_last_user_is_zeros() {
    let (scene, folder) = (Scene::new(2), tempfile::tempdir().unwrap());
    let mut node = scene.node(96);
    let Some(mut client) = program(&scene, folder.path()) else { return };
    for round in 0..6 {
        let start = client.allocate(PAGES);
        for index in pages() {
            assert_eq!(client.load(page(start, index)), (Status::Done, 0), "page {index} of the last user");
        }
        pages().for_each(|index| store(&mut client, start, index, round));
        if round % 2 == 0 {
            until_none_is_late(&mut client);
        }
        client.fabric.discard(page(start, 30), 100 * SMALL).unwrap();
        store(&mut client, start, 60, round + 1);
        if round == 4 {
            until_none_is_late(&mut client);
            drop(node);
            node = scene.node(96);
        }
        for index in pages().filter(|index| *index != 60) {
            match index {
                30..130 => assert_eq!(client.load(page(start, index)), (Status::Done, 0), "page {index}"),
                _ => check(&mut client, start, index, round),
            }
        }
        check(&mut client, start, 60, round + 1);
        client.fabric.release(start).unwrap();
    }
    drop(node);
}
