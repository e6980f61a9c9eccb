use super::*;
use crate::observed::{Container, Exit, Sandbox, State};
use k8s_openapi::api::core::v1::PodStatus;
use serde_json::{Value, json};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(1_000_000 + seconds)
}

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "p", "namespace": "n", "uid": "u", "generation": 3});
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).unwrap()
}

fn simple(policy: &str) -> Pod {
    pod(json!({"restartPolicy": policy, "terminationGracePeriodSeconds": 20, "containers": [{"name": "a", "image": "i"}]}))
}

/// A node in miniature: it carries every action out at once and successfully.
struct World {
    pod: Pod,
    runtime: PodRuntime,
    memory: Memory,
    now: Timestamp,
}

impl World {
    fn new(pod: Pod) -> Self {
        Self { pod, runtime: PodRuntime::default(), memory: Memory::new(at(0)), now: at(0) }
    }

    fn decide(&self) -> Decision {
        step(&self.pod, &self.runtime, &self.memory, self.now)
    }

    /// What is due, in short.
    fn due(&self) -> Vec<String> {
        self.decide().actions.iter().map(short).collect()
    }

    /// Carries out what is due until nothing is; answers all of it.
    fn settle(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let actions = self.decide().actions;
            if actions.is_empty() {
                return all;
            }
            assert!(all.len() < 50, "it does not settle: {all:?}");
            for action in actions {
                all.push(short(&action));
                self.carry_out(&action);
            }
        }
    }

    fn carry_out(&mut self, action: &Action) {
        let failed_at = match action {
            Action::StartContainer { name, .. } => self.runtime.latest(name).and_then(|c| c.exit()).map(|exit| exit.finished_at),
            _ => None,
        };
        self.memory.begin(action, failed_at, self.now);
        match action {
            Action::CreateSandbox { attempt } => {
                let id = format!("s{attempt}");
                self.runtime.sandboxes.push(Sandbox {
                    id,
                    attempt: *attempt,
                    ready: true,
                    created_at: self.now,
                    ips: vec!["10.0.0.2".parse().unwrap()],
                });
            }
            Action::StartContainer { name, attempt, sandbox_id } => {
                let (wanted, _) = find(self.pod.spec.as_ref().unwrap(), name).unwrap();
                self.runtime.containers.push(Container {
                    id: format!("{name}{attempt}"),
                    sandbox_id: sandbox_id.clone(),
                    name: name.clone(),
                    attempt: *attempt,
                    created_at: self.now,
                    state: State::Running { started_at: self.now },
                    image: "i".into(),
                    image_id: "sha256:1".into(),
                    hash: crate::spec::container::hash(&wanted),
                });
            }
            Action::StopContainer { id, .. } => self.exit_id(id, 137),
            Action::StopSandbox { id } => self.runtime.sandboxes.iter_mut().filter(|s| s.id == *id).for_each(|s| s.ready = false),
            Action::RemoveContainer { id } => self.runtime.containers.retain(|c| c.id != *id),
            Action::RemoveSandbox { id } => self.runtime.sandboxes.retain(|s| s.id != *id),
            Action::Prepare | Action::CleanUp => {}
        }
        self.runtime.sort();
        self.memory.note(action, Outcome::Done, self.now);
    }

    fn exit_id(&mut self, id: &str, exit_code: i32) {
        let finished_at = self.now;
        let container = self.runtime.containers.iter_mut().find(|c| c.id == id).unwrap();
        container.state = State::Exited(Exit { exit_code, reason: "Error".into(), message: String::new(), started_at: None, finished_at });
    }

    /// The running container of this name ends by itself.
    fn exit(&mut self, name: &str, exit_code: i32) {
        let id = self.runtime.latest(name).unwrap().id.clone();
        self.exit_id(&id, exit_code);
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
    }

    fn delete(&mut self, grace: i64) {
        self.pod.metadata.deletion_timestamp = Some(wheelhouse_kinds::time::api_time(self.now));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.memory.ending = Some(Ending { since: self.now, why: Why::Deleted, grace: None });
    }

    fn status(&mut self) -> PodStatus {
        let around = status::Surroundings { host_ips: &["192.168.0.1".parse().unwrap()], now: self.now, stage: self.decide().stage };
        let status = status::of(&self.pod, &self.runtime, &self.memory, &around);
        self.pod.status = Some(status.clone());
        status
    }

    fn phase(&mut self) -> String {
        self.status().phase.unwrap()
    }

    fn waiting(&mut self, index: usize) -> String {
        let status = self.status().container_statuses.unwrap()[index].clone();
        status.state.unwrap().waiting.and_then(|waiting| waiting.reason).unwrap_or_default()
    }
}

