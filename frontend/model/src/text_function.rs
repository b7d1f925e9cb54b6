//! Functions of `.mir` texts, with bodies for targets.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dtype::DType;
use mithril_ir::external::TargetBody;
use mithril_ir::graph::{Function, Module, Operation, ValueInfo};
use mithril_ir::text::{self, parse, parse_generic};
use rustc_hash::{FxHashMap, FxHashSet};

mod excerpt;

pub(crate) use excerpt::located;

/// The first words of errors about a text.
pub(crate) const WRONG: &str = "the text of the function";

/// Checks that the bodies in a `.mir` text are for these targets.
///
/// Errors: invalid text, or a body for another target, with the line and column.
pub fn check_targets(text: &str, targets: &[&str]) -> Result<()> {
    text::check_targets(text, targets).map_err(|error| Box::new(located(*error, text)))
}

/// A function of a `.mir` text, with additional bodies for targets.
#[derive(Debug)]
pub(crate) struct TextFunction {
    pub name: Arc<str>,
    pub text: Arc<str>,
    pub bodies: Vec<TargetBody>,
    /// Whether the text uses the dtype `float`, which stands for the dtype of the caller's floats.
    pub generic: bool,
    /// The function, with 32-bit floats if it is generic.
    pub function: Arc<Function>,
}

impl PartialEq for TextFunction {
    fn eq(&self, other: &TextFunction) -> bool {
        self.name == other.name && self.text == other.text && self.bodies == other.bodies
    }
}

impl Eq for TextFunction {}

impl Hash for TextFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, &self.text, &self.bodies).hash(state);
    }
}

impl TextFunction {
    /// Reads a text. Without a name, the function is the one that no other function calls.
    ///
    /// Errors: invalid text, with the line and column; an unknown name; several functions without a
    /// name; bodies that do not fit the function.
    pub fn read(text: &str, name: Option<&str>, bodies: Vec<TargetBody>) -> Result<TextFunction> {
        let (module, generic) = match parse(text) {
            Ok(module) => (module, false),
            Err(_) => match parse_generic(text, DType::F32) {
                Ok(module) => (module, true),
                Err(error) => return located(*error, text).err(),
            },
        };
        let name = match name {
            Some(name) => find_function(&module, name)?,
            None => root_function(&module)?,
        };
        let own = TextFunction {
            function: module.get(&name).expect("a name of the module").clone(),
            name,
            text: text.into(),
            bodies,
            generic,
        };
        let function = own.with_bodies(own.function.clone());
        for body in &own.bodies {
            body.check(&function).map_err(|error| Box::new(error.at(format!("`{}`", own.name))))?;
        }
        Ok(TextFunction { function, ..own })
    }

    fn with_bodies(&self, function: Arc<Function>) -> Arc<Function> {
        if self.bodies.is_empty() {
            return function;
        }
        let mut function = (*function).clone();
        function.bodies.retain(|body| self.bodies.iter().all(|own| own.target != body.target));
        function.bodies.extend(self.bodies.iter().cloned());
        Arc::new(function)
    }

    /// The function and its callees, callees first. The text's dtype `float` becomes this dtype.
    ///
    /// Errors: operations that do not take the dtype.
    pub fn functions(&self, float: DType) -> Result<Vec<Arc<Function>>> {
        let parsed = match self.generic {
            true => parse_generic(&self.text, float),
            false => parse(&self.text),
        };
        let module = parsed.map_err(|error| Box::new(located(*error, &self.text)))?;
        let mut found: Vec<Arc<Function>> = Vec::new();
        let mut seen: FxHashSet<Arc<str>> = FxHashSet::default();
        let mut pending = vec![(self.name.clone(), false)];
        while let Some((name, visited)) = pending.pop() {
            let function = module.get(&name).expect("the text has been verified");
            if visited {
                found.push(match *name == *self.name {
                    true => self.with_bodies(function.clone()),
                    false => function.clone(),
                });
            } else if seen.insert(name.clone()) {
                pending.push((name, true));
                let callees = function.ops.iter().flat_map(Operation::functions);
                pending.extend(callees.map(|callee| (callee.clone(), false)));
            }
        }
        Ok(found)
    }

    /// Whether each value has the dtype of the caller's floats.
    pub fn generic_values(&self) -> Result<Vec<bool>> {
        if !self.generic {
            return Ok(vec![false; self.function.values.len()]);
        }
        // A value is generic if its dtype changes with the meaning of `float`.
        let wide = parse_generic(&self.text, DType::F64);
        let wide = wide.map_err(|error| Box::new(located(*error, &self.text)))?;
        let wide = wide.get(&self.name).expect("the same text").clone();
        let values = self.function.values.iter().zip(&wide.values);
        Ok(values.map(|(own, wide)| own.ty.dtype != wide.ty.dtype).collect())
    }

    /// The type of each value as text, in which `float` is the dtype of the caller's floats.
    pub fn type_texts(&self) -> Result<Vec<String>> {
        let values = self.function.values.iter().zip(self.generic_values()?);
        let text = |(info, generic): (&ValueInfo, bool)| {
            let text = info.ty.to_string();
            let own = format!("{}>", info.ty.dtype.name());
            match text.strip_suffix(&own).filter(|_| generic) {
                Some(front) => format!("{front}float>"),
                None => text,
            }
        };
        Ok(values.map(text).collect())
    }
}

fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let each: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    each.join(", ")
}

fn find_function(module: &Module, name: &str) -> Result<Arc<str>> {
    if let Some(function) = module.get(name) {
        return Ok(function.name.clone());
    }
    let names: Vec<&str> = module.functions.keys().map(|name| &**name).collect();
    let mut error =
        Diagnostic::of(ErrorKind::FunctionText, format!("{WRONG} has no function `{name}`"))
            .expected(listed(&names));
    error.hint = did_you_mean(name, names.iter().copied());
    error.err()
}

/// The function that no other function calls. Errors: there is none, or more than one.
fn root_function(module: &Module) -> Result<Arc<str>> {
    let ops = module.functions.values().flat_map(|function| &function.ops);
    let called: FxHashSet<&Arc<str>> = ops.flat_map(Operation::functions).collect();
    let roots: Vec<&Arc<str>> =
        module.functions.keys().filter(|name| !called.contains(name)).collect();
    match roots[..] {
        [root] => Ok(root.clone()),
        [] => Diagnostic::of(ErrorKind::FunctionText, format!("{WRONG} has no function in it"))
            .expected("`func @name(%x: tensor<…>) -> (y: tensor<…>) { … }`")
            .err(),
        [first, ..] => Diagnostic::of(
            ErrorKind::FunctionText,
            format!("{WRONG} has several functions, but no name was given"),
        )
        .got(listed(&roots))
        .hint(format!("`name=\"{first}\"` chooses one"))
        .err(),
    }
}

/// Renames the functions with `fresh`. Callees come first.
pub(crate) fn renamed(
    functions: Vec<Arc<Function>>,
    mut fresh: impl FnMut(&str) -> Arc<str>,
) -> Vec<Arc<Function>> {
    let mut names: FxHashMap<Arc<str>, Arc<str>> = FxHashMap::default();
    let mut out = Vec::with_capacity(functions.len());
    for function in functions {
        let name = fresh(&function.name);
        names.insert(function.name.clone(), name.clone());
        let mut function = (*function).clone();
        function.name = name;
        for attr in function.ops.iter_mut().flat_map(|op| &mut op.attrs) {
            if let Attr::Function(callee) = attr {
                *callee = names[callee].clone();
            }
        }
        out.push(Arc::new(function));
    }
    out
}
