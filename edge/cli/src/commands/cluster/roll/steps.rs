//! [`Step`]: what is told of each step, to people on standard error and to scripts as JSON on standard output.

use serde::Serialize;
use yonder_placement::{NodeId, NodeView};

use crate::output::{json_line, line};

/// A step that has begun or ended. Scripts read the names: the guide has them.
#[derive(Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub(super) enum Step<'step> {
    Begin {
        nodes: usize,
        controllers: usize,
    },
    Drain {
        #[serde(flatten)]
        node: Subject<'step>,
    },
    Drained {
        #[serde(flatten)]
        node: Subject<'step>,
    },
    Restart {
        #[serde(flatten)]
        node: Subject<'step>,
        by_hand: bool,
    },
    /// Another incarnation serves.
    Back {
        #[serde(flatten)]
        node: Subject<'step>,
        was: NodeId,
    },
    RestartController {
        controller: &'step str,
        leads: bool,
    },
    ControllerBack {
        controller: &'step str,
    },
    Done {
        nodes: usize,
        controllers: usize,
    },
    Failed {
        cause: &'step str,
        left: &'step [String],
    },
}

/// The node of a step.
#[derive(Serialize)]
pub(super) struct Subject<'step> {
    node: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'step str>,
    urls: &'step [String],
    regions: u64,
}

impl<'step> Subject<'step> {
    pub(super) fn of(view: &'step NodeView) -> Self {
        Self { node: view.node, name: view.name.as_deref(), urls: &view.urls, regions: view.regions }
    }

    fn label(&self) -> String {
        named(self.node, self.name, self.urls)
    }
}

/// What a node is called: its name, its first URL, or its number if it has neither.
pub(super) fn label(view: &NodeView) -> String {
    named(view.node, view.name.as_deref(), &view.urls)
}

fn named(node: NodeId, name: Option<&str>, urls: &[String]) -> String {
    name.or(urls.first().map(String::as_str)).map_or_else(|| node.to_string(), str::to_owned)
}

/// A line of progress.
pub(super) fn tell(text: &str) {
    eprintln!("yonder cluster: {text}");
}

/// Who is told.
pub(super) struct Report {
    pub(super) json: bool,
}

impl Report {
    pub(super) fn step(&self, step: &Step<'_>) -> anyhow::Result<()> {
        if let Some(text) = step.text() {
            tell(&text);
        }
        match step {
            _ if self.json => json_line(step),
            Step::Done { nodes, controllers } => {
                line(&format!("{nodes} nodes and {controllers} controllers are restarted, and all is well"))
            }
            _ => Ok(()),
        }
    }
}

impl Step<'_> {
    /// For people. A failure is the command's own last line.
    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Begin { nodes, controllers } => {
                format!("{nodes} nodes and {controllers} controllers to restart, one after the other")
            }
            Self::Drain { node } if node.regions == 0 => return None,
            Self::Drain { node } => format!("{}: {} regions move to other nodes", node.label(), node.regions),
            Self::Drained { node } => format!("{} is drained", node.label()),
            Self::Restart { node, by_hand: true } => format!("restart {} now; waiting for it", node.label()),
            Self::Restart { node, by_hand: false } => format!("restarting {}", node.label()),
            Self::Back { node, was } => format!("{} serves again, as {} after {was}", node.label(), node.node),
            Self::RestartController { controller, leads: true } => {
                format!("restarting the controller at {controller}, which leads")
            }
            Self::RestartController { controller, leads: false } => {
                format!("restarting the controller at {controller}")
            }
            Self::ControllerBack { controller } => format!("the controller at {controller} is restarted"),
            Self::Done { .. } | Self::Failed { .. } => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts read these names: the guide has them.
    #[test]
    fn a_step_has_the_fields_that_the_guide_says() {
        let urls = ["tcp://10.0.0.2:7000".to_owned()];
        let node = || Subject { node: NodeId(0xa1), name: Some("n1"), urls: &urls, regions: 3 };
        let shown = r#""node":"00000000000000a1","name":"n1","urls":["tcp://10.0.0.2:7000"],"regions":3"#;
        for (step, expected) in [
            (Step::Begin { nodes: 2, controllers: 1 }, r#"{"step":"begin","nodes":2,"controllers":1}"#.to_owned()),
            (Step::Drain { node: node() }, format!(r#"{{"step":"drain",{shown}}}"#)),
            (Step::Drained { node: node() }, format!(r#"{{"step":"drained",{shown}}}"#)),
            (
                Step::Restart { node: node(), by_hand: false },
                format!(r#"{{"step":"restart",{shown},"by_hand":false}}"#),
            ),
            (
                Step::Back { node: node(), was: NodeId(0xa0) },
                format!(r#"{{"step":"back",{shown},"was":"00000000000000a0"}}"#),
            ),
            (
                Step::RestartController { controller: "c1:7400", leads: true },
                r#"{"step":"restart-controller","controller":"c1:7400","leads":true}"#.to_owned(),
            ),
            (
                Step::ControllerBack { controller: "c1:7400" },
                r#"{"step":"controller-back","controller":"c1:7400"}"#.to_owned(),
            ),
            (Step::Done { nodes: 2, controllers: 1 }, r#"{"step":"done","nodes":2,"controllers":1}"#.to_owned()),
            (
                Step::Failed { cause: "it is", left: &["n1".to_owned()] },
                r#"{"step":"failed","cause":"it is","left":["n1"]}"#.to_owned(),
            ),
        ] {
            assert_eq!(serde_json::to_string(&step).unwrap(), expected);
        }
    }
}
