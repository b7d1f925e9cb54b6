//! Backends that are registered at run time: from data, as packages give it. Registered backends
//! stay until the process ends, so that the rest of the code can treat them like built-in ones.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::{Meaning, Op};
use mithril_passes::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use crate::backends::{self, BACKENDS, Backend, Spellings, array_api, built_in};
use crate::python::{defines, definitions};

mod check;

/// The spellings that registered backends add to those of the array API.
const SPELLINGS: Spellings = &[
    (
        "sum",
        "@sum({x}[, axis={axes}][, keepdims={keepdim}][, dtype={narrow}]) if acc is missing; \
         @sum({x}[, axis={axes}][, keepdims={keepdim}], dtype={acc}).astype({dtype})",
    ),
    ("max", "@max({x}[, axis={axes}][, keepdims={keepdim}])"),
    (
        "dot_general",
        "{x} * {y} if result is scaled; \
         {left} @ {right} if result is matmul and acc is missing; \
         ({left}.astype({acc}) @ {right}.astype({acc})).astype({dtype}) if result is matmul; \
         @tensordot({x}, {y}, {contracted}) if result is tensordot and acc is missing; \
         @einsum({equation}, {x}, {y}) if acc is missing; \
         @einsum({equation}, {x}.astype({acc}), {y}.astype({acc})).astype({dtype})",
    ),
    ("matmul", "{x} @ {y}"),
    (
        "iota",
        "@arange({shape.one}, dtype={dtype}) if shape is single; _iota({shape}, {axis}, {dtype})",
    ),
    ("sum_to", "_sum_to({x}, {shape})"),
];

/// The products of linear layers.
const PRODUCTS: [&str; 2] = ["dot_general", "matmul"];

/// The names of the templates that create arrays, with their defaults.
const CREATION: [(&str, &str); 6] = [
    ("scalar", "@asarray({x}, dtype={dtype})"),
    ("array", "@asarray({x}, dtype={dtype})"),
    ("full", "@full({shape}, {x}, dtype={dtype})"),
    ("zeros", "@zeros({shape}, dtype={dtype})"),
    ("ones", "@ones({shape}, dtype={dtype})"),
    ("load", "@asarray({x})"),
];

/// Templates by operation.
type Templates = FxHashMap<&'static str, &'static str>;

/// What a backend is registered with.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    pub name: String,
    /// The framework's name in prose.
    pub label: String,
    /// The built-in backend whose spellings and prelude it starts from; without one, it starts from
    /// those of the array API.
    pub base: Option<String>,
    /// The modules that its files may import: names and import lines. `@` stands for the first one.
    pub imports: Vec<(String, String)>,
    /// Python functions that templates call. They have precedence over those of the base.
    pub prelude: String,
    /// Templates by operation. An empty one says that the framework lacks the operation.
    pub spellings: Vec<(String, String)>,
    /// Templates that create arrays, by the names of the fields of [`Backend`].
    pub creation: Vec<(String, String)>,
    /// The names of dtypes that the framework lacks.
    pub lacks: Vec<String>,
    /// Functions of the array module that it lacks, among those of [`Definition::functions`]. The
    /// spellings that the definition starts from do without them.
    pub missing: Vec<String>,
    /// Whether the framework computes gradients itself; `None` if that is as in the base.
    pub differentiates: Option<bool>,
}

static REGISTERED: Mutex<Vec<(Definition, &Backend)>> = Mutex::new(Vec::new());

/// Registers a backend. The same definition may be registered again.
///
/// Errors: a name that is taken; an unknown base, dtype or operation; a template that cannot be
/// read, or that names what is not there.
pub fn register(definition: Definition) -> Result<&'static Backend> {
    definition.check_name()?;
    let mut registered = REGISTERED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let name = &definition.name;
    if let Some((known, backend)) = registered.iter().find(|(known, _)| known.name == *name) {
        if *known == definition {
            return Ok(backend);
        }
        return definition
            .wrong(format!("another backend `{name}` is registered"))
            .hint("choose another name; a definition that changed needs a new process")
            .err();
    }
    let backend = definition.backend()?;
    backends::add(backend);
    registered.push((definition, backend));
    Ok(backend)
}

