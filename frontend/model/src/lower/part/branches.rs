//! Lowers a `Cond`, and the condition of the first step of a `While`.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::{Function, ResultDef, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op;
use mithril_ir::shape::{Guard, Type, unify};

use crate::definition::{Body, Definition};
use crate::lower::block_error::BlockResult;
use crate::lower::instance::frame::{Frame, Slot};
use crate::lower::instance::{Generalised, Instance, Spec};
use crate::model::seal::{Composite, Feed, NetSource, Part};

/// A part of a body as an instance, and the caller's values that it takes.
struct Call<'a> {
    inner: &'a Part,
    instance: Arc<Instance>,
    generalised: Generalised,
    operands: Vec<Value>,
    /// The inputs of the block that are states, one for each state of the instance.
    states: Vec<u32>,
}

impl Call<'_> {
    /// The type of a result, in the caller's symbols.
    fn result(&self, at: usize) -> Type {
        let callee = &self.instance.function;
        self.generalised.to_caller(callee.ty(callee.results[at].value))
    }
}

fn composite(body: &Body) -> &Composite {
    body.definition.composite.as_ref().expect("the body is a model")
}

impl<'a> Frame<'a, '_> {
    /// Lowers a `Cond`: each part of the body becomes a function.
    pub(super) fn branches(&mut self, part: &'a Part, body: &'a Body) -> BlockResult<()> {
        let (mut slots, ..) = self.arguments(part)?;
        let float = self.lowering.numerics.float;
        let condition = match &slots[0] {
            Slot::Literal(literal) => self
                .literal(&part.definition.inputs[0], literal)
                .map_err(|error| self.own_error(part, error))?,
            slot => self.operand(slot, &part.inputs[0], || Type::scalar(float))?,
        };
        let mut calls = Vec::new();
        for inner in &composite(body).parts {
            let input = |net: u32| match composite(body).nets[net as usize].from {
                // The condition precedes the inputs of the body.
                NetSource::Input(input) => Some(input + 1),
                NetSource::Part { .. } | NetSource::Value(_) => None,
            };
            calls.push(self.inner_call(part, body, inner, &slots, &input)?);
            // The types of inputs that the first part has inferred are known to the second.
            for (slot, feed) in slots.iter_mut().zip(&part.inputs) {
                if let (Slot::Untyped(..), Feed::Net(net)) = (&*slot, feed) {
                    *slot = self.slots[*net as usize].clone();
                }
            }
        }
        let mut states: Vec<u32> = calls.iter().flat_map(|own| own.states.clone()).collect();
        states.sort_unstable();
        states.dedup();
        let guards = same_types(&part.definition, &calls);
        self.builder.add_guards(guards.map_err(|error| self.own_error(part, error))?);
        let mut values = vec![condition];
        let (mut functions, mut taken) = (Vec::new(), Vec::new());
        for call in &calls {
            functions.push(self.branch(part, call, &states, &slots)?);
            let missing = states.iter().filter(|own| !call.states.contains(own));
            let missing = missing.filter_map(|own| match slots[*own as usize] {
                Slot::Value(value) => Some(value),
                _ => None,
            });
            taken.push(places(&mut values, call.operands.iter().copied().chain(missing)));
        }
        let names = functions.iter().map(|own| Attr::Function(own.name.clone()));
        let attrs = names.chain(taken).collect();
        let done = self.builder.call(op::get("cond"), &functions[0], attrs, &values);
        let done = done.map_err(|error| self.own_error(part, error))?;
        let (outputs, next) = done.split_at(part.definition.outputs.len());
        for (net, value) in part.outputs.iter().flatten().zip(outputs) {
            self.bind(*net, *value)?;
        }
        for (input, value) in states.iter().zip(next) {
            self.next_state(&part.inputs[*input as usize], *value);
        }
        Ok(())
    }

    /// The condition of the first step of a `While`. It reads the first carries.
    pub(super) fn first_condition(
        &mut self,
        part: &'a Part,
        body: &'a Body,
        slots: &[Slot],
    ) -> BlockResult<Value> {
        let whole = composite(body);
        let inner = whole.parts.iter().find(|own| *own.name == *"condition");
        let inner = inner.expect("a step has a condition");
        let input = |net: u32| match whole.nets[net as usize].from {
            NetSource::Input(input) => Some(input),
            NetSource::Part { .. } => {
                let output = whole.outputs.iter().position(|own| *own == net)? as u32;
                body.carries.iter().find(|(_, own)| *own == output).map(|(input, _)| *input)
            }
            NetSource::Value(_) => None,
        };
        let call = self.inner_call(part, body, inner, slots, &input)?;
        let place = self.builder.loc();
        self.builder.set_loc(Loc::path("condition").inside(&place));
        let (gradient, callee) = (inner.gradient.as_ref(), &call.instance.function);
        let (op, attrs) =
            self.lowering.call(&inner.definition, gradient, inner.checkpoint, callee)?;
        let values = self.builder.call(op, callee, attrs, &call.operands)?;
        self.builder.set_loc(place);
        Ok(values[0])
    }

    /// The instance of a part of a body. `input` gives the input of the block that a net of the
    /// body stands for.
    fn inner_call(
        &mut self,
        part: &'a Part,
        body: &'a Body,
        inner: &'a Part,
        slots: &[Slot],
        input: &dyn Fn(u32) -> Option<u32>,
    ) -> BlockResult<Call<'a>> {
        if !inner.numerics.is_inherited() {
            let what = format!("`{}` cannot have a dtype of its own", inner.name);
            let error = Diagnostic::of(ErrorKind::DType, what)
                .got(format!("a block that `{}` calls", part.definition.kind));
            return Err(error.hint("give the whole block the dtype, or wrap it in a model").into());
        }
        let whole = composite(body);
        let mut specs = Vec::new();
        let mut own: Vec<(Slot, Option<u32>)> = Vec::new();
        for (terminal, feed) in inner.definition.inputs.iter().zip(&inner.inputs) {
            let (slot, from) = match feed {
                Feed::Key | Feed::Net(_) if self.skips(terminal) => (Slot::Absent, None),
                Feed::Absent => (Slot::Absent, None),
                Feed::Key => (Slot::Value(self.inner_key(whole, inner, slots)?), None),
                Feed::Net(net) => match (input(*net), &whole.nets[*net as usize].from) {
                    (Some(at), _) => (slots[at as usize].clone(), Some(at)),
                    (None, NetSource::Value(literal)) => (Slot::Literal(literal.clone()), None),
                    (None, _) => (Slot::Empty, None),
                },
                Feed::List(_) => unreachable!("inputs of composites are not lists"),
            };
            specs.push(match &slot {
                Slot::Value(value) => Spec::Typed(self.builder.ty(*value)),
                Slot::Literal(literal) => Spec::Literal(literal.clone()),
                Slot::Absent => Spec::Absent,
                Slot::Untyped(_, dtype) => Spec::Open(*dtype),
                Slot::Empty => Spec::Open(None),
            });
            own.push((slot, from));
        }
        let generalised = Generalised::of(&mut specs);
        let at = whole.parts.iter().position(|other| std::ptr::eq(other, inner));
        let at = at.unwrap_or_default() as u32;
        let instance = self
            .lowering
            .instance(&inner.definition, specs)
            .map_err(|error| error.out_of(whole, at).out_of(self.composite, self.at(part)))?;
        let callee = &instance.function;
        let mut operands = Vec::new();
        for (argument, &at) in instance.args.iter().enumerate() {
            let (slot, from) = &own[at as usize];
            let ty = || generalised.to_caller(callee.ty(callee.arg(argument)));
            let feed = from.map_or(&Feed::Absent, |from| &part.inputs[from as usize]);
            operands.push(self.operand(slot, feed, ty)?);
        }
        let states = instance.states.iter().filter_map(|at| own[*at as usize].1).collect();
        Ok(Call { inner, instance, generalised, operands, states })
    }

    /// The key of a part of a body, derived from that of the block.
    fn inner_key(&self, whole: &Composite, inner: &Part, slots: &[Slot]) -> BlockResult<Value> {
        let key = whole.key.and_then(|key| match slots.get(key as usize + 1) {
            Some(Slot::Value(key)) => Some(*key),
            _ => None,
        });
        let Some(key) = key else {
            return Err(Diagnostic::new("a random key has no constant value").into());
        };
        let attrs = [("data", Attr::Int(i64::from(inner.fold)))];
        Ok(self.builder.op("key_fold", &[key], &attrs)?)
    }

    /// The function of a branch. It returns the outputs, and the next values of `states`; those
    /// that the branch does not update are further arguments.
    fn branch(
        &mut self,
        part: &Part,
        call: &Call,
        states: &[u32],
        slots: &[Slot],
    ) -> BlockResult<Arc<Function>> {
        let Call { inner, instance, .. } = call;
        let callee = &instance.function;
        let builder = Builder::new(self.lowering.fresh_name(&inner.name));
        builder.set_loc(Loc::path(inner.name.clone()));
        let arguments = callee.arguments().map(|(value, own)| {
            let role = match own.role {
                role @ (Role::Param | Role::Key) => role,
                Role::Data | Role::State | Role::Constant | Role::Cotangent => Role::Data,
            };
            builder.arg(own.name.clone(), role, callee.ty(value).clone())
        });
        let arguments: Vec<Value> = arguments.collect();
        let kept = |(at, state): (usize, &u32)| match slots[*state as usize] {
            Slot::Value(value) if !call.states.contains(state) => {
                let ty = self.builder.ty(value);
                Some(builder.arg(format!("state_{at}"), Role::Data, ty))
            }
            _ => None,
        };
        let kept: Vec<Option<Value>> = states.iter().enumerate().map(kept).collect();
        let (gradient, definition) = (inner.gradient.as_ref(), &inner.definition);
        let (op, attrs) = self.lowering.call(definition, gradient, inner.checkpoint, callee)?;
        let made = builder.call(op, callee, attrs, &arguments)?;
        let outlets = definition.outputs.iter().map(|own| &own.name);
        let mut results = Vec::new();
        for outlet in &part.definition.outputs {
            let at = outlets.clone().position(|own| *own == outlet.name).unwrap_or_default();
            results.push(ResultDef { name: outlet.name.clone(), value: made[at], state: None });
        }
        for (at, (state, kept)) in states.iter().zip(kept).enumerate() {
            let own = call.states.iter().position(|own| own == state);
            let own = own.map(|own| made[definition.outputs.len() + own]);
            let name = format!("next_state_{at}").into();
            let result = own.or(kept).map(|value| ResultDef { name, value, state: None });
            results.extend(result);
        }
        let function = Arc::new(builder.finish(results)?);
        self.lowering.functions.push(function.clone());
        Ok(function)
    }
}

