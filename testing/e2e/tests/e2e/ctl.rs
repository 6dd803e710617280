//! `yonder ctl`: settings of servers and programs that run are shown and changed, and what cannot be is one line.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use yonder_e2e::{Client, Content, Process, Program, TIMEOUT, Together, Yonder};

/// 12 MiB of items.
const CONTENT: Content = Content { name: "ctl", keys: 12_000, value_bytes: 1024 };
/// More local memory than that.
const SERVER: [&str; 7] = ["kv", "--listen", "127.0.0.1:0", "--memory", "48MiB", "--local", "40MiB"];
/// A quota that the items do not fit.
const QUOTA_BYTES: u64 = 4 << 20;

/// The objects that `yonder ctl ARGS --json` prints.
fn objects(together: &Together, args: &[&str]) -> Vec<Value> {
    let ended = together.run(&[&["ctl"], args, &["--json"]].concat());
    assert_eq!(ended.code, Some(0), "{args:?}: {}", ended.stderr);
    ended.objects()
}

fn object(together: &Together, args: &[&str]) -> Value {
    let mut objects = objects(together, args);
    assert_eq!(objects.len(), 1, "{args:?}: {objects:?}");
    objects.remove(0)
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {object}"))
}

/// What `yonder ctl ARGS` complains of, and its exit code is for what was typed wrong.
fn refused(together: &Together, args: &[&str]) -> String {
    let ended = together.run(&[&["ctl"], args].concat());
    let complaint = ended.complaint(2).to_owned();
    assert!(complaint.starts_with("yonder: ") && ended.stdout.is_empty(), "{args:?}: {complaint}{}", ended.stdout);
    complaint
}

fn resident(together: &Together) -> u64 {
    objects(together, &["regions"]).iter().map(|region| number(region, "resident_bytes")).sum()
}

/// Asks until it is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < give_up, "{what} in vain");
    }
}

#[test]
fn a_quota_that_is_set_takes_memory_from_a_server_that_serves() {
    let Some(yonder) = Yonder::ready() else { return };
    let together = yonder.together();
    let server = together.serve(&SERVER);
    let mut client = Client::connect(server.address());
    client.fill(&CONTENT, 0..CONTENT.keys, 1);
    assert!(resident(&together) > 2 * QUOTA_BYTES, "little is local: {}", resident(&together));

    let set = object(&together, &["set", "quota=4MiB"]);
    assert_eq!((set["name"].as_str(), set["value"].as_str()), (Some("quota"), Some("4MiB")), "{set}");
    assert_eq!((number(&set, "amount"), set["unit"].as_str()), (QUOTA_BYTES, Some("bytes")), "{set}");
    wait_until("memory falls to the quota", || resident(&together) <= QUOTA_BYTES);
    client.verify(&CONTENT, 0..CONTENT.keys, 1);
    assert!(number(&object(&together, &["stats"]), "quota_evicted_pages") > 0);

    let set = object(&together, &["set", &server.pid().to_string(), "quota=none"]);
    assert!(set["amount"].is_null() && set["value"] == "none", "{set}");
    // What is only read stays in frames; what is written is mapped.
    client.verify(&CONTENT, 0..CONTENT.keys, 1);
    wait_until("memory comes back", || {
        client.fill(&CONTENT, 0..CONTENT.keys, 2);
        resident(&together) > 2 * QUOTA_BYTES
    });
    client.verify(&CONTENT, 0..CONTENT.keys, 2);
    assert_eq!(server.stop().code, Some(0));
    assert!(together.runtime().join("yonder").read_dir().expect("the folder stays").next().is_none());
}

