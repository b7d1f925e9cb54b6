//! Computes a hash of the code generator's sources. It is part of the keys of the disk cache, so
//! that code of another version is not used.

use std::path::Path;
use std::{env, fs};

/// The sources that determine the code that the native library generates.
const SOURCES: [&str; 5] =
    ["Cargo.toml", "src/assemble.rs", "src/lower.rs", "src/single.rs", "src/stage.rs"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for source in SOURCES {
        let path = crates.join("codegen/native").join(source);
        println!("cargo:rerun-if-changed={}", path.display());
        for byte in fs::read(path).unwrap_or_default() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=MITHRIL_CODE_GENERATOR={hash:016x}");
}
