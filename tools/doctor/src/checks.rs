//! [`examine`]: a verdict on each thing that matters, from what the machine says and what the kernel allowed.
//!
//! Pure: the same inputs give the same report. Only what Yonder cannot do without is `Missing`; what merely costs speed
//! or size is a warning, and what is only worth knowing is `Ok` with a detail.

use yonder_uffd::{Abilities, OpenError, Source};
use yonder_units::format_bytes;

use crate::disk::Disk;
use crate::machine::{KernelVersion, Machine, SharedHugePages};
use crate::report::{Check, Report, Status};
use crate::secrets::{encryption, memlock};

/// The oldest kernel on which SIGBUS delivery and write protection work together on anonymous memory.
const KERNEL_NEEDED: KernelVersion = KernelVersion { major: 5, minor: 14 };
/// The first kernel that drops scattered pages with one TLB flush.
const KERNEL_BATCHES: KernelVersion = KernelVersion { major: 6, minor: 16 };
/// A dispatcher or reclaimer beside a worker.
const CPUS_WANTED: usize = 2;
/// What the demo needs: its data set in emulated far memory, its local memory, and room to build the report.
const MEMORY_WANTED_BYTES: u64 = 1 << 30;
/// The kernel's default, enough for 32 thousand unithreads.
const MAP_COUNT_WANTED: u64 = 65_530;
/// A unithread's stack and its guard page are two mappings.
const MAPS_PER_UNITHREAD: u64 = 2;

/// The first version of landlock with rules for ports.
const LANDLOCK_WITH_PORTS: u32 = 4;

/// What a memory node asks for, for each socket for datagrams: some thousand full ones.
const SOCKET_BUFFER_WANTED_BYTES: u64 = 4 << 20;

/// Judges a machine. The checks come in a fixed order, the required ones first.
#[must_use]
pub fn examine(machine: &Machine, abilities: &Abilities, disk: &Disk) -> Report {
    let [io_uring, direct_access] = disk.checks(machine);
    Report {
        checks: vec![
            architecture(machine),
            kernel(machine),
            userfaultfd(machine, abilities),
            batched_drop(machine, abilities),
            cpus(machine),
            memory(machine),
            map_count(machine),
            clock(machine),
            memlock(machine),
            encryption(machine),
            copy_instructions(machine),
            virtual_machine(machine),
            socket_buffers(machine),
            shared_ports(machine),
            shared_huge_pages(machine),
            system_call_filter(machine),
            sandbox(machine),
            io_uring,
            direct_access,
        ],
    }
}

pub(crate) fn ok(check: &'static str, detail: impl Into<String>) -> Check {
    Check { check, status: Status::Ok, detail: detail.into(), mend: None }
}