/// The items do not fit what is left: by either limit they go, and with neither they come back.
#[test]
fn limits_that_are_set_are_kept_by_a_server_that_serves() {
    let Some(yonder) = Yonder::ready() else { return };
    let together = yonder.together();
    let server = together.serve(&SERVER);
    let mut client = Client::connect(server.address());
    client.fill(&CONTENT, 0..CONTENT.keys, 1);
    let charged = || number(&object(&together, &["stats"]), "charged_bytes");
    for (name, none) in [("soft-limit", "soft-limit=none"), ("local", "local=40MiB")] {
        client.fill(&CONTENT, 0..CONTENT.keys, 1);
        wait_until("memory comes back", || charged() > 2 * QUOTA_BYTES);
        object(&together, &["set", &format!("{name}=4MiB")]);
        wait_until("memory falls to the limit", || charged() <= QUOTA_BYTES);
        client.verify(&CONTENT, 0..CONTENT.keys, 1);
        object(&together, &["set", none]);
    }
    client.verify(&CONTENT, 0..CONTENT.keys, 1);
    assert_eq!(number(&object(&together, &["list"]), "local_bytes_max"), 40 << 20);
    let stats = object(&together, &["stats"]);
    assert!(number(&stats, "worked_ns") > 0 && number(&stats, "touched_bytes") > 2 * QUOTA_BYTES, "{stats}");
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn all_settings_are_shown_as_documented() {
    let Some(yonder) = Yonder::ready() else { return };
    let together = yonder.together();
    let server = together.serve(&SERVER);
    let pid = u64::from(server.pid());
    let listed = object(&together, &["list"]);
    assert_eq!((number(&listed, "pid"), number(&listed, "local_bytes")), (pid, 40 << 20));
    assert!(listed["quota_bytes"].is_null() && listed["resident_bytes"].is_u64(), "{listed}");
    let command = listed["command"].as_str().expect("a text");
    assert!(command.ends_with("yonder kv --listen 127.0.0.1:0 --memory 48MiB --local 40MiB"), "{command}");
    assert!(listed["far"].as_str().is_some_and(|far| far.starts_with("emu://")), "{listed}");

    let settings = objects(&together, &["get"]);
    let names: Vec<_> = settings.iter().map(|setting| setting["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["standby-age", "standby-pages", "local", "soft-limit", "quota", "region.0.quota"]);
    let units: Vec<_> = settings.iter().map(|setting| setting["unit"].as_str().expect("a unit")).collect();
    assert_eq!(units, ["ns", "count", "bytes", "bytes", "bytes", "bytes"]);
    assert!(settings.iter().all(|setting| number(setting, "pid") == pid));
    for (name, value, amount) in [
        ("standby-age", "250ms", Some(250_000_000)),
        ("standby-age", "none", None),
        ("standby-pages", "64", Some(64)),
        ("standby-pages", "none", None),
        ("region.0.quota", "1536KiB", Some(1536 << 10)),
        ("quota", "8MiB", Some(8 << 20)),
        ("local", "24MiB", Some(24 << 20)),
        ("soft-limit", "9MiB", Some(9 << 20)),
        ("soft-limit", "none", None),
    ] {
        let said = together.run(&["ctl", "set", &format!("{name}={value}")]);
        assert_eq!((said.code, said.stdout), (Some(0), format!("{name}  {value}\n")), "{}", said.stderr);
        let got = object(&together, &["get", name]);
        assert_eq!((got["value"].as_str(), got["amount"].as_u64()), (Some(value), amount), "{got}");
        let plain = together.run(&["ctl", "get", &pid.to_string(), name]);
        assert_eq!((plain.code, plain.stdout), (Some(0), format!("{value}\n")), "{}", plain.stderr);
    }
    let region = object(&together, &["regions", &pid.to_string()]);
    assert_eq!((number(&region, "region"), number(&region, "bytes")), (0, 48 << 20), "{region}");
    assert_eq!(number(&region, "quota_bytes"), 1536 << 10);
    assert!(number(&region, "address") > 0 && number(&object(&together, &["list"]), "quota_bytes") == 8 << 20);
    let cold = objects(&together, &["cold"]);
    let of_cold: u64 = cold.iter().map(|band| number(band, "resident_bytes")).sum();
    assert!(of_cold <= 48 << 20 && cold.iter().all(|band| band["untouched_s"].is_u64()), "{cold:?}");
    for table in [&["list"][..], &["get"], &["stats"], &["regions"], &["cold"]] {
        let said = together.run(&[&["ctl"], table].concat());
        assert!(said.code == Some(0) && said.stdout.lines().count() >= 1, "{table:?}: {}{}", said.stdout, said.stderr);
    }
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn what_is_typed_wrong_is_one_line() {
    let Some(yonder) = Yonder::ready() else { return };
    let together = yonder.together();
    for args in [&["get"][..], &["set", "quota=1MiB"], &["stats"], &["regions"], &["cold"]] {
        assert!(
            refused(&together, args).contains("no process of this user has far memory: start one with `yonder kv`")
        );
    }
    let nobody = together.run(&["ctl", "list", "--json"]);
    assert_eq!((nobody.code, nobody.stdout.as_str()), (Some(0), ""), "{}", nobody.stderr);

    let first = together.serve(&SERVER);
    for (args, says) in [
        (
            &["get", "quotas"][..],
            "'quotas' is no setting: type one of standby-age, standby-pages, local, soft-limit, quota, region.ID.quota",
        ),
        (&["set", "quotas=1MiB"], "'quotas' is no setting"),
        (&["set"], "nothing to set: type NAME=VALUE"),
        (&["set", "quota"], "'quota' sets nothing: type NAME=VALUE"),
        (&["set", "quota=much"], "'much' is not a size: type a number with KiB, MiB or GiB, such as 64MiB, or none"),
        (&["set", "standby-age=5"], "'5' is not a time"),
        (&["set", "standby-pages=some"], "'some' is not a count"),
        // What only the process knows.
        (&["set", "quota=4KiB"], "is too small: give at least"),
        (&["set", "standby-age=0s"], "is too short: give at least"),
        (&["set", "local=1KiB"], "are too few: give at least 2 MiB"),
        (&["set", "local=1GiB"], "is below the local limit"),
        (&["set", "region.9.quota=1GiB"], "there is no region 9"),
        (&["get", "region.9.quota"], "there is no region.9.quota"),
        (&["get", "1", "quota"], "process 1 has no far memory, or is not there: type one that `yonder ctl list` shows"),
        (&["get", "99999999999", "quota"], "'99999999999' is no process"),
        (&["get", "kv", "quota"], "'kv' is no process"),
        (&["stats", "kv"], "'kv'"),
        (&["shout"], "'shout'"),
    ] {
        let complaint = refused(&together, args);
        assert!(complaint.contains(says), "{args:?}: {complaint}");
    }
    let second = together.serve(&SERVER);
    let complaint = refused(&together, &["get", "quota"]);
    assert!(complaint.contains("2 processes have far memory") && complaint.contains(": type which, "), "{complaint}");
    assert!([&first, &second].iter().all(|server| complaint.contains(&server.pid().to_string())), "{complaint}");
    assert_eq!(objects(&together, &["list"]).len(), 2);
    assert_eq!(object(&together, &["get", &first.pid().to_string(), "quota"])["value"], "none");
    // One that is killed leaves its socket, which nobody is bothered with.
    second.kill();
    assert_eq!(number(&object(&together, &["get", "quota"]), "pid"), u64::from(first.pid()));
    assert_eq!(first.stop().code, Some(0));
}

#[test]
fn a_folder_that_others_may_enter_is_not_used() {
    let Some(yonder) = Yonder::ready() else { return };
    let together = yonder.together();
    let folder = together.runtime().join("yonder");
    std::fs::create_dir(&folder).expect("the folder is writable");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    let server = together.serve(&SERVER);
    // It serves all the same.
    Client::connect(server.address()).fill(&CONTENT, 0..10, 1);
    let listed = together.run(&["ctl", "list"]);
    assert!(listed.complaint(1).contains("is open to other users: type chmod 700 "), "{}", listed.stderr);
    let ended = server.stop();
    assert!(
        ended.code == Some(0) && ended.stderr.contains("yonder ctl will not find this process: "),
        "{}",
        ended.stderr
    );
    assert!(folder.read_dir().expect("it is ours").next().is_none());
}

/// The program `lasting` under `yonder run`, when its memory is far.
fn lasting(together: &Together, program: &Program) -> Process {
    let flags = ["run", "--local", "32MiB", "--memory", "64MiB", "--", program.path()];
    let mut process = together.spawn(&flags);
    process.wait_for("ready");
    process
}

#[test]
fn a_program_that_knows_nothing_of_it_has_a_quota_while_it_runs() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("lasting") else { return };
    let together = yonder.together();
    let mut process = lasting(&together, &program);
    let listed = object(&together, &["list"]);
    assert_eq!(
        (listed["command"].as_str(), number(&listed, "local_bytes")),
        (Some(program.path()), 32 << 20),
        "{listed}"
    );
    assert!(resident(&together) > 2 * QUOTA_BYTES, "little is local: {}", resident(&together));
    assert_eq!(object(&together, &["set", "region.0.quota=4MiB"])["value"], "4MiB");
    wait_until("memory falls to the quota", || resident(&together) <= QUOTA_BYTES);
    process.say("look");
    process.wait_for("ok the memory is as it was");
    // What it executes next has the same number, and is asked anew.
    process.say("exec");
    process.wait_for("ready again");
    let again = object(&together, &["list"]);
    assert_eq!((number(&again, "pid"), again["quota_bytes"].is_null()), (number(&listed, "pid"), true), "{again}");
    assert!(object(&together, &["get", "region.0.quota"])["amount"].is_null());
    process.say("look");
    process.wait_for("ok the memory is as it was");
    process.say_no_more();
    let ended = process.end();
    assert_eq!((ended.code, ended.stdout.ends_with("done\n")), (Some(0), true), "{}{}", ended.stdout, ended.stderr);
    assert!(sockets(&together).is_empty());
}

fn sockets(together: &Together) -> Vec<String> {
    let files = together.runtime().join("yonder").read_dir().expect("the folder stays");
    files.map(|file| file.expect("it is listed").file_name().to_string_lossy().into_owned()).collect()
}

/// Ends a process that is not a child of this one.
struct Ends(Pid);

impl Ends {
    fn now(&self) {
        // It may have ended.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.now();
    }
}

fn pid(number: u64) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process has a number")
}

#[test]
fn a_forked_child_is_not_taken_for_its_parent() {
    let Some(yonder) = Yonder::ready_to_run() else { return };
    let Some(program) = Program::compiled("lasting") else { return };
    let together = yonder.together();
    let mut process = lasting(&together, &program);
    process.say("fork");
    let said = process.wait_for("forked ");
    let child = said.split_whitespace().last().and_then(|number| number.parse().ok()).expect("its number");
    let _child = Ends(pid(child));
    assert_ne!(number(&object(&together, &["list"]), "pid"), child);
    let parent = Ends(pid(number(&object(&together, &["list"]), "pid")));
    // The parent leaves its socket, and the child has been born with the same descriptors.
    parent.now();
    wait_until("the parent ends", || !Path::new(&format!("/proc/{}/fd/0", parent.0.as_raw_nonzero())).exists());
    let listed = together.run(&["ctl", "list"]);
    assert!(
        listed.stdout.is_empty() && listed.stderr.contains("no process of this user has far memory"),
        "{}",
        listed.stderr
    );
    assert!(Path::new(&format!("/proc/{child}")).exists(), "the child is gone, so nothing was tested");
    assert!(sockets(&together).is_empty());
}
