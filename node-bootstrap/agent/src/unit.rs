//! Files for machines: a systemd unit, and cloud-init user data.

use crate::args::Place;

/// A unit for a node with these directories. Containers and containerd run on when the agent stops.
pub fn systemd(place: &Place) -> String {
    format!(
        "[Unit]\nDescription=Wheelhouse node\nAfter=network-online.target\nWants=network-online.target\n\n[Service]\n\
         ExecStart=/usr/local/bin/wheelhouse-node run --state-dir {} --run-dir {}\nRestart=always\nRestartSec=2\nKillMode=process\nDelegate=yes\n\
         LimitNOFILE=1048576\nTasksMax=infinity\n\n[Install]\nWantedBy=multi-user.target\n",
        place.state_dir.display(),
        place.run_dir.display(),
    )
}

/// What a new virtual machine is given; the words in capitals come from `wheelhouse node-token create`.
pub fn cloud_init() -> &'static str {
    "#cloud-config\n\
     packages: [containerd, runc, containernetworking-plugins, iptables, nftables]\n\
     runcmd:\n\
     - [curl, -fsSLo, /usr/local/bin/wheelhouse-node, BINARY_URL]\n\
     - [chmod, \"0755\", /usr/local/bin/wheelhouse-node]\n\
     - [wheelhouse-node, join, ENDPOINT, --server-name, SERVER_NAME, --token, TOKEN, --ca-cert-hash, CA_CERT_HASH, --no-start]\n\
     - [sh, -c, \"wheelhouse-node unit > /etc/systemd/system/wheelhouse-node.service\"]\n\
     - [systemctl, enable, --now, wheelhouse-node]\n"
}
