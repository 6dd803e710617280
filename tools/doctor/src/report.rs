//! [`Report`]: the verdicts in order, as text for people and as JSON Lines for scripts.

use serde::Serialize;

/// How one check ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be, or only worth knowing.
    Ok,
    /// Yonder works, but slower or smaller than it could.
    Warn,
    /// Yonder does not work without it.
    Missing,
}

impl Status {
    fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Missing => "missing",
        }
    }
}

/// One verdict. The field names are those of the JSON objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// What was looked at: a stable name for scripts.
    pub check: &'static str,
    /// The verdict.
    pub status: Status,
    /// What was found and what follows from it, in one line.
    pub detail: String,
    /// The command, or the change, that mends it; absent if there is nothing to mend.
    pub mend: Option<String>,
}

/// All verdicts on one machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// One entry a check, always the same checks in the same order.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether nothing that Yonder needs is missing. Warnings do not count.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.checks.iter().all(|check| check.status != Status::Missing)
    }

    /// A table with one line a check, what to type at the end of those that can be mended, and a last line that sums
    /// up.
    #[must_use]
    pub fn to_text(&self) -> String {
        let width = self.checks.iter().map(|check| check.check.len()).max().unwrap_or(0);
        let mut text = String::new();
        for check in &self.checks {
            text += &format!("{:<7}  {:<width$}  {}", check.status.mark(), check.check, check.detail);
            if let Some(mend) = &check.mend {
                text += &format!(" -> {mend}");
            }
            text.push('\n');
        }
        text + &self.summary()
    }

    /// One JSON object a line and check: `{"check", "status", "detail", "mend"}`.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let line = |check| serde_json::to_string(check).expect("names, words and text always become JSON");
        self.checks.iter().map(|check| line(check) + "\n").collect()
    }

    fn summary(&self) -> String {
        let count = |status| self.checks.iter().filter(|check| check.status == status).count();
        match (count(Status::Missing), count(Status::Warn)) {
            (0, 0) => "This machine is ready for Yonder.\n".to_owned(),
            (0, warnings) => format!("This machine is ready for Yonder, with {warnings} warnings.\n"),
            (missing, _) => {
                format!("This machine is not ready for Yonder: {missing} missing, see what to type after '->'.\n")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: Status) -> Report {
        let mend = (status != Status::Ok).then(|| "sudo \"mend\"".to_owned());
        let fine = Check { check: "kernel", status: Status::Ok, detail: "Linux 6.18".to_owned(), mend: None };
        Report { checks: vec![fine, Check { check: "userfaultfd", status, detail: "found".to_owned(), mend }] }
    }

    #[test]
    fn text_has_a_line_a_check_and_a_summary() {
        let text = report(Status::Missing).to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "ok       kernel       Linux 6.18");
        assert_eq!(lines[1], "missing  userfaultfd  found -> sudo \"mend\"");
        assert_eq!(lines[2], "This machine is not ready for Yonder: 1 missing, see what to type after '->'.");
        assert!(report(Status::Warn).to_text().ends_with("ready for Yonder, with 1 warnings.\n"));
        assert!(report(Status::Ok).to_text().ends_with("This machine is ready for Yonder.\n"));
    }

    #[test]
    fn json_has_an_object_a_line_with_four_keys() {
        let json = report(Status::Missing).to_json_lines();
        let lines: Vec<&str> = json.lines().collect();
        assert_eq!(lines[0], r#"{"check":"kernel","status":"ok","detail":"Linux 6.18","mend":null}"#);
        assert_eq!(lines[1], r#"{"check":"userfaultfd","status":"missing","detail":"found","mend":"sudo \"mend\""}"#);
    }

    #[test]
    fn only_what_is_missing_makes_a_machine_unready() {
        assert!(report(Status::Ok).is_ready() && report(Status::Warn).is_ready());
        assert!(!report(Status::Missing).is_ready());
    }
}
