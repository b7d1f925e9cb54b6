//! Definitions: what blocks compute, with their named terminals.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mithril_ir::dtype::DType;
use mithril_ir::graph::Role;
use mithril_ir::nesting::deeper;
use mithril_ir::op::Class;
use rustc_hash::FxHasher;

use crate::blocks::{Entry, Settings};
use crate::identity::ParamId;
use crate::init::Start;
use crate::lower::DimSpec;
use crate::model::seal::{Composite, Sealed};
use crate::numerics::Numerics;
use crate::place::Place;
use crate::text_function::TextFunction;

/// An input of a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terminal {
    /// A learned input, state or key inside a composite is named by its path: `linear_0.w`.
    pub name: Arc<str>,
    pub role: Role,
    /// The dtypes that the input accepts.
    pub class: Class,
    /// Whether the dtype is independent of the dtype that the block's other inputs share.
    pub own_dtype: bool,
    /// Whether the input takes a list of connections.
    pub list: bool,
    /// Whether the input may be left out.
    pub optional: bool,
    /// Whether the input is read in training mode only.
    pub in_training: bool,
    /// Whether the input is a mask: a bool array selects, a float array is added. The first call
    /// decides which, unless the model or the compile options do.
    pub mask: bool,
    /// Whether the type is inferred from the types of the other inputs.
    pub inferred: bool,
    /// The dtype and the shape that the model's author stated.
    pub dtype: Option<DType>,
    pub shape: Option<Arc<[DimSpec]>>,
    /// The device of the backend where the author put a param.
    pub device: Option<Arc<str>>,
    /// The initial value of a param or state.
    pub start: Start,
}

/// An output of a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outlet {
    pub name: Arc<str>,
    /// The number of elements, if the output is a list.
    pub list: Option<u32>,
}

/// When a body is called.
pub(crate) enum Control {
    /// Once for each slice of its sequences, or as often as `steps` says.
    Slices,
    /// For as long as the output `running` of the step before is true. The part `condition` of the
    /// body computes it. The first step runs if that part gives true for the first carries.
    While { running: u32, max_steps: Option<i64> },
    /// The input `condition` chooses between the two parts of the body. It precedes the inputs of
    /// the body.
    Branches,
}

/// A body, and how each step reads and writes its terminals. Terminals are given by index.
pub struct Body {
    pub(crate) control: Control,
    pub(crate) definition: Arc<Definition>,
    /// The author's gradient of the body. `None`: it is derived from the blocks inside.
    pub(crate) gradient: Option<Arc<Definition>>,
    /// Whether the backward pass recomputes inner values.
    pub(crate) checkpoint: bool,
    /// Pairs of an input, and of the output whose value the input takes in the next step.
    pub(crate) carries: Vec<(u32, u32)>,
    /// The inputs that take slices. The remaining inputs have the same value in each step.
    pub(crate) sequences: Vec<u32>,
    /// The sequence that tells whether a step is inside, which is computed from the lengths that the
    /// block takes in its place.
    pub(crate) lengths: Option<u32>,
    /// The number of steps, if there are no sequences.
    pub(crate) steps: Option<i64>,
    /// The outputs that are stacked.
    pub(crate) collected: Vec<u32>,
    /// The axes along which sequences are cut, in their order.
    pub(crate) axes: Vec<i64>,
    /// The axis along which outputs are stacked.
    pub(crate) axis: i64,
    /// Whether the last slice comes first.
    pub(crate) reverse: bool,
    /// Whether steps may be computed at once.
    pub(crate) batched: bool,
}

/// A block's terminals and the params of its body.
pub struct Wired {
    pub(crate) body: Body,
    pub(crate) inputs: Vec<Terminal>,
    pub(crate) outputs: Vec<Outlet>,
    pub(crate) ids: Arc<[ParamId]>,
    /// Where the body runs, and so the block.
    pub(crate) place: Place,
    pub(crate) numerics: Numerics,
}

/// The computation of a block, independent of its uses.
pub(crate) struct Definition {
    pub kind: Arc<str>,
    pub inputs: Vec<Terminal>,
    pub outputs: Vec<Outlet>,
    /// The input and the output that `+=` connects.
    pub standard_input: Option<u32>,
    pub standard_output: Option<u32>,
    /// The table entry and the settings that the block was made from.
    pub origin: Option<(&'static Entry, Settings)>,
    /// The function of the IR that the block was made from.
    pub function: Option<Arc<TextFunction>>,
    /// The body that the block calls once for each slice of its sequences.
    pub body: Option<Body>,
    /// `None`: a primitive, which is lowered by its table entry, a function, or a block with a
    /// body.
    pub composite: Option<Composite>,
    hash: u64,
}

impl Definition {
    pub fn primitive(entry: &'static Entry, settings: Settings) -> Definition {
        let (inputs, outputs) = (entry.terminals(&settings), entry.outlets(&settings));
        let standard_input = inputs.iter().position(|t| t.role == Role::Data && !t.list);
        let mut hasher = FxHasher::default();
        (entry.name, &settings).hash(&mut hasher);
        Definition {
            kind: entry.name.into(),
            standard_input: standard_input.map(|i| i as u32),
            standard_output: (!outputs.is_empty()).then_some(0),
            inputs,
            outputs,
            origin: Some((entry, settings)),
            function: None,
            body: None,
            composite: None,
            hash: hasher.finish(),
        }
    }

