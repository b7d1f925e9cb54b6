//! Lowers a block that repeats a body to a scan or a loop. The body is an instance for the types of
//! one step.

use std::sync::Arc;

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, ResultDef, Role, Value};
use mithril_ir::op::{self, Class};
use mithril_ir::shape::{Guard, Shape, Type, unify};
use mithril_ir::tensor::Tensor;
use rustc_hash::FxHashSet;
use smallvec::smallvec;

use crate::definition::{Body, Control, Terminal};
use crate::literal::Literal;
use crate::lower::block_error::{BlockError, BlockResult};
use crate::lower::instance::frame::{Frame, Slot};
use crate::lower::instance::{Generalised, Instance, Spec};
use crate::model::seal::{Feed, Part};
use crate::naming::Unique;

/// How often the types of carries are adapted to the body's results.
const ATTEMPTS: usize = 3;

/// The classes of a scan's operands, as inputs of the body.
struct Operands {
    /// Carries, then states, then the key.
    carries: Vec<u32>,
    sequences: Vec<u32>,
    captures: Vec<u32>,
    /// The key, from which each step derives its own.
    key: Option<u32>,
}

impl<'a> Frame<'a, '_> {
    pub(super) fn repeated(&mut self, part: &'a Part, body: &'a Body) -> BlockResult<()> {
        let (mut slots, mut specs, _) = self.arguments(part)?;
        let prepared = self.prepare(part, body, &mut slots, &mut specs);
        prepared.map_err(|error| self.own_error(part, error))?;
        for attempt in 1.. {
            let mut own = specs.clone();
            let generalised = Generalised::of(&mut own);
            let instance = self.lowering.instance(&body.definition, own);
            let instance = instance.map_err(|error| error.out_of(self.composite, self.at(part)))?;
            let same = self.match_carries(body, &instance, &generalised, &mut slots, &mut specs);
            match same.map_err(|error| self.own_error(part, error))? {
                true => return self.repeat(part, body, &instance, &generalised, &slots),
                false if attempt < ATTEMPTS => {}
                false => break,
            }
        }
        let error = Diagnostic::of(ErrorKind::Shapes, "the types of the carries do not settle");
        Err(self.own_error(part, Box::new(error)))
    }

    pub(super) fn own_error(&self, part: &Part, error: Box<Diagnostic>) -> Box<BlockError> {
        let error: Box<BlockError> = error.into();
        error.of_block(&part.name, &part.definition, self.contexts(part, &[]))
    }

    pub(super) fn at(&self, part: &Part) -> u32 {
        let at = self.composite.parts.iter().position(|own| std::ptr::eq(own, part));
        at.unwrap_or_default() as u32
    }

    /// Turns constants among carries and sequences into values, and types of sequences into those
    /// of slices. Errors: sequences without the axis, or of an unknown rank.
    fn prepare(
        &mut self,
        part: &Part,
        body: &Body,
        slots: &mut [Slot],
        specs: &mut [Spec],
    ) -> Result<()> {
        let carries = body.carries.iter().map(|(input, _)| input);
        for &at in carries.chain(&body.sequences) {
            let (slot, terminal) = (&mut slots[at as usize], &part.definition.inputs[at as usize]);
            if let Slot::Literal(literal) = slot {
                *slot = Slot::Value(self.literal(terminal, literal)?);
            }
            if let Slot::Value(value) = slot {
                specs[at as usize] = Spec::Typed(self.builder.ty(*value));
            }
        }
        if let Some(at) = body.lengths {
            let inside = self.inside(body, at, slots)?;
            slots[at as usize] = Slot::Value(inside.value);
            let mut ty = inside.ty();
            ty.shape.dims.remove(0);
            specs[at as usize] = Spec::Typed(ty);
        }
        let cut = body.sequences.iter().zip(&body.axes);
        for (&at, &axis) in cut.filter(|(at, _)| Some(**at) != body.lengths) {
            let Spec::Typed(ty) = &mut specs[at as usize] else { continue };
            let name = &part.definition.inputs[at as usize].name;
            let axis = axis_of(name, &ty.shape, axis);
            let axis = axis.map_err(|error| with_hint(error, &part.definition.kind))?;
            ty.shape.dims.remove(axis);
        }
        Ok(())
    }

    /// Whether each step is inside, (time, …), from the lengths at index `at`.
    fn inside(&self, body: &Body, at: u32, slots: &[Slot]) -> Result<Var<'_>> {
        let value = |at: u32| match slots[at as usize] {
            Slot::Value(value) => Some(self.builder.var(value)),
            _ => None,
        };
        let other = body.sequences.iter().find(|own| **own != at).copied();
        let (Some(lengths), Some(sequence)) = (value(at), other.and_then(value)) else {
            return Diagnostic::of(ErrorKind::Shapes, "the number of steps is not known")
                .expected("sequences and `lengths` of known ranks")
                .err();
        };
        let name = &body.definition.inputs[other.unwrap_or(at) as usize].name;
        let last = lengths.shape().need_rank()? as i64;
        let shape = sequence.shape();
        let time = Shape::new([shape.dims[axis_of(name, &shape, body.axis)?].clone()]);
        // The axis of steps comes first.
        let axes: Vec<i64> = [last].into_iter().chain(0..last).collect();
        let inside = lengths.unary("sequence_mask", &[("shape", time.into())]).transpose(&axes);
        self.builder.check()?;
        Ok(inside)
    }

    pub(super) fn literal(&self, terminal: &Terminal, literal: &Literal) -> Result<Value> {
        let own = self.lowering.default_dtype(literal);
        let is_float = terminal.class == Class::Float && literal.weak;
        let dtype = if is_float { self.lowering.numerics.float } else { own };
        match literal.in_dtype(dtype) {
            Some(tensor) => Ok(self.builder.constant(tensor)),
            None => literal.conversion_error(&terminal.name, dtype).err(),
        }
    }

    /// Whether the carries keep their types. A carry that is left out starts at zero. Where only symbols of dims differ, the carry takes the
    /// dims of the result, guarded. Errors: a carry of another type.
    fn match_carries(
        &mut self,
        body: &Body,
        instance: &Instance,
        generalised: &Generalised,
        slots: &mut [Slot],
        specs: &mut [Spec],
    ) -> Result<bool> {
        let callee = &instance.function;
        let mut same = true;
        for &(input, output) in &body.carries {
            let result = &callee.results[output as usize];
            let made = generalised.to_caller(callee.ty(result.value));
            let value = match slots[input as usize] {
                Slot::Value(value) => value,
                Slot::Absent => {
                    slots[input as usize] = Slot::Value(self.zeros(&made)?);
                    specs[input as usize] = Spec::Typed(made);
                    same = false;
                    continue;
                }
                Slot::Empty | Slot::Literal(_) | Slot::Untyped(..) => continue,
            };
            let first = self.builder.ty(value);
            if made == first {
                continue;
            }
            let mut guards: Vec<Guard> = Vec::new();
            let (one, other) = (&first.shape, &made.shape);
            let mut dims = one.dims.iter().zip(&other.dims);
            let fits = first.dtype == made.dtype
                && one.lead.is_none()
                && other.lead.is_none()
                && one.dims.len() == other.dims.len()
                && dims.all(|(one, other)| unify(one, other, &mut guards).is_some());
            if !fits {
                let name = &body.definition.inputs[input as usize].name;
                return changed(name, &first, &result.name, &made).err();
            }
            self.builder.add_guards(guards);
            let renamed = self.builder.var(value).reshape(made.shape.clone()).value;
            self.builder.check()?;
            slots[input as usize] = Slot::Value(renamed);
            specs[input as usize] = Spec::Typed(made);
            same = false;
        }
        Ok(same)
    }

    fn zeros(&self, ty: &Type) -> Result<Value> {
        let zero = self.builder.constant(Tensor::scalar(ty.dtype, 0.0));
        let zeros = self.builder.var(zero).broadcast_to(ty.shape.clone());
        self.builder.check()?;
        Ok(zeros.value)
    }

    /// Adds the scan or the loop of an instance.
    fn repeat(
        &mut self,
        part: &'a Part,
        body: &'a Body,
        instance: &Instance,
        generalised: &Generalised,
        slots: &[Slot],
    ) -> BlockResult<()> {
        let operands = Operands::of(part, body, instance);
        let step = self.step(part, body, instance, &operands)?;
        let mut values = Vec::new();
        for &input in operands.all() {
            let ty = |arg: Value| generalised.to_caller(instance.function.ty(arg));
            values.push(self.passed(part, body, instance, slots, (input, &ty))?);
        }
        let mut sequences = operands.sequences.len();
        if let Some(steps) = body.steps {
            let index = ("dtype", self.lowering.options.index.into());
            let attrs =
                [("shape", Shape::new([Dim::Const(steps)]).into()), ("axis", 0.into()), index];
            values.insert(operands.carries.len(), self.builder.op("iota", &[], &attrs)?);
            sequences += 1;
        }
        let (op, attrs) = match body.control {
            Control::While { max_steps, .. } => {
                values.insert(0, self.first_condition(part, body, slots)?);
                let most = max_steps.map_or(Attr::None, Attr::Int);
                ("while", smallvec![Attr::Function(step.name.clone()), most])
            }
            Control::Slices | Control::Branches => {
                let carries = operands.carries.len();
                let mut attrs = op::scan_attrs(&step.name, carries, sequences, body.reverse);
                if let Some(at) = op::get("scan").attr_index("batched") {
                    attrs[at] = Attr::Bool(body.batched);
                }
                ("scan", attrs)
            }
        };
        let done = self.builder.call(op::get(op), &step, attrs, &values);
        let done = done.map_err(|error| self.own_error(part, error))?;
        let (carried, stacked) = done.split_at(operands.carries.len());
        let (stacked, states) = stacked.split_at(body.collected.len());
        let mut results = carried[..body.carries.len()].to_vec();
        for value in stacked {
            let name = &part.definition.outputs[results.len()].name;
            let moved = self.own_axis(name, *value, body.axis);
            results.push(moved.map_err(|error| self.own_error(part, error))?);
        }
        for (net, value) in part.outputs.iter().flatten().zip(&results) {
            self.bind(*net, *value)?;
        }
        // States of the body are carried, or each step has its own.
        let states = if states.is_empty() { &carried[body.carries.len()..] } else { states };
        for (input, value) in instance.states.iter().zip(states) {
            self.next_state(&part.inputs[*input as usize], *value);
        }
        Ok(())
    }

    /// The value of an input that is passed to the scan: a sequence with its axis in front, or the
    /// value as it is. `ty` is the type of an argument of the body's instance.
    fn passed(
        &mut self,
        part: &Part,
        body: &Body,
        instance: &Instance,
        slots: &[Slot],
        (input, ty): (u32, &dyn Fn(Value) -> Type),
    ) -> BlockResult<Value> {
        let mut sequences = body.sequences.iter();
        let sequence = sequences
            .position(|own| *own == input)
            // Those of steps inside a sequence have their axis in front.
            .filter(|_| Some(input) != body.lengths);
        let length = sequence.and_then(|_| self.length(body, slots));
        let ty = || {
            let arg = instance.args.iter().position(|own| *own == input).unwrap_or(0);
            let mut ty = ty(instance.function.arg(arg));
            // Only params are inferred, and they are cut along their first axis.
            if let Some(length) = length.clone() {
                ty.shape.dims.insert(0, length);
            }
            ty
        };
        let value = self.operand(&slots[input as usize], &part.inputs[input as usize], ty)?;
        Ok(sequence.map_or(value, |at| self.first_axis(value, body.axes[at])))
    }

    /// The number of steps, as the first sequence of a known type gives it.
    fn length(&self, body: &Body, slots: &[Slot]) -> Option<Dim> {
        body.sequences.iter().zip(&body.axes).find_map(|(at, axis)| {
            let Slot::Value(value) = slots[*at as usize] else { return None };
            let shape = self.builder.ty(value).shape;
            let axis = axis_of("", &shape, *axis).ok()?;
            Some(shape.dims[axis].clone())
        })
    }

    /// The value of an operand. An inferred param gets the type that the body gives it.
    pub(super) fn operand(
        &mut self,
        slot: &Slot,
        feed: &Feed,
        ty: impl Fn() -> Type,
    ) -> BlockResult<Value> {
        match slot {
            Slot::Value(value) => Ok(*value),
            Slot::Untyped(value, _) => {
                if let Feed::Net(net) = feed {
                    self.set_type(*net, *value, ty())?;
                }
                Ok(*value)
            }
            Slot::Empty | Slot::Absent | Slot::Literal(_) => {
                unreachable!("arguments are values")
            }
        }
    }

    /// The function of one step. It takes carries, slices and captures, and calls the body.
    fn step(
        &mut self,
        part: &Part,
        body: &Body,
        instance: &Instance,
        operands: &Operands,
    ) -> BlockResult<Arc<Function>> {
        let callee = &instance.function;
        let name = self.lowering.fresh_name(&format!("{}_step", callee.name));
        let builder = Builder::new(name);
        let mut taken: Vec<(u32, Value)> = Vec::new();
        let mut take = |input: &u32| {
            let Some(at) = instance.args.iter().position(|own| own == input) else { return };
            let (value, own) = (callee.arg(at), &callee.args[at]);
            let role = match own.role {
                role @ (Role::Param | Role::Key) => role,
                Role::Data | Role::State | Role::Constant | Role::Cotangent => Role::Data,
            };
            taken.push((*input, builder.arg(own.name.clone(), role, callee.ty(value).clone())));
        };
        operands.carries.iter().for_each(&mut take);
        if body.steps.is_some() {
            // The number of the step, which is not read.
            builder.arg("step", Role::Data, Type::scalar(self.lowering.options.index));
        }
        operands.sequences.iter().chain(&operands.captures).for_each(take);
        let find = |input: u32| taken.iter().find(|(own, _)| *own == input).map(|(_, v)| *v);
        let mut next_key = None;
        let mut arguments: Vec<Value> = Vec::new();
        for input in &instance.args {
            let Some(mut value) = find(*input) else { continue };
            if operands.key == Some(*input) {
                let keys = builder.var(builder.op("key_split", &[value], &[])?);
                let own = row(keys, 0);
                next_key = Some(row(keys, 1));
                value = own;
            }
            arguments.push(value);
        }
        let (definition, gradient) = (&body.definition, body.gradient.as_ref());
        let (op, attrs) = self.lowering.call(definition, gradient, body.checkpoint, callee)?;
        let made = builder.call(op, callee, attrs, &arguments)?;
        let results = results(part, body, &made, next_key);
        let step = Arc::new(builder.finish(results)?);
        self.lowering.functions.push(step.clone());
        Ok(step)
    }

    /// Moves `axis` to the front.
    fn first_axis(&self, value: Value, axis: i64) -> Value {
        let rank = self.builder.ty(value).shape.dims.len() as i64;
        let axis = if axis < 0 { axis + rank } else { axis };
        let rest = (0..rank).filter(|own| *own != axis);
        let permutation: Vec<i64> = std::iter::once(axis).chain(rest).collect();
        self.permuted(value, &permutation)
    }

    /// Moves the first axis to `axis`. Errors: the value has fewer axes.
    fn own_axis(&self, name: &str, value: Value, axis: i64) -> Result<Value> {
        let shape = self.builder.ty(value).shape;
        let axis = axis_of(name, &shape, axis)?;
        let mut permutation: Vec<i64> = (1..shape.dims.len() as i64).collect();
        permutation.insert(axis, 0);
        Ok(self.permuted(value, &permutation))
    }

    fn permuted(&self, value: Value, permutation: &[i64]) -> Value {
        let is_same = permutation.iter().enumerate().all(|(at, axis)| at as i64 == *axis);
        if is_same { value } else { self.builder.var(value).transpose(permutation).value }
    }
}

