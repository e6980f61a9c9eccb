//! Suites that look at the whole: the workspace's own rules, and the service as its users meet it.
