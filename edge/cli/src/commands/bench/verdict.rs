//! [`Verdict`]: which results of a comparison fail the command, and what is said of those that were skipped or have
//! failed.

use anyhow::bail;
use yonder_bench::Summary;

/// A result that may have been skipped, have failed, or be wrong.
pub(super) trait Verdict {
    /// What was run, such as `memcached, swap-zram`.
    fn subject(&self) -> String;

    /// What its runs have come to, of a result that has one.
    fn summary(&self) -> Option<&Summary> {
        None
    }

    /// Why it was not run, and what to type.
    fn skipped(&self) -> Option<&str> {
        self.summary()?.skipped.as_deref()
    }

    /// How it failed.
    fn failed(&self) -> Option<&str> {
        self.summary()?.failed.as_deref()
    }

    /// What was wrong: values, outputs, requests.
    fn wrong(&self) -> u64;

    /// What a table shows of that, and of requests that failed.
    fn error_count(&self) -> u64 {
        self.summary().map_or_else(|| self.wrong(), |summary| summary.errors)
    }

    /// Whether a failure of it is a result, as of what the kernel's swap cannot hold, and none of the command.
    fn may_fail(&self) -> bool {
        false
    }

    /// The number of errors, or why there is none.
    fn errors(&self) -> String {
        match (self.failed(), self.skipped()) {
            (Some(_), _) => "FAILED".to_owned(),
            (None, Some(_)) => "SKIP".to_owned(),
            (None, None) => self.error_count().to_string(),
        }
    }

    /// Says on standard error why it was skipped or failed.
    fn tell(&self) {
        if let Some(reason) = self.skipped() {
            eprintln!("SKIP: {}: {reason}", self.subject());
        }
        if let Some(reason) = self.failed() {
            eprintln!("{}: {reason}", self.subject());
        }
    }
}

/// What is wrong fails the command, and so does what has failed and may not.
pub(super) fn judge<R: Verdict>(results: &[R]) -> anyhow::Result<()> {
    let named = |is_bad: fn(&R) -> bool| {
        let bad = results.iter().filter(|result| is_bad(result));
        bad.map(|result| format!("({})", result.subject())).collect::<Vec<_>>().join(", ")
    };
    let wrong = named(|result| result.wrong() > 0);
    if !wrong.is_empty() {
        bail!(
            "requests failed, or values or outputs were wrong, of {wrong}; please report this with the command that was run"
        );
    }
    let failed = named(|result| result.failed().is_some() && !result.may_fail());
    if !failed.is_empty() {
        bail!("these ended badly, for the reasons above: {failed}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One {
        failed: Option<&'static str>,
        wrong: u64,
        may_fail: bool,
    }

    impl Verdict for One {
        fn subject(&self) -> String {
            "sort, zram".to_owned()
        }

        fn failed(&self) -> Option<&str> {
            self.failed
        }

        fn wrong(&self) -> u64 {
            self.wrong
        }

        fn may_fail(&self) -> bool {
            self.may_fail
        }
    }

    #[test]
    fn what_is_wrong_or_may_not_fail_fails_the_command() {
        let judged = |failed, wrong, may_fail| {
            let all = [One { failed: None, wrong: 0, may_fail: false }, One { failed, wrong, may_fail }];
            judge(&all).map_err(|error| error.to_string())
        };
        assert_eq!(judged(None, 0, false), Ok(()));
        assert_eq!(judged(Some("out of memory"), 0, true), Ok(()));
        assert!(judged(Some("hung"), 0, false).unwrap_err().ends_with("for the reasons above: (sort, zram)"));
        assert!(judged(None, 2, true).unwrap_err().contains("of (sort, zram); please report"));
        assert_eq!(One { failed: Some("hung"), wrong: 3, may_fail: true }.errors(), "FAILED");
    }
}
