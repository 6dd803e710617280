//! A process of root's becomes a user's, with all threads that it makes, and cannot become root's again; one that has
//! threads already does not try.
//!
//! Each try needs a process of its own, which is the test itself with an argument.

use std::process::{Command, Output};

use yonder_process::{User, UserError};

/// A user that every system has, and that owns nothing.
const NOBODY: &str = "nobody";

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("become") => become_nobody(),
        Some("with-a-thread") => become_nobody_with_a_thread(),
        // Arguments of the harness that is not there.
        _ => test(),
    }
}

fn test() {
    match User::named(NOBODY) {
        Ok(_) => {}
        Err(error @ (UserError::NotRoot(_) | UserError::Unknown(_))) => return println!("SKIP: {error}"),
        Err(error) => panic!("{error}"),
    }
    let ended = this(&["become"]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(said.lines().count(), 2, "{said}");
    for status in said.lines() {
        let value = |name: &str| {
            let found = status.split(';').find_map(|line| line.strip_prefix(name));
            found.unwrap_or_else(|| panic!("no {name} in {status}")).split_whitespace().collect::<Vec<_>>()
        };
        for name in ["Uid:", "Gid:"] {
            let numbers = value(name);
            assert!(numbers.len() == 4 && numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
            assert_ne!(numbers[0], "0");
        }
        assert_eq!(value("Groups:"), [value("Gid:")[0]], "the user's first group alone");
        for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(value(name), ["0000000000000000"], "{name}");
        }
        assert_eq!(value("NoNewPrivs:"), ["1"]);
    }
    let ended = this(&["with-a-thread"]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("the process has threads"), "{said}");
    println!("test user ... ok");
}

fn this(arguments: &[&str]) -> Output {
    let itself = std::env::current_exe().expect("a running test knows its executable");
    Command::new(itself).args(arguments).output().expect("the test can be started again")
}

/// Prints what two threads are to the kernel: this one, and one that is made later.
fn become_nobody() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let nobody = User::named(NOBODY).expect("root may");
    nobody.give(file.path()).expect("root may");
    let mine = tempfile::NamedTempFile::new().expect("a file");
    let read = |path: &std::path::Path| nobody.act(|| std::fs::read(path).is_ok()).expect("root may");
    assert_eq!([read(file.path()), read(mine.path())], [true, false]);
    std::fs::read(mine.path()).expect("it is root again");
    nobody.become_for_good().expect("the kernel lets root");
    let threads = [print_status as fn(), || std::thread::spawn(print_status).join().expect("it only prints")];
    threads.iter().for_each(|thread| thread());
    assert!(std::fs::read(mine.path()).is_err(), "root's files can be read");
    std::fs::OpenOptions::new().write(true).open(file.path()).expect("the file was given to the user");
    let said = User::named(NOBODY).expect_err("it is root no more").to_string();
    assert_eq!(said, "only root can become 'nobody': start as root, or leave --user out");
}

fn print_status() {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("the kernel says it of oneself");
    println!("{}", status.replace('\n', ";"));
}

fn become_nobody_with_a_thread() {
    let nobody = User::named(NOBODY).expect("root may");
    let (started, stays) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            started.wait();
            stays.wait();
        });
        started.wait();
        let tried = std::panic::catch_unwind(|| nobody.become_for_good());
        stays.wait();
        assert!(tried.is_ok(), "as it should be");
    });
}