/// The indices of operands among those after the condition, to which new ones are added.
fn places(values: &mut Vec<Value>, operands: impl Iterator<Item = Value>) -> Attr {
    let mut place = |value: Value| {
        let known = values[1..].iter().position(|own| *own == value);
        let at = known.unwrap_or_else(|| {
            values.push(value);
            values.len() - 2
        });
        at as i64
    };
    Attr::Ints(operands.map(&mut place).collect())
}

/// The guards under which the two branches return the same types. Errors: they never do.
fn same_types(definition: &Definition, calls: &[Call]) -> Result<Vec<Guard>> {
    let mut guards = Vec::new();
    let [then, otherwise] = calls else { return Ok(guards) };
    let place = |call: &Call, name: &str| {
        call.inner.definition.outputs.iter().position(|own| *own.name == *name).unwrap_or_default()
    };
    for outlet in &definition.outputs {
        let name = &outlet.name;
        let (first, second) =
            (then.result(place(then, name)), otherwise.result(place(otherwise, name)));
        let (one, other) = (&first.shape, &second.shape);
        let mut dims = one.dims.iter().zip(&other.dims);
        let same = first.dtype == second.dtype
            && one.lead == other.lead
            && one.dims.len() == other.dims.len()
            && dims.all(|(one, other)| unify(one, other, &mut guards).is_some());
        if !same {
            return Diagnostic::of(
                ErrorKind::Shapes,
                format!("the blocks give `{name}` other types"),
            )
            .got(format!("{second} in `otherwise`"))
            .expected(format!("{first}, as in `then`"))
            .hint("both blocks of a `Cond` return arrays of the same shape and dtype")
            .err();
        }
    }
    Ok(guards)
}