impl Operands {
    fn of(part: &Part, body: &Body, instance: &Instance) -> Operands {
        let is_key = |input: &&u32| part.definition.inputs[**input as usize].role == Role::Key;
        let key = instance.args.iter().find(is_key).copied();
        let mut carries: Vec<u32> = body.carries.iter().map(|(input, _)| *input).collect();
        carries.extend(instance.states.iter().filter(|own| !body.sequences.contains(own)));
        carries.extend(key);
        // A param or a state that the body does not read is no argument.
        let read = |own: &&u32| {
            let role = part.definition.inputs[**own as usize].role;
            role == Role::Data || instance.args.contains(own)
        };
        let sequences: Vec<u32> = body.sequences.iter().filter(read).copied().collect();
        let rest = |input: &u32| !carries.contains(input) && !sequences.contains(input);
        let captures = instance.args.iter().copied().filter(rest).collect();
        Operands { carries, sequences, captures, key }
    }

    fn all(&self) -> impl Iterator<Item = &u32> {
        self.carries.iter().chain(&self.sequences).chain(&self.captures)
    }
}

/// The results of a step from those of the body: next carries, states and the key, then values to
/// stack. Carries and stacked outputs have the names of the block's outputs.
fn results(part: &Part, body: &Body, made: &[Value], next_key: Option<Value>) -> Vec<ResultDef> {
    let (outputs, states) = made.split_at(body.definition.outputs.len());
    let carried = body.carries.iter().map(|(_, at)| outputs[*at as usize]);
    let is_own = body.batched && body.sequences.iter().any(|at| is_state(part, *at));
    let (own, states) = if is_own { (states, &[][..]) } else { (&[][..], states) };
    let mut values: Vec<Value> = carried.chain(states.iter().copied()).chain(next_key).collect();
    let names = part.definition.outputs.iter().map(|outlet| outlet.name.to_string());
    let mut names: Vec<String> = names.collect();
    for at in body.carries.len()..values.len() {
        names.insert(at, format!("next_{at}"));
    }
    if let Control::While { running, .. } = body.control {
        values.insert(0, outputs[running as usize]);
        names.insert(0, "running".to_string());
    }
    values.extend(body.collected.iter().map(|at| outputs[*at as usize]));
    values.extend(own);
    names.extend((0..own.len()).map(|at| format!("next_state_{at}")));
    let mut unique = Unique::default();
    let mut taken: FxHashSet<Arc<str>> = FxHashSet::default();
    let mut result = |(name, value): (&String, Value)| {
        let name = unique.name(name, |own| taken.contains(own));
        taken.insert(name.clone());
        ResultDef { name, value, state: None }
    };
    names.iter().zip(values).map(&mut result).collect()
}

