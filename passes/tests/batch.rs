//! `batch-scans`: the results of every operation of the table are those of a scan.

#[path = "../../ir/tests/cases/mod.rs"]
mod cases;
mod targets;

use cases::{Case, Random, operations, result};
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Module, Role, Value};
use mithril_ir::op::{self, Kind};
use mithril_ir::tensor::Tensor;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;

use targets::TARGETS;

/// Of each operation.
const CASES: u64 = 12;

/// A scan of the operation over slices of the operands in `flags`.
fn scanned(case: &Case, flags: &[bool], length: &Dim) -> Option<Module> {
    let mut body = case.function()?;
    body.name = "body".into();
    let order = ordered(flags);
    let builder = Builder::new("body");
    let mut arguments = vec![Value(0); flags.len()];
    for &at in &order {
        let ty = case.operands[at].clone();
        arguments[at] = builder.arg(format!("x{at}"), Role::Data, ty);
    }
    let value = builder.push(case.op, &arguments, case.attrs.clone()).ok()?;
    let body = builder.finish(vec![result("output", value)]).ok()?;
    let builder = Builder::new("main");
    let mut operands = Vec::new();
    for &at in &order {
        let mut ty = case.operands[at].clone();
        if flags[at] {
            ty.shape.dims.insert(0, length.clone());
        }
        operands.push(builder.arg(format!("x{at}"), Role::Data, ty));
    }
    let sequences = flags.iter().filter(|flag| **flag).count();
    let mut attrs = op::scan_attrs(&body.name, 0, sequences, false);
    attrs[4] = Attr::Bool(true);
    let values = builder.call(op::get("scan"), &body, attrs, &operands).ok()?;
    let main = builder.finish(vec![result("output", values[0])]).ok()?;
    let mut module = Module::of(main);
    module.insert(body);
    Some(module)
}

/// The operands with a batch axis, then the others.
fn ordered(flags: &[bool]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..flags.len()).collect();
    order.sort_by_key(|at| !flags[*at]);
    order
}

/// Operands for `length` steps: those of a case, each drawn anew.
fn tensors(case: &Case, flags: &[bool], length: usize, random: &mut Random) -> Vec<Tensor> {
    let steps: Vec<Vec<Tensor>> = (0..length.max(1)).map(|_| case.tensors(random)).collect();
    let stacked = |at: usize| {
        let first = &steps[0][at];
        if !flags[at] {
            return first.clone();
        }
        let shape = [&[length], first.shape()].concat();
        let values = steps[..length].iter().flat_map(|step| step[at].to_f64s());
        Tensor::from_f64s(first.dtype(), shape, &values.collect::<Vec<f64>>())
    };
    ordered(flags).into_iter().map(stacked).collect()
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 1e-4,
        dtype if dtype.is_float() => 5e-2,
        _ => 0.0,
    }
}

fn assert_close(got: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(got.shape(), expected.shape(), "{what}");
    let allowed = tolerance(got.dtype());
    for (got, expected) in got.to_f64s().into_iter().zip(expected.to_f64s()) {
        let equal = got == expected || (got.is_nan() && expected.is_nan());
        let near = (got - expected).abs() <= allowed * (1.0 + expected.abs());
        assert!(equal || near, "{what}: {got} for {expected}");
    }
}

/// Checks all choices of operands with the batch axis. Returns whether a scan remains for any.
fn check(case: &Case, random: &mut Random) -> bool {
    let pipeline = Pipeline::parse("batch-scans,inline{limit=all},dce", TARGETS).unwrap();
    let driver = Driver { verify: true };
    let mut looped = false;
    for set in 1..1u32 << case.operands.len() {
        let flags: Vec<bool> = (0..case.operands.len()).map(|at| set >> at & 1 == 1).collect();
        let lengths = [(Dim::Const(3), 3), (Dim::symbol("steps"), 2), (Dim::Const(0), 0)];
        for (dim, length) in lengths {
            let Some(module) = scanned(case, &flags, &dim) else { continue };
            let what = format!("{case:?} with {flags:?} of {dim}");
            let (out, _) = driver.run(&pipeline, &module).unwrap_or_else(|e| panic!("{what}: {e}"));
            looped |= out.functions.values().any(|f| f.ops.iter().any(|op| op.op.name == "scan"));
            let args = tensors(case, &flags, length, random);
            let Ok(expected) = evaluate(&module, module.entry().unwrap(), &args) else { continue };
            let got = evaluate(&out, out.entry().unwrap(), &args);
            let got = got.unwrap_or_else(|error| panic!("{what}: {error}\n{out}"));
            assert_close(&got[0], &expected[0], &what);
        }
    }
    looped
}

/// Operations that keep their loop for some operands: each draws from one key, flattens its operand,
/// reads or writes blocks at different places, or pads with different values.
const LOOPED: &[&str] = &[
    "argmax",
    "argmin",
    "dynamic_slice",
    "dynamic_update_slice",
    "key_fold",
    "key_split",
    "normal",
    "pad",
    "random_bits",
    "uniform",
];

#[test]
fn every_operation_agrees_with_the_scan() {
    let mut looped = Vec::new();
    for op in operations().filter(|op| op.kind != Kind::Call && !op.operands.is_empty()) {
        let mut any = false;
        for number in 0..CASES {
            let mut random = Random::named(op.name, number);
            let dtype = [Some(DType::F32), None, Some(DType::F64), None][number as usize % 4];
            let Some(case) = Case::find(op, &mut random, dtype) else { continue };
            any |= check(&case, &mut random);
        }
        if any {
            looped.push(op.name);
        }
    }
    looped.sort_unstable();
    assert_eq!(looped, LOOPED);
}