fn short(action: &Action) -> String {
    match action {
        Action::Prepare => "prepare".into(),
        Action::CreateSandbox { attempt } => format!("sandbox {attempt}"),
        Action::StartContainer { name, attempt, .. } => format!("start {name} {attempt}"),
        Action::StopContainer { id, grace, .. } => format!("stop {id} {}s", grace.as_secs()),
        Action::RemoveContainer { id } | Action::RemoveSandbox { id } => format!("remove {id}"),
        Action::StopSandbox { id } => format!("stop {id}"),
        Action::CleanUp => "clean up".into(),
    }
}

#[test]
fn a_pod_comes_up_step_by_step() {
    let mut world = World::new(simple("Always"));
    assert_eq!((world.phase().as_str(), world.waiting(0).as_str()), ("Pending", "ContainerCreating"));
    assert_eq!(world.settle(), ["prepare", "sandbox 0", "start a 0"]);
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.2"));
    let conditions: Vec<String> = status.conditions.unwrap().iter().map(|c| format!("{}={}", c.type_, c.status)).collect();
    assert_eq!(conditions, ["PodReadyToStartContainers=True", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True"]);
    assert_eq!(status.observed_generation, Some(3));
    assert_eq!(status.container_statuses.unwrap()[0].container_id.as_deref(), Some("containerd://a0"));
}

#[test]
fn what_is_under_way_is_not_begun_again() {
    let mut world = World::new(simple("Always"));
    world.memory.begin(&Action::Prepare, None, at(0));
    assert!(world.due().is_empty());
    world.memory.note(&Action::Prepare, Outcome::Failed { reason: "FailedMount".into(), message: "no".into() }, at(1));
    world.now = at(2);
    let decision = world.decide();
    assert!(decision.actions.is_empty() && decision.wake_at.is_some(), "{decision:?}");
    world.now = at(12);
    assert_eq!(world.due(), ["prepare"]);
}

#[test]
fn crashes_are_backed_off_from_and_old_containers_go() {
    let mut world = World::new(simple("Always"));
    world.settle();
    world.exit("a", 1);
    let start = world.decide().actions.remove(0);
    let mut meanwhile = World { pod: world.pod.clone(), runtime: world.runtime.clone(), memory: world.memory.clone(), now: world.now };
    meanwhile.memory.begin(&start, Some(world.now), world.now);
    assert_eq!(meanwhile.waiting(0), "", "a restart that is under way is not backed off from");
    assert_eq!(world.settle(), ["start a 1"], "the first restart is at once");
    world.exit("a", 1);
    assert_eq!(world.settle(), Vec::<String>::new());
    assert_eq!(world.waiting(0), "CrashLoopBackOff");
    assert_eq!(world.phase(), "Running");
    let message = world.status().container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap().message.unwrap();
    assert_eq!(message, "back-off 10s restarting failed container=a pod=p_n(u)");
    assert_eq!(world.decide().wake_at, Some(at(10)));
    world.pass(10);
    assert_eq!(world.settle(), ["start a 2", "remove a0"], "the one before stays for its log");
    let status = world.status().container_statuses.unwrap()[0].clone();
    assert_eq!((status.restart_count, status.last_state.unwrap().terminated.unwrap().exit_code), (2, 1));
}

#[test]
fn policies_decide_what_ends() {
    for (policy, code, restarted, phase) in [
        ("Never", 1, false, "Failed"),
        ("Never", 0, false, "Succeeded"),
        ("OnFailure", 0, false, "Succeeded"),
        ("OnFailure", 3, true, "Running"),
        ("Always", 0, true, "Running"),
    ] {
        let mut world = World::new(simple(policy));
        world.settle();
        world.exit("a", code);
        let done = world.settle();
        assert_eq!(done.contains(&"start a 1".to_owned()), restarted, "{policy} {code}: {done:?}");
        assert_eq!(world.phase(), phase, "{policy} {code}");
        if !restarted {
            assert_eq!(done, ["stop s0", "clean up"]);
            assert_eq!(world.decide().stage, Stage::Ended);
        }
    }
}

#[test]
fn init_containers_run_one_by_one_and_sidecars_stay() {
    let mut world = World::new(pod(json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 20,
        "initContainers": [{"name": "i1"}, {"name": "side", "restartPolicy": "Always", "startupProbe": {"exec": {"command": ["x"]}}}, {"name": "i2"}],
        "containers": [{"name": "a"}, {"name": "b"}]})));
    assert_eq!(world.settle(), ["prepare", "sandbox 0", "start i1 0"]);
    assert_eq!((world.phase().as_str(), world.waiting(0).as_str()), ("Pending", "PodInitializing"));
    world.exit("i1", 0);
    assert_eq!(world.settle(), ["start side 0"]);
    assert_eq!(world.settle(), Vec::<String>::new(), "it has not started yet");
    world.memory.probes.insert("side0".into(), ProbeFacts { started: true, ..ProbeFacts::default() });
    assert_eq!(world.settle(), ["start i2 0"]);
    world.exit("i2", 0);
    assert_eq!(world.settle(), ["start a 0", "start b 0"]);
    world.exit("side", 1);
    assert_eq!(world.settle(), ["start side 1"], "a sidecar is restarted under any policy");
    world.exit("a", 0);
    world.exit("b", 0);
    assert_eq!(world.settle(), ["stop side1 20s", "stop s0", "clean up"]);
    assert_eq!(world.phase(), "Succeeded");
}

