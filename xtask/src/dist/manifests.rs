//! The image is tried under the filter that is shipped beside it, and the manifests for Kubernetes are run: each pod's
//! container with its user, its filter and its secrets, on this machine. Redis, as it is, has its pages at the nodes,
//! and a node is killed.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cargo::typed;

use super::container::{Container, Plan};
use super::pods::{Pod, World, pods};
use super::trial::said;

/// Where they are.
const FOLDER: &str = "edge/cli/containers";
/// The filter that is shipped.
pub(super) const PROFILE: &str = "seccomp.json";
pub(super) const MANIFESTS: [&str; 2] = ["cluster.yaml", "program.yaml"];
/// What it lets a container do that the one of an engine does not.
const BEYOND_USUAL: [&str; 4] = ["userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"];
/// User of a container that has none of its own.
const USER: u64 = 10_001;
/// How long anything may take to serve.
const PATIENCE: Duration = Duration::from_secs(60);
/// Values that are kept in Redis, and how large each is: more than it has local memory.
const VALUES: u32 = 40_000;
const VALUE_BYTES: u32 = 8192;

/// Files that are shipped for containers, as `(name, content)`.
pub(super) fn files(root: &Path) -> Result<Vec<(&'static str, Vec<u8>)>, String> {
    let names = MANIFESTS.into_iter().chain([PROFILE]);
    names.map(|name| Ok((name, crate::install::read(&root.join(FOLDER).join(name))?))).collect()
}

/// Tries an image, which is unpacked in `image`.
pub(super) fn run(root: &Path, image: &Path) -> Result<(), String> {
    let text = |name: &str| {
        let path = root.join(FOLDER).join(name);
        fs::read_to_string(&path).map_err(|error| format!("'{}': {error}", path.display()))
    };
    let profile: Value = serde_json::from_str(&text(PROFILE)?).map_err(|error| error.to_string())?;
    let usual = without(&profile, &BEYOND_USUAL);
    look_through(image, &profile, &usual)?;
    check(root)?;
    let needed = ["openssl", "etcd", "redis-server", "redis-cli"];
    if let Some(missing) = needed.iter().find(|program| said(Command::new("which").arg(program)).is_err()) {
        println!("SKIP: the manifests are not run: there is no {missing}");
        return Ok(());
    }
    let manifests = MANIFESTS.map(text).into_iter().collect::<Result<Vec<_>, _>>()?;
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder can be made: {error}"))?;
    // Users of containers look for what is bound into them.
    said(Command::new("chmod").arg("755").arg(folder.path()))?;
    let world = World { image, folder: folder.path(), profiles: [&profile, &usual] };
    Cluster::start(&world, pods(&manifests)?)?.serve()
}

/// A filter that does not name some system calls.
fn without(profile: &Value, calls: &[&str]) -> Value {
    let mut profile = profile.clone();
    for rule in profile["syscalls"].as_array_mut().into_iter().flatten() {
        if let Some(names) = rule["names"].as_array_mut() {
            names.retain(|name| !calls.iter().any(|call| name == call));
        }
    }
    profile
}

/// Under the filter that is shipped far memory is to be had; under another one the doctor says what is missing.
fn look_through(image: &Path, profile: &Value, usual: &Value) -> Result<(), String> {
    let run = |words: &[&str], profile: &Value| {
        let plan = Plan {
            name: format!("yonder-{}-look", std::process::id()),
            root: image,
            is_written: false,
            user: USER,
            words: ["/usr/bin/yonder"].iter().chain(words).map(|word| (*word).to_owned()).collect(),
            environment: vec!["PATH=/usr/bin".to_owned()],
            binds: Vec::new(),
            profile: Some(profile),
        };
        Container::start(&plan)?.end()
    };
    for (profile, expected) in [(profile, "ok"), (usual, "missing")] {
        let (_, words, complaint) = run(&["doctor"], profile)?;
        let line = words.lines().find(|line| line.contains("userfaultfd")).unwrap_or(complaint.trim());
        if !line.starts_with(expected) {
            return Err(format!(
                "'{expected}' was expected of userfaultfd in a container, and the doctor says: {line}"
            ));
        }
        println!("  yonder doctor in a container: {}", line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let words = ["bench", "array", "--memory", "64MiB", "--local", "25%", "--duration", "1s"];
    let (status, _, complaint) = run(&words, profile)?;
    if status.success() { Ok(()) } else { Err(format!("in a container: {}", complaint.trim())) }
}

/// Checks the manifests by the schemas of Kubernetes, if there is what does.
fn check(root: &Path) -> Result<(), String> {
    let mut command = Command::new("kubernetes-validate");
    command.args(["--strict", "--quiet"]).args(MANIFESTS.map(|name| root.join(FOLDER).join(name)));
    match command.output() {
        Err(_) => {
            println!("SKIP: schemas of Kubernetes are not there: type python3 -m pip install kubernetes-validate")
        }
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            return Err(format!("{}: {}", typed(&command), String::from_utf8_lossy(&text).trim()));
        }
    }
    Ok(())
}

/// All pods of the manifests, which run.
struct Cluster<'a> {
    world: &'a World<'a>,
    yonder: PathBuf,
    running: Vec<(Pod, Container)>,
    /// What the last one has said that has ended.
    complaint: String,
}