fn is_state(part: &Part, input: u32) -> bool {
    part.definition.inputs[input as usize].role == Role::State
}

/// The error for a carry whose output has another type than its input.
fn changed(input: &str, first: &Type, output: &str, made: &Type) -> Diagnostic {
    let what = format!("the carry `{input}` changes its type from step to step");
    Diagnostic::of(ErrorKind::Shapes, what)
        .got(format!("`{output}`: {made}"))
        .expected(format!("{first}, the type of the first `{input}`"))
        .hint("the output must have the type that the input has in the first step")
}

/// A row of two keys.
fn row(keys: Var, at: i64) -> Value {
    let [starts, limits] = [at, at + 1].map(|at| Shape::new([Dim::Const(at)]));
    let axes: &[i64] = &[0];
    let attrs = [("axes", axes.into()), ("starts", starts.into()), ("limits", limits.into())];
    keys.unary("slice", &attrs).squeeze(axes).value
}

/// The index of an axis that may count from the end. Errors: an unknown rank; no such axis.
fn axis_of(name: &str, shape: &Shape, axis: i64) -> Result<usize> {
    let rank = shape.need_rank()? as i64;
    let at = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&at) {
        return Ok(at as usize);
    }
    let error = Diagnostic::of(ErrorKind::Shapes, format!("`{name}` has no axis {axis}"));
    error.got(shape).expected("a shape that includes the axis of the slices").err()
}

/// Adds the setting by which a block of this kind leaves an input whole.
fn with_hint(error: Box<Diagnostic>, kind: &str) -> Box<Diagnostic> {
    let hint = match kind {
        "Scan" => {
            "`over` names the inputs that are cut into slices; others are the same in each step"
        }
        "Map" => "`fixed` names the inputs that are the same in all calls",
        "Vmap" => "`axis` may be a dict by input, with None for one that all indices share",
        _ => return error,
    };
    Box::new(error.hint(hint))
}
