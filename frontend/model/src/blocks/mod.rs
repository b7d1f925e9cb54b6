//! The block table: one declaration per block, whose fields hold all facts about it as data.
//!
//! The Python classes, the stubs and the reference are generated from [`table`].

use std::sync::LazyLock;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::Role;
use mithril_ir::op::{self, Class, DTypeRule};
use mithril_ir::shape::Shape;
use rustc_hash::FxHashMap;

use crate::block::Block;
use crate::definition::{Definition, Outlet, Terminal, Wired};
use crate::init::{Init, Rule, Start};
use crate::lower::Cx;
use crate::model::Model;
use crate::setting::Setting;
use elsewhere::elsewhere;

mod attention;
mod attention_masks;
mod auc;
mod binary;
mod borders;
mod channels;
mod class_losses;
mod class_margins;
mod classical;
mod compose;
mod conditions;
mod control;
mod convolution;
mod create;
mod cross_entropy;
mod ctc;
mod einsum;
mod elementwise;
pub mod elsewhere;
mod embeddings;
mod encoder_decoder;
mod example;
mod experts;
mod family;
mod fourier;
mod gaussian_process;
mod grid_sample;
mod histogram;
mod index;
mod indexer;
mod layers;
mod likelihoods;
mod linear_algebra;
mod loss_terms;
mod losses;
mod manifold;
mod margins;
mod masked_steps;
mod metric_terms;
mod metrics;
mod multi_head;
mod parameter;
mod pixels;
mod polynomials;
mod pooling;
mod positions;
mod publication;
mod random;
mod ranges;
mod recurrent;
mod reduce;
mod regularizers;
mod resize;
mod segments;
mod sequence_layer;
mod sequences;
mod settings;
mod shape;
mod similarity;
mod special;
mod statistics;
mod thresholds;
mod transformer;
mod unpooling;
mod weights;
mod windows;
mod wiring;

pub use example::Example;
pub(crate) use example::{gives, written};
pub use family::{FAMILIES, Family};
pub(crate) use parameter::strings;
pub use parameter::{Default, Kind, Parameter, Range};
pub use publication::{PUBLICATIONS, Publication};
pub use settings::Settings;

/// The declaration of one block.
pub struct Entry {
    pub name: &'static str,
    /// A description of the result. If empty, the operation's description is used.
    pub doc: &'static str,
    /// The result as a NumPy/SciPy expression over the names of terminals and parameters, valid at
    /// least for the default settings. Empty if there is no short one. Tests evaluate it.
    pub formula: &'static str,
    /// The publication that describes the block, as named in [`PUBLICATIONS`], unless `doc` names
    /// it.
    pub source: &'static str,
    /// A usage example, which tests run.
    pub example: Example,
    pub group: Group,
    /// The parameters of the constructor, in order.
    pub parameters: &'static [Parameter],
    pub inputs: &'static [Input],
    pub outputs: &'static [Output],
    /// Checks combinations of settings, after each setting has been checked.
    pub valid: fn(&Settings) -> Result<()>,
    /// Checks requirements on the inputs that the block's operations do not check.
    pub needs: fn(&Cx) -> Result<()>,
    pub meaning: Meaning,
    /// Whether the output has the dtype that the inputs share.
    pub same_dtype: bool,
}

/// The part of the library that a block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Group {
    Elementwise,
    Binary,
    Reduce,
    Matrix,
    Shape,
    Random,
    Layer,
    Loss,
    Regularizer,
    Metric,
    Control,
    Recurrent,
}