impl<'a> Cluster<'a> {
    /// Starts them in their order, and again what ends because what it needs is not there yet, as Kubernetes does.
    fn start(world: &'a World<'a>, pods: Vec<Pod>) -> Result<Self, String> {
        world.name_hosts(&pods)?;
        let yonder = world.image.join("usr/bin/yonder");
        let mut cluster = Self { world, yonder, running: Vec::new(), complaint: String::new() };
        cluster.make_secrets(&pods)?;
        for pod in pods {
            match pod.name.as_str() {
                "controller-0" => cluster.wait_for_doors()?,
                "node-0" => cluster.wait_for_nodes(0)?,
                "redis" => cluster.wait_for_nodes(3)?,
                _ => {}
            }
            let container = world.start(&pod)?;
            cluster.running.push((pod, container));
        }
        cluster.wait_for_doors()?;
        Ok(cluster)
    }

    /// As who applies the manifests is told to make them.
    fn make_secrets(&self, pods: &[Pod]) -> Result<(), String> {
        let [key, tls] = ["yonder-key", "etcd-tls"].map(|name| self.world.folder.join(name));
        for folder in [&key, &tls] {
            fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        }
        said(Command::new(&self.yonder).args(["cluster", "key"]).arg(key.join("cluster.key")))?;
        let openssl = |words: &[&str]| said(Command::new("openssl").args(words).current_dir(&tls));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365"];
        let authority = ["req", "-x509", "-subj", "/CN=etcd", "-keyout", "ca.key", "-out", "ca.crt"];
        openssl(&[&authority[..], &curve].concat())?;
        // Pods' addresses are all of this machine here, and connections come from its first one.
        let addresses = pods.iter().map(|pod| format!(",IP:{}", pod.address)).collect::<String>();
        let names = format!("subjectAltName=DNS:etcd-0.etcd,DNS:etcd-1.etcd,DNS:etcd-2.etcd,IP:127.0.0.1{addresses}");
        let member = ["req", "-x509", "-CA", "ca.crt", "-CAkey", "ca.key", "-subj", "/CN=etcd", "-addext", &names];
        let uses =
            ["-addext", "extendedKeyUsage=serverAuth,clientAuth", "-addext", "basicConstraints=critical,CA:FALSE"];
        openssl(&[&member[..], &uses, &["-keyout", "tls.key", "-out", "tls.crt"], &curve].concat())?;
        Ok(())
    }

