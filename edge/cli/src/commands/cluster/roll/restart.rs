//! [`Template`]: a shell command with places for what a node or controller is called, and how it is run.
//!
//! What a node says of itself goes into a shell, so it is checked: a name or address with any character that means
//! something to one is refused, and so is what a command would take for a flag.

use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use yonder_placement::NodeView;

use super::steps::label;
use super::watch::LOOK_EVERY;

/// What is restarted, as a command names it.
pub(super) struct Target {
    label: String,
    host: Option<String>,
    port: Option<String>,
    url: Option<String>,
    name: Option<String>,
}

impl Target {
    /// A node: its first URL with a host says where it is, or its first one.
    pub(super) fn of_node(view: &NodeView) -> Self {
        let place = view.urls.iter().find_map(|url| Some((url, host_and_port(url)?)));
        let url = place.as_ref().map(|(url, _)| *url).or(view.urls.first());
        let (host, port) = place.map(|(_, place)| place).unzip();
        Self { label: label(view), host, port, url: url.cloned(), name: view.name.clone() }
    }

    /// A controller, by its address in `--at`.
    pub(super) fn of_controller(at: &str) -> Self {
        let url = format!("tcp://{at}");
        let (host, port) = host_and_port(&url).unzip();
        Self { label: format!("the controller at {at}"), host, port, url: Some(url), name: None }
    }
}

/// The host, without the brackets of an IPv6 address, and the port of `tcp://` and `udp://`.
fn host_and_port(url: &str) -> Option<(String, String)> {
    let address = ["tcp://", "udp://"].into_iter().find_map(|scheme| url.strip_prefix(scheme))?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port.to_owned()))
}

/// A command as it was typed.
pub(super) struct Template {
    flag: &'static str,
    text: String,
}

impl Template {
    pub(super) fn new(flag: &'static str, text: &str) -> Self {
        Self { flag, text: text.to_owned() }
    }

    /// Whether it says which of so many is meant.
    pub(super) fn check_for(&self, count: usize) -> anyhow::Result<()> {
        let flag = self.flag;
        ensure!(
            count < 2 || PLACES.iter().any(|place| self.text.contains(place)),
            "{flag} is the same command for {count} of them: type {{host}}, {{port}}, {{url}} or {{name}} in it"
        );
        Ok(())
    }

    /// The command for a target.
    pub(super) fn filled(&self, target: &Target) -> anyhow::Result<String> {
        let values = [&target.host, &target.port, &target.url, &target.name];
        let mut command = self.text.clone();
        for (place, value) in PLACES.into_iter().zip(values).filter(|(place, _)| self.text.contains(place)) {
            let (flag, label) = (self.flag, &target.label);
            let value = value.as_ref().with_context(|| {
                format!("{label} has nothing for {place} of {flag}: type another of {}", PLACES.join(", "))
            })?;
            ensure!(
                is_plain(value),
                "{label} says that {place} is '{}', which is not put into a shell: leave {place} out of {flag}",
                value.escape_default()
            );
            command = command.replace(place, value);
        }
        Ok(command)
    }
}

/// What is filled in.
const PLACES: [&str; 4] = ["{host}", "{port}", "{url}", "{name}"];

/// Whether no shell, and no command, takes it for anything but a word.
fn is_plain(value: &str) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/[]%".contains(&byte);
    !value.is_empty() && !value.starts_with('-') && value.bytes().all(is_of_word)
}

/// Runs a command to its end, within a time. What it prints goes to standard error.
pub(super) fn run(command: &str, stopped: &Receiver<()>, timeout: Duration) -> anyhow::Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(std::io::stderr());
    let mut child = shell.spawn().context("no shell can be started")?;
    let deadline = Instant::now() + timeout;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let cause = match stopped.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => continue,
            Err(RecvTimeoutError::Timeout) => format!("`{command}` has not ended within {timeout:?}"),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => "stopped".to_owned(),
        };
        // It may have ended by itself.
        let _ = child.kill();
        child.wait()?;
        bail!("{cause}");
    };
    ensure!(status.success(), "`{command}` {}", ended(status));
    Ok(())
}

fn ended(status: ExitStatus) -> String {
    status.code().map_or_else(|| "was killed".to_owned(), |code| format!("has failed with exit code {code}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use yonder_placement::{Domains, NodeCondition, NodeId};

    use super::*;

    fn view(name: Option<&str>, urls: &[&str]) -> NodeView {
        NodeView {
            node: NodeId(1),
            name: name.map(str::to_owned),
            urls: urls.iter().map(ToString::to_string).collect(),
            domains: Domains::default(),
            condition: NodeCondition::Serving,
            memory_bytes: 1 << 30,
            free_bytes: 0,
            committed_bytes: 0,
            regions: 0,
            regions_leaving: 0,
        }
    }

    fn filled(text: &str, view: &NodeView) -> anyhow::Result<String> {
        Template::new("--restart", text).filled(&Target::of_node(view))
    }

    #[test]
    fn a_command_names_what_is_restarted() {
        let node = view(Some("n1"), &["shm:///run/n1.sock", "udp://10.0.0.2:7000"]);
        let command = filled("ssh {host} restart {name} {port} {url} {other} ${HOME}", &node).unwrap();
        assert_eq!(command, "ssh 10.0.0.2 restart n1 7000 udp://10.0.0.2:7000 {other} ${HOME}");
        let local = view(None, &["shm:///run/n1.sock"]);
        assert_eq!(filled("restart {url}", &local).unwrap(), "restart shm:///run/n1.sock");
        for text in ["ssh {host} x", "restart {name}"] {
            let error = filled(text, &local).unwrap_err().to_string();
            assert!(error.contains("--restart") && error.contains("type another"), "{error}");
        }
        let template = Template::new("--restart-controller", "ssh {host} restart {port}");
        assert_eq!(template.filled(&Target::of_controller("[fe80::1]:7400")).unwrap(), "ssh fe80::1 restart 7400");
    }

    /// Who may register a node has no shell of the operator's.
    #[test]
    fn what_a_node_says_of_itself_is_no_part_of_a_script() {
        for host in ["$(reboot)", "a;b", "a b", "`x`", "a&b", "-oProxyCommand=x", "a'b", "a\nb", "a|b", "", "~", "*"] {
            let error = filled("ssh {host} restart", &view(None, &[&format!("tcp://{host}:1")])).unwrap_err();
            assert!(error.to_string().contains("not put into a shell"), "{host}: {error}");
        }
    }

    #[test]
    fn one_command_for_several_says_which_is_meant() {
        assert!(Template::new("--restart", "restart-it").check_for(1).is_ok());
        assert!(Template::new("--restart", "restart-it").check_for(2).unwrap_err().to_string().contains("{host}"));
        assert!(Template::new("--restart", "restart {url}").check_for(2).is_ok());
    }

    #[test]
    fn a_command_that_fails_or_takes_too_long_is_said() {
        let (stop, stopped) = mpsc::channel();
        let long = Duration::from_secs(600);
        assert!(run("exit 0", &stopped, long).is_ok());
        assert_eq!(run("exit 3", &stopped, long).unwrap_err().to_string(), "`exit 3` has failed with exit code 3");
        let late = run("exec sleep 600", &stopped, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(late.contains("has not ended within 1ms"), "{late}");
        stop.send(()).unwrap();
        assert_eq!(run("exec sleep 600", &stopped, long).unwrap_err().to_string(), "stopped");
    }
}
