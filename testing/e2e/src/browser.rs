//! [`Browser`]: a headless Chromium that a test leads through its DevTools protocol, and what its page complains of.
//!
//! Messages are JSON, each with a zero byte behind it, over two pipes that Chromium has as its descriptors 3 and 4; a
//! shell gives them these numbers. So there is no port, and no library.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::TIMEOUT;

/// Names of the program.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Starts a program with its input and output as descriptors 3 and 4.
const WITH_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;
const FLAGS: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
];

/// Light or dark, as a user prefers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// A browser with one page. Dropping it ends it.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    complaints: Vec<String>,
    loads: u32,
    _profile: TempDir,
}

impl Browser {
    /// Starts one; `None`, after saying so, if the machine has none.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn ready() -> Option<Self> {
        let is_there = |name: &&str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
        };
        let Some(program) = PROGRAMS.into_iter().find(is_there) else {
            println!("SKIP: there is no chromium (apt-get install chromium)");
            return None;
        };
        let profile = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        command.args(["-c", WITH_PIPES, program]).args(FLAGS);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("there is a shell");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("messages are JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (complaints, session) = (Vec::new(), None);
        let mut browser = Self { child, input, messages, last_id: 0, session, complaints, loads: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sets the size of the page, and what its user prefers.
    pub fn resize(&mut self, (width, height): (u32, u32), scheme: Scheme) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let value = if scheme == Scheme::Dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Opens an address, and waits until all that it names is there.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open(&mut self, url: &str) {
        // The same address with another fragment would not be loaded anew.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.wait_for_load();
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url} cannot be opened: {opened}");
        self.wait_for_load();
    }

    fn wait_for_load(&mut self) {
        while self.loads == 0 {
            let message = self.message("a page");
            self.note(&message);
        }
        self.loads = 0;
    }

    /// What an expression is, once it is there if it is promised.
    ///
    /// # Panics
    /// If it throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression} throws: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// If it never is.
    pub fn wait_until(&mut self, expression: &str) {
        let give_up = Instant::now() + TIMEOUT;
        let next_frame = "new Promise((done) => setTimeout(done, 20))";
        while self.evaluate(expression) != json!(true) {
            assert!(Instant::now() < give_up, "{expression} never is: {}", self.evaluate("document.body.innerText"));
            self.evaluate(next_frame);
        }
    }

    /// Bytes of the script's heap, without what nothing refers to, and of the arrays beside it.
    pub fn heap_bytes(&mut self) -> u64 {
        self.call("HeapProfiler.collectGarbage", json!({}));
        let usage = self.call("Runtime.getHeapUsage", json!({}));
        let bytes = |name: &str| usage[name].as_f64().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
        let sum = (bytes("usedSize") + bytes("backingStorageSize")) as u64;
        sum
    }

    /// Writes a picture of the whole page.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn picture(&mut self, path: &Path) {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        let bytes = base64(picture["data"].as_str().expect("a picture"));
        std::fs::write(path, bytes).unwrap_or_else(|error| panic!("'{}': {error}", path.display()));
    }

    /// What the page has complained of so far: errors and warnings of its console, and scripts that have failed.
    pub fn complaints(&mut self) -> Vec<String> {
        self.evaluate("0");
        std::mem::take(&mut self.complaints)
    }

    /// Calls a method of the protocol, and returns its result.
    ///
    /// # Panics
    /// If there is none.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).expect("the browser reads");
        loop {
            let mut message = self.message(method);
            if message["id"] == json!(self.last_id) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.note(&message);
        }
    }

    fn message(&mut self, what: &str) -> Value {
        self.messages.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the browser does not answer: {what}"))
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loads += 1,
            Some("Runtime.exceptionThrown") => self.complaints.push(params["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] == "error" || params["type"] == "warning" => {
                self.complaints.push(params["args"].to_string());
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"].to_string());
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends its other processes itself, when it is asked to or its pipes close.
        let close = json!({ "id": self.last_id + 1, "method": "Browser.close" }).to_string() + "\0";
        if self.input.write_all(close.as_bytes()).is_err() {
            let _ = self.child.kill();
        }
        let give_up = Instant::now() + TIMEOUT;
        while self.messages.recv_timeout(give_up.saturating_duration_since(Instant::now())).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes of what is written in base64.
fn base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for letter in text.bytes() {
        let Some(value) = LETTERS.iter().position(|other| *other == letter) else { continue };
        bits = bits << 6 | u32::try_from(value).expect("it is below 64");
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        for (text, bytes) in
            [("", &b""[..]), ("aA==", b"h"), ("aGU=", b"he"), ("aGV5", b"hey"), ("//+/", &[255, 255, 191])]
        {
            assert_eq!(base64(text), bytes, "{text}");
        }
    }
}
