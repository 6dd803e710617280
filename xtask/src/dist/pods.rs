//! Manifests for Kubernetes, read as it reads them, and run without it: each container of theirs by [`Container`], with
//! the user, the filter, the secrets and the volumes that its manifest says.
//!
//! All are on this machine's network: a pod's address is one of `127.0.1.0/24`, and its name stands in the containers'
//! `/etc/hosts`. What is no image of ours runs from this machine's `/usr`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::container::{Container, Plan};

/// How many machines run a pod of each `DaemonSet`.
const MACHINES: u64 = 3;
/// The folders of this machine that a program of its own needs.
const FOLDERS: [&str; 4] = ["/usr", "/bin", "/lib", "/lib64"];

/// A pod of a manifest.
pub(super) struct Pod {
    pub(super) name: String,
    /// What the others call it, if it has such a name.
    host: Option<String>,
    pub(super) address: String,
    spec: Value,
    /// Folders of its own that stay when it is started again.
    claims: Vec<String>,
}

/// The pods of manifests, of which each may have several documents.
pub(super) fn pods(manifests: &[String]) -> Result<Vec<Pod>, String> {
    let mut pods = Vec::new();
    for manifest in manifests {
        // Permissions are written as everywhere, with a zero in front.
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple_with_options(manifest, options).map_err(|error| error.to_string())?;
        for document in &documents {
            let (name, spec) = (text(&document["metadata"]["name"])?, &document["spec"]);
            let template = &spec["template"]["spec"];
            match text(&document["kind"])? {
                "Service" => {}
                "Pod" => pods.push(Pod::new(name.to_owned(), None, spec, spec, pods.len())),
                "DaemonSet" => {
                    for index in 0..MACHINES {
                        pods.push(Pod::new(format!("{name}-{index}"), None, spec, template, pods.len()));
                    }
                }
                "StatefulSet" => {
                    let service = text(&spec["serviceName"])?;
                    for index in 0..spec["replicas"].as_u64().unwrap_or(1) {
                        let host = Some(format!("{name}-{index}.{service}"));
                        pods.push(Pod::new(format!("{name}-{index}"), host, spec, template, pods.len()));
                    }
                }
                other => return Err(format!("'{name}': a {other} is not known here")),
            }
        }
    }
    Ok(pods)
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is no text"))
}

/// The entries of a list, of which there are none if it is not there.
fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Pod {
    fn new(name: String, host: Option<String>, whole: &Value, spec: &Value, before: usize) -> Self {
        let claims = entries(&whole["volumeClaimTemplates"]).iter();
        let claims = claims.filter_map(|claim| claim["metadata"]["name"].as_str().map(str::to_owned)).collect();
        Self { name, host, address: format!("127.0.1.{}", before + 1), spec: spec.clone(), claims }
    }

    /// Where it can be asked whether it serves: the port that its manifest says.
    pub(super) fn door(&self) -> Option<String> {
        let container = &self.spec["containers"][0];
        let port = &container["readinessProbe"]["tcpSocket"]["port"];
        let found = entries(&container["ports"]).iter().find(|entry| entry["name"] == *port)?;
        Some(format!("{}:{}", self.address, found["containerPort"]))
    }

    /// The variables of its container, as `(name, value)`.
    fn variables(&self) -> Result<Vec<(String, String)>, String> {
        let said = entries(&self.spec["containers"][0]["env"]).iter();
        said.map(|variable| {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => self.name.clone(),
                Some("status.podIP") => self.address.clone(),
                Some(other) => return Err(format!("{}: {other} is not known here", self.name)),
                None => text(&variable["value"])?.to_owned(),
            };
            Ok((text(&variable["name"])?.to_owned(), value))
        })
        .collect()
    }
}

/// What pods have besides their manifests.
pub(super) struct World<'a> {
    /// The root of our image.
    pub(super) image: &'a Path,
    /// In which folders are made: of secrets, one named as each, and of what pods keep.
    pub(super) folder: &'a Path,
    /// The filter of system calls that is called `yonder.json`, and the one that an engine has of itself.
    pub(super) profiles: [&'a Value; 2],
}

