//! [`Sandbox`]: the system calls that a process may make from now on, and the files and ports that it may open; what
//! the kernel holds all its threads to.
//!
//! System calls are held to a list by seccomp, files and ports by landlock. Of the calls that are not on the list,
//! those of [`FORBIDDEN`] end the process: no library makes them by itself, so a process that does is not ours any
//! more. The others fail with ENOSYS, as on a kernel that has them not: what a library tries first, because a later
//! kernel is better at it, it then does in the way it did before, and a mistake in the list costs a feature rather than
//! all that the process keeps in memory.
//!
//! Key types: [`Sandbox`], what is allowed; [`Entered`], what of it this kernel enforces. Neighbours: who has the
//! list, such as `runtime/node`. `core/syscalls` has another filter, which takes no rights away.
//!
//! Invariant: after [`Sandbox::enter`] the process never has more rights than before.
//!
//! UNSAFETY: asks the kernel what it has.

mod forbidden;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

pub use forbidden::FORBIDDEN;

/// Restrictions that the tests have seen enforced. What a later landlock can do is left out until it has been tried.
const LANDLOCK_TRIED: ABI = ABI::V7;

/// What an argument of an allowed call has to be: `argument & mask == value`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Argument {
    /// Which one, from 0.
    index: u8,
    /// The bits that count.
    mask: u64,
    /// What they are.
    value: u64,
}

/// A system call that is allowed. One that is listed twice is allowed as either says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    number: i64,
    arguments: Vec<Argument>,
}

impl Call {
    /// The call with this number of this architecture, whatever its arguments.
    #[must_use]
    pub fn any(number: i64) -> Self {
        Self { number, arguments: Vec::new() }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.number
    }

    /// As before, but only if the argument with number `index`, one of 32 bits, is `value`.
    #[must_use]
    pub fn with(self, index: u8, value: u32) -> Self {
        // The kernel does not look at the other half of the register.
        self.masked(index, u64::from(u32::MAX), u64::from(value))
    }

    /// As before, but only if of the argument with number `index` the bits of `mask` are `value`.
    #[must_use]
    pub fn masked(mut self, index: u8, mask: u64, value: u64) -> Self {
        self.arguments.push(Argument { index, mask, value });
        self
    }
}

/// Connections that the process may make and take, as far as landlock knows them: those of TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ports {
    /// It listens where it does already, and connects to nothing.
    None,
    /// It listens where it does already, and connects to any port.
    Connect,
}

/// All that a process may do, from [`Sandbox::enter`] on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// System calls.
    pub calls: Vec<Call>,
    /// Files, and folders with all that is in them, that may be read. Those that are not there are left out.
    pub readable: Vec<PathBuf>,
    /// Folders of which files and sockets may be removed.
    pub removable: Vec<PathBuf>,
    /// Connections over TCP.
    pub ports: Ports,
}

/// What of a [`Sandbox`] the kernel enforces. An error is a line that says why it does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entered {
    /// Whether system calls are held to the list.
    pub filter: Result<(), String>,
    /// Whether files, and where the kernel knows of them ports, are held to the lists.
    pub landlock: Result<(), String>,
}

impl Sandbox {
    /// Holds this process, and all threads that it will make, to what is listed here. What the kernel cannot do is left
    /// out, and said.
    ///
    /// # Panics
    /// If the process has other threads, which landlock would not hold to anything; or if a call of the list has an
    /// argument that no call has.
    #[must_use]
    pub fn enter(&self) -> Entered {
        assert!(crate::is_single_threaded(), "the process has threads, which would go on outside the sandbox");
        // Landlock first: the filter has no call for it.
        let landlock = self.enter_landlock();
        let programs = [forbidden_program(), self.program()];
        let install = |program: &BpfProgram| seccompiler::apply_filter_all_threads(program);
        let filter = programs.iter().try_for_each(install).map_err(|error| described(&error));
        Entered { filter, landlock }
    }

    fn enter_landlock(&self) -> Result<(), String> {
        let lacking = |error: landlock::RulesetError| described(&error);
        let status = self.ruleset().and_then(RulesetCreated::restrict_self).map_err(lacking)?;
        match (status.ruleset, status.landlock) {
            (RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced, _) => Ok(()),
            (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
                Err("it is off: the kernel's parameter lsm= leaves it out".to_owned())
            }
            (RulesetStatus::NotEnforced, _) => Err("the kernel is built without it".to_owned()),
        }
    }