    /// Waits until something is so, and starts pods again that have ended.
    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            for (pod, container) in &mut self.running {
                if let Err(complaint) = container.check() {
                    self.complaint = complaint;
                    *container = self.world.start(pod)?;
                }
            }
            if Instant::now() >= end {
                return Err(format!("{what} did not come within {} s: {}", PATIENCE.as_secs(), self.complaint));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until each pod can be asked that says where.
    fn wait_for_doors(&mut self) -> Result<(), String> {
        self.wait("a pod's port", |cluster| {
            let mut doors = cluster.running.iter().filter_map(|(pod, _)| pod.door());
            doors.all(|door| door.parse().is_ok_and(|at| TcpStream::connect_timeout(&at, PATIENCE).is_ok()))
        })
    }

    /// Waits until a controller leads and has so many nodes.
    fn wait_for_nodes(&mut self, nodes: usize) -> Result<(), String> {
        self.wait(&format!("a controller with {nodes} nodes"), |cluster| {
            cluster.nodes().is_ok_and(|words| words.matches("serving").count() == nodes)
        })
    }

    /// What the controller says of its nodes.
    fn nodes(&self) -> Result<String, String> {
        let controllers = self.running.iter().filter(|(pod, _)| pod.name.starts_with("controller-"));
        let at = controllers.map(|(pod, _)| format!("{}:7400", pod.address)).collect::<Vec<_>>().join(",");
        let mut command = Command::new(&self.yonder);
        command
            .args(["controller", "nodes", "--at", &at, "--key"])
            .arg(self.world.folder.join("yonder-key/cluster.key"));
        said(&mut command)
    }

    /// Redis keeps more than its local memory, and all of it is there after a node was killed.
    fn serve(mut self) -> Result<(), String> {
        let redis = self.running.iter().find(|(pod, _)| pod.name == "redis").ok_or("there is no redis")?;
        let door = redis.0.door().ok_or("redis has no port")?;
        let (host, port) = door.split_once(':').ok_or("no port")?;
        let ask = |words: &[&str]| said(Command::new("redis-cli").args(["-h", host, "-p", port]).args(words));
        // In the server, so that nothing but its own memory is tried. Each value is its number, repeated.
        let lua = |body: &str| format!("for i = 1, {VALUES} do {body} end");
        let value = format!("string.rep(i .. '.', {VALUE_BYTES} / #(i .. '.'))");
        ask(&["eval", &lua(&format!("redis.call('set', 'key' .. i, {value})")), "0"])?;
        let at = self.running.iter().position(|(pod, _)| pod.name == "node-0").ok_or("there is no node")?;
        let nodes = self.nodes()?;
        let row = nodes.lines().find(|row| row.contains(&format!("{}:", self.running[at].0.address)));
        if row.is_none_or(|row| row.contains(" 0 B of ")) {
            return Err(format!("the node that is to be killed has nothing:\n{nodes}"));
        }
        drop(self.running.swap_remove(at));
        let count = format!(
            "local good = 0 {} return good",
            lua(&format!("if redis.call('get', 'key' .. i) == {value} then good = good + 1 end"))
        );
        let good = ask(&["eval", &count, "0"])?;
        if good != VALUES.to_string() {
            return Err(format!("{good} of {VALUES} values are there after a node was killed"));
        }
        self.running.iter_mut().try_for_each(|(_, container)| container.check())?;
        println!("  manifests: {good} values of Redis are there after one of its nodes was killed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_lets_far_memory_be_and_no_more_than_that() {
        let profile: Value =
            serde_json::from_slice(&fs::read(crate::repository_root().join(FOLDER).join(PROFILE)).unwrap()).unwrap();
        let allowed = |profile: &Value, call: &str| {
            let rules = profile["syscalls"].as_array().unwrap().clone();
            rules.iter().any(|rule| {
                let is_named = rule["names"].as_array().unwrap().iter().any(|name| name == call);
                is_named && rule["action"] == "SCMP_ACT_ALLOW" && rule["args"].is_null()
            })
        };
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        let usual = without(&profile, &BEYOND_USUAL);
        for call in BEYOND_USUAL {
            assert!(allowed(&profile, call) && !allowed(&usual, call), "{call}");
        }
        for call in
            ["mount", "bpf", "setns", "unshare", "clone", "init_module", "process_vm_writev", "keyctl", "reboot"]
        {
            assert!(!allowed(&profile, call), "{call}");
        }
    }

    #[test]
    fn the_manifests_are_read() {
        let texts = MANIFESTS.map(|name| fs::read_to_string(crate::repository_root().join(FOLDER).join(name)).unwrap());
        let pods = pods(&texts).unwrap();
        let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        let expected = ["etcd", "controller", "node"].map(|name| (0..3).map(move |index| format!("{name}-{index}")));
        let expected: Vec<String> = expected.into_iter().flatten().chain(["redis".to_owned()]).collect();
        assert_eq!(names, expected);
    }
}
