//! Control flow: operations that call functions several times, or one of two functions.

use std::sync::Arc;

use smallvec::SmallVec;

use super::function::CALL;
use super::infer::as_ints;
use super::{Class, Default, Gradient, Meaning, OpDef, Operand, ShapeRule, attr, operand};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, ErrorKind, Name, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::eval::Array;
use crate::evaluate::Calls;
use crate::message;
use crate::shape::{Guard, Type, unify};
use crate::signature::CallTypes;

const CONDITIONAL: &[Operand] = &[
    operand("condition", Class::Bool).own_dtype(),
    operand("operands", Class::Any).own_dtype().many(),
];

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "scan",
        doc: "Calls `callee` once for each slice of `sequences` operands along their first axis. \
              It takes the `carries`, the slices and the remaining operands, and returns the next \
              carries and values that are stacked into further results. With `reverse`, it goes \
              from the last slice to the first. With `batched`, steps that do not depend on \
              each other may be computed at once; results are the same.",
        attrs: &[
            attr("callee", AttrKind::Function, Default::Required),
            attr("carries", AttrKind::Int, Default::Required),
            attr("sequences", AttrKind::Int, Default::Int(1)),
            attr("reverse", AttrKind::Bool, Default::Bool(false)),
            attr("batched", AttrKind::Bool, Default::Bool(false)),
        ],
        shape: ShapeRule::Call(scan_types),
        meaning: Meaning::Call(scan),
        gradient: Gradient::Scan,
        ..CALL
    },
    OpDef {
        name: "cond",
        doc: "The results of `callee` if `condition` is true, otherwise those of `otherwise`. Only \
              one of the two is called. `callee_operands` and `otherwise_operands` are the indices \
              of the operands that each takes, counted without `condition`.",
        operands: CONDITIONAL,
        attrs: &[
            attr("callee", AttrKind::Function, Default::Required),
            attr("otherwise", AttrKind::Function, Default::Required),
            attr("callee_operands", AttrKind::Ints, Default::Required),
            attr("otherwise_operands", AttrKind::Ints, Default::Required),
        ],
        shape: ShapeRule::Call(branch_types),
        meaning: Meaning::Call(branch),
        gradient: Gradient::Branches,
        note: "The gradient computes the values inside the chosen function again.",
        ..CALL
    },
    OpDef {
        name: "while",
        doc: "Calls `callee` for as long as `condition` is true, at most `max_steps` times. \
              `callee` takes the carries and the remaining operands. It returns the next condition \
              and the next carries. The results are the last carries.",
        operands: CONDITIONAL,
        attrs: &[
            attr("callee", AttrKind::Function, Default::Required),
            attr("max_steps", AttrKind::Int, Default::None),
        ],
        shape: ShapeRule::Call(while_types),
        meaning: Meaning::Call(repeat_while),
        gradient: Gradient::While,
        note: "It has a gradient only with `max_steps`. The backward pass then counts all of them.",
        ..CALL
    },
];

/// Whether a step returns the type of a carry. Dims that may be equal are guarded.
fn fits(result: &Type, carry: &Type, guards: &mut Vec<Guard>) -> bool {
    let (one, other) = (&result.shape, &carry.shape);
    result.dtype == carry.dtype
        && one.lead == other.lead
        && one.dims.len() == other.dims.len()
        && one.dims.iter().zip(&other.dims).all(|(a, b)| unify(a, b, guards).is_some())
}

