//! The block table: one declaration per block, every fact of it a field, as data.
//!
//! Python classes, stubs and the reference are generated from [`table`].

use std::sync::LazyLock;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::graph::Role;
use mithril_ir::op::{self, Class, DTypeRule};
use mithril_ir::shape::Shape;
use rustc_hash::FxHashMap;

use crate::block::{Block, Definition, Init, Outlet, Terminal};
use crate::lower::Cx;
use crate::model::{Model, Source};
use crate::setting::Setting;

mod attention;
mod auc;
mod binary;
mod compose;
mod create;
mod cross_entropy;
mod einsum;
mod elementwise;
mod index;
mod indexer;
mod layers;
mod losses;
mod metrics;
mod parameter;
mod random;
mod reduce;
mod regularizers;
mod settings;
mod shape;

pub use parameter::{Default, Kind, Parameter, Range};
pub use settings::Settings;

/// One block.
pub struct Entry {
    pub name: &'static str,
    /// What it computes; where empty, that of its operation.
    pub doc: &'static str,
    pub group: Group,
    /// What its constructor takes, in this order.
    pub parameters: &'static [Parameter],
    pub inputs: &'static [Input],
    pub outputs: &'static [Output],
    /// What it needs of its inputs beside what its operations do.
    pub needs: fn(&Cx) -> Result<()>,
    pub meaning: Meaning,
    /// Whether the output has the dtype of the inputs that share one.
    pub keeps: bool,
}

/// The part of the library that a block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Group {
    Elementwise,
    Binary,
    Reduce,
    Shape,
    Random,
    Layer,
    Loss,
    Regularizer,
    Metric,
}

/// How a block is computed.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// One operation: operands are the inputs, attributes the parameters of the same names.
    Op(&'static str),
    /// Operations written in the algebra: the outputs, then the next states.
    Lower(fn(&Cx) -> Result<Vec<Value>>),
    /// A model made of other blocks.
    Compose(fn(&Settings) -> Result<Model>),
}

pub(crate) use mithril_ir::graph::Value;

/// An input of a block of the table.
#[derive(Clone, Copy)]
pub struct Input {
    pub name: &'static str,
    pub role: Role,
    pub class: Class,
    /// Its dtype is its own.
    pub apart: bool,
    pub list: bool,
    pub optional: bool,
    /// Read in training alone.
    pub in_training: bool,
    pub init: Init,
    /// The shape of a learned input or a state, or of one for data where nothing else says it.
    pub shape: Option<fn(&Cx) -> Result<Shape>>,
    /// Whether a block of these settings has it.
    pub present: fn(&Settings) -> bool,
}

/// An output of a block of the table.
#[derive(Clone, Copy)]
pub struct Output {
    pub name: &'static str,
    /// The number of elements of a list.
    pub list: Option<fn(&Settings) -> Option<u32>>,
}

/// An input for data, of the dtype that the inputs share.
pub const fn data(name: &'static str, class: Class) -> Input {
    Input {
        name,
        role: Role::Data,
        class,
        apart: false,
        list: false,
        optional: false,
        in_training: false,
        init: Init::Zeros,
        shape: None,
        present: |_| true,
    }
}

/// An input to be learned.
pub const fn param(name: &'static str, init: Init, shape: fn(&Cx) -> Result<Shape>) -> Input {
    Input { role: Role::Param, init, shape: Some(shape), ..data(name, Class::Float) }
}

/// A state, whose next value the block gives after its outputs in training.
pub const fn state(name: &'static str, init: Init, shape: fn(&Cx) -> Result<Shape>) -> Input {
    Input { role: Role::State, ..param(name, init, shape) }
}

/// A random key.
pub const KEY: Input = Input { role: Role::Key, apart: true, ..data("key", Class::Key) };

impl Input {
    pub const fn apart(self) -> Input {
        Input { apart: true, ..self }
    }

    /// An input for data whose shape follows from the other inputs where it is not given.
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

    fn terminal(&self) -> Terminal {
        Terminal {
            role: self.role,
            apart: self.apart,
            list: self.list,
            optional: self.optional,
            ruled: self.shape.is_some(),
            in_training: self.in_training,
            init: self.init,
            ..Terminal::data(self.name, self.class)
        }
    }
}

pub const fn out(name: &'static str) -> Output {
    Output { name, list: None }
}

const OUTPUT: &[Output] = &[out("output")];

