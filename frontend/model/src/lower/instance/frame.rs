//! Lowers the parts of a composite into a function one by one, keeping track of each net.

use std::sync::Arc;

use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;
use mithril_ir::shape::{Guard, Type, unify};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Instance, Lowering};
use crate::definition::Definition;
use crate::literal::Literal;
use crate::lower::block_error::{BlockError, BlockResult, origin};
use crate::lower::{DimSpec, size};
use crate::model::seal::{Composite, NetSource};
use crate::naming::dim_symbol;

/// The state of a net during lowering.
#[derive(Clone)]
pub(in crate::lower) enum Slot {
    /// Not computed yet.
    Empty,
    /// An input that is not read in this mode.
    Absent,
    Value(Value),
    Literal(Literal),
    /// An argument whose shape is still to be inferred. Its dtype is inferred too, unless it was
    /// stated.
    Untyped(Value, Option<DType>),
}

/// A composite that is being lowered, into its own function or into that of the enclosing model.
pub(in crate::lower) struct Frame<'a, 'o> {
    pub lowering: &'a mut Lowering<'o>,
    pub builder: &'a Builder,
    pub definition: &'a Definition,
    pub composite: &'a Composite,
    /// The path of the composite within the function. Empty if the composite has its own function.
    pub path: &'a str,
    pub slots: Vec<Slot>,
    /// Next values of state inputs.
    pub states: Vec<(u32, Value)>,
    pub parts: Vec<Option<Arc<Instance>>>,
    /// Dims by the names used in stated shapes.
    dims: FxHashMap<Arc<str>, Dim>,
}

/// A composite that has been lowered.
pub(in crate::lower) struct LoweredComposite {
    pub outputs: Vec<Value>,
    pub states: Vec<(u32, Value)>,
    pub types: Vec<Option<Type>>,
    pub parts: Vec<Option<Arc<Instance>>>,
}

/// Whether a part has been lowered, or has to wait for a type.
pub(in crate::lower) enum Step {
    Done,
    Later,
}

impl<'a, 'o> Frame<'a, 'o> {
    /// `inputs` are the slots of the composite's inputs, in order.
    pub fn new(
        lowering: &'a mut Lowering<'o>,
        builder: &'a Builder,
        definition: &'a Definition,
        path: &'a str,
        inputs: Vec<Slot>,
    ) -> Frame<'a, 'o> {
        let composite = definition.composite.as_ref();
        let composite = composite.expect("primitives are parts, never frames");
        let mut slots: Vec<Slot> = composite
            .nets
            .iter()
            .map(|net| match &net.from {
                NetSource::Value(literal) => Slot::Literal(literal.clone()),
                NetSource::Input(_) | NetSource::Part { .. } => Slot::Empty,
            })
            .collect();
        for (net, slot) in composite.inputs.iter().zip(inputs) {
            slots[*net as usize] = slot;
        }
        Frame {
            lowering,
            builder,
            definition,
            composite,
            path,
            slots,
            states: Vec::new(),
            parts: vec![None; composite.parts.len()],
            dims: FxHashMap::default(),
        }
    }

    /// Lowers all parts. Errors: those of the parts; an input whose type cannot be inferred.
    pub fn run(&mut self) -> BlockResult<()> {
        for &net in &self.composite.inputs {
            if let Slot::Value(value) = self.slots[net as usize] {
                self.check_stated(net, value)?;
            }
        }
        let mut waiting: Vec<u32> = self.composite.order.clone();
        while !waiting.is_empty() {
            let mut later = Vec::new();
            // A shared state is updated in the order of its uses, so a part waits for earlier uses
            // of the state.
            let mut blocked_states: FxHashSet<u32> = FxHashSet::default();
            for &part in &waiting {
                let own = &self.composite.parts[part as usize];
                let waits = own.states().any(|net| blocked_states.contains(&net));
                if waits || matches!(self.part(part)?, Step::Later) {
                    blocked_states.extend(own.states());
                    later.push(part);
                }
            }
            if later.len() == waiting.len() {
                return Err(self.missing_shape());
            }
            waiting = later;
        }
        Ok(())
    }

    fn missing_shape(&self) -> Box<BlockError> {
        let untyped = self.composite.inputs.iter().zip(&self.definition.inputs);
        let mut untyped = untyped
            .filter(|(net, _)| matches!(self.slots[**net as usize], Slot::Untyped(..)))
            .map(|(_, terminal)| format!("`{}`", terminal.name));
        let name = untyped.next().unwrap_or_else(|| "an input".into());
        Diagnostic::of(ErrorKind::Shapes, format!("the shape of {name} cannot be inferred"))
            .hint("give it with `shapes=`")
            .into()
    }