#[test]
fn a_failed_init_container_fails_the_pod_or_is_tried_again() {
    let spec = |policy: &str| json!({"restartPolicy": policy, "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    let mut world = World::new(pod(spec("Never")));
    world.settle();
    world.exit("i", 1);
    assert_eq!(world.settle(), ["stop s0", "clean up"]);
    assert_eq!(world.phase(), "Failed");
    let mut world = World::new(pod(spec("Always")));
    world.settle();
    world.exit("i", 1);
    assert_eq!(world.settle(), ["start i 1"]);
    assert_eq!(world.phase(), "Pending");
}

#[test]
fn deletion_stops_everything_in_order_and_may_only_hurry() {
    let mut world = World::new(pod(json!({"terminationGracePeriodSeconds": 60,
        "initContainers": [{"name": "side", "restartPolicy": "Always"}], "containers": [{"name": "a"}]})));
    world.settle();
    world.delete(60);
    assert_eq!(world.due(), ["stop a0 60s"], "the sidecar goes last");
    let stop = world.decide().actions.remove(0);
    world.memory.begin(&stop, None, world.now);
    world.pass(10);
    assert!(world.due().is_empty());
    world.pod.metadata.deletion_grace_period_seconds = Some(12);
    assert_eq!(world.due(), ["stop a0 2s"], "a second deletion hurries");
    assert_eq!(world.decide().stage, Stage::Ending);
    let rest = world.settle();
    assert_eq!(rest, ["stop a0 2s", "stop side0 2s", "stop s0", "clean up"]);
    assert_eq!(world.decide().stage, Stage::Ended);
    assert_eq!(world.phase(), "Failed", "137 is a failure");
}

#[test]
fn a_pod_that_is_deleted_before_it_began_only_cleans_up() {
    let mut world = World::new(simple("Always"));
    world.delete(30);
    assert_eq!(world.settle(), ["clean up"]);
    assert_eq!(world.decide().stage, Stage::Ended);
}

#[test]
fn a_lost_sandbox_is_replaced_with_all_that_was_in_it() {
    let mut world = World::new(simple("Always"));
    world.settle();
    world.runtime.sandboxes[0].ready = false;
    world.exit("a", 255);
    assert_eq!(world.settle(), ["stop s0", "sandbox 1", "start a 1"]);
}

#[test]
fn a_dead_probe_and_a_new_image_restart_a_container() {
    let mut world = World::new(simple("Always"));
    world.settle();
    world.memory.probes.insert("a0".into(), ProbeFacts { failed: Some(("Liveness", Some(5))), ..ProbeFacts::default() });
    assert_eq!(world.settle(), ["stop a0 5s", "start a 1"]);
    world.pod.spec.as_mut().unwrap().containers[0].image = Some("other".into());
    assert_eq!(world.settle(), ["stop a1 20s"]);
    world.pass(10);
    assert_eq!(world.settle(), ["start a 2", "remove a0"]);
}

#[test]
fn pulls_that_fail_are_shown_and_backed_off_from() {
    let mut world = World::new(simple("Always"));
    world.settle();
    let mut world = World { runtime: PodRuntime { containers: Vec::new(), ..world.runtime }, ..world };
    let start = world.decide().actions.remove(0);
    let mut tries = Vec::new();
    for _ in 0..3 {
        world.memory.begin(&start, None, world.now);
        world.memory.note(&start, Outcome::Failed { reason: "ErrImagePull".into(), message: "no such image".into() }, world.now);
        assert_eq!(world.waiting(0), "ErrImagePull");
        world.pass(3);
        assert_eq!(world.waiting(0), "ImagePullBackOff");
        let wake = world.decide().wake_at.unwrap();
        tries.push(wake.since(world.now).as_secs() + 3);
        world.now = wake;
    }
    assert_eq!(tries, [10, 20, 40]);
    assert_eq!(world.phase(), "Pending");
}

#[test]
fn a_deadline_ends_the_pod_and_says_so() {
    let mut world = World::new(pod(json!({"activeDeadlineSeconds": 100, "containers": [{"name": "a"}]})));
    world.settle();
    assert_eq!(world.phase(), "Running");
    assert_eq!(world.decide().wake_at, Some(at(100)));
    world.pass(100);
    assert_eq!(world.settle(), ["stop a0 30s", "stop s0", "clean up"]);
    let status = world.status();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("DeadlineExceeded")));
}