impl Definition {
    /// Reads a definition: an object with the names of the fields. Fields that are left out are
    /// empty.
    ///
    /// Errors: text of another form.
    pub fn from_json(text: &str) -> Result<Definition> {
        let wrong = |what: &str| {
            let what = format!("the definition of a backend {what}");
            Box::new(Diagnostic::of(ErrorKind::Argument, what))
        };
        let value: Value =
            serde_json::from_str(text).map_err(|_| wrong("is not JSON of an object"))?;
        let word = |field: &str| match &value[field] {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            _ => Err(wrong(&format!("needs a string for `{field}`"))),
        };
        let words = |value: &Value, field: &str| {
            let list = value.as_array().cloned().unwrap_or_default();
            let each = list.iter().map(|item| item.as_str().map(String::from));
            let whole: Option<Vec<String>> = each.collect();
            whole.ok_or_else(|| wrong(&format!("needs strings for `{field}`")))
        };
        let pairs = |field: &str| {
            let list = value[field].as_array().cloned().unwrap_or_default();
            let pair = |item: &Value| match &words(item, field)?[..] {
                [first, second] => Ok((first.clone(), second.clone())),
                _ => Err(wrong(&format!("needs pairs of strings for `{field}`"))),
            };
            list.iter().map(pair).collect::<Result<Vec<_>>>()
        };
        Ok(Definition {
            name: word("name")?,
            label: word("label")?,
            base: Some(word("base")?).filter(|base| !base.is_empty()),
            imports: pairs("imports")?,
            prelude: word("prelude")?,
            spellings: pairs("spellings")?,
            creation: pairs("creation")?,
            lacks: words(&value["lacks"], "lacks")?,
            missing: match &value["missing"] {
                Value::Null => Vec::new(),
                given => words(given, "missing")?,
            },
            differentiates: value["differentiates"].as_bool(),
        })
    }

    /// An error about the definition.
    fn wrong(&self, what: String) -> Diagnostic {
        Diagnostic::of(ErrorKind::Argument, what).at(format!("backend `{}`", self.name))
    }

    /// Errors: the name is not one, or that of a built-in backend.
    fn check_name(&self) -> Result<()> {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let name = &self.name;
        if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(letters) {
            return self
                .wrong("this cannot be the name of a backend".into())
                .got(format!("`{name}`"))
                .expected("lowercase letters, digits and underscores, a letter first")
                .err();
        }
        match built_in(name) {
            Some(_) => self.wrong(format!("`{name}` is the name of a built-in backend")).err(),
            None => Ok(()),
        }
    }

