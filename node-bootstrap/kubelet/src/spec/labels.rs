//! What the runtime keeps for the kubelet: the names that every CRI client knows, so that `crictl` and log collectors find pods too.

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Annotations of containers.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
pub const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Where on the node the file behind the termination message path lies.
pub const MESSAGE_FILE: &str = "node.wheelhouse.dev/termination-message-file";
/// Seconds, so that a pod whose object is gone is still stopped as its spec said.
pub const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotations of pods.
pub const STATIC_SOURCE: &str = "kubernetes.io/config.source";
pub const STATIC_HASH: &str = "kubernetes.io/config.hash";
pub const MIRROR: &str = "kubernetes.io/config.mirror";