/// What families of blocks update.
const BASE: Entry = Entry {
    name: "",
    doc: "",
    group: Group::Elementwise,
    parameters: &[],
    inputs: &[],
    outputs: OUTPUT,
    needs: |_| Ok(()),
    meaning: Meaning::Op(""),
    keeps: false,
};

impl Entry {
    /// A row like this one, of a block that is written in the algebra.
    const fn row(
        self,
        name: &'static str,
        doc: &'static str,
        lower: fn(&Cx) -> Result<Vec<Value>>,
    ) -> Entry {
        Entry { name, doc, meaning: Meaning::Lower(lower), ..self }
    }

    /// What it computes, in words: where it says nothing, what its operation does, told by the
    /// block's terminals.
    pub fn doc(&self) -> String {
        match self.meaning {
            Meaning::Op(name) if self.doc.is_empty() => {
                let op = op::get(name);
                let operands = op.0.operands.iter().map(|o| o.name);
                let names: Vec<_> = operands.zip(self.inputs.iter().map(|i| i.name)).collect();
                renamed(op.0.doc, &names)
            }
            _ => self.doc.to_string(),
        }
    }

    /// Whether the output has the dtype of the inputs that share one.
    pub(crate) fn keeps_dtype(&self) -> bool {
        match self.meaning {
            Meaning::Op(name) => matches!(op::get(name).dtype, DTypeRule::Shared),
            Meaning::Lower(_) | Meaning::Compose(_) => self.keeps,
        }
    }

    pub(crate) fn terminals(&self, settings: &Settings) -> Vec<Terminal> {
        let own = self.inputs.iter().filter(|i| (i.present)(settings));
        let mut terminals: Vec<Terminal> = own.map(Input::terminal).collect();
        for name in settings.terminals() {
            terminals.push(Terminal { apart: true, ..Terminal::data(name, Class::Int) });
        }
        terminals
    }

    pub(crate) fn outlets(&self, settings: &Settings) -> Vec<Outlet> {
        let outlet = |output: &Output| Outlet {
            name: output.name.into(),
            list: output.list.and_then(|count| count(settings)),
        };
        self.outputs.iter().map(outlet).collect()
    }

    /// A block of this entry. Errors: settings; what a composite is made of.
    pub fn block(
        &'static self,
        positional: Vec<Setting>,
        named: Vec<(&str, Setting)>,
    ) -> Result<Block> {
        let mut settings = Settings::new(self, positional, named)?;
        let given = settings.take_connections();
        let mut block = match self.meaning {
            Meaning::Compose(compose) => {
                let inner = compose(&settings)?.block()?;
                let Ok(mut definition) = std::sync::Arc::try_unwrap(inner.definition) else {
                    unreachable!("a block that was just built is not shared")
                };
                definition.kind = self.name.into();
                definition.origin = Some((self, settings));
                Block::new(definition)
            }
            Meaning::Op(_) | Meaning::Lower(_) => Block::new(Definition::primitive(self, settings)),
        };
        block.given = given
            .into_iter()
            .map(|(name, connection)| (name, Source::Connection(connection)))
            .collect();
        Ok(block)
    }
}

/// The text with names in its code replaced.
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

const TABLES: &[&[Entry]] = &[
    elementwise::BLOCKS,
    binary::BLOCKS,
    reduce::BLOCKS,
    shape::BLOCKS,
    index::BLOCKS,
    create::BLOCKS,
    einsum::BLOCKS,
    random::BLOCKS,
    layers::BLOCKS,
    attention::BLOCKS,
    compose::BLOCKS,
    losses::BLOCKS,
    regularizers::BLOCKS,
    metrics::BLOCKS,
];

/// Every block, in the order of the tables.
pub fn table() -> impl Iterator<Item = &'static Entry> {
    TABLES.iter().flat_map(|blocks| blocks.iter())
}

static BY_NAME: LazyLock<FxHashMap<&'static str, &'static Entry>> =
    LazyLock::new(|| table().map(|entry| (entry.name, entry)).collect());

/// The entry of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    BY_NAME.get(name).copied()
}

/// A block by name. Errors: an unknown block; settings.
pub fn build(name: &str, positional: Vec<Setting>, named: Vec<(&str, Setting)>) -> Result<Block> {
    let Some(entry) = find(name) else {
        let mut error = Diagnostic::new(format!("there is no block `{name}`"));
        error.hint = did_you_mean(name, table().map(|e| e.name));
        return error.err();
    };
    entry.block(positional, named)
}

/// A block by name and named settings: `block!(Linear(dimension = 32))`.
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