pub(crate) fn warn(check: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Check {
    Check { check, status: Status::Warn, detail: detail.into(), mend: Some(mend.into()) }
}

fn missing(check: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Check {
    Check { check, status: Status::Missing, detail: detail.into(), mend: Some(mend.into()) }
}

fn architecture(machine: &Machine) -> Check {
    match machine.architecture.as_str() {
        "x86_64" => ok("architecture", "x86_64"),
        other => missing(
            "architecture",
            format!("{other}: the switch between unithreads is written for x86_64"),
            "use an x86_64 machine",
        ),
    }
}

fn kernel(machine: &Machine) -> Check {
    let release = &machine.kernel_release;
    match KernelVersion::parse(release) {
        None => warn("kernel", "the version cannot be read", "mount /proc, or compare 'uname -r' with 5.14 yourself"),
        Some(version) if version < KERNEL_NEEDED => missing(
            "kernel",
            format!("Linux {release}: faults cannot be delivered as SIGBUS with write protection before 5.14"),
            "install Linux 5.14 or later",
        ),
        Some(version) if version < KERNEL_BATCHES => warn(
            "kernel",
            format!("Linux {release}: works; reclaim is slower, as dropped pages are flushed one by one before 6.16"),
            "install Linux 6.16 or later",
        ),
        Some(_) => ok("kernel", format!("Linux {release}: dropped pages are flushed together")),
    }
}

fn userfaultfd(machine: &Machine, abilities: &Abilities) -> Check {
    const NAME: &str = "userfaultfd";
    match &abilities.userfaultfd {
        Ok(Source::Device) => ok(NAME, "from /dev/userfaultfd, with SIGBUS delivery and write protection"),
        Ok(Source::SystemCall) => ok(NAME, "from the system call, with SIGBUS delivery and write protection"),
        Ok(Source::UserModeOnly) => {
            ok(NAME, "from the system call for faults of user mode, which is all that SIGBUS delivery needs")
        }
        Err(OpenError::NotPermitted(cause)) => {
            missing(NAME, format!("this user may not use it ({cause})"), permit(machine))
        }
        Err(OpenError::Unsupported(cause)) => missing(
            NAME,
            format!("this kernel or its sandbox does not offer it ({cause})"),
            "use a kernel built with CONFIG_USERFAULTFD, outside a sandbox that filters it",
        ),
        Err(OpenError::MissingFeature(feature)) => {
            missing(NAME, format!("it lacks {feature}"), "install Linux 5.14 or later")
        }
    }
}

/// What gives this user a userfaultfd. Restricted to user mode it needs no permission, so a refusal inside a container
/// is the container's filter, and the device is the narrower way around it.
fn permit(machine: &Machine) -> &'static str {
    match (machine.is_container, machine.has_userfaultfd_device) {
        (true, _) => {
            "start the container with --device /dev/userfaultfd, or with Yonder's filter: --security-opt \
             seccomp=/usr/share/yonder/containers/seccomp.json"
        }
        (false, true) => "sudo setfacl -m u:$USER:rw /dev/userfaultfd",
        (false, false) => "sudo sysctl -w vm.unprivileged_userfaultfd=1",
    }
}

fn batched_drop(machine: &Machine, abilities: &Abilities) -> Check {
    let flushes_together =
        KernelVersion::parse(&machine.kernel_release).is_some_and(|version| version >= KERNEL_BATCHES);
    match (abilities.vectored_drop, flushes_together) {
        (true, true) => ok("batched_drop", "process_madvise drops scattered pages with one call and one flush"),
        (true, false) => ok("batched_drop", "process_madvise drops scattered pages with one call"),
        (false, _) => warn(
            "batched_drop",
            "process_madvise cannot drop pages of the own process: each run of pages is a call, and reclaim is slower",
            // A kernel that can do it, and a container's filter that does not let it.
            if machine.is_container && flushes_together {
                "start the container with --cap-add SYS_PTRACE or --security-opt seccomp=unconfined"
            } else {
                "install Linux 6.16 or later"
            },
        ),
    }
}

fn cpus(machine: &Machine) -> Check {
    match machine.cpus {
        0 => warn("cpus", "they cannot be counted", "compare 'nproc' with 2 yourself"),
        1 => warn(
            "cpus",
            "1 CPU: worker, dispatcher and reclaimer take turns on it",
            format!("give the machine, or this process, {CPUS_WANTED} CPUs or more"),
        ),
        cpus => {
            let workers = cpus.saturating_sub(2).max(1);
            ok("cpus", format!("{cpus} CPUs: best with at most {workers} workers, beside dispatcher and reclaimer"))
        }
    }
}

fn memory(machine: &Machine) -> Check {
    match machine.memory_available_bytes {
        None => warn("memory", "it cannot be read", "mount /proc, or compare 'free' with 1 GiB yourself"),
        Some(bytes) if bytes < MEMORY_WANTED_BYTES => warn(
            "memory",
            format!("{} available: the demo wants {}", format_bytes(bytes), format_bytes(MEMORY_WANTED_BYTES)),
            "end other programs, or pass a smaller --memory",
        ),
        Some(bytes) => ok("memory", format!("{} available", format_bytes(bytes))),
    }
}

fn map_count(machine: &Machine) -> Check {
    match machine.map_count_max {
        None => ok("map_count", "the limit cannot be read"),
        Some(limit) => {
            let detail = format!("{limit} mappings a process: at most {} unithreads", limit / MAPS_PER_UNITHREAD);
            if limit < MAP_COUNT_WANTED {
                warn("map_count", detail, format!("sudo sysctl -w vm.max_map_count={MAP_COUNT_WANTED}"))
            } else {
                ok("map_count", detail)
            }
        }
    }
}

fn clock(machine: &Machine) -> Check {
    let flags = &machine.cpu_flags;
    if flags.contains("constant_tsc") && flags.contains("nonstop_tsc") {
        ok("clock", "the time stamp counter is invariant")
    } else {
        warn(
            "clock",
            "the time stamp counter is not known to be invariant: the monotonic clock is used, and reading it costs more",
            "in a virtual machine, pass the host's CPU model and invtsc on",
        )
    }
}

fn copy_instructions(machine: &Machine) -> Check {
    let found: Vec<&str> =
        ["avx2", "avx512f", "erms", "fsrm"].into_iter().filter(|flag| machine.cpu_flags.contains(*flag)).collect();
    let detail = if found.is_empty() { "none: copies and hashes are slower".to_owned() } else { found.join(", ") };
    ok("copy_instructions", detail)
}

fn virtual_machine(machine: &Machine) -> Check {
    let detail = if machine.cpu_flags.contains("hypervisor") {
        "yes: interrupts between CPUs, and so TLB flushes of reclaim, cost more than on bare metal"
    } else {
        "no"
    };
    ok("virtual_machine", detail)
}

fn socket_buffers(machine: &Machine) -> Check {
    const NAME: &str = "socket_buffers";
    let limits = [("rmem_max", machine.receive_buffer_max_bytes), ("wmem_max", machine.send_buffer_max_bytes)];
    let known: Vec<(&str, u64)> = limits.into_iter().filter_map(|(name, limit)| Some((name, limit?))).collect();
    let settings = known.iter().filter(|(_, limit)| *limit < SOCKET_BUFFER_WANTED_BYTES);
    let settings: Vec<String> =
        settings.map(|(name, _)| format!("net.core.{name}={SOCKET_BUFFER_WANTED_BYTES}")).collect();
    match known.iter().map(|(_, limit)| *limit).min() {
        None => ok(NAME, "the limits cannot be read"),
        Some(least) if settings.is_empty() => ok(NAME, format!("up to {} a socket", format_bytes(least))),
        Some(least) => warn(
            NAME,
            format!(
                "at most {} a socket: with {} a node and its clients over udp:// send less again when many talk at once",
                format_bytes(least),
                format_bytes(SOCKET_BUFFER_WANTED_BYTES)
            ),
            format!("sudo sysctl -w {}", settings.join(" ")),
        ),
    }
}

fn shared_ports(machine: &Machine) -> Check {
    const NAME: &str = "shared_ports";
    if machine.has_shared_ports {
        ok(NAME, "SO_REUSEPORT: the kernel spreads datagrams over the data threads of a node")
    } else {
        warn(
            NAME,
            "no SO_REUSEPORT: a node cannot listen on udp:// here; tcp:// and shm:// work",
            "use a kernel, or a sandbox, that has it",
        )
    }
}

fn system_call_filter(machine: &Machine) -> Check {
    const NAME: &str = "system_call_filter";
    if machine.has_trapping_filters {
        return ok(NAME, "system calls of unmodified programs on far memory are found, which 'yonder run' needs");
    }
    warn(
        NAME,
        "this kernel or its sandbox has no seccomp filters, so 'yonder run' cannot run programs",
        "use a kernel built with CONFIG_SECCOMP_FILTER, outside a sandbox that hides it",
    )
}

fn sandbox(machine: &Machine) -> Check {
    const NAME: &str = "sandbox";
    match (machine.has_filters, machine.landlock_version) {
        (true, Some(version)) if version < LANDLOCK_WITH_PORTS => warn(
            NAME,
            format!("seccomp and landlock {version}: a node is held to its system calls and files, not to its ports"),
            "install Linux 6.7 or later",
        ),
        (true, Some(version)) => {
            ok(NAME, format!("seccomp and landlock {version}: a node is held to its system calls, files and ports"))
        }
        (true, None) => warn(
            NAME,
            "seccomp without landlock: a node may read all that its user may",
            "use a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in its parameter lsm=, outside a sandbox that \
             hides it",
        ),
        (false, _) => warn(
            NAME,
            "this kernel or its sandbox has no seccomp filters: a node may do all that its user may",
            "use a kernel built with CONFIG_SECCOMP_FILTER, outside a sandbox that hides it",
        ),
    }
}

fn shared_huge_pages(machine: &Machine) -> Check {
    const NAME: &str = "shared_huge_pages";
    match machine.shared_huge_pages {
        None => ok(NAME, "this kernel has none: a node has pages of 4 KiB from it"),
        Some(SharedHugePages::OnRequest) => ok(NAME, "on request: a node asks for them"),
        Some(SharedHugePages::Never) => warn(
            NAME,
            "off: with them a node's memory takes a first write of 2 MiB in one fault, and one TLB entry instead of 512",
            "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::machine::MemlockLimit;

    fn good_machine() -> Machine {
        Machine {
            architecture: "x86_64".to_owned(),
            kernel_release: "6.18.44-test".to_owned(),
            has_userfaultfd_device: true,
            is_container: false,
            cpus: 4,
            memory_available_bytes: Some(8 << 30),
            map_count_max: Some(MAP_COUNT_WANTED),
            memlock: Some(MemlockLimit::Bytes(8 << 20)),
            receive_buffer_max_bytes: Some(SOCKET_BUFFER_WANTED_BYTES),
            send_buffer_max_bytes: Some(SOCKET_BUFFER_WANTED_BYTES),
            has_shared_ports: true,
            has_trapping_filters: true,
            has_filters: true,
            landlock_version: Some(LANDLOCK_WITH_PORTS),
            io_uring_disabled: Some(0),
            shared_huge_pages: Some(SharedHugePages::OnRequest),
            cpu_flags: ["constant_tsc", "nonstop_tsc", "aes", "avx2", "fsrm"].map(str::to_owned).into(),
        }
    }

    fn good_disk() -> Disk {
        Disk { ring: Ok(()), folder: "/var/tmp".into(), file: Ok(()) }
    }

    fn good_abilities() -> Abilities {
        Abilities { userfaultfd: Ok(Source::Device), vectored_drop: true }
    }

    fn refused(error: OpenError) -> Abilities {
        Abilities { userfaultfd: Err(error), vectored_drop: true }
    }

    fn denied() -> OpenError {
        OpenError::NotPermitted(io::Error::from(io::ErrorKind::PermissionDenied))
    }

    #[track_caller]
    fn assert_check(machine: &Machine, abilities: &Abilities, name: &str, status: Status, mend: &str) {
        let report = examine(machine, abilities, &good_disk());
        let check = report.checks.iter().find(|check| check.check == name).expect("every check is always there");
        assert_eq!(check.status, status, "{check:?}");
        assert_eq!(check.mend.is_some(), status != Status::Ok, "what is not ok can be mended: {check:?}");
        assert!(check.mend.as_deref().unwrap_or("").contains(mend), "{check:?}");
        assert!(!check.detail.contains('\n') && !check.detail.is_empty());
        assert_eq!(report.is_ready(), status != Status::Missing);
    }

    #[test]
    fn a_good_machine_is_ready_without_warnings() {
        let report = examine(&good_machine(), &good_abilities(), &good_disk());
        assert!(report.checks.iter().all(|check| check.status == Status::Ok && check.mend.is_none()), "{report:?}");
        let mut names: Vec<&str> = report.checks.iter().map(|check| check.check).collect();
        names.dedup();
        assert_eq!(names.len(), 19);
    }

    #[test]
    fn old_kernels_are_slow_and_very_old_ones_do_not_work() {
        let with = |release: &str| Machine { kernel_release: release.to_owned(), ..good_machine() };
        let abilities = good_abilities();
        assert_check(&with("6.16.0"), &abilities, "kernel", Status::Ok, "");
        assert_check(&with("6.15.9"), &abilities, "kernel", Status::Warn, "6.16");
        assert_check(&with("5.14.0-427.el9"), &abilities, "kernel", Status::Warn, "6.16");
        assert_check(&with("5.13.19"), &abilities, "kernel", Status::Missing, "5.14");
        assert_check(&with("4.19.0"), &abilities, "kernel", Status::Missing, "5.14");
        assert_check(&with(""), &abilities, "kernel", Status::Warn, "uname");
    }

    #[test]
    fn every_source_of_userfaultfd_will_do() {
        for source in [Source::Device, Source::SystemCall, Source::UserModeOnly] {
            let abilities = Abilities { userfaultfd: Ok(source), vectored_drop: true };
            assert_check(&good_machine(), &abilities, "userfaultfd", Status::Ok, "");
        }
    }

    #[test]
    fn a_refused_userfaultfd_names_the_command_that_fits_the_machine() {
        let machine =
            |has_userfaultfd_device, is_container| Machine { has_userfaultfd_device, is_container, ..good_machine() };
        let check =
            |machine: &Machine, mend| assert_check(machine, &refused(denied()), "userfaultfd", Status::Missing, mend);
        check(&machine(true, false), "sudo setfacl -m u:$USER:rw /dev/userfaultfd");
        check(&machine(false, false), "sudo sysctl -w vm.unprivileged_userfaultfd=1");
        check(&machine(false, true), "--device /dev/userfaultfd");
        let unsupported = refused(OpenError::Unsupported(io::Error::from(io::ErrorKind::Unsupported)));
        assert_check(&good_machine(), &unsupported, "userfaultfd", Status::Missing, "CONFIG_USERFAULTFD");
        let feature = refused(OpenError::MissingFeature("write protection"));
        assert_check(&good_machine(), &feature, "userfaultfd", Status::Missing, "5.14");
    }

    #[test]
    fn what_only_costs_speed_or_size_is_a_warning() {
        let (good, abilities) = (good_machine(), good_abilities());
        let slow = Abilities { userfaultfd: Ok(Source::Device), vectored_drop: false };
        assert_check(&good, &slow, "batched_drop", Status::Warn, "6.16");
        let container = Machine { is_container: true, ..good.clone() };
        assert_check(&container, &slow, "batched_drop", Status::Warn, "--cap-add SYS_PTRACE");
        for (cpus, status) in [(0, Status::Warn), (1, Status::Warn), (2, Status::Ok), (64, Status::Ok)] {
            assert_check(&Machine { cpus, ..good.clone() }, &abilities, "cpus", status, "");
        }
        for (memory, status) in [(None, Status::Warn), (Some((1 << 30) - 1), Status::Warn), (Some(1 << 30), Status::Ok)]
        {
            assert_check(&Machine { memory_available_bytes: memory, ..good.clone() }, &abilities, "memory", status, "");
        }
        let few = Machine { map_count_max: Some(MAP_COUNT_WANTED - 1), ..good.clone() };
        assert_check(&few, &abilities, "map_count", Status::Warn, "sudo sysctl -w vm.max_map_count=65530");
        let unsteady = Machine { cpu_flags: ["constant_tsc".to_owned()].into(), ..good };
        assert_check(&unsteady, &abilities, "clock", Status::Warn, "invtsc");
    }

    #[test]
    fn a_node_that_could_do_better_is_told_how() {
        let (good, abilities) = (good_machine(), good_abilities());
        let small = SOCKET_BUFFER_WANTED_BYTES - 1;
        let receive = Machine { receive_buffer_max_bytes: Some(small), ..good.clone() };
        assert_check(&receive, &abilities, "socket_buffers", Status::Warn, "sysctl -w net.core.rmem_max=4194304");
        let both = Machine { send_buffer_max_bytes: Some(small), ..receive };
        let command = "sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304";
        assert_check(&both, &abilities, "socket_buffers", Status::Warn, command);
        let alone = Machine { has_shared_ports: false, ..good.clone() };
        assert_check(&alone, &abilities, "shared_ports", Status::Warn, "sandbox");
        let never = Machine { shared_huge_pages: Some(SharedHugePages::Never), ..good };
        assert_check(&never, &abilities, "shared_huge_pages", Status::Warn, "tee /sys/kernel/mm/transparent_hugepage");
    }

    #[test]
    fn who_cannot_run_programs_is_told_why() {
        let machine = Machine { has_trapping_filters: false, ..good_machine() };
        assert_check(&machine, &good_abilities(), "system_call_filter", Status::Warn, "CONFIG_SECCOMP_FILTER");
    }

    #[test]
    fn what_a_node_is_not_held_to_is_said() {
        let check = |has_filters, landlock_version, mend| {
            let machine = Machine { has_filters, landlock_version, ..good_machine() };
            assert_check(&machine, &good_abilities(), "sandbox", Status::Warn, mend);
        };
        check(false, Some(LANDLOCK_WITH_PORTS), "CONFIG_SECCOMP_FILTER");
        check(true, None, "CONFIG_SECURITY_LANDLOCK");
        check(true, Some(LANDLOCK_WITH_PORTS - 1), "Linux 6.7");
    }

    #[test]
    fn another_architecture_is_refused() {
        let machine = Machine { architecture: "aarch64".to_owned(), ..good_machine() };
        assert_check(&machine, &good_abilities(), "architecture", Status::Missing, "x86_64");
    }

    #[test]
    fn what_is_only_worth_knowing_is_ok() {
        let bare = Machine {
            memlock: None,
            receive_buffer_max_bytes: None,
            send_buffer_max_bytes: None,
            shared_huge_pages: None,
            cpu_flags: ["constant_tsc", "nonstop_tsc"].map(str::to_owned).into(),
            ..good_machine()
        };
        for name in
            ["memlock", "encryption", "copy_instructions", "virtual_machine", "socket_buffers", "shared_huge_pages"]
        {
            assert_check(&bare, &good_abilities(), name, Status::Ok, "");
        }
    }
}
