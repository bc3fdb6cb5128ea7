//! Devices as nodes of the store, pure: one file per class.

pub mod console;
pub mod disk;
pub mod vif;

use xen_abi::DomId;

/// A node to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Absolute path.
    pub path: String,
    /// Value; `None` for a mere directory.
    pub value: Option<String>,
    /// Owner and readers; `None`: those of the directory it is in.
    pub perms: Option<Vec<String>>,
}

impl Node {
    /// A directory.
    pub fn dir(path: impl Into<String>, perms: &[String]) -> Node {
        Node {
            path: path.into(),
            value: None,
            perms: Some(perms.to_vec()),
        }
    }

    /// A value.
    pub fn value(path: impl Into<String>, value: impl ToString) -> Node {
        Node {
            path: path.into(),
            value: Some(value.to_string()),
            perms: None,
        }
    }

    /// With permissions.
    #[must_use]
    pub fn perms(mut self, perms: &[String]) -> Node {
        self.perms = Some(perms.to_vec());
        self
    }
}

/// A device of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `vbd`, `vif`.
    pub kind: &'static str,
    /// The guest.
    pub domid: DomId,
    /// The domain that serves it.
    pub backend: DomId,
    /// Its number among those of its kind.
    pub devid: u32,
}

impl Device {
    /// Directory of the front end.
    pub fn front(&self) -> String {
        format!(
            "/local/domain/{}/device/{}/{}",
            self.domid.0, self.kind, self.devid
        )
    }

    /// Directory of the back end.
    pub fn back(&self) -> String {
        format!("/local/domain/{}/{}", self.backend.0, self.back_relative())
    }

    /// The same as scripts get it.
    pub fn back_relative(&self) -> String {
        format!("backend/{}/{}/{}", self.kind, self.domid.0, self.devid)
    }

    /// Directory of the toolstack's own copy.
    pub fn kept(&self) -> String {
        format!(
            "/libxl/{}/device/{}/{}",
            self.domid.0, self.kind, self.devid
        )
    }

    /// All nodes: both ends with what each class has, and the toolstack's copy.
    pub fn nodes(&self, front: &[(&str, String)], back: &[(&str, String)]) -> Vec<Node> {
        let (guest, server) = (self.domid.0, self.backend.0);
        let front_perms = [format!("n{guest}"), format!("r{server}")];
        let back_perms = [format!("n{server}"), format!("r{guest}")];
        let common_front = [
            ("backend", self.back()),
            ("backend-id", server.to_string()),
            ("state", "1".to_owned()),
        ];
        let common_back = [
            ("frontend", self.front()),
            ("frontend-id", guest.to_string()),
            ("online", "1".to_owned()),
            ("state", "1".to_owned()),
        ];
        let mut nodes = vec![
            Node::dir(self.kept(), &["n0".to_owned()]),
            Node::value(format!("{}/frontend", self.kept()), self.front()),
            Node::value(format!("{}/backend", self.kept()), self.back()),
            Node::dir(self.front(), &front_perms),
            Node::dir(self.back(), &back_perms),
        ];
        let mut put = |dir: String, values: &[(&str, String)]| {
            for (name, value) in values {
                nodes.push(Node::value(format!("{dir}/{name}"), value));
            }
        };
        put(self.front(), front);
        put(self.front(), &common_front);
        put(self.back(), back);
        put(self.back(), &common_back);
        // The copy survives what the ends do to theirs.
        put(self.kept(), back);
        put(self.kept(), &common_back[..3]);
        nodes
    }
}
