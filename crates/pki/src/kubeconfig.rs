//! Kubeconfig files, as text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// How a kubeconfig's user authenticates.
#[derive(Clone)]
pub enum Credential {
    /// PEM texts.
    Certificate {
        certificate: String,
        key: String,
    },
    Token(String),
}

/// One cluster, one user, one context.
#[derive(Clone)]
pub struct Kubeconfig {
    /// The context's name, and the cluster's.
    pub name: String,
    pub user: String,
    /// `https://host:port`
    pub server: String,
    /// What the endpoint routes by and the certificate is checked against; empty to use the server's host.
    pub tls_server_name: String,
    /// PEM.
    pub ca_certificate: String,
    pub credential: Credential,
}

impl Kubeconfig {
    /// The file's text. Names are quoted, since a user's name holds colons.
    pub fn render(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (name, user) = (quoted(&self.name), quoted(&self.user));
        let data = |pem: &str| STANDARD.encode(pem);
        let server_name = match self.tls_server_name.as_str() {
            "" => String::new(),
            name => format!("    tls-server-name: {}\n", quoted(name)),
        };
        let credential = match &self.credential {
            Credential::Certificate { certificate, key } => {
                format!("    client-certificate-data: {}\n    client-key-data: {}\n", data(certificate), data(key))
            }
            Credential::Token(token) => format!("    token: {}\n", quoted(token)),
        };
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {name}\n  cluster:\n    server: {server}\n{server_name}    certificate-authority-data: {ca}\n\
             users:\n- name: {user}\n  user:\n{credential}contexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {user}\ncurrent-context: {name}\n",
            server = quoted(&self.server),
            ca = data(&self.ca_certificate),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_kubectl_reads() {
        let config = Kubeconfig {
            name: "demo".into(),
            user: "tenant:t1:k1".into(),
            server: "https://127.0.0.1:6443".into(),
            tls_server_name: "c-aaaaaaaaaa.wheelhouse.internal".into(),
            ca_certificate: "CA".into(),
            credential: Credential::Token("t".into()),
        };
        let expected = "apiVersion: v1\nkind: Config\nclusters:\n- name: \"demo\"\n  cluster:\n    server: \"https://127.0.0.1:6443\"\n    \
            tls-server-name: \"c-aaaaaaaaaa.wheelhouse.internal\"\n    certificate-authority-data: Q0E=\nusers:\n- name: \"tenant:t1:k1\"\n  user:\n    \
            token: \"t\"\ncontexts:\n- name: \"demo\"\n  context:\n    cluster: \"demo\"\n    user: \"tenant:t1:k1\"\ncurrent-context: \"demo\"\n";
        assert_eq!(config.render(), expected);
    }
}
