//! Blocks: objects of definitions, with their params and connections.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::Role;

use crate::blocks::{Entry, Settings};
use crate::definition::{Body, Control, Definition, Outlet, Terminal, Wired};
use crate::identity::{Identity, ParamId, Renewal};
use crate::model::seal::{NetSource, Sealed};
use crate::model::{Model, Source};
use crate::naming::check_name;
use crate::numerics::Numerics;
use crate::place::Place;

/// A definition, and the connections to make when the block is added to a model. Cloning is cheap.
/// Clones are the same object: they share their params wherever they are added. [`Block::copy`]
/// makes another object.
#[derive(Clone)]
pub struct Block {
    pub(crate) definition: Arc<Definition>,
    pub(crate) identity: Identity,
    /// The param or state that each input of the definition stands for. Unused for data inputs.
    pub(crate) ids: Arc<[ParamId]>,
    pub(crate) name: Option<Arc<str>>,
    /// Whether the backward pass recomputes inner values instead of keeping them.
    pub(crate) checkpoint: bool,
    /// The author's gradient of the block. `None`: it is derived from the blocks inside.
    pub(crate) gradient: Option<Arc<Definition>>,
    pub(crate) place: Place,
    pub(crate) numerics: Numerics,
    pub(crate) given: Vec<(Arc<str>, Source)>,
}

impl Block {
    /// A new object of this definition, without a name or connections.
    pub(crate) fn new(definition: impl Into<Arc<Definition>>) -> Block {
        let (definition, identity) = (definition.into(), Identity::new());
        let inputs = 0..definition.inputs.len() as u32;
        Block {
            identity,
            ids: inputs.map(|input| ParamId { block: identity, input }).collect(),
            definition,
            name: None,
            checkpoint: false,
            gradient: None,
            place: Place::default(),
            numerics: Numerics::default(),
            given: Vec::new(),
        }
    }

    /// A sealed model as a block.
    pub(crate) fn composite(kind: Arc<str>, identity: Identity, sealed: Sealed) -> Block {
        let ids = sealed.ids.as_slice().into();
        let block = Block::new(Definition::composite(kind, sealed));
        Block { identity, ids, ..block }
    }

