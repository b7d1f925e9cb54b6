//! Lowers one part of a composite: a table block to operations, a composite to a call.

mod branches;
mod composite;
mod function;
mod numerics;
mod repeated;

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::Class;
use mithril_ir::shape::{Shape, Type};

use super::Mode;
use super::block_error::{BlockError, BlockResult, OperandContext, Origin, origin};
use super::cx::{Cx, Operand};
use super::instance::frame::{Frame, Slot, Step};
use crate::blocks::{Entry, Settings};
use crate::definition::{Control, Definition, Terminal};
use crate::literal::Literal;
use crate::model::seal::{Feed, Part};

/// The value of a net that a part reads.
enum NetValue<'s> {
    Value(Value),
    Literal(&'s Literal),
    /// An argument whose shape is still to be inferred.
    Untyped(Value),
}

impl<'a> Frame<'a, '_> {
    /// Lowers one part. Returns `Later` if it reads a net without a type.
    pub(super) fn part(&mut self, at: u32) -> BlockResult<Step> {
        let part: &'a Part = &self.composite.parts[at as usize];
        for (terminal, feed) in part.definition.inputs.iter().zip(&part.inputs) {
            let waits = |net: &u32| match self.slots[*net as usize] {
                Slot::Empty => true,
                Slot::Untyped(..) => !terminal.inferred,
                Slot::Absent | Slot::Value(_) | Slot::Literal(_) => false,
            };
            let waiting = match feed {
                Feed::Absent | Feed::Key => false,
                Feed::Net(net) => waits(net),
                Feed::List(nets) => nets.iter().any(waits),
            };
            if waiting {
                return Ok(Step::Later);
            }
        }
        self.builder.set_loc(self.loc(&part.name));
        match part.numerics.is_inherited() {
            true => self.lowered(at, part)?,
            false => self.in_own_dtypes(at, part)?,
        }
        Ok(Step::Done)
    }

    /// Lowers a part whose inputs have types.
    fn lowered(&mut self, at: u32, part: &'a Part) -> BlockResult<()> {
        let definition = &part.definition;
        match (&definition.composite, &definition.function, &definition.body) {
            (Some(_), ..) => self.composite(at, part)?,
            (None, Some(function), _) => self.function(part, function)?,
            (None, None, Some(body)) => match body.control {
                Control::Branches => self.branches(part, body)?,
                Control::Slices | Control::While { .. } => self.repeated(part, body)?,
            },
            (None, None, None) => self.primitive(part)?,
        }
        Ok(())
    }

    fn loc(&self, name: &Arc<str>) -> Loc {
        match (self.path.is_empty(), name.is_empty()) {
            (true, _) => Loc::path(name.clone()),
            (false, true) => Loc::path(self.path),
            (false, false) => Loc::path(format!("{}.{name}", self.path)),
        }
    }

    /// Whether an input is not read in this mode.
    fn skips(&self, terminal: &Terminal) -> bool {
        terminal.in_training && self.lowering.options.mode == Mode::Inference
    }

    /// Whether the net is an input of the model that was left out.
    fn is_absent(&self, net: u32) -> bool {
        matches!(self.slots[net as usize], Slot::Absent)
    }

    pub(super) fn key(&mut self, part: &Part) -> BlockResult<Value> {
        let net = self.composite.key.expect("a part that needs a key has one");
        let net = self.composite.inputs[net as usize];
        let Slot::Value(key) = self.slots[net as usize] else {
            return Err(Diagnostic::new("a random key has no constant value").into());
        };
        let attrs = [("data", Attr::Int(i64::from(part.fold)))];
        Ok(self.builder.op("key_fold", &[key], &attrs)?)
    }

    fn primitive(&mut self, part: &'a Part) -> BlockResult<()> {
        let mut operands = Vec::new();
        let result = self.operands(part).and_then(|own| {
            operands = own;
            Ok(self.emit(self.builder, part, &operands)?)
        });
        let values = result.map_err(|error: Box<BlockError>| {
            let mismatched = if error.diagnostic.is_shape_mismatch() { &operands[..] } else { &[] };
            error.of_block(&part.name, &part.definition, self.contexts(part, mismatched))
        })?;
        let nets = part.outputs.iter().flatten();
        let count = nets.clone().count();
        debug_assert!(values.len() >= count, "{} makes its outputs", part.definition.kind);
        self.lowering.keep_steps();
        for (net, value) in nets.zip(&values) {
            self.bind(*net, *value)?;
        }
        let states = part.definition.inputs.iter().zip(&part.inputs);
        let states = states.filter(|(terminal, _)| terminal.role == Role::State);
        for ((_, feed), value) in states.zip(&values[count..]) {
            self.next_state(feed, *value);
        }
        Ok(())
    }

    /// Records the next value of a state, as computed by the part that reads the state.
    pub(super) fn next_state(&mut self, feed: &Feed, value: Value) {
        let Feed::Net(net) = feed else { return };
        let Origin::Input(input) = origin(self.composite, *net) else { return };
        // The next part that reads this state continues from the new value.
        self.slots[*net as usize] = Slot::Value(value);
        match self.states.iter_mut().find(|(own, _)| *own == input) {
            Some(state) => state.1 = value,
            None => self.states.push((input, value)),
        }
    }

    /// The operands of a table block. The types of its params and states are inferred here.
    fn operands(&mut self, part: &Part) -> BlockResult<Vec<Operand>> {
        let terminals = &part.definition.inputs;
        let shared = self.shared_dtype(part);
        let mut operands = vec![Operand::Absent; terminals.len()];
        for (i, (terminal, feed)) in terminals.iter().zip(&part.inputs).enumerate() {
            operands[i] = match feed {
                Feed::Absent => Operand::Absent,
                Feed::Key if self.skips(terminal) => Operand::Absent,
                Feed::Key => Operand::One(self.key(part)?),
                Feed::Net(_) if terminal.inferred || self.skips(terminal) => Operand::Absent,
                Feed::Net(net) if terminal.optional && self.is_absent(*net) => Operand::Absent,
                Feed::Net(net) => Operand::One(self.value(terminal, *net, shared)?),
                Feed::List(nets) => {
                    let each = nets.iter().map(|net| self.value(terminal, *net, shared));
                    Operand::List(each.collect::<BlockResult<_>>()?)
                }
            };
        }
        for (i, (terminal, feed)) in terminals.iter().zip(&part.inputs).enumerate() {
            if let (Feed::Net(net), true) = (feed, terminal.inferred) {
                operands[i] = self.learned(part, terminal, *net, shared, &operands)?;
            }
        }
        Ok(operands)
    }

    /// The dtype that the inputs of a part share: the dtype of the first input that has one. A
    /// float dtype takes precedence over that of an integer array, which is then converted.
    pub(super) fn shared_dtype(&self, part: &Part) -> DType {
        let default = self.lowering.numerics.float;
        let mut weak: Option<DType> = None;
        let mut integers: Option<DType> = None;
        for (terminal, feed) in part.definition.inputs.iter().zip(&part.inputs) {
            let nets: &[u32] = match feed {
                Feed::Net(net) => std::slice::from_ref(net),
                Feed::List(nets) => nets,
                Feed::Absent | Feed::Key => &[],
            };
            for net in nets.iter().filter(|_| !terminal.own_dtype) {
                match &self.slots[*net as usize] {
                    Slot::Value(value) => {
                        let dtype = self.builder.ty(*value).dtype;
                        return integers.filter(|_| !dtype.is_float()).unwrap_or(dtype);
                    }
                    Slot::Literal(literal) => {
                        let dtype = self.lowering.default_dtype(literal);
                        if !literal.weak && !dtype.is_int() {
                            return integers.filter(|_| !dtype.is_float()).unwrap_or(dtype);
                        }
                        let float = terminal.class == Class::Float || dtype.is_float();
                        let own = if float { default } else { dtype };
                        if !literal.weak && !float {
                            integers.get_or_insert(own);
                            continue;
                        }
                        weak = Some(weak.filter(|d| d.is_float()).unwrap_or(own));
                    }
                    Slot::Empty | Slot::Absent | Slot::Untyped(..) => {}
                }
            }
        }
        integers.or(weak).unwrap_or(default)
    }

    /// The value of a net. Errors: an internal error if the net has no value yet, as parts are
    /// lowered after the parts that they read.
    fn net_value(&self, net: u32) -> Result<NetValue<'_>> {
        match &self.slots[net as usize] {
            Slot::Value(value) => Ok(NetValue::Value(*value)),
            Slot::Literal(literal) => Ok(NetValue::Literal(literal)),
            Slot::Untyped(value, _) => Ok(NetValue::Untyped(*value)),
            Slot::Empty | Slot::Absent => {
                Diagnostic::of(ErrorKind::Bug, "a block reads an input that has no value").err()
            }
        }
    }

    fn value(&mut self, terminal: &Terminal, net: u32, shared: DType) -> BlockResult<Value> {
        let literal = match self.net_value(net)? {
            NetValue::Value(value) | NetValue::Untyped(value) => return Ok(value),
            NetValue::Literal(literal) => literal,
        };
        let own = self.lowering.default_dtype(literal);
        let dtype = match (terminal.own_dtype, terminal.class) {
            (false, _) => shared,
            (true, Class::Float) if literal.weak || own.is_int() => self.lowering.numerics.float,
            (true, _) => own,
        };
        match literal.in_dtype(dtype) {
            Some(tensor) => Ok(self.builder.constant(tensor)),
            None => Err(literal.conversion_error(&terminal.name, dtype).into()),
        }
    }

    /// The operand for an input whose shape is inferred from the others by the table's rule.
    fn learned(
        &mut self,
        part: &Part,
        terminal: &Terminal,
        net: u32,
        dtype: DType,
        operands: &[Operand],
    ) -> BlockResult<Operand> {
        let stated = match self.slots[net as usize] {
            Slot::Untyped(_, stated) => stated,
            _ => None,
        };
        let shape = self.inferred_shape(self.builder, part, (terminal, stated), operands)?;
        if let Slot::Untyped(value, stated) = self.slots[net as usize] {
            let dtype = match (terminal.own_dtype, stated, terminal.class) {
                (false, ..) => dtype,
                (true, Some(stated), _) => stated,
                (true, None, Class::Float) => self.lowering.numerics.float,
                (true, None, _) => self.lowering.options.index,
            };
            self.set_type(net, value, Type::new(dtype, shape))?;
            return Ok(Operand::One(value));
        }
        let value = self.value(terminal, net, dtype)?;
        // The block itself checks the shape of data that already has one.
        if terminal.role == Role::Data {
            return Ok(Operand::One(value));
        }
        let ty = self.builder.ty(value);
        let mut guards = Vec::new();
        let same = ty.shape.rank() == shape.rank()
            && ty
                .shape
                .dims
                .iter()
                .zip(&shape.dims)
                .all(|(a, b)| mithril_ir::shape::unify(a, b, &mut guards).is_some());
        if !same {
            return Err(BlockError::wrong_shape(&terminal.name, &shape));
        }
        Ok(Operand::One(value))
    }

    /// The shape of an input, and of a stated dtype, according to the table's rule.
    pub(super) fn inferred_shape(
        &self,
        builder: &Builder,
        part: &Part,
        (terminal, stated): (&Terminal, Option<DType>),
        operands: &[Operand],
    ) -> Result<Shape> {
        let (entry, _) = origin_of(&part.definition);
        let cx = Cx { stated, ..self.cx(builder, part, operands) };
        let shape = cx.inferred_shape(entry, &terminal.name)?;
        builder.check()?;
        Ok(shape)
    }

    fn cx<'c>(&'c self, builder: &'c Builder, part: &'c Part, operands: &'c [Operand]) -> Cx<'c> {
        Cx {
            builder,
            settings: origin_of(&part.definition).1,
            mode: self.lowering.options.mode,
            sizes: &self.lowering.sizes,
            float: self.lowering.numerics.float,
            index: self.lowering.options.index,
            stated: None,
            steps: self.lowering.steps(),
            terminals: &part.definition.inputs,
            operands,
        }
    }

    /// Emits the operations of a table block.
    pub(super) fn emit(
        &self,
        builder: &Builder,
        part: &Part,
        operands: &[Operand],
    ) -> Result<Vec<Value>> {
        self.cx(builder, part, operands).emit(origin_of(&part.definition).0)
    }

    /// Describes the operands of a part for an error. If `operands` is not empty, adds fix-its.
    pub(super) fn contexts(&self, part: &Part, operands: &[Operand]) -> Vec<OperandContext> {
        let mut contexts = Vec::new();
        let mut describe = |terminal: String, net: u32| {
            let (text, shape, fix_its) = match &self.slots[net as usize] {
                Slot::Value(value) => {
                    let ty = self.builder.ty(*value);
                    let fix_its = match operands.is_empty() {
                        true => Vec::new(),
                        false => self.fix_its(part, operands, *value),
                    };
                    (ty.to_string(), Some(ty.shape), fix_its)
                }
                Slot::Literal(literal) => (literal.text(), None, Vec::new()),
                Slot::Empty | Slot::Absent | Slot::Untyped(..) => return,
            };
            contexts.push(OperandContext {
                terminal,
                text,
                shape,
                fix_its,
                origin: origin(self.composite, net),
            });
        };
        for (terminal, feed) in part.definition.inputs.iter().zip(&part.inputs) {
            match feed {
                Feed::Absent | Feed::Key => {}
                Feed::Net(net) => describe(terminal.name.to_string(), *net),
                Feed::List(nets) => {
                    for (i, net) in nets.iter().enumerate() {
                        describe(format!("{}[{i}]", terminal.name), *net);
                    }
                }
            }
        }
        contexts
    }
}

fn origin_of(definition: &Definition) -> (&'static Entry, &Settings) {
    let (entry, settings) = definition.origin.as_ref().expect("a primitive has an entry");
    (entry, settings)
}
