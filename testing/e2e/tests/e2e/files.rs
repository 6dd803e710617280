//! `yonder kv` and `yonder bench` with far memory in a file: what is stored is found, a server that was killed leaves a
//! file that the next one can use, and damage on the disk is refused and never served.

use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use yonder_e2e::{Client, Content, Got, Process, Yonder};

const CONTENT: Content = Content { name: "filed", keys: 20_000, value_bytes: 1000 };

/// A page, where a disk can take it from.
#[repr(align(4096))]
struct Page([u8; 4096]);

fn url(folder: &Path) -> String {
    format!("file://{}?size=128MiB", folder.join("store").display())
}

/// A server with 4 MiB of local memory, which waits for a disk that others keep busy.
fn start_kv(yonder: Yonder, far: &str) -> Process {
    let flags = ["kv", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--local", "4MiB", "--deadline", "30s"];
    yonder.serve(&[&flags[..], &["--far", far]].concat())
}

/// Whether files can be used here; says why, if not.
pub(crate) fn can_use_files(yonder: Yonder, far: &str) -> bool {
    let tried = yonder.run(&["bench", "store", "--far", far, "--memory", "1MiB", "--runs", "1", "--duration", "10ms"]);
    if tried.code != Some(0) && ["io_uring", "direct access"].iter().any(|lack| tried.stderr.contains(lack)) {
        println!("SKIP: {}", tried.stderr.trim());
        return false;
    }
    assert_eq!(tried.code, Some(0), "{}", tried.stderr);
    true
}

#[test]
fn items_survive_the_way_to_a_file_and_back_and_a_kill_leaves_nothing_behind() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = url(folder.path());
    if !can_use_files(yonder, &far) {
        return;
    }
    for round in 1..=3 {
        let server = start_kv(yonder, &far);
        let mut client = Client::connect(server.address());
        assert_eq!(client.ask(&format!("get {}", CONTENT.key(7))), "END", "nothing of an earlier server is there");
        client.fill(&CONTENT, 0..CONTENT.keys, round);
        client.verify(&CONTENT, 0..CONTENT.keys, round);
        client.fill(&CONTENT, (0..CONTENT.keys).step_by(3), 10 * round);
        client.verify(&CONTENT, (0..CONTENT.keys).step_by(3), 10 * round);
        assert_eq!(client.stats().number("paging_errors"), 0);
        if round < 3 {
            server.kill();
        } else {
            let ended = server.stop();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        }
    }
    let left = std::fs::metadata(folder.path().join("store")).expect("the file stays").len();
    assert_eq!(left, 0, "an orderly end gives the space back");
}

/// What is in the file of a server that was killed: its items, or noise where they are sealed.
#[test]
fn a_killed_server_leaves_nothing_that_can_be_read_if_its_pages_are_sealed() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = url(folder.path());
    if !can_use_files(yonder, &far) {
        return;
    }
    for (layer, can_be_read) in [("", true), ("seal+", false), ("lz4+seal+", false)] {
        let mut server = start_kv(yonder, &format!("{layer}{far}"));
        if can_be_read {
            server.wait_for("what is in the file can be read there, also after a kill: type seal+file://");
        }
        let mut client = Client::connect(server.address());
        client.fill(&CONTENT, 0..CONTENT.keys, 1);
        client.verify(&CONTENT, 0..CONTENT.keys, 1);
        server.kill();
        let left = std::fs::read(folder.path().join("store")).expect("it stays");
        assert!(left.len() > 8 << 20, "{} bytes", left.len());
        let found = left.windows(6).filter(|bytes| bytes == b"filed-").count();
        assert_eq!(found > 0, can_be_read, "'{layer}': {found} items can be read");
    }
}

#[test]
fn damage_on_the_disk_is_a_miss_and_never_served() {
    let Some(yonder) = Yonder::ready() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = url(folder.path());
    if !can_use_files(yonder, &far) {
        return;
    }
    let server = start_kv(yonder, &far);
    let mut client = Client::connect(server.address());
    client.fill(&CONTENT, 0..CONTENT.keys, 1);
    // A bit in every third of the pages that the file has by now. Past the page cache, as the server: what is dirty
    // there while the server writes the same page is an error of the disk to the kernel.
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
    let file = options.open(folder.path().join("store")).expect("the store");
    let pages = file.metadata().expect("its length").len() / 4096;
    let mut bytes = Page([0; 4096]);
    for page in (1..pages).step_by(3) {
        file.read_exact_at(&mut bytes.0, page * 4096).expect("the file is that long");
        bytes.0[1000] ^= 4;
        file.write_all_at(&bytes.0, page * 4096).expect("the disk has room");
    }
    file.sync_all().expect("the disk takes it");
    let (mut served, mut lost) = (0, Vec::new());
    for index in (0..CONTENT.keys).step_by(97) {
        match client.get(&CONTENT.key(index)) {
            Got::Value(value) => {
                assert!(value == CONTENT.value(index, 1), "a wrong value was served");
                served += 1;
            }
            Got::Miss => lost.push(index),
            other => panic!("{other:?} for an item that was stored"),
        }
    }
    assert!(served > 0 && !lost.is_empty(), "{served} served, {} lost", lost.len());
    // A page that is lost takes nothing else with it: the server stores again what it has forgotten.
    for index in lost {
        client.fill(&CONTENT, index..index + 1, 2);
        assert!(client.get(&CONTENT.key(index)) == Got::Value(CONTENT.value(index, 2)), "item {index}");
    }
}