/// The attributes of a `scan` of this function.
pub fn scan_attrs(
    callee: &Arc<str>,
    carries: usize,
    sequences: usize,
    reverse: bool,
) -> SmallVec<[Attr; 2]> {
    let counts = [carries, sequences].map(|count| Attr::Int(count as i64));
    let flags = [reverse, false].map(Attr::Bool);
    [Attr::Function(callee.clone())].into_iter().chain(counts).chain(flags).collect()
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
        if let Some(result) = results.get_mut(i).filter(|own| fits(own, carry, cx.guards)) {
            result.clone_from(carry);
        } else {
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
        let mut results = calls.run(0, step)?;
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

const COND: Name = Name::Operation("cond");
const WHILE: Name = Name::Operation("while");

/// Errors: the first operand is not a bool of rank 0.
fn check_condition(name: Name, cx: &CallTypes) -> Result<()> {
    match cx.operands.first() {
        Some(ty) if ty.dtype == DType::Bool && ty.shape.rank() == Some(0) => Ok(()),
        other => Diagnostic::of(
            ErrorKind::Shapes,
            message!["the condition of ", name, " is not one bool"],
        )
        .got(other.map_or("nothing".to_string(), |ty| ty.to_string()))
        .expected("one bool, of rank 0")
        .hint("reduce it to one value with `all` or `any`")
        .err(),
    }
}

fn branch_types(cx: &mut CallTypes) -> Result<Vec<Type>> {
    check_condition(COND, cx)?;
    let operands = &cx.operands[1..];
    let find = |at: &i64| usize::try_from(*at).ok().and_then(|at| operands.get(at).copied());
    for taken in [&cx.attrs[2], &cx.attrs[3]].into_iter().filter_map(as_ints) {
        if let Some(unknown) = taken.iter().find(|at| find(at).is_none()) {
            return Diagnostic::new(message![COND, " names an operand that it does not have"])
                .got(unknown)
                .expected(format!("indices of {} operands", operands.len()))
                .err();
        }
    }
    let taken = as_ints(&cx.attrs[2]).into_iter().flatten();
    let taken: Vec<&Type> = taken.filter_map(find).collect();
    cx.instantiate(&taken)
}

fn is_true(condition: &Array) -> bool {
    condition.get(0).int() != 0
}

fn branch(calls: &Calls) -> Result<Vec<Array>> {
    let chosen = usize::from(!is_true(calls.args()[0]));
    calls.run(chosen, calls.passed(chosen))
}

fn while_types(cx: &mut CallTypes) -> Result<Vec<Type>> {
    check_condition(WHILE, cx)?;
    if matches!(cx.attrs[1], Attr::Int(..0)) {
        return Diagnostic::of(
            ErrorKind::Setting,
            message!["`max_steps` of ", WHILE, " is negative"],
        )
        .got(format!("{:?}", cx.attrs[1].as_int()))
        .expected("at least 0")
        .err();
    }
    if cx.callee.results.len() < 2 {
        return Diagnostic::new(message![WHILE, " carries nothing"])
            .got(format!("{} results of `{}`", cx.callee.results.len(), cx.callee.name))
            .expected("the next condition, and the next value of each carry")
            .err();
    }
    let (condition, operands) = cx.operands.split_at(1);
    let mut results = cx.instantiate(operands)?;
    let carried: Vec<&Type> = condition.iter().chain(operands).copied().collect();
    let mut pairs = results.iter_mut().zip(&carried);
    let changed = pairs.position(|(result, first)| {
        let fits = fits(result, first, cx.guards);
        if fits {
            result.clone_from(first);
        }
        !fits
    });
    if results.len() > cx.operands.len() || changed.is_some() {
        let at = changed.unwrap_or(results.len());
        let what = match at {
            0 => "the condition".to_string(),
            _ => format!("carry {}", at - 1),
        };
        let ty = |ty: Option<&Type>| ty.map_or("nothing".to_string(), Type::to_string);
        return Diagnostic::new(message![
            format!("{what} of "),
            WHILE,
            " changes its type from step to step",
        ])
        .got(ty(results.get(at)))
        .expected(ty(cx.operands.get(at).copied()))
        .err();
    }
    results.remove(0);
    Ok(results)
}

fn repeat_while(calls: &Calls) -> Result<Vec<Array>> {
    let (condition, operands) = (calls.args()[0], &calls.args()[1..]);
    let (carries, captures) = operands.split_at(calls.results().len());
    let limit = match calls.attrs()[1] {
        Attr::Int(limit) => limit,
        _ => i64::MAX,
    };
    let mut state: Vec<Array> = carries.iter().map(|&a| a.clone()).collect();
    let (mut running, mut steps) = (is_true(condition), 0);
    while running && steps < limit {
        state.extend(captures.iter().map(|&a| a.clone()));
        state = calls.run(0, state)?;
        running = is_true(&state.remove(0));
        steps += 1;
    }
    Ok(state)
}
