//! [`Failure`]: why a function of the interface has not done what it says, as an errno and one line.
//!
//! [`answer`] is around everything that the interface does: it keeps the line of the last failure of each thread of the
//! program, for `yonder_error_message`, and turns a panic into a failure like any other.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use yonder::clib::{ClibError, TicketError};
use yonder::{AdviceError, FabricError, FarError};
use yonder_uffd::OpenError;
use yonder_wire::ErrorCode;

/// Why something was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// A positive errno.
    errno: c_int,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Self {
        Self { errno, message: message.into() }
    }

    /// An argument that makes no sense.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, message)
    }

    /// A positive errno.
    pub(crate) fn errno(&self) -> c_int {
        self.errno
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl From<ClibError> for Failure {
    fn from(error: ClibError) -> Self {
        let errno = match &error {
            ClibError::BadRange(ErrorCode::BadAddress) => libc::EFAULT,
            ClibError::BadRange(_) => libc::EINVAL,
            ClibError::NotAllowed(_) => libc::EACCES,
            ClibError::OutOfMemory => libc::ENOMEM,
            ClibError::TooManyPending(_) => libc::EAGAIN,
            ClibError::Lost => libc::ESTALE,
            ClibError::TimedOut => libc::ETIMEDOUT,
            ClibError::Unreachable(cause) => of_fabric(cause),
            ClibError::Offload(ErrorCode::NoOffload) => libc::ENOSYS,
            ClibError::Offload(_) => libc::EREMOTEIO,
            ClibError::Controller(_) => libc::EHOSTUNREACH,
            ClibError::Refused(ErrorCode::Unsupported) | ClibError::ManyNodes => libc::EOPNOTSUPP,
            ClibError::Refused(_) => libc::EPROTO,
        };
        Self::new(errno, error.to_string())
    }
}

fn of_fabric(error: &FabricError) -> c_int {
    match error {
        FabricError::BadUrl(_) => libc::EINVAL,
        FabricError::Unreachable { .. } => libc::EHOSTUNREACH,
        FabricError::OutOfMemory { .. } | FabricError::System { .. } => libc::ENOMEM,
    }
}

impl From<AdviceError> for Failure {
    fn from(error: AdviceError) -> Self {
        let errno = match &error {
            AdviceError::Empty => libc::EINVAL,
            AdviceError::Outside { .. } | AdviceError::TooLong { .. } => libc::EFAULT,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<FarError> for Failure {
    fn from(error: FarError) -> Self {
        let errno = match &error {
            FarError::Config(_) => libc::EINVAL,
            FarError::Userfaultfd(OpenError::NotPermitted(_)) => libc::EPERM,
            FarError::Userfaultfd(_) => libc::ENOSYS,
            FarError::Fabric(cause) => of_fabric(cause),
            FarError::Region(_) | FarError::Memory(_) | FarError::Regions(_) | FarError::Thread(_) => libc::ENOMEM,
            FarError::Ports(_) => libc::EAGAIN,
            FarError::Paging(_) | FarError::Limit(_) => libc::EIO,
        };
        Self::new(errno, error.to_string())
    }
}

impl From<TicketError> for Failure {
    fn from(error: TicketError) -> Self {
        Self::invalid(error.to_string())
    }
}

thread_local! {
    /// What the last failure had to say. C has a pointer into it until the next failure.
    static LAST: RefCell<CString> = RefCell::default();
}

/// The line of the last failure in this thread.
pub(crate) fn last_message() -> *const c_char {
    // A thread that is ending has lost its line already.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Does `work`, and answers with what it returns, or with the negative errno of its failure.
pub(crate) fn answer(work: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    // What the work had borrowed from an opaque object is not used after a panic: `Turn` is broken then.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => of_panic(panic.as_ref()),
    };
    remember(&failure.message);
    -failure.errno
}

/// Keeps the line of a failure.
pub(crate) fn remember(message: &str) {
    // Text of the caller's can be in a message, so it is made one line without a NUL.
    let line: String = message.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let line = CString::new(line).unwrap_or_default();
    // A thread that is ending has nowhere to keep it, and still gets the errno.
    let _ = LAST.try_with(|last| *last.borrow_mut() = line);
}

fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no more is known");
    Failure::new(libc::EIO, format!("a fault of libyonder, please report it: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> String {
        LAST.with(|last| last.borrow().to_str().unwrap().to_owned())
    }

    #[test]
    fn each_reaction_has_an_errno() {
        let url = || "udp://a:1".to_owned();
        let unreachable = FabricError::Unreachable { url: url(), cause: "gone".to_owned() };
        let cases = [
            (ClibError::BadRange(ErrorCode::BadAddress), libc::EFAULT),
            (ClibError::BadRange(ErrorCode::BadLength), libc::EINVAL),
            (ClibError::NotAllowed(ErrorCode::NotAllowed), libc::EACCES),
            (ClibError::OutOfMemory, libc::ENOMEM),
            (ClibError::TooManyPending(4), libc::EAGAIN),
            (ClibError::Lost, libc::ESTALE),
            (ClibError::TimedOut, libc::ETIMEDOUT),
            (unreachable.into(), libc::EHOSTUNREACH),
            (FabricError::BadUrl("'x' has no scheme".to_owned()).into(), libc::EINVAL),
            (FabricError::System { url: url(), cause: "no threads".to_owned() }.into(), libc::ENOMEM),
            (ClibError::Offload(ErrorCode::NoOffload), libc::ENOSYS),
            (ClibError::Offload(ErrorCode::OffloadFailed), libc::EREMOTEIO),
            (ClibError::Refused(ErrorCode::Unsupported), libc::EOPNOTSUPP),
            (ClibError::Refused(ErrorCode::System), libc::EPROTO),
            (ClibError::ManyNodes, libc::EOPNOTSUPP),
        ];
        for (error, errno) in cases {
            let expected = error.to_string();
            assert_eq!(answer(|| Err(error.into())), -errno, "{expected}");
            assert_eq!(line(), expected);
        }
    }

    #[test]
    fn far_memory_that_cannot_be_had_has_an_errno() {
        let system = || std::io::Error::from_raw_os_error(libc::EPERM);
        let cases = [
            (yonder::ConfigError::LocalTooSmall(1).into(), libc::EINVAL),
            (OpenError::NotPermitted(system()).into(), libc::EPERM),
            (OpenError::Unsupported(system()).into(), libc::ENOSYS),
            (OpenError::MissingFeature("something").into(), libc::ENOSYS),
            (FarError::Fabric(FabricError::BadUrl("'x' has no scheme".to_owned())), libc::EINVAL),
            (FarError::Regions("too many".to_owned()), libc::ENOMEM),
            (FarError::Thread(system()), libc::ENOMEM),
        ];
        for (error, errno) in cases {
            let expected = error.to_string();
            assert_eq!(answer(|| Err(error.into())), -errno, "{expected}");
        }
    }

    #[test]
    fn success_leaves_the_last_message() {
        assert_eq!(answer(|| Err(Failure::invalid("first"))), -libc::EINVAL);
        assert_eq!((answer(|| Ok(1)), line()), (1, "first".to_owned()));
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(line(), "")).join().unwrap());
    }

    #[test]
    fn panics_end_here() {
        let table: [u8; 0] = [];
        assert_eq!(answer(|| Ok(c_int::from(table[table.len()]))), -libc::EIO);
        assert!(line().starts_with("a fault of libyonder") && line().contains("index out of bounds"), "{}", line());
        assert_eq!(answer(|| std::panic::panic_any(7)), -libc::EIO);
        assert!(line().ends_with("no more is known"));
    }

    #[test]
    fn a_message_is_one_line_of_c() {
        answer(|| Err(Failure::invalid("a\nb\0c\u{1b}[2J")));
        assert_eq!(line(), "a b c [2J");
    }
}
