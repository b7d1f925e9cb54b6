//! Compiles the part that is in C++, and links MLIR and LLVM.
//!
//! Debian has MLIR's C interface as static libraries alone: a linker script stands in for the
//! shared one, so that MLIR and LLVM themselves stay shared and single.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=MLIR_SYS_220_PREFIX");
    let prefix = env::var("MLIR_SYS_220_PREFIX").unwrap_or("/usr/lib/llvm-22".into());
    let config = |what: &str| {
        let config = Command::new(format!("{prefix}/bin/llvm-config")).arg(what).output();
        let config = config.unwrap_or_else(|error| panic!("{prefix}/bin/llvm-config: {error}"));
        String::from_utf8_lossy(&config.stdout).trim().to_string()
    };
    let directory = config("--libdir");
    println!("cargo:rerun-if-changed=src/recover.cpp");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").flag("-fno-exceptions").flag("-fno-rtti");
    // Their warnings are LLVM's own.
    build.flag("-isystem").flag(config("--includedir"));
    build.file("src/recover.cpp").compile("mithril_recover");
    let out = env::var("OUT_DIR").expect("cargo gives OUT_DIR");
    if !Path::new(&directory).join("libMLIR-C.so").exists() {
        let text = script(&directory);
        fs::write(Path::new(&out).join("libMLIR-C.so"), text).expect("OUT_DIR can be written");
        println!("cargo:rustc-link-search=native={out}");
    }
    println!("cargo:rustc-link-search=native={directory}");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
}

fn script(directory: &str) -> String {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{directory}: {error}"));
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut libraries: Vec<String> = names
        .filter(|name| name.starts_with("libMLIRCAPI") && name.ends_with(".a"))
        .map(|name| format!("{directory}/{name}"))
        .collect();
    libraries.sort();
    let shared = format!("{directory}/libMLIR.so {directory}/libLLVM.so");
    format!("GROUP ( {} AS_NEEDED ( {shared} ) )\n", libraries.join(" "))
}
