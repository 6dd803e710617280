//! `yonder` alone: what to do next, for what this machine is.
//!
//! What the doctor finds comes first: without it nothing else works. Then what is already there (programs with far
//! memory, a node's or a controller's address in the environment), and what there is to try.

use std::path::Path;
use std::process::ExitCode;

use rustix::process::geteuid;
use yonder::units::format_bytes;
use yonder_doctor::{Check, Report, Status};

use super::processes::Processes;
use crate::output::line;

/// What there is to type, and what it does.
type Step = (String, String);

/// What is known of the machine.
struct Seen<'a> {
    report: &'a Report,
    memory_bytes: Option<u64>,
    cpus: usize,
    /// Programs with far memory that run.
    programs: usize,
    is_root: bool,
    has_zram: bool,
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let report = yonder_doctor::examine_this_machine(Path::new("."));
    let seen = Seen {
        report: &report,
        memory_bytes: memory_bytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        programs: Processes::new(geteuid().is_root()).look().len(),
        is_root: geteuid().is_root(),
        has_zram: Path::new("/sys/block/zram0").exists(),
    };
    line(&text(&seen))?;
    Ok(ExitCode::SUCCESS)
}

/// The whole of a machine's memory, in `/proc/meminfo`.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn text(seen: &Seen<'_>) -> String {
    let memory = seen.memory_bytes.map_or_else(|| "memory of unknown size".to_owned(), format_bytes);
    let mut text = "Yonder gives programs memory that lives on other machines, or on a local SSD.\n\n".to_owned();
    text += &format!("This machine: {} CPUs, {memory}; ", seen.cpus);
    let missing: Vec<&Check> = seen.report.checks.iter().filter(|check| check.status == Status::Missing).collect();
    if missing.is_empty() {
        text += "page faults can be handled here.\n";
    } else {
        text += "something that far memory needs is missing:\n";
        for check in &missing {
            text += &format!("  {}: {}\n", check.check, check.detail);
        }
    }
    let steps = if missing.is_empty() { steps(seen) } else { mends(&missing) };
    text += "\nNext:\n";
    for (typed, why) in steps {
        text += &format!("  {typed}\n      {why}\n");
    }
    text + "\n`yonder --help` lists all commands, and `yonder COMMAND --help` what each can do."
}

fn step(typed: &str, why: &str) -> Step {
    (typed.to_owned(), why.to_owned())
}

/// What to type before anything else.
fn mends(missing: &[&Check]) -> Vec<Step> {
    let mend = |check: &&Check| Some((check.mend.clone()?, format!("mends {}", check.check)));
    let mut steps: Vec<Step> = missing.iter().filter_map(mend).collect();
    steps.push(step("yonder doctor", "says whether all is well then"));
    steps
}

fn steps(seen: &Seen<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    if seen.programs > 0 {
        let programs =
            if seen.programs == 1 { "the program".to_owned() } else { format!("{} programs", seen.programs) };
        steps
            .push(("yonder top --processes".to_owned(), format!("watch {programs} with far memory that run here now")));
    }
    steps.push(step("yonder demo", "see faults that wait beside faults that yield, in a minute, with a report"));
    let beside = if seen.is_root && seen.has_zram { ", beside swap on zram" } else { "" };
    steps.push((
        "yonder try -- PROGRAM".to_owned(),
        format!("see what a program of yours would be like with less local memory{beside}"),
    ));
    steps.push(step("yonder run --local 1GiB -- PROGRAM", "run it so, with far memory emulated"));
    let size = seen.memory_bytes.map_or(1 << 30, |bytes| (bytes / 2).next_power_of_two() / 2).max(1 << 30);
    steps.push((
        format!(
            "yonder node --listen tcp://0.0.0.0:7000 --memory {} --key cluster.key",
            format_bytes(size).replace(' ', "")
        ),
        "lend memory of this machine to others, after `yonder cluster key cluster.key`".to_owned(),
    ));
    if seen.report.checks.iter().any(|check| check.status == Status::Warn) {
        steps.push(step("yonder doctor", "see what would make it faster here"));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(check: &'static str, status: Status, mend: Option<&str>) -> Check {
        Check { check, status, detail: "what was found".to_owned(), mend: mend.map(str::to_owned) }
    }

    fn seen(report: &Report) -> Seen<'_> {
        Seen { report, memory_bytes: Some(24 << 30), cpus: 2, programs: 0, is_root: false, has_zram: true }
    }

    #[test]
    fn what_is_missing_comes_before_all_else() {
        let report = Report { checks: vec![check("userfaultfd", Status::Missing, Some("sudo sysctl vm.x=1"))] };
        let text = text(&seen(&report));
        assert!(text.contains("  userfaultfd: what was found\n"), "{text}");
        assert!(text.contains("  sudo sysctl vm.x=1\n      mends userfaultfd\n"), "{text}");
        assert!(text.contains("yonder doctor") && !text.contains("yonder demo"), "{text}");
    }

    #[test]
    fn a_ready_machine_gets_what_there_is_to_try() {
        let report = Report { checks: vec![check("kernel", Status::Ok, None)] };
        let mut seen = seen(&report);
        let words = text(&seen);
        assert!(
            words.contains("2 CPUs, 24 GiB") && words.contains("yonder demo") && words.contains("yonder try"),
            "{words}"
        );
        assert!(words.contains("--memory 8GiB") && !words.contains("zram"), "{words}");
        assert!(!words.contains("yonder top") && !words.contains("yonder doctor"), "{words}");
        (seen.programs, seen.is_root) = (2, true);
        let words = text(&seen);
        assert!(words.contains("watch 2 programs") && words.contains("beside swap on zram"), "{words}");
    }

    #[test]
    fn the_kernels_figure_is_read() {
        assert_eq!(memory_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(memory_bytes("MemFree: 1 kB\n"), None);
    }
}
