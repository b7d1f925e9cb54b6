//! Operations that name functions of the module, and barriers to optimization and differentiation.

use super::access::Access;
use super::{
    BASE, Class, DTypeRule, Default, Gradient, Kind, Meaning, OpDef, Operand, ShapeRule, attr,
    operand,
};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, ErrorKind, Name, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::eval::Array;
use crate::evaluate::Calls;
use crate::message;
use crate::shape::{Type, unify};
use crate::signature::CallTypes;

const OPERANDS: &[Operand] = &[operand("operands", Class::Any).own_dtype().many()];

const CALL: OpDef = OpDef {
    kind: Kind::Call,
    operands: OPERANDS,
    attrs: &[attr("callee", AttrKind::Function, Default::Required)],
    shape: ShapeRule::Call(|cx| cx.instantiate(cx.operands)),
    dtype: DTypeRule::Call,
    meaning: Meaning::Call(run_callee),
    gradient: Gradient::Callee,
    ..BASE
};

pub(super) const OPS: &[OpDef] = &[
    OpDef { name: "call", doc: "The results of calling `callee` on the operands.", ..CALL },
    OpDef {
        name: "custom_gradient",
        doc: "The results of `callee`, whose gradient is the function `vjp`. It takes the \
              operands, the results and the cotangents of float results, and returns the \
              cotangents of float operands.",
        attrs: &[
            attr("callee", AttrKind::Function, Default::Required),
            attr("vjp", AttrKind::Function, Default::Required),
        ],
        gradient: Gradient::Vjp,
        ..CALL
    },
    OpDef {
        name: "checkpoint",
        doc: "The results of calling `callee` on the operands. Its gradient keeps no intermediate \
              values: it recomputes them from the operands.",
        gradient: Gradient::Recompute,
        ..CALL
    },
    OpDef {
        name: "scan",
        doc: "Calls `callee` once for each slice of `sequences` operands along their first axis. \
              It takes the `carries`, the slices and the remaining operands, and returns the next \
              carries and values that are stacked into further results. With `reverse`, it goes \
              from the last slice to the first.",
        attrs: &[
            attr("callee", AttrKind::Function, Default::Required),
            attr("carries", AttrKind::Int, Default::Required),
            attr("sequences", AttrKind::Int, Default::Int(1)),
            attr("reverse", AttrKind::Bool, Default::Bool(false)),
        ],
        shape: ShapeRule::Call(scan_types),
        meaning: Meaning::Call(scan),
        gradient: Gradient::Scan,
        ..CALL
    },
    OpDef {
        name: "optimization_barrier",
        access: Access::View(|view| view.identity()),
        doc: "`x`, available only after `other` has been computed. CSE does not merge operations \
              on the result with operations on `x`.",
        kind: Kind::Barrier,
        operands: &[operand("x", Class::Any), operand("other", Class::Any).own_dtype()],
        meaning: Meaning::Kernel(|i| Ok(i.arg(0).clone())),
        gradient: Gradient::Rule(|r| vec![Some(r.g()), None]),
        known: Some(|cx| cx.known[0].map(<[crate::dim::Dim]>::to_vec)),
        ..BASE
    },
    OpDef {
        name: "stop_gradient",
        noun: "detached",
        access: Access::View(|view| view.identity()),
        doc: "`x` itself, treated as a constant in differentiation.",
        kind: Kind::Barrier,
        operands: &[operand("x", Class::Any)],
        meaning: Meaning::Kernel(|i| Ok(i.arg(0).clone())),
        gradient: Gradient::Zero,
        known: Some(|cx| cx.known[0].map(<[crate::dim::Dim]>::to_vec)),
        ..BASE
    },
];

pub(super) fn run_callee(calls: &Calls) -> Result<Vec<Array>> {
    calls.run(calls.args().iter().map(|&a| a.clone()).collect())
}

const SCAN: Name = Name::Operation("scan");

