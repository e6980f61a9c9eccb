//! Writes `services/store/etcd/src/generated/` from the protos beside this tool.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = proto.join("../src/generated");
    let descriptors = protox::compile(["rpc.proto"], [&proto])?;
    std::fs::create_dir_all(&out)?;
    tonic_prost_build::configure().bytes(".").build_server(true).build_client(true).out_dir(&out).compile_fds(descriptors)?;
    Ok(())
}