impl World<'_> {
    /// Writes who is where.
    pub(super) fn name_hosts(&self, pods: &[Pod]) -> Result<(), String> {
        let mut lines = "127.0.0.1 localhost\n".to_owned();
        for pod in pods {
            let names = pod.host.iter().chain([&pod.name]).map(String::as_str).collect::<Vec<_>>().join(" ");
            lines.push_str(&format!("{} {names}\n", pod.address));
        }
        fs::write(self.folder.join("hosts"), lines).map_err(|error| error.to_string())
    }

    pub(super) fn start(&self, pod: &Pod) -> Result<Container, String> {
        let problem = |cause: String| format!("{}: {cause}", pod.name);
        let container = &pod.spec["containers"][0];
        let security = &pod.spec["securityContext"];
        let user = security["runAsUser"].as_u64().ok_or_else(|| problem("it does not say its user".to_owned()))?;
        let variables = pod.variables().map_err(problem)?;
        let expanded = |word: &Value| -> Result<String, String> {
            let fill = |word: String, (name, value): &(String, String)| word.replace(&format!("$({name})"), value);
            Ok(variables.iter().fold(text(word)?.to_owned(), fill))
        };
        let typed = entries(&container["command"]).iter().chain(entries(&container["args"])).map(expanded);
        let mut words = typed.collect::<Result<Vec<_>, _>>().map_err(problem)?;
        let mut environment: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        environment.push("PATH=/usr/bin".to_owned());
        let is_ours = text(&container["image"])?.starts_with("yonder:");
        if is_ours && container["command"].is_null() {
            words.insert(0, "/usr/bin/yonder".to_owned());
        }
        let mut binds = vec![(self.folder.join("hosts"), "/etc/hosts".to_owned(), false)];
        let other_root = self.folder.join(format!("root-{}", pod.name));
        if !is_ours {
            let temporary = other_root.join("tmp");
            fs::create_dir_all(&temporary)
                .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)))
                .map_err(|error| problem(error.to_string()))?;
            binds.extend(FOLDERS.iter().map(|folder| (PathBuf::from(folder), (*folder).to_owned(), false)));
        }
        for mount in entries(&container["volumeMounts"]) {
            binds.push(self.mounted(pod, mount, user).map_err(problem)?);
        }
        let [own, usual] = self.profiles;
        let is_own = security["seccompProfile"]["localhostProfile"] == "yonder.json";
        Container::start(&Plan {
            name: format!("yonder-{}-{}", std::process::id(), pod.name),
            root: if is_ours { self.image } else { &other_root },
            is_written: container["securityContext"]["readOnlyRootFilesystem"] != true,
            user,
            words,
            environment,
            binds,
            profile: Some(if is_own { own } else { usual }),
        })
    }

    /// What a mount of a pod's container is: a folder or file of this machine, where it is, and whether it is written.
    fn mounted(&self, pod: &Pod, mount: &Value, user: u64) -> Result<(PathBuf, String, bool), String> {
        let (name, at) = (text(&mount["name"])?, text(&mount["mountPath"])?.to_owned());
        if pod.claims.iter().any(|claim| claim == name) {
            let folder = self.folder.join(format!("{}-{name}", pod.name));
            let number = u32::try_from(user).map_err(|error| error.to_string())?;
            fs::create_dir_all(&folder)
                .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)))
                .and_then(|()| chown(&folder, Some(number), Some(number)))
                .map_err(|error| error.to_string())?;
            return Ok((folder, at, true));
        }
        let volumes = entries(&pod.spec["volumes"]);
        let volume =
            volumes.iter().find(|volume| volume["name"] == name).ok_or(format!("there is no volume {name}"))?;
        if !volume["image"].is_null() {
            return Ok((self.image.to_owned(), at, false));
        }
        let secret = self.secret(pod, &volume["secret"])?;
        Ok((mount["subPath"].as_str().map_or(secret.clone(), |path| secret.join(path)), at, false))
    }

    /// A secret as a pod finds it: files of root's, which the pod's group may read.
    fn secret(&self, pod: &Pod, secret: &Value) -> Result<PathBuf, String> {
        let mode = secret["defaultMode"].as_u64().and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644);
        let group = pod.spec["securityContext"]["fsGroup"].as_u64().and_then(|group| u32::try_from(group).ok());
        let name = text(&secret["secretName"])?;
        let folder = self.folder.join(format!("{}-{name}", pod.name));
        let lay_out = || -> std::io::Result<()> {
            fs::create_dir_all(&folder)?;
            for entry in fs::read_dir(self.folder.join(name))? {
                let entry = entry?;
                let path = folder.join(entry.file_name());
                fs::copy(entry.path(), &path)?;
                chown(&path, Some(0), group)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
            Ok(())
        };
        lay_out().map(|()| folder.clone()).map_err(|error| format!("secret {name}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "\
kind: Service
metadata: {name: door}
---
kind: StatefulSet
metadata: {name: keeper}
spec:
  serviceName: door
  replicas: 2
  template:
    spec:
      containers:
        - env:
            - name: HERE
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
            - {name: FLAG, value: \"yes\"}
          ports: [{name: web, containerPort: 80}]
          readinessProbe: {tcpSocket: {port: web}}
  volumeClaimTemplates:
    - metadata: {name: data}
---
kind: DaemonSet
metadata: {name: lender}
spec:
  template:
    spec:
      volumes:
        - secret: {defaultMode: 0440}
";

    #[test]
    fn pods_are_as_many_as_their_manifests_say() {
        let pods = pods(&[MANIFEST.to_owned()]).unwrap();
        let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["keeper-0", "keeper-1", "lender-0", "lender-1", "lender-2"]);
        assert_eq!((pods[1].host.as_deref(), pods[2].host.as_deref()), (Some("keeper-1.door"), None));
        assert_eq!(pods[1].door().as_deref(), Some("127.0.1.2:80"));
        assert_eq!(pods[1].claims, ["data"]);
        let variables = pods[1].variables().unwrap();
        assert_eq!(variables, [("HERE".into(), "127.0.1.2".into()), ("FLAG".into(), "yes".into())]);
        assert_eq!(pods[2].spec["volumes"][0]["secret"]["defaultMode"], 0o440);
    }

    #[test]
    fn what_is_not_known_is_said() {
        let said = pods(&["kind: Job\nmetadata: {name: once}\n".to_owned()]).err().unwrap();
        assert_eq!(said, "'once': a Job is not known here");
    }
}