    /// The lowered composite. Errors: an output is an input without a type.
    pub fn finish(self) -> BlockResult<LoweredComposite> {
        let mut outputs = Vec::with_capacity(self.composite.outputs.len());
        for &net in &self.composite.outputs {
            let value = match &self.slots[net as usize] {
                Slot::Value(value) => *value,
                Slot::Literal(literal) => {
                    let dtype = self.lowering.default_dtype(literal);
                    let tensor = literal.in_dtype(dtype).expect("its own dtype");
                    self.builder.constant(tensor)
                }
                Slot::Empty | Slot::Absent | Slot::Untyped(..) => {
                    return Err(self.missing_shape());
                }
            };
            outputs.push(value);
        }
        let types = self.slots.iter().map(|slot| match slot {
            Slot::Value(value) => Some(self.builder.ty(*value)),
            Slot::Empty | Slot::Absent | Slot::Literal(_) | Slot::Untyped(..) => None,
        });
        Ok(LoweredComposite {
            types: types.collect(),
            outputs,
            states: self.states,
            parts: self.parts,
        })
    }

    /// Sets the inferred type of an input.
    pub fn set_type(&mut self, net: u32, value: Value, ty: Type) -> BlockResult<()> {
        self.builder.with_mut(|f| f.values[value.index()].ty = ty);
        self.slots[net as usize] = Slot::Value(value);
        self.check_stated(net, value)
    }

    /// Records the value of a net that has been computed.
    pub fn bind(&mut self, net: u32, value: Value) -> BlockResult<()> {
        let name = &self.composite.nets[net as usize].name;
        if self.path.is_empty() {
            self.builder.set_name(value, name.clone());
        }
        self.slots[net as usize] = Slot::Value(value);
        self.check_stated(net, value)
    }

    /// Checks a value against the shape and dtype that the model's author stated.
    fn check_stated(&mut self, net: u32, value: Value) -> BlockResult<()> {
        let stated = &self.composite.nets[net as usize];
        if stated.shape.is_none() && stated.dtype.is_none() {
            return Ok(());
        }
        let ty = self.builder.ty(value);
        let name = stated.name.as_ref().map_or("a value".to_string(), |name| format!("`{name}`"));
        if let Some(dtype) = stated.dtype.filter(|d| *d != ty.dtype) {
            return Err(Diagnostic::of(
                ErrorKind::DType,
                format!("{name} has a different dtype than stated"),
            )
            .got(ty.dtype)
            .expected(dtype)
            .hint(ty.dtype.conversion(&|other| other.is_like(dtype)))
            .into());
        }
        let Some(shape) = &stated.shape else {
            return Ok(());
        };
        let shape = shape.clone();
        let rank = ty.shape.need_rank()?;
        let mut fits = rank == shape.len();
        let mut guards: Vec<Guard> = Vec::new();
        for (spec, dim) in shape.iter().zip(&ty.shape.dims) {
            let stated = match spec {
                DimSpec::Any => continue,
                DimSpec::Number(n) => size(*n)?,
                DimSpec::Named(name) => {
                    dim_symbol(name)?;
                    self.dims.entry(name.clone()).or_insert_with(|| dim.clone()).clone()
                }
            };
            fits &= unify(&stated, dim, &mut guards).is_some();
        }
        if !fits {
            let made = match origin(self.composite, net) {
                crate::lower::block_error::Origin::Block { path, terminal } => {
                    format!("{} from `{}.{terminal}`", ty.shape, path[0])
                }
                _ => ty.shape.to_string(),
            };
            let mut error = Diagnostic::of(
                ErrorKind::Shapes,
                format!("{name} has a different shape than stated"),
            )
            .got(made)
            .expected(shape_text(&shape));
            if shape.is_empty() {
                let hint = "reduce the loss to one number: `reduce_steps=[Mean()]`";
                error = error.hint(hint);
            }
            return Err(error.into());
        }
        self.builder.add_guards(guards);
        Ok(())
    }
}

/// A stated shape in the notation of types: `[batch x 784]`.
pub(in crate::lower) fn shape_text(shape: &[DimSpec]) -> String {
    let dims: Vec<String> = shape
        .iter()
        .map(|dim| match dim {
            DimSpec::Number(n) => n.to_string(),
            DimSpec::Any => "?".to_string(),
            DimSpec::Named(name) => name.to_string(),
        })
        .collect();
    format!("[{}]", dims.join(" x "))
}