    fn base(&self) -> Result<Option<&'static Backend>> {
        let Some(name) = &self.base else { return Ok(None) };
        let names = || BACKENDS.iter().map(|backend| backend.name());
        match built_in(name) {
            Some(base) => Ok(Some(base)),
            None => {
                let listed = names().collect::<Vec<_>>().join(", ");
                let what = format!("`base` names no built-in backend: `{name}`");
                let mut error = self.wrong(what).expected(format!("one of {listed}"));
                error.hint = did_you_mean(name, names());
                error.err()
            }
        }
    }

    fn lacks(&self, base: Option<&Backend>) -> Result<Vec<DType>> {
        let mut found = base.map_or(Vec::new(), |base| base.lacks.to_vec());
        for name in &self.lacks {
            let named = |dtype: &DType| dtype.array_name() == name || dtype.name() == name;
            let Some(dtype) = DType::ALL.into_iter().find(named) else {
                let names = || DType::ALL.iter().map(|dtype| dtype.array_name());
                let mut error = self
                    .wrong(format!("`lacks` names no dtype: `{name}`"))
                    .expected(format!("one of {}", names().collect::<Vec<_>>().join(", ")));
                error.hint = did_you_mean(name, names());
                return error.err();
            };
            found.push(dtype);
        }
        Ok(found)
    }

    /// The functions of the prelude, and those of the base or of every registered backend that it
    /// does not define itself.
    fn prelude(&self, base: Option<&Backend>) -> Vec<String> {
        let own: FxHashSet<&str> = definitions(&self.prelude).iter().map(|d| d.name).collect();
        let module = &self.imports[0].0;
        let of_base = base.map_or(&[][..], |base| base.prelude);
        let of_every = replaced(include_str!("backends/prelude/custom.py"), "xp", module);
        let of_every = definitions(&of_every).into_iter();
        let of_every = of_every.filter(|definition| !defines(of_base, definition.name));
        let others = of_base.iter().flat_map(|text| definitions(text)).chain(of_every);
        let others = others.filter(|definition| !own.contains(definition.name));
        let others: Vec<&str> = others.map(|definition| definition.text).collect();
        vec![self.prelude.clone(), others.join("\n\n\n")]
    }

    /// The templates of all operations, and those of the base that draw random numbers.
    fn spellings(
        &self,
        base: Option<&Backend>,
        prelude: &[&'static str],
    ) -> Result<(Templates, Vec<(&'static str, &'static str)>)> {
        let (mut known, mut random) = self.inherited(base);
        let has = |template: &str| check::functions(template).all(|name| self.has(&name));
        known.retain(|_, template| has(template));
        random.retain(|(_, template)| has(template));
        if base.is_none() {
            known.retain(|_, template| check::calls_only(template, prelude));
            let standard = array_api::STANDARD.iter().copied();
            known.extend(standard.filter(|(_, template)| has(template)));
        }
        // A sum that is a linear layer would not call a product that is spelled anew.
        if self.spellings.iter().any(|(name, _)| PRODUCTS.contains(&name.as_str())) {
            let plain = array_api::SPELLINGS.iter().copied();
            known.extend(plain.filter(|(name, _)| *name == "add"));
        }
        for (name, template) in &self.spellings {
            let op = self.operation(name)?;
            self.check_template(op, template, prelude)?;
            known.insert(op.0.name, kept(template.clone()));
            random.retain(|(other, _)| *other != op.0.name);
        }
        Ok((known, random))
    }

    /// The templates that the definition starts from, and those that draw random numbers.
    fn inherited(&self, base: Option<&Backend>) -> (Templates, Vec<(&'static str, &'static str)>) {
        let mut known: Templates = array_api::SPELLINGS.iter().copied().collect();
        let Some(base) = base else {
            known.extend(SPELLINGS.iter().copied());
            if self.differentiates != Some(true) {
                known.insert("stop_gradient", "{x}");
            }
            return (known, Vec::new());
        };
        known.extend(base.spellings.iter().copied());
        (known, base.random.to_vec())
    }

    /// Whether the array module has a function, as far as that is known.
    fn has(&self, function: &str) -> bool {
        self.missing.iter().all(|missing| missing != function)
    }

    /// The functions of the array module that its templates name, and those of the templates that
    /// it starts from: `exp`, `linalg.det`.
    ///
    /// Errors: an unknown base; imports that import nothing.
    pub fn functions(&self) -> Result<BTreeSet<String>> {
        self.check_imports()?;
        let base = self.base()?;
        let (known, random) = self.inherited(base);
        let standard = if base.is_none() { array_api::STANDARD } else { &[] };
        let standard = standard.iter().map(|(_, text)| *text);
        let own = self.spellings.iter().chain(&self.creation).map(|(_, text)| text.as_str());
        let random = random.into_iter().map(|(_, text)| text);
        let all = known.into_values().chain(standard).chain(random).chain(own);
        let all = all.chain(creation_of(base));
        Ok(all.flat_map(check::functions).collect())
    }

    /// The operation that a template is for. Errors: there is none of this name.
    fn operation(&self, name: &str) -> Result<Op> {
        mithril_ir::op::find(name).ok_or_else(|| {
            let names = mithril_ir::op::table().map(|op| op.0.name);
            let what = format!("`spellings` names no operation: `{name}`");
            let mut error = self.wrong(what).expected("names of the op reference, docs/ops.md");
            if let Some(near) = did_you_mean(name, names) {
                error.hint = Some(near);
            }
            Box::new(error)
        })
    }

    /// The backend. Its text is kept until the process ends.
    fn backend(&self) -> Result<&'static Backend> {
        let base = self.base()?;
        self.check_imports()?;
        let lacks = kept_list(self.lacks(base)?);
        let prelude: Vec<&str> = self.prelude(base).into_iter().map(kept).collect();
        let prelude = kept_list(prelude);
        let (known, random) = self.spellings(base, prelude)?;
        let creation = self.creation(base)?;
        let imports =
            self.imports.iter().map(|(own, line)| (kept(own.clone()), kept(line.clone())));
        let imports = kept_list(imports.collect());
        // NumPy has what the array API says of arrays.
        let template = base.unwrap_or(BACKENDS[0]);
        let backend = Backend {
            label: kept(self.label.clone()),
            target: self.target(base, &known),
            takes_on_mesh: None,
            module: imports[0].0,
            imports,
            prelude,
            // All templates are in `known`.
            spellings: &[],
            random: kept_list(random),
            in_place: &[],
            scalar: creation[0],
            array: creation[1],
            full: creation[2],
            zeros: creation[3],
            ones: creation[4],
            load: creation[5],
            truth: base.map_or("bool", |base| base.truth),
            lacks,
            differentiates: self.differentiates.unwrap_or(template.differentiates),
            differentiates_branches: self
                .differentiates
                .unwrap_or(template.differentiates_branches),
            known: OnceLock::from(known),
            ..*template
        };
        Ok(Box::leak(Box::new(backend)))
    }

    /// The backend as a target of the passes. Operations that the base takes for some uses only are
    /// taken as there, unless they are spelled anew.
    fn target(&self, base: Option<&'static Backend>, known: &Templates) -> Target {
        let taken = taken(known);
        let anew: FxHashSet<String> = self.spellings.iter().map(|(name, _)| name.clone()).collect();
        let of_base = base.map(|base| base.target);
        let (pulled, pulled_anew) = (taken.clone(), anew.clone());
        let takes = move |function: &Function, op: &Operation| {
            let whole = |base: Target| anew.contains(op.op.0.name) || (base.takes)(function, op);
            taken.contains(op.op.0.name) && of_base.is_none_or(whole)
        };
        let pulls_back = move |function: &Function, op: &Operation, by: Op| {
            let whole = |base: Target| {
                pulled_anew.contains(by.0.name) || (base.pulls_back)(function, op, by)
            };
            pulled.contains(by.0.name) && of_base.is_none_or(whole)
        };
        let name: &str = kept(self.name.clone());
        let of_base_bodies = base.map_or(&[][..], |base| base.target.bodies);
        Target {
            name,
            takes: Box::leak(Box::new(takes)),
            pulls_back: Box::leak(Box::new(pulls_back)),
            bodies: kept_list([&[name], of_base_bodies].concat()),
            ..base.unwrap_or(BACKENDS[0]).target
        }
    }

    /// The templates that create arrays, in the order of [`CREATION`].
    fn creation(&self, base: Option<&'static Backend>) -> Result<Vec<&'static str>> {
        let names = || CREATION.iter().map(|(name, _)| *name);
        for (name, template) in &self.creation {
            if !names().any(|known| known == name) {
                let mut error = self
                    .wrong(format!("`creation` has an unknown name: `{name}`"))
                    .expected(format!("one of {}", names().collect::<Vec<_>>().join(", ")));
                error.hint = did_you_mean(name, names());
                return error.err();
            }
            self.check_creation(name, template)?;
        }
        let each = CREATION.iter().zip(creation_of(base)).map(|((name, _), of_base)| {
            let own = self.creation.iter().find(|(own, _)| own == name);
            let template = own.map_or(of_base, |(_, template)| kept(template.clone()));
            match check::functions(template).find(|function| !self.has(function)) {
                Some(function) => self
                    .wrong(format!("the array module has no function `{function}`"))
                    .got(format!("the template of `{name}`: `{template}`"))
                    .hint(format!("give another one in `creation`: `{{\"{name}\": \"@…\"}}`"))
                    .err(),
                None => Ok(template),
            }
        });
        each.collect()
    }
}