    /// The block of a composite table entry: the sealed model that the entry built.
    pub(crate) fn composed(
        (entry, settings): (&'static Entry, Settings),
        identity: Identity,
        sealed: Sealed,
    ) -> Block {
        let ids = sealed.ids.as_slice().into();
        let mut definition = Definition::composite(entry.name.into(), sealed);
        definition.origin = Some((entry, settings));
        Block { identity, ids, ..Block::new(definition) }
    }

    /// The block of a table entry that calls a body. Its params are those of the body.
    pub(crate) fn repeated((entry, settings): (&'static Entry, Settings), wired: Wired) -> Block {
        let (ids, place, numerics) = (wired.ids.clone(), wired.place.clone(), wired.numerics);
        Block { ids, place, numerics, ..Block::new(Definition::repeated(entry, settings, wired)) }
    }

    /// The terminals of a block that calls this one.
    pub(crate) fn wired(&self, control: Control) -> Wired {
        Wired {
            inputs: self.inputs().to_vec(),
            outputs: self.outputs().to_vec(),
            ids: self.ids.clone(),
            place: self.place.clone(),
            numerics: self.numerics,
            body: Body {
                control,
                definition: self.definition.clone(),
                gradient: self.gradient.clone(),
                checkpoint: self.checkpoint,
                carries: Vec::new(),
                sequences: Vec::new(),
                lengths: None,
                steps: None,
                collected: Vec::new(),
                axes: Vec::new(),
                axis: 0,
                reverse: false,
                batched: false,
            },
        }
    }

    /// Another block with the same definition, name and connections, but its own params. Params
    /// that are shared inside the block are shared inside the copy.
    pub fn copy(&self) -> Block {
        self.renewed(&mut Renewal::default())
    }

    /// A copy of the block with the identities that `renewal` assigns.
    pub(crate) fn renewed(&self, renewal: &mut Renewal) -> Block {
        Block {
            identity: renewal.identity(self.identity),
            ids: self.ids.iter().map(|id| renewal.param(*id)).collect(),
            ..self.clone()
        }
    }

    /// The kind: `Linear`, or the class name of a model.
    pub fn kind(&self) -> &str {
        &self.definition.kind
    }

    /// The name that the block was given, if any.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The inputs: data terminals in order; for a composite, then params, states and keys.
    pub fn inputs(&self) -> &[Terminal] {
        &self.definition.inputs
    }

    pub fn outputs(&self) -> &[Outlet] {
        &self.definition.outputs
    }

    /// The input that `+=` connects to the last standard output of the model.
    pub fn standard_input(&self) -> Option<&Terminal> {
        let at = self.definition.standard_input?;
        Some(&self.definition.inputs[at as usize])
    }

    /// The output that `+=` continues from.
    pub fn standard_output(&self) -> Option<&Outlet> {
        let at = self.definition.standard_output?;
        Some(&self.definition.outputs[at as usize])
    }

    /// Whether the block is a single layer of the table, without blocks inside and without
    /// connections.
    pub(crate) fn is_plain(&self) -> bool {
        let own = &self.definition;
        let is_single = own.origin.is_some() && own.composite.is_none() && own.body.is_none();
        let is_usual =
            !self.checkpoint && self.place.is_inherited() && self.numerics.is_inherited();
        is_single && is_usual && self.given.is_empty() && self.gradient.is_none()
    }

    /// The table entry that the block was made from; `None` for a model.
    pub fn entry(&self) -> Option<&'static Entry> {
        self.definition.origin.as_ref().map(|(entry, _)| *entry)
    }

    /// The arguments of the constructor, including defaults, in the order of the parameters.
    pub fn settings(&self) -> Option<&Settings> {
        self.definition.origin.as_ref().map(|(_, settings)| settings)
    }

    /// The constructor call in Python: `Linear(dimension=3, name="fc")`. Defaults are left out.
    pub fn text(&self) -> String {
        let settings = self.settings().into_iter().flat_map(Settings::iter);
        let changed = settings.filter(|(p, value)| p.default.setting().as_ref() != Some(*value));
        let mut given: Vec<String> =
            changed.map(|(p, value)| format!("{}={}", p.name, value.text())).collect();
        given.extend(self.name().map(|name| format!("name={name:?}")));
        format!("{}({})", self.kind(), given.join(", "))
    }

    /// The connections to make when the block is added to a model.
    pub fn given(&self) -> &[(Arc<str>, Source)] {
        &self.given
    }

    /// The same block with a name. Errors: an empty name, or one with dots.
    pub fn named(mut self, name: &str) -> Result<Block> {
        check_name(name, "block")?;
        self.name = Some(name.into());
        Ok(self)
    }

    /// The same block, whose inner values the backward pass recomputes instead of keeping. Errors:
    /// the block has no blocks inside.
    pub fn checkpointed(mut self) -> Result<Block> {
        if self.definition.composite.is_none() {
            return Diagnostic::new("`checkpoint` needs a block with blocks inside")
                .got(format!("{}, which has no blocks inside", self.describe()))
                .hint("put it into a `Model(checkpoint=True)`, or leave it out")
                .err();
        }
        self.checkpoint = true;
        Ok(self)
    }

    /// The same block, which runs elsewhere than the model around it.
    pub fn placed(mut self, place: Place) -> Block {
        self.place = place;
        self
    }

    /// The same block, which computes in other dtypes than the model around it.
    pub fn computing_in(mut self, numerics: Numerics) -> Block {
        self.numerics = numerics;
        self
    }

    /// The dtypes in which the block computes, as far as they were stated.
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// Where the block runs, as far as it was stated.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Checks that the block at this path can run elsewhere than those around it.
    ///
    /// Errors: there is no such block; it is inside a loop, or inside a block with a gradient of its
    /// own.
    pub fn check_place(&self, path: &str) -> Result<()> {
        let mut around = &*self.definition;
        let mut whole = None;
        let mut walked = String::new();
        for name in path.split('.') {
            if let Some(body) = &around.body {
                (around, whole) = (&*body.definition, whole.or(Some(walked.clone())));
            }
            let parts = || around.composite.iter().flat_map(|inside| &inside.parts);
            let Some(part) = parts().find(|part| *part.name == *name) else {
                let what = format!("the model has no block `{path}`");
                let mut error = Diagnostic::of(ErrorKind::Terminal, what);
                error.hint = did_you_mean(name, parts().map(|part| &*part.name));
                return error.err();
            };
            let separator = if walked.is_empty() { "" } else { "." };
            walked = format!("{walked}{separator}{name}");
            if part.gradient.is_some() && walked != path {
                whole = whole.or(Some(walked.clone()));
            }
            around = &part.definition;
        }
        let Some(whole) = whole else { return Ok(()) };
        let what = format!("`{path}` cannot have a place of its own");
        Diagnostic::of(ErrorKind::Argument, what)
            .got(format!("a block inside `{whole}`"))
            .hint("a loop, or a block with a gradient of its own, is placed as a whole")
            .err()
    }

    /// The blocks inside that run elsewhere, by their paths. The place of an outer block comes
    /// before those inside it.
    pub fn places(&self) -> Vec<(String, Place)> {
        let mut found = Vec::new();
        // A stack, because blocks may nest deeper than calls can.
        let mut open: Vec<(String, &Definition)> = vec![(String::new(), &self.definition)];
        while let Some((path, definition)) = open.pop() {
            let body = definition.body.as_ref().map(|body| (path.clone(), &*body.definition));
            open.extend(body);
            for part in definition.composite.iter().flat_map(|inside| &inside.parts) {
                let separator = if path.is_empty() { "" } else { "." };
                let own = format!("{path}{separator}{}", part.name);
                if !part.place.is_inherited() {
                    found.push((own.clone(), part.place.clone()));
                }
                open.push((own, &part.definition));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// The same block with a custom gradient. The gradient block's inputs are named after this
    /// block's inputs, after its outputs, or after its outputs with the suffix `_gradient`. Its
    /// outputs are named after this block's inputs with the suffix `_gradient`; an input without
    /// such an output has no gradient. Errors: params, states or keys inside; terminals with other
    /// names.
    pub fn with_gradient(mut self, gradient: &Block) -> Result<Block> {
        let what = || Diagnostic::new(format!("the gradient of {}", self.describe()));
        if let Some(own) = self.inputs().iter().find(|t| t.role != Role::Data || t.list) {
            return what()
                .got(format!("`{}` inside, which is not an input", own.name))
                .hint("a block with a gradient of its own must compute from its inputs only")
                .err();
        }
        let read = |name: &str| {
            let of = name.strip_suffix("_gradient");
            self.inputs().iter().any(|t| *t.name == *name)
                || self.outputs().iter().any(|o| *o.name == *name || of == Some(&*o.name))
        };
        let given = |name: &str| {
            let of = name.strip_suffix("_gradient");
            self.inputs().iter().any(|t| of == Some(&*t.name))
        };
        if let Some(other) = gradient.inputs().iter().find(|t| !read(&t.name)) {
            return what()
                .got(format!("a block that reads `{}`", other.name))
                .expected(
                    "the names of inputs, of outputs, and of outputs with the suffix \
                           `_gradient`",
                )
                .err();
        }
        if let Some(other) = gradient.outputs().iter().find(|o| !given(&o.name)) {
            return what()
                .got(format!("a block with the outputs `{}`", other.name))
                .expected("the names of inputs with the suffix `_gradient`")
                .err();
        }
        self.gradient = Some(gradient.as_composite()?.definition);
        let whole = self.as_composite()?;
        (self.definition, self.ids) = (whole.definition, whole.ids);
        Ok(self)
    }

    /// The block as a model: a primitive is put into a new model, a composite is returned as it is.
    fn as_composite(&self) -> Result<Block> {
        match self.definition.composite {
            Some(_) => Ok(self.clone()),
            None => Model::from_block(self)?.block(),
        }
    }

    /// The same block with these terminals connected to these sources.
    /// Errors: "Terminal not found"; a terminal connected twice.
    pub fn connect<N, S>(mut self, given: impl IntoIterator<Item = (N, S)>) -> Result<Block>
    where
        N: AsRef<str>,
        S: Into<Source>,
    {
        for (name, source) in given {
            let name = self.terminal_name(name.as_ref())?;
            if self.given.iter().any(|(n, _)| *n == name) {
                return Diagnostic::of(
                    ErrorKind::Connection,
                    format!("`{name}` of {} is connected twice", self.describe()),
                )
                .err();
            }
            self.given.push((name, source.into()));
        }
        Ok(self)
    }

    /// The same block with its terminals connected in their order: inputs, then outputs.
    /// Errors: more values than terminals; a terminal connected twice.
    pub fn connect_in_order(self, values: Vec<Source>) -> Result<Block> {
        let definition = self.definition.clone();
        let inputs = definition.inputs.iter().map(|t| &t.name);
        let names: Vec<&Arc<str>> =
            inputs.chain(definition.outputs.iter().map(|o| &o.name)).collect();
        if values.len() > names.len() {
            return Diagnostic::of(
                ErrorKind::Connection,
                format!("{} has fewer terminals", self.describe()),
            )
            .got(values.len())
            .expected(format!("at most {}: {}", names.len(), quoted(&names)))
            .err();
        }
        self.connect(names.into_iter().zip(values))
    }

    /// The same block with its standard output connected. Errors: the block has no standard output;
    /// it is connected already.
    pub fn output(self, to: impl Into<Source>) -> Result<Block> {
        let Some(outlet) = self.standard_output() else {
            return Diagnostic::of(
                ErrorKind::Connection,
                format!("{} has no standard output", self.describe()),
            )
            .err();
        };
        let name = outlet.name.clone();
        self.connect([(name, to)])
    }

    /// The same block with its standard input connected. Errors: the block has no standard input;
    /// it is connected already.
    pub fn input(self, from: impl Into<Source>) -> Result<Block> {
        let Some(terminal) = self.standard_input() else {
            return Diagnostic::of(
                ErrorKind::Connection,
                format!("{} has no standard input", self.describe()),
            )
            .err();
        };
        let name = terminal.name.clone();
        self.connect([(name, from)])
    }

    /// Resolves a terminal name. In a composite, `w` also stands for the param, state or key `….w`
    /// of a nested block, if there is only one with that name. Errors: "Terminal not found".
    fn terminal_name(&self, name: &str) -> Result<Arc<str>> {
        let definition = &self.definition;
        let inputs = definition.inputs.iter().map(|t| &t.name);
        let mut all = inputs.chain(definition.outputs.iter().map(|o| &o.name));
        if let Some(found) = all.clone().find(|n| &***n == name) {
            return Ok(found.clone());
        }
        let own = |path: &&Arc<str>| path.rsplit_once('.').is_some_and(|(_, own)| own == name);
        let inside: Vec<&Arc<str>> = all.clone().filter(own).collect();
        if let [only] = inside[..] {
            return Ok(only.clone());
        }
        let mut error = Diagnostic::of(
            ErrorKind::Terminal,
            format!("{} has no terminal `{name}`", self.describe()),
        );
        if let [first, ..] = inside[..] {
            let several = format!("one of {}, which blocks inside have", quoted(&inside));
            return error.expected(several).hint(format!("{{\"{first}\": …}} as keywords")).err();
        }
        error.hint = did_you_mean(name, all.clone().map(|n| &**n));
        let shown: Vec<&Arc<str>> = all.by_ref().filter(|n| !n.contains('.')).collect();
        error.expected(quoted(&shown)).err()
    }

    /// The names of the blocks and of the values directly inside.
    pub fn names_inside(&self) -> impl Iterator<Item = &Arc<str>> {
        let inside = self.definition.composite.as_ref().into_iter();
        inside.flat_map(|inside| {
            let values = inside.nets.iter().filter_map(|net| net.name.as_ref());
            inside.parts.iter().map(|part| &part.name).chain(values)
        })
    }

    /// The named values that the blocks directly inside compute: pairs of the value's name and the
    /// block's name.
    pub fn inner_values(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let Some(inside) = &self.definition.composite else { return Vec::new() };
        let values = inside.nets.iter().filter_map(|net| match (&net.name, &net.from) {
            (Some(name), NetSource::Part { part, .. }) => {
                Some((name.clone(), inside.parts[*part as usize].name.clone()))
            }
            (None, _) | (_, NetSource::Input(_) | NetSource::Value(_)) => None,
        });
        values.collect()
    }

    /// "`Linear`" or "`Linear` called `fc`".
    pub(crate) fn describe(&self) -> String {
        match &self.name {
            Some(name) => format!("`{}` called `{name}`", self.kind()),
            None => format!("`{}`", self.kind()),
        }
    }
}

/// The names in backquotes, separated by commas.
pub fn quoted<S: AsRef<str>>(names: &[S]) -> String {
    let each: Vec<String> = names.iter().map(|n| format!("`{}`", n.as_ref())).collect();
    each.join(", ")
}

/// Blocks are equal if their definitions are; names and connections are not compared.
impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        Arc::ptr_eq(&self.definition, &other.definition) || self.definition == other.definition
    }
}

impl Eq for Block {}

impl Hash for Block {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.hash(state);
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl TryFrom<&Model> for Block {
    type Error = Box<Diagnostic>;

    fn try_from(model: &Model) -> Result<Block> {
        model.seal()
    }
}