/// How a block is computed.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// A single operation. Its operands are the inputs, its attributes the parameters of the same
    /// names.
    Op(&'static str),
    /// Operations built with `Var` arithmetic. Returns the outputs, then the next states.
    Lower(fn(&Cx) -> Result<Vec<Value>>),
    /// A model made of other blocks.
    Compose(fn(&Settings) -> Result<Model>),
    /// A body, which is called several times or on a condition. Inputs and outputs are those of the
    /// body.
    Body(fn(&Settings) -> Result<Wired>),
    /// A block around another one, whose terminals are those of that block and more.
    Wrap(&'static Wrapper),
}

/// The computation of a block around another one, which is one of its settings.
pub struct Wrapper {
    /// The inputs. Errors: a block that cannot be wrapped.
    pub(crate) terminals: fn(&Settings) -> Result<Vec<Terminal>>,
    pub(crate) outlets: fn(&Settings) -> Result<Vec<Outlet>>,
    /// The shape of an inferred input.
    pub(crate) shape: fn(&Cx, &str) -> Result<Shape>,
    /// Returns the outputs, then the next states.
    pub(crate) lower: fn(&Cx) -> Result<Vec<Value>>,
}

pub(crate) use mithril_ir::graph::Value;

/// The declaration of an input.
#[derive(Clone, Copy)]
pub struct Input {
    pub name: &'static str,
    pub role: Role,
    pub class: Class,
    /// Whether the dtype is independent of the dtype that the other inputs share.
    pub own_dtype: bool,
    pub list: bool,
    pub optional: bool,
    /// Whether the input is read in training mode only.
    pub in_training: bool,
    /// A bool array selects, a float array is added.
    pub mask: bool,
    pub init: Init,
    /// The name of the input from which the initial value takes its fan.
    pub fan_of: Option<&'static str>,
    /// Whether a matrix is (fan out, fan in).
    pub transposed: bool,
    /// Whether the block's setting `init` applies to this input.
    pub takes_init: bool,
    /// The shape of a param or state, or the default shape of a data input, computed from the other
    /// inputs.
    pub shape: Option<fn(&Cx) -> Result<Shape>>,
    /// Whether the input exists with these settings.
    pub present: fn(&Settings) -> bool,
    /// A short description; for a param, its dims.
    pub doc: &'static str,
}

/// The declaration of an output.
#[derive(Clone, Copy)]
pub struct Output {
    pub name: &'static str,
    /// The number of elements, if the output is a list.
    pub list: Option<fn(&Settings) -> Option<u32>>,
    /// Whether the output exists with these settings.
    pub present: fn(&Settings) -> bool,
}

/// A data input with the dtype that the inputs share.
pub const fn data(name: &'static str, class: Class) -> Input {
    Input {
        name,
        role: Role::Data,
        class,
        own_dtype: false,
        list: false,
        optional: false,
        in_training: false,
        mask: false,
        init: Init::Zeros,
        fan_of: None,
        transposed: false,
        takes_init: false,
        shape: None,
        present: |_| true,
        doc: "",
    }
}

/// A param.
pub const fn param(name: &'static str, init: Init, shape: fn(&Cx) -> Result<Shape>) -> Input {
    Input { role: Role::Param, init, shape: Some(shape), ..data(name, Class::Float) }
}

/// A state. In training, the block returns its next value after the outputs.
pub const fn state(name: &'static str, init: Init, shape: fn(&Cx) -> Result<Shape>) -> Input {
    Input { role: Role::State, ..param(name, init, shape) }
}

/// A random key.
pub const KEY: Input = Input { role: Role::Key, own_dtype: true, ..data("key", Class::Key) };

impl Input {
    pub const fn own_dtype(self) -> Input {
        Input { own_dtype: true, ..self }
    }

    /// A data input whose shape is inferred from the other inputs if it is not given.
    pub const fn following(self, shape: fn(&Cx) -> Result<Shape>) -> Input {
        Input { shape: Some(shape), ..self }
    }

    pub const fn optional(self) -> Input {
        Input { optional: true, ..self }
    }

    pub const fn in_training(self) -> Input {
        Input { in_training: true, ..self }
    }

    pub const fn many(self) -> Input {
        Input { list: true, ..self }
    }

    pub const fn when(self, present: fn(&Settings) -> bool) -> Input {
        Input { present, ..self }
    }

    /// Sets the description.
    pub const fn doc(self, doc: &'static str) -> Input {
        Input { doc, ..self }
    }

    /// Uses the fan of another input for the initial value.
    pub const fn fan_of(self, other: &'static str) -> Input {
        Input { fan_of: Some(other), ..self }
    }

    /// Declares that a matrix is (fan out, fan in).
    pub const fn transposed(self) -> Input {
        Input { transposed: true, ..self }
    }

    /// Lets the setting `init` determine the initial value, if given.
    pub const fn takes_init(self) -> Input {
        Input { takes_init: true, ..self }
    }

    fn terminal(&self, settings: &Settings) -> Terminal {
        let given = self.takes_init.then(|| Rule::of(settings.get("init"))).flatten();
        Terminal {
            role: self.role,
            own_dtype: self.own_dtype,
            list: self.list,
            optional: self.optional,
            inferred: self.shape.is_some(),
            in_training: self.in_training,
            mask: self.mask,
            start: Start {
                rule: given.unwrap_or(Rule::Known(self.init)),
                fan_of: None,
                transposed: self.transposed,
                stacked: false,
            },
            ..Terminal::data(self.name, self.class)
        }
    }
}

pub const fn out(name: &'static str) -> Output {
    Output { name, list: None, present: |_| true }
}

impl Output {
    pub const fn when(self, present: fn(&Settings) -> bool) -> Output {
        Output { present, ..self }
    }
}

const OUTPUT: &[Output] = &[out("output")];

/// The default fields of an entry, which the families of blocks override.
const BASE: Entry = Entry {
    name: "",
    doc: "",
    formula: "",
    source: "",
    example: gives(&[], ""),
    group: Group::Elementwise,
    parameters: &[],
    inputs: &[],
    outputs: OUTPUT,
    valid: |_| Ok(()),
    needs: |_| Ok(()),
    meaning: Meaning::Op(""),
    same_dtype: false,
};

impl Entry {
    /// A copy of this entry for a block that is lowered with `Var` arithmetic.
    const fn row(
        self,
        name: &'static str,
        doc: &'static str,
        lower: fn(&Cx) -> Result<Vec<Value>>,
    ) -> Entry {
        Entry { name, doc, meaning: Meaning::Lower(lower), ..self }
    }

    /// The description of the result. If the entry has none, it is that of the operation, with
    /// operand names replaced by the block's terminals.
    pub fn doc(&self) -> String {
        match self.meaning {
            Meaning::Op(name) if self.doc.is_empty() => {
                let op = op::get(name);
                let operands = op.0.operands.iter().map(|o| o.name);
                let mut names: Vec<_> = operands.zip(self.inputs.iter().map(|i| i.name)).collect();
                if self.parameters.iter().any(|p| p.name == "axis") {
                    names.push(("axes", "axis"));
                }
                renamed(op.0.doc, &names)
            }
            _ => self.doc.to_string(),
        }
    }

    /// Whether the output has the dtype that the inputs share.
    pub(crate) fn keeps_dtype(&self) -> bool {
        match self.meaning {
            Meaning::Op(name) => matches!(op::get(name).dtype, DTypeRule::Shared),
            Meaning::Lower(_) | Meaning::Compose(_) | Meaning::Body(_) | Meaning::Wrap(_) => {
                self.same_dtype
            }
        }
    }

    pub(crate) fn terminals(&self, settings: &Settings) -> Vec<Terminal> {
        if let Meaning::Wrap(wrapper) = self.meaning {
            return (wrapper.terminals)(settings).unwrap_or_default();
        }
        let own: Vec<&Input> = self.inputs.iter().filter(|i| (i.present)(settings)).collect();
        let mut terminals: Vec<Terminal> = own.iter().map(|i| i.terminal(settings)).collect();
        for (input, terminal) in own.iter().zip(&mut terminals) {
            let fan = input.fan_of.and_then(|name| own.iter().position(|i| i.name == name));
            terminal.start.fan_of = fan.map(|at| at as u32);
        }
        for name in settings.terminals() {
            terminals.push(Terminal { own_dtype: true, ..Terminal::data(name, Class::Int) });
        }
        terminals
    }

    pub(crate) fn outlets(&self, settings: &Settings) -> Vec<Outlet> {
        if let Meaning::Wrap(wrapper) = self.meaning {
            return (wrapper.outlets)(settings).unwrap_or_default();
        }
        let outlet = |output: &Output| Outlet {
            name: output.name.into(),
            list: output.list.and_then(|count| count(settings)),
        };
        self.outputs.iter().filter(|o| (o.present)(settings)).map(outlet).collect()
    }

    /// Builds a block from this entry. Errors: invalid settings; errors while building a composite.
    pub fn block(
        &'static self,
        positional: Vec<Setting>,
        named: Vec<(&str, Setting)>,
    ) -> Result<Block> {
        let mut settings = Settings::new(self, positional, named)?;
        let given = settings.take_connections();
        let mut block = match self.meaning {
            Meaning::Compose(compose) => {
                let model = compose(&settings)?;
                let optional = self.inputs.iter().filter(|input| input.optional);
                model.set_optional(optional.map(|input| input.name));
                let (identity, sealed) = model.contents()?;
                Block::composed((self, settings), identity, sealed)
            }
            Meaning::Body(body) => {
                let wired = body(&settings)?;
                Block::repeated((self, settings), wired)
            }
            Meaning::Wrap(wrapper) => {
                (wrapper.terminals)(&settings)?;
                Block::new(Definition::primitive(self, settings))
            }
            Meaning::Op(_) | Meaning::Lower(_) => Block::new(Definition::primitive(self, settings)),
        };
        block.given = given;
        Ok(block)
    }
}

/// Replaces names in the code spans of a text.
fn renamed(text: &str, names: &[(&str, &str)]) -> String {
    let word = |w: &str| names.iter().find(|(from, _)| *from == w).map(|(_, to)| *to);
    let code = |part: &str| {
        let mut out = String::new();
        let mut rest = part;
        while let Some(c) = rest.chars().next() {
            let stop = |c: char| !(c.is_alphanumeric() || c == '_');
            let end = rest.find(stop).unwrap_or(rest.len()).max(c.len_utf8());
            out.push_str(word(&rest[..end]).unwrap_or(&rest[..end]));
            rest = &rest[end..];
        }
        out
    };
    let parts = text.split('`').enumerate();
    let parts: Vec<String> =
        parts.map(|(i, part)| if i % 2 == 1 { code(part) } else { part.to_string() }).collect();
    parts.join("`")
}

/// All blocks, family by family.
pub fn table() -> impl Iterator<Item = &'static Entry> {
    FAMILIES.iter().flat_map(Family::blocks)
}

static BY_NAME: LazyLock<FxHashMap<&'static str, &'static Entry>> =
    LazyLock::new(|| table().map(|entry| (entry.name, entry)).collect());

/// Looks up an entry by name.
pub fn find(name: &str) -> Option<&'static Entry> {
    BY_NAME.get(name).copied()
}

/// Builds a block by name. Errors: an unknown block; invalid settings.
pub fn build(name: &str, positional: Vec<Setting>, named: Vec<(&str, Setting)>) -> Result<Block> {
    let Some(entry) = find(name) else {
        let mut error =
            Diagnostic::of(ErrorKind::UnknownBlock, format!("there is no block `{name}`"));
        let near = || did_you_mean(name, table().map(|e| e.name));
        error.hint = elsewhere(name).map(String::from).or_else(near);
        return error.err();
    };
    entry.block(positional, named)
}

/// Builds a block from its name and named settings: `block!(Linear(dimension = 32))`.
#[macro_export]
macro_rules! block {
    ($name:ident ( $($key:ident = $value:expr),* $(,)? )) => {
        $crate::blocks::build(
            stringify!($name),
            ::std::vec::Vec::new(),
            ::std::vec![$((stringify!($key), $crate::Setting::from($value))),*],
        )
    };
}
