//! Every stage from loop code to an object.

use mithril_ir::dtype::DType;
use mithril_kernels::builder::Builder;
use mithril_kernels::code::{Code, Fold, Ty};
use mithril_kernels::loops::Loops;
use mithril_kernels::mlir;
use mithril_native::{Options, Stage, compile};

/// `y[i] = x[i] * 2 + sum(x)`, 8 elements at a time.
fn sample() -> Code {
    let mut b = Builder::new(2, 1);
    let (x, y) = (b.buffer(0, DType::F32, true), b.buffer(1, DType::F32, false));
    let (zero, n) = (b.index(0), b.dim(0));
    let wide = Ty::vector(DType::F32, 8);
    let start = b.number(wide, 0.0);
    let total = b.repeat(zero, n, 8, &[start], |b, i, carried| {
        let loaded = b.load(x, i, 8, None);
        vec![b.add(carried[0], loaded)]
    });
    let total = b.fold(Fold::Add, total[0]);
    let total = b.splat(total, 8);
    let two = b.number(wide, 2.0);
    b.each(zero, n, 8, |b, i| {
        let loaded = b.load(x, i, 8, None);
        let value = b.fma(loaded, two, total);
        b.store(y, i, value, None);
    });
    b.finish()
}

fn options() -> Options {
    Options { cpu: "x86-64-v3".into(), features: String::new(), ..Options::default() }
}

#[test]
fn every_stage_is_there() {
    let text = mlir::print(&sample());
    let stage = |stage| compile(&text, &options(), stage).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let readable = |s| String::from_utf8(stage(s)).expect("text");
    assert!(readable(Stage::Mlir).contains("llvm.func @kernel"));
    assert!(readable(Stage::Llvm).contains("define void @kernel"));
    assert!(readable(Stage::Optimized).contains("<8 x float>"));
    assert!(readable(Stage::Assembly).contains("vfmadd"));
    assert_eq!(&stage(Stage::Object)[..4], b"\x7fELF");
}

#[test]
fn bad_text_is_an_error_with_a_place() {
    let error = compile("func.func @kernel() { return %x }", &options(), Stage::Object);
    let error = error.expect_err("the text is wrong");
    assert!(error.contains("MLIR cannot read a kernel"), "{error}");
}
