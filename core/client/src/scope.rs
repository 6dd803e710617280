//! [`Scope`]: what an operation may touch, and whether two operations depend on each other (Clio, section 4.5, T2).

use yonder_wire::Kind;

use crate::operation::Operation;

/// How an operation touches its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// It touches no page that another operation can name.
    Nothing,
    /// It leaves them as they are.
    Shared,
    /// It changes them.
    Exclusive,
    /// It is a fence: it depends on everything, and everything on it.
    Everything,
}

/// Pages of an address space, and what is done with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    access: Access,
    pid: u32,
    first_page: u64,
    last_page: u64,
}

impl Scope {
    /// The scope of a fence.
    pub(crate) const FENCE: Self = Self { access: Access::Everything, pid: 0, first_page: 0, last_page: 0 };

    /// The scope of whatever changes `bytes` at `address`, with pages of `1 << page_shift` bytes.
    pub(crate) fn of_range(pid: u32, address: u64, bytes: u64, page_shift: u32) -> Self {
        assert!(bytes > 0, "a range has bytes");
        let last = address.saturating_add(bytes - 1);
        Self { access: Access::Exclusive, pid, first_page: address >> page_shift, last_page: last >> page_shift }
    }

    /// The scope of `operation`, with pages of `1 << page_shift` bytes.
    #[inline]
    pub(crate) fn of(operation: &Operation<'_>, page_shift: u32) -> Self {
        let Operation { kind, pid, address, length, .. } = *operation;
        let (access, address, bytes) = match kind {
            Kind::Read => (Access::Shared, address, length),
            Kind::Translate => (Access::Shared, address, 1),
            Kind::Write | Kind::Discard => (Access::Exclusive, address, length),
            Kind::Atomic => (Access::Exclusive, address, size_of::<u64>() as u64),
            Kind::Free if length == 0 => (Access::Exclusive, address, u64::MAX),
            Kind::Free => (Access::Exclusive, address, length),
            Kind::DestroySpace => (Access::Exclusive, 0, u64::MAX),
            Kind::Hello
            | Kind::Ping
            | Kind::Abort
            | Kind::CreateSpace
            | Kind::Allocate
            | Kind::Grant
            | Kind::Revoke
            | Kind::Call
            | Kind::Status
            | Kind::Adopt => (Access::Nothing, 0, 0),
        };
        if bytes == 0 {
            return Self { access: Access::Nothing, pid, first_page: 0, last_page: 0 };
        }
        let last = address.saturating_add(bytes - 1);
        Self { access, pid, first_page: address >> page_shift, last_page: last >> page_shift }
    }

    /// Whether operations with the access `Shared` may depend on one of this scope.
    #[inline]
    pub(crate) fn excludes(&self) -> bool {
        matches!(self.access, Access::Exclusive | Access::Everything)
    }

    /// Whether the later of two operations of these scopes must wait for the earlier.
    #[inline]
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        match (self.access, other.access) {
            (Access::Everything, _) | (_, Access::Everything) => true,
            (Access::Nothing, _) | (_, Access::Nothing) | (Access::Shared, Access::Shared) => false,
            _ => self.pid == other.pid && self.first_page <= other.last_page && other.first_page <= self.last_page,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(kind: Kind, pid: u32, address: u64, length: u64) -> Scope {
        let operation = Operation { kind, pid, capability: 0, address, length, body: &[], deadline: 0, token: 0 };
        Scope::of(&operation, 12)
    }

    fn conflict(a: Scope, b: Scope) -> bool {
        assert_eq!(a.conflicts(&b), b.conflicts(&a));
        a.conflicts(&b)
    }

    #[test]
    fn operations_conflict_if_they_share_a_page_and_one_changes_it() {
        let write = scope(Kind::Write, 1, 4096, 4097);
        assert!(conflict(write, scope(Kind::Read, 1, 8192, 1)), "the last byte is in the next page");
        assert!(conflict(write, scope(Kind::Atomic, 1, 4096 + 8, 0)));
        assert!(conflict(write, scope(Kind::Discard, 1, 0, 1 << 20)));
        assert!(conflict(write, write));
        assert!(!conflict(write, scope(Kind::Read, 1, 12288, 4096)));
        assert!(!conflict(write, scope(Kind::Read, 1, 0, 4096)));
        assert!(!conflict(write, scope(Kind::Write, 2, 4096, 4096)), "another address space");
        assert!(!conflict(scope(Kind::Read, 1, 0, 9), scope(Kind::Translate, 1, 0, 0)), "neither changes it");
    }

    #[test]
    fn slow_kinds_conflict_on_what_they_end() {
        let read = scope(Kind::Read, 1, 1 << 30, 4096);
        assert!(conflict(read, scope(Kind::DestroySpace, 1, 0, 0)));
        assert!(conflict(read, scope(Kind::Free, 1, 4096, 0)), "a free of unknown length");
        assert!(!conflict(read, scope(Kind::Free, 1, 4096, 4096)));
        for kind in [Kind::Allocate, Kind::CreateSpace, Kind::Grant, Kind::Call, Kind::Status, Kind::Ping, Kind::Adopt]
        {
            assert!(!conflict(scope(kind, 1, 1 << 30, 9), scope(Kind::DestroySpace, 1, 0, 0)), "{kind:?}");
            assert!(conflict(scope(kind, 1, 1 << 30, 9), Scope::FENCE), "{kind:?}");
        }
    }

    #[test]
    fn an_end_beyond_the_last_address_does_not_wrap() {
        let write = scope(Kind::Write, 1, u64::MAX - 10, 100);
        assert!(!conflict(write, scope(Kind::Read, 1, 0, 100)));
        assert!(conflict(write, scope(Kind::Read, 1, u64::MAX, 1)));
    }
}