    /// All accesses are refused but for those of the rules.
    fn ruleset(&self) -> Result<RulesetCreated, landlock::RulesetError> {
        let read = |path: &PathBuf| {
            let access = if path.is_dir() { AccessFs::ReadFile | AccessFs::ReadDir } else { AccessFs::ReadFile.into() };
            beneath(path, access)
        };
        let remove = |path: &PathBuf| beneath(path, AccessFs::RemoveFile.into());
        let network = match self.ports {
            Ports::None => AccessNet::BindTcp | AccessNet::ConnectTcp,
            Ports::Connect => AccessNet::BindTcp.into(),
        };
        Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK_TRIED))?
            .handle_access(network)?
            .scope(Scope::from_all(LANDLOCK_TRIED))?
            .create()?
            .add_rules(self.readable.iter().filter_map(read))?
            .add_rules(self.removable.iter().filter_map(remove))
    }

    /// Allows what is listed; the rest is unknown to the process.
    fn program(&self) -> BpfProgram {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for call in self.calls.iter().filter(|call| !call.arguments.is_empty()) {
            let conditions = call.arguments.iter().map(condition).collect();
            rules.entry(call.number).or_default().push(SeccompRule::new(conditions).expect("there are conditions"));
        }
        // One without conditions comes before all that have some.
        rules.extend(self.calls.iter().filter(|call| call.arguments.is_empty()).map(|call| (call.number, Vec::new())));
        let unknown = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
        compile(rules, unknown, SeccompAction::Allow)
    }
}

/// Ends the process at a call that is forbidden. Of two filters the kernel takes the stricter answer.
fn forbidden_program() -> BpfProgram {
    let rules = FORBIDDEN.iter().map(|number| (*number, Vec::new())).collect();
    compile(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

fn compile(rules: BTreeMap<i64, Vec<SeccompRule>>, other: SeccompAction, listed: SeccompAction) -> BpfProgram {
    let architecture = std::env::consts::ARCH.try_into().expect("yonder is built for what seccomp filters know");
    let filter = SeccompFilter::new(rules, other, listed, architecture).expect("the two actions differ");
    filter.try_into().expect("the list is shorter than a filter may be")
}

fn condition(argument: &Argument) -> SeccompCondition {
    let comparison = match argument.mask {
        u64::MAX => SeccompCmpOp::Eq,
        mask => SeccompCmpOp::MaskedEq(mask),
    };
    let condition = SeccompCondition::new(argument.index, SeccompCmpArgLen::Qword, comparison, argument.value);
    condition.expect("calls have six arguments")
}

/// A rule for what is at `path`, if anything is.
fn beneath(path: &Path, access: BitFlags<AccessFs>) -> Option<Result<PathBeneath<PathFd>, landlock::RulesetError>> {
    Some(Ok(PathBeneath::new(PathFd::new(path).ok()?, access)))
}

/// An error with its causes, in one line. Some errors say their causes themselves.
fn described(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source()).map(ToString::to_string);
    causes.fold(error.to_string(), |line, cause| if line.ends_with(&cause) { line } else { format!("{line}: {cause}") })
}

/// Whether this kernel, and what surrounds the process, let it have filters. Nothing is installed.
#[must_use]
pub fn has_filters() -> bool {
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel reads one number, which lives until the call returns.
    let asked = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    asked == 0
}

/// The version of landlock that this kernel has: from 4 on it knows of ports. `None` if it has none, or that is off.
#[must_use]
pub fn landlock_version() -> Option<u32> {
    /// Asks for the version alone.
    const CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: without rules, the kernel reads nothing.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(version).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_listed_with_and_without_conditions_has_none() {
        let of = |calls: Vec<Call>| {
            Sandbox { calls, readable: Vec::new(), removable: Vec::new(), ports: Ports::None }.program().len()
        };
        let (bare, held) = (Call::any(libc::SYS_socket), Call::any(libc::SYS_socket).with(0, 2));
        let alone = of(vec![bare.clone()]);
        assert!(of(vec![held.clone()]) > alone);
        assert_eq!([of(vec![held.clone(), bare.clone()]), of(vec![bare, held])], [alone; 2]);
    }

    #[test]
    fn the_kernel_says_what_it_has() {
        // Whatever that is: the sandbox's own tests look whether it is true.
        println!("filters: {}, landlock: {:?}", has_filters(), landlock_version());
    }
}