#[test]
fn an_eviction_fails_the_pod_with_its_reason() {
    let mut world = World::new(simple("Always"));
    world.settle();
    let why = Why::Failed { reason: "Evicted".into(), message: "The node was low on resource: memory.".into() };
    world.memory.ending = Some(Ending { since: world.now, why, grace: Some(Duration::ZERO) });
    assert_eq!(world.settle(), ["stop a0 0s", "stop s0", "clean up"]);
    let status = world.status();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Evicted")));
}

#[test]
fn readiness_follows_probes_and_gates() {
    let mut world = World::new(pod(json!({"readinessGates": [{"conditionType": "x/y"}],
        "containers": [{"name": "a", "readinessProbe": {"exec": {"command": ["x"]}}}]})));
    world.settle();
    let ready = |world: &mut World| {
        let conditions = world.status().conditions.unwrap();
        let find = |kind: &str| conditions.iter().find(|c| c.type_ == kind).unwrap().clone();
        (find("ContainersReady").status, find("Ready").reason.unwrap_or_default())
    };
    assert_eq!(ready(&mut world), ("False".into(), "ContainersNotReady".into()));
    world.memory.probes.insert("a0".into(), ProbeFacts { ready: true, started: true, failed: None });
    assert_eq!(ready(&mut world), ("True".into(), "ReadinessGatesNotReady".into()));
    let gate = serde_json::from_value(json!({"type": "x/y", "status": "True"})).unwrap();
    world.pod.status.as_mut().unwrap().conditions.as_mut().unwrap().push(gate);
    assert_eq!(ready(&mut world), ("True".into(), String::new()));
}

#[test]
fn an_ephemeral_container_starts_beside_the_others() {
    let mut world = World::new(simple("Never"));
    world.settle();
    world.pod.spec.as_mut().unwrap().ephemeral_containers = serde_json::from_value(json!([{"name": "debug", "image": "b"}])).unwrap();
    assert_eq!(world.settle(), ["start debug 0"]);
    world.exit("debug", 0);
    assert_eq!(world.settle(), Vec::<String>::new(), "it never runs again");
    assert_eq!(world.phase(), "Running");
}
