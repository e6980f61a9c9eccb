//! Writes `node-bootstrap/kubelet/src/generated/` from the proto beside this tool.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = proto.join("../src/generated");
    let descriptors = protox::compile(["cri.proto"], [&proto])?;
    std::fs::create_dir_all(&out)?;
    tonic_prost_build::configure().build_server(false).build_client(true).out_dir(&out).compile_fds(descriptors)?;
    Ok(())
}