    /// A block that calls a body. The entry and the settings determine the body.
    pub fn repeated(entry: &'static Entry, settings: Settings, wired: Wired) -> Definition {
        let mut hasher = FxHasher::default();
        (entry.name, &settings).hash(&mut hasher);
        let collected = wired.body.carries.len();
        let has_collected = !wired.body.collected.is_empty();
        let has_results = collected > 0 || matches!(wired.body.control, Control::Branches);
        let standard_output = has_collected.then_some(collected).or(has_results.then_some(0));
        let carried = wired.body.carries.first().map(|(input, _)| *input);
        let standard_input = match wired.body.control {
            Control::Slices => wired.body.sequences.first().copied(),
            Control::While { .. } => carried,
            Control::Branches => (wired.inputs.len() > 1).then_some(1),
        };
        Definition {
            kind: entry.name.into(),
            standard_input,
            standard_output: standard_output.map(|at| at as u32),
            inputs: wired.inputs,
            outputs: wired.outputs,
            origin: Some((entry, settings)),
            function: None,
            body: Some(wired.body),
            composite: None,
            hash: hasher.finish(),
        }
    }

    pub fn of_function(
        function: TextFunction,
        inputs: Vec<Terminal>,
        outputs: Vec<Outlet>,
    ) -> Definition {
        let mut hasher = FxHasher::default();
        function.hash(&mut hasher);
        let standard_input = inputs.iter().position(|t| t.role == Role::Data);
        Definition {
            kind: function.name.replace(['.', '\0'], "_").into(),
            standard_input: standard_input.map(|i| i as u32),
            standard_output: Some(0),
            inputs,
            outputs,
            origin: None,
            function: Some(Arc::new(function)),
            body: None,
            composite: None,
            hash: hasher.finish(),
        }
    }

    pub fn composite(kind: Arc<str>, seal: Sealed) -> Definition {
        let mut hasher = FxHasher::default();
        (&kind, &seal.inputs, &seal.outputs, &seal.composite).hash(&mut hasher);
        Definition {
            kind,
            inputs: seal.inputs,
            outputs: seal.outputs,
            standard_input: seal.standard_input,
            standard_output: seal.standard_output,
            origin: None,
            function: None,
            body: None,
            composite: Some(seal.composite),
            hash: hasher.finish(),
        }
    }
}

impl Definition {
    /// Whether this is a model with a single part, which is a function of a `.mir` text.
    pub fn wraps_function(&self) -> bool {
        let parts = self.composite.as_ref().map(|composite| composite.parts.as_slice());
        matches!(parts, Some([only]) if only.definition.function.is_some())
    }
}

/// Drops nested definitions one after another. Models nest to any depth, so a recursive drop could
/// overflow the stack.
impl Drop for Definition {
    fn drop(&mut self) {
        let inside = |definition: &mut Definition| -> Vec<Arc<Definition>> {
            let parts = definition.composite.as_mut().map(|own| std::mem::take(&mut own.parts));
            let parts = parts.into_iter().flatten();
            let parts = parts.map(|part| [Some(part.definition), part.gradient]);
            let body = definition.body.take().map(|own| [Some(own.definition), own.gradient]);
            parts.chain(body).flatten().flatten().collect()
        };
        let mut pending = inside(self);
        while let Some(definition) = pending.pop() {
            // `into_inner` returns `None` if another block still uses the definition.
            pending.extend(Arc::into_inner(definition).iter_mut().flat_map(inside));
        }
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Definition) -> bool {
        let same_origin = || match (&self.origin, &other.origin) {
            (Some((a, x)), Some((b, y))) => a.name == b.name && x == y,
            (None, None) => true,
            _ => false,
        };
        self.hash == other.hash
            && self.kind == other.kind
            && same_origin()
            && self.function == other.function
            && self.inputs == other.inputs
            && self.outputs == other.outputs
            && deeper(|| self.composite == other.composite)
    }
}

impl Eq for Definition {}

impl Hash for Definition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}
