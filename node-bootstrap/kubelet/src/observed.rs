//! What the container runtime says about one pod, in the words of the life cycle.

use std::collections::BTreeMap;
use std::net::IpAddr;

use wheelhouse_base::Timestamp;

/// Everything that exists of a pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRuntime {
    /// Newest first.
    pub sandboxes: Vec<Sandbox>,
    /// By name, then newest first.
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sandbox {
    pub id: String,
    pub attempt: u32,
    pub ready: bool,
    pub created_at: Timestamp,
    /// Empty with the host's network.
    pub ips: Vec<IpAddr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    pub id: String,
    pub sandbox_id: String,
    pub name: String,
    /// How many of this name were there before: the restart count.
    pub attempt: u32,
    pub created_at: Timestamp,
    pub state: State,
    pub image: String,
    pub image_id: String,
    /// Of the part of the spec that a running container cannot take over; see [`crate::spec::container::hash`].
    pub hash: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Made and not yet started.
    Created,
    Running {
        started_at: Timestamp,
    },
    Exited(Exit),
    /// The runtime lost track of it.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    pub exit_code: i32,
    /// `Completed`, `Error` or `OOMKilled` of the runtime.
    pub reason: String,
    /// The termination message.
    pub message: String,
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
}

impl PodRuntime {
    /// The newest sandbox if it works.
    pub fn ready_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|sandbox| sandbox.ready)
    }

    /// The newest container of this name.
    pub fn latest(&self, name: &str) -> Option<&Container> {
        self.of_name(name).next()
    }

    /// Newest first.
    pub fn of_name<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a Container> + use<'a, 'n> {
        self.containers.iter().filter(move |container| container.name == name)
    }

    /// The newest container of each name.
    pub fn all_latest(&self) -> BTreeMap<&str, &Container> {
        let mut latest: BTreeMap<&str, &Container> = BTreeMap::new();
        for container in &self.containers {
            latest.entry(&container.name).or_insert(container);
        }
        latest
    }

    /// Puts both lists into their order.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by(|a, b| (b.created_at, b.attempt).cmp(&(a.created_at, a.attempt)));
        self.containers.sort_by(|a, b| a.name.cmp(&b.name).then((b.attempt, b.created_at).cmp(&(a.attempt, a.created_at))));
    }

    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}

impl Container {
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Whether there may still be a process.
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, State::Exited(_))
    }

    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            _ => None,
        }
    }
}