/// The templates that create arrays, of a base or the defaults, in the order of [`CREATION`].
fn creation_of(base: Option<&'static Backend>) -> [&'static str; 6] {
    match base {
        Some(base) => [base.scalar, base.array, base.full, base.zeros, base.ones, base.load],
        None => CREATION.map(|(_, default)| default),
    }
}

/// The operations that a backend takes whole, as [`Backend::spells`] tells.
fn taken(known: &Templates) -> FxHashSet<&'static str> {
    let whole = |op: &Op| match op.meaning {
        Meaning::Scalar(_) | Meaning::Decompose(_) => {
            known.get(op.0.name).is_some_and(|template| !template.is_empty())
        }
        Meaning::Kernel(_) | Meaning::Call(_) => true,
    };
    mithril_ir::op::table().filter(whole).map(|op| op.0.name).collect()
}

/// The text with a word replaced.
fn replaced(text: &str, word: &str, by: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(at) = rest.find(word) {
        let (front, back) = (&rest[..at], &rest[at + word.len()..]);
        let whole = !front.ends_with(is_letter) && !back.starts_with(is_letter);
        out.push_str(front);
        out.push_str(if whole { by } else { word });
        rest = back;
    }
    out + rest
}

fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn kept_list<T>(list: Vec<T>) -> &'static [T] {
    Box::leak(list.into_boxed_slice())
}
