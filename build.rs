//! Compiles `proto/` without a `protoc` on the machine.
//!
//! Entry keys and values are served as `bytes`. Reflection shows them as the `string` that they
//! are in the proxy's own API, the same on the wire, so that generic clients take plain text.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;

const ROOT: &str = "proto";
const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";
/// `FieldDescriptorProto.Type.TYPE_STRING`.
const TYPE_STRING: i32 = 9;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let mut files = protox::compile([SERVICE], [ROOT])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files.clone())?;

    let mut patched = 0;
    let entries = files
        .file
        .iter_mut()
        .flat_map(|file| &mut file.message_type)
        .filter(|message| message.name() == "RateLimitDescriptor")
        .flat_map(|message| &mut message.nested_type)
        .filter(|message| message.name() == "Entry");
    for field in entries.flat_map(|entry| &mut entry.field) {
        field.r#type = Some(TYPE_STRING);
        patched += 1;
    }
    if patched != 2 {
        return Err(format!("found {patched} entry fields to show as text, expected 2").into());
    }
    let out = PathBuf::from(env::var("OUT_DIR")?).join("reflection.bin");
    fs::write(out, files.encode_to_vec())?;
    Ok(())
}