/// The numbers of carries and sequences. Errors: no sequence, or fewer operands than both.
fn scan_counts(attrs: &[Attr], operands: usize) -> Result<(usize, usize)> {
    let count = |attr: &Attr| usize::try_from(attr.as_int()).ok();
    match (count(&attrs[1]), count(&attrs[2])) {
        (Some(carries), Some(sequences @ 1..)) if carries + sequences <= operands => {
            Ok((carries, sequences))
        }
        _ => {
            let takes = " takes its carries, at least one sequence, and captured values";
            Diagnostic::new(message![SCAN, takes]).got(format!("{operands} operands")).err()
        }
    }
}

fn scan_types(cx: &mut CallTypes) -> Result<Vec<Type>> {
    let (carries, sequences) = scan_counts(cx.attrs, cx.operands.len())?;
    let mut steps: Vec<Type> = cx.operands.iter().map(|ty| (*ty).clone()).collect();
    let mut length: Option<Dim> = None;
    for ty in &mut steps[carries..carries + sequences] {
        let rank = ty.shape.need_rank()?;
        if rank == 0 {
            return Diagnostic::new(message!["the sequences of ", SCAN, " must have a first axis"])
                .got("a scalar")
                .err();
        }
        let dim = ty.shape.dims.remove(0);
        length = Some(match length {
            None => dim,
            Some(known) => match unify(&known, &dim, cx.guards) {
                Some(dim) => dim,
                None => {
                    return Diagnostic::of(
                        ErrorKind::Shapes,
                        message!["the sequences of ", SCAN, " differ in length"],
                    )
                    .got(format!("{known} and {dim}"))
                    .err();
                }
            },
        });
    }
    let borrowed: Vec<&Type> = steps.iter().collect();
    let mut results = cx.instantiate(&borrowed)?;
    for (i, carry) in steps[..carries].iter().enumerate() {
        if results.get(i) != Some(carry) {
            return Diagnostic::new(message![
                format!("carry {i} of "),
                SCAN,
                " changes its type from step to step",
            ])
            .got(results.get(i).map_or("nothing".to_string(), Type::to_string))
            .expected(carry)
            .err();
        }
    }
    for ty in &mut results[carries..] {
        ty.shape.need_rank()?;
        ty.shape.dims.insert(0, length.clone().expect("there is a sequence"));
    }
    Ok(results)
}

fn scan(calls: &Calls) -> Result<Vec<Array>> {
    let (carries, sequences) = scan_counts(calls.attrs(), calls.args().len())?;
    let args = calls.args();
    let length = args[carries].shape[0];
    let reverse = matches!(calls.attrs()[3], Attr::Bool(true));
    let mut state: Vec<Array> = args[..carries].iter().map(|&a| a.clone()).collect();
    let mut rows: Vec<Vec<Array>> = Vec::with_capacity(length);
    for i in 0..length {
        let at = if reverse { length - 1 - i } else { i };
        let mut step = state;
        step.extend(args[carries..carries + sequences].iter().map(|a| row(a, at)));
        step.extend(args[carries + sequences..].iter().map(|&a| a.clone()));
        let mut results = calls.run(step)?;
        rows.push(results.split_off(carries));
        state = results;
    }
    if reverse {
        rows.reverse();
    }
    for (i, ty) in calls.results().iter().enumerate().skip(carries) {
        state.push(stack(ty.dtype, &calls.shape(ty), rows.iter().map(|r| &r[i - carries])));
    }
    Ok(state)
}

fn row(x: &Array, at: usize) -> Array {
    let shape = x.shape[1..].to_vec();
    let size: usize = shape.iter().product();
    Array { dtype: x.dtype, shape, data: x.data.pick(at * size..(at + 1) * size) }
}

/// Stacks rows along a new first axis; without rows, the result has shape `shape`.
fn stack<'a>(dtype: DType, shape: &[usize], rows: impl Iterator<Item = &'a Array>) -> Array {
    let rows: Vec<&Array> = rows.collect();
    let mut shape = shape.to_vec();
    if let Some(first) = rows.first() {
        shape = [&[rows.len()], &first.shape[..]].concat();
    }
    Array::collect(dtype, shape, rows.iter().flat_map(|r| r.elements()))
}
