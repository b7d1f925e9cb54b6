//! Cranelift's code of what LLVM compiles, and whether both give the same bits.

// Each user takes a part of it.
#![allow(dead_code)]

use mithril_instant::Machine;
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use mithril_kernels::code;
use mithril_kernels::host::Host;
use mithril_runtime::code::Code;

/// The code of a kernel that was made for a level.
pub fn instant(code: &code::Code, level: &str) -> Code {
    // Cranelift needs SSE 4.1, which the first level lacks.
    let level = if level == "x86-64" { "x86-64-v2" } else { level };
    let host = Host::parse(level).unwrap_or_else(|e| panic!("{e}"));
    let machine = Machine::of(&host).expect("a level of Cranelift's");
    // Runs Cranelift's verifier on the printed function.
    machine.text(code).unwrap_or_else(|e| panic!("{e}"));
    let made = machine.compile(code).unwrap_or_else(|e| panic!("{e}"));
    Code::of_function("kernel", &made).expect("memory")
}

/// Where two arrays of a dtype differ, but in the bits of NaN.
pub fn difference(dtype: DType, llvm: &[u8], instant: &[u8]) -> Option<String> {
    assert_eq!(llvm.len(), instant.len());
    if llvm == instant {
        return None;
    }
    let count = llvm.len() / dtype.bytes();
    let [ours, others] = [llvm, instant]
        .map(|bytes| Tensor::from_bytes(dtype, vec![count], bytes.to_vec()).expect("its size"));
    let pairs = llvm.chunks(dtype.bytes()).zip(instant.chunks(dtype.bytes())).enumerate();
    if !dtype.is_float() {
        let mut differ = pairs.filter(|(_, (x, y))| x != y);
        return differ.next().map(|(at, (x, y))| format!("number {at}: {x:x?} and {y:x?}"));
    }
    let (ours, others) = (ours.to_f64s(), others.to_f64s());
    let same = |at: usize| ours[at].is_nan() && others[at].is_nan();
    let mut differ = pairs.filter(|(at, (x, y))| x != y && !same(*at));
    differ.next().map(|(at, _)| format!("number {at}: {:e} and {:e}", ours[at], others[at]))
}
