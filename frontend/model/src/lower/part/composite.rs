//! Lowers one composite: as a call of its function, or with its parts in place.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Value};
use mithril_ir::nesting::deeper;
use mithril_ir::op::{self, Op};
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use smallvec::{SmallVec, smallvec};

use crate::definition::Definition;
use crate::literal::Literal;
use crate::lower::Mode;
use crate::lower::block_error::{BlockError, BlockResult};
use crate::lower::instance::frame::{Frame, Slot};
use crate::lower::instance::{Generalised, Lowering, Spec};
use crate::model::seal::{Feed, Part};

/// Constants with more elements become arguments of an instance instead of being built into it.
const SMALL: usize = 32;

impl<'a> Frame<'a, '_> {
    pub(super) fn composite(&mut self, at: u32, part: &'a Part) -> BlockResult<()> {
        let composite = self.composite;
        self.nested(at, part).map_err(|error: Box<BlockError>| error.out_of(composite, at))
    }

    fn nested(&mut self, at: u32, part: &'a Part) -> BlockResult<()> {
        let (slots, mut specs, symbolic) = self.arguments(part)?;
        let generalised = Generalised::of(&mut specs);
        let instance = self.lowering.instance(&part.definition, specs)?;
        self.parts[at as usize] = Some(instance.clone());
        if symbolic || instance.shapes {
            return self.inline(part, slots);
        }
        let callee = &instance.function;
        let mut operands = Vec::with_capacity(instance.args.len());
        for (arg, &input) in instance.args.iter().enumerate() {
            let value = match slots[input as usize] {
                Slot::Value(value) => value,
                Slot::Untyped(value, _) => {
                    let ty = generalised.to_caller(callee.ty(callee.arg(arg)));
                    if let Feed::Net(net) = part.inputs[input as usize] {
                        self.set_type(net, value, ty)?;
                    }
                    value
                }
                Slot::Empty | Slot::Absent | Slot::Literal(_) => {
                    unreachable!("arguments are values")
                }
            };
            operands.push(value);
        }
        let (definition, gradient) = (&part.definition, part.gradient.as_ref());
        let (op, attrs) = self.lowering.call(definition, gradient, part.checkpoint, callee)?;
        let values = self.builder.call(op, callee, attrs, &operands)?;
        let nets: Vec<u32> = part.outputs.iter().flatten().copied().collect();
        for (net, value) in nets.iter().zip(&values) {
            self.bind(*net, *value)?;
        }
        for (input, value) in instance.states.iter().zip(&values[nets.len()..]) {
            self.next_state(&part.inputs[*input as usize], *value);
        }
        Ok(())
    }

    /// The arguments of a composite: their slots, their specs for an instance, and whether one of
    /// them is a symbolic shape, which a call would hide.
    pub(super) fn arguments(&mut self, part: &Part) -> BlockResult<(Vec<Slot>, Vec<Spec>, bool)> {
        let count = part.inputs.len();
        let (mut slots, mut specs) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut symbolic = false;
        for (terminal, feed) in part.definition.inputs.iter().zip(&part.inputs) {
            let slot = match feed {
                Feed::Key | Feed::Net(_) if self.skips(terminal) => Slot::Absent,
                Feed::Key => Slot::Value(self.key(part)?),
                Feed::Net(net) => self.slots[*net as usize].clone(),
                Feed::Absent => Slot::Absent,
                Feed::List(_) => unreachable!("inputs of composites are not lists"),
            };
            let slot = match slot {
                // Integers stay literals, because they may become floats inside.
                Slot::Literal(literal)
                    if !literal.weak
                        && !literal.tensor.dtype().is_int()
                        && literal.tensor.len() > SMALL =>
                {
                    Slot::Value(self.builder.constant(literal.tensor))
                }
                Slot::Value(value) => match self.builder.known(value) {
                    Some(dims) => match constant(&dims, &self.builder.ty(value)) {
                        Some(literal) => Slot::Literal(literal),
                        None => {
                            symbolic = true;
                            Slot::Value(value)
                        }
                    },
                    None => Slot::Value(value),
                },
                other => other,
            };
            specs.push(match &slot {
                Slot::Value(value) => Spec::Typed(self.builder.ty(*value)),
                Slot::Literal(literal) => Spec::Literal(literal.clone()),
                Slot::Absent => Spec::Absent,
                Slot::Untyped(_, dtype) => Spec::Open(*dtype),
                Slot::Empty => Spec::Open(None),
            });
            slots.push(slot);
        }
        Ok((slots, specs, symbolic))
    }

    /// Lowers a composite in place. This is necessary if it takes or returns shapes.
    fn inline(&mut self, part: &'a Part, slots: Vec<Slot>) -> BlockResult<()> {
        let path = match self.path.is_empty() {
            true => part.name.to_string(),
            false => format!("{}.{}", self.path, part.name),
        };
        let untyped: Vec<(u32, Value)> = part
            .inputs
            .iter()
            .zip(&slots)
            .filter_map(|(feed, slot)| match (feed, slot) {
                (Feed::Net(net), Slot::Untyped(value, _)) => Some((*net, *value)),
                _ => None,
            })
            .collect();
        let builder = self.builder;
        let mut frame = Frame::new(self.lowering, builder, &part.definition, &path, slots);
        deeper(|| frame.run())?;
        let done = frame.finish()?;
        for (net, value) in untyped {
            self.slots[net as usize] = Slot::Value(value);
        }
        for (net, value) in part.outputs.iter().flatten().zip(&done.outputs) {
            self.bind(*net, *value)?;
        }
        for (input, value) in &done.states {
            self.next_state(&part.inputs[*input as usize], *value);
        }
        Ok(())
    }
}

impl Lowering<'_> {
    /// The operation that calls a lowered composite, and its attributes. Errors: those of the
    /// gradient.
    pub fn call(
        &mut self,
        definition: &Definition,
        gradient: Option<&Arc<Definition>>,
        checkpoint: bool,
        callee: &Arc<Function>,
    ) -> BlockResult<(Op, SmallVec<[Attr; 2]>)> {
        let mut attrs = smallvec![Attr::Function(callee.name.clone())];
        // Inference does not need the gradient of a custom operation, and the target may have no
        // body for it.
        let needed = self.options.mode == Mode::Training || !definition.wraps_function();
        let kind = match gradient {
            Some(gradient) if needed => {
                let vjp = self.vjp(gradient, callee)?;
                attrs.push(Attr::Function(vjp.name.clone()));
                "custom_gradient"
            }
            _ if checkpoint => "checkpoint",
            _ => "call",
        };
        Ok((op::get(kind), attrs))
    }
}

/// A shape as a constant, if all its dims are numbers.
fn constant(dims: &[Dim], ty: &Type) -> Option<Literal> {
    let values: Option<Vec<i64>> = dims.iter().map(Dim::as_const).collect();
    let tensor = Tensor::from_i64s(ty.dtype, ty.shape.as_fixed()?, &values?);
    Some(Literal::array(tensor))
}
