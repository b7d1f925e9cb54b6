//! Prints a kernel as a C function.
//!
//! A value that is used once becomes part of the expression that uses it. Other values become named
//! constants. Values that a loop carries become variables.

mod control;
mod memory;
mod sums;

use std::fmt::Write;

use mithril_ir::dtype::DType;
use rustc_hash::{FxHashMap, FxHashSet};

use super::expression::{Expr, Level, literal, variable_type};
use super::functions::Function;
use super::usage::{Usage, usage, writes};
use crate::code::{Code, Inst, Mem, Place, Stmt, V};
use crate::entry::c_type;
use crate::scalar::Definition;

/// The names of a kernel and its parameters.
#[derive(Clone, Debug)]
pub struct Names {
    pub kernel: String,
    /// By buffer number.
    pub buffers: Vec<String>,
    pub dims: Vec<String>,
}

/// A printed function. Its parameters are scratch memory if `scratch` is set, then these buffers
/// and dims.
#[derive(Clone, Debug)]
pub struct PrintedFunction {
    pub text: String,
    pub scratch: bool,
    pub buffers: Vec<usize>,
    pub dims: Vec<usize>,
    /// Whether the function has loops that must not be unrolled.
    pub has_rolled_loops: bool,
}

/// The maximum length of an expression that becomes part of another.
const MAX_INLINE_LENGTH: usize = 56;
const COUNTERS: [&str; 8] = ["i", "j", "k", "l", "m", "n", "p", "q"];

/// Prints a kernel. Adds the functions that it calls to `functions`.
pub fn print(code: &Code, names: &Names, functions: &mut FxHashSet<Function>) -> PrintedFunction {
    let mut printer = Printer::new(code, names, functions, usage(code, &[]));
    printer.place_memories();
    printer.block(&code.body);
    printer.finish()
}

/// Prints the body of a function. `parameters` are the names of its parameters.
pub fn print_body(
    definition: &Definition,
    parameters: &[&str],
    functions: &mut FxHashSet<Function>,
) -> String {
    let Definition { code, result, .. } = definition;
    let names = Names { kernel: String::new(), buffers: Vec::new(), dims: Vec::new() };
    let mut printer = Printer::new(code, &names, functions, usage(code, &[*result]));
    printer.formula = true;
    printer.depth = 0;
    for (v, name) in definition.parameters.iter().zip(parameters) {
        printer.values[v.0 as usize] = Some(Expr::atom(*name));
        printer.taken.push(name.to_string());
    }
    printer.block(&code.body);
    let result = printer.take(*result);
    printer.line(&format!("return {};", result.text));
    printer.text
}

pub(super) struct Printer<'a> {
    code: &'a Code,
    names: &'a Names,
    pub(super) functions: &'a mut FxHashSet<Function>,
    text: String,
    depth: usize,
    usage: Usage,
    values: Vec<Option<Expr>>,
    /// Values that have not been printed: their expressions will become part of their uses. In
    /// program order.
    pending: Vec<V>,
    /// The mask and the element of each masked load.
    pub(super) masked: FxHashMap<V, (V, Expr)>,
    hints: FxHashMap<V, &'static str>,
    /// The names in scope.
    taken: Vec<String>,
    memories: Vec<Option<String>>,
    buffers: FxHashSet<usize>,
    dims: FxHashSet<usize>,
    scratch: bool,
    /// Signed values that are kept in unsigned variables: see [`sums`].
    pub(super) wrapping: FxHashSet<V>,
    /// The names of the unsigned variables.
    unsigned: FxHashMap<V, String>,
    /// Values that enclosing loops carry, and results of loops that continued such sums.
    carried: FxHashSet<V>,
    /// Whether the kernel has loops that must not be unrolled.
    has_rolled_loops: bool,
    /// Whether the code is a formula. Formulas have no branches, and their integer arithmetic
    /// wraps.
    pub(super) formula: bool,
}

impl<'a> Printer<'a> {
    fn new(
        code: &'a Code,
        names: &'a Names,
        functions: &'a mut FxHashSet<Function>,
        usage: Usage,
    ) -> Printer<'a> {
        let mut hints = FxHashMap::default();
        for &(v, hint) in &code.hints {
            hints.entry(v).or_insert(hint);
        }
        let given = names.buffers.iter().chain(&names.dims).cloned();
        let constants = ["scratch", "NAN", "INFINITY"].map(String::from);
        Printer {
            code,
            names,
            functions,
            text: String::new(),
            depth: 1,
            usage,
            values: vec![None; code.types.len()],
            pending: Vec::new(),
            masked: FxHashMap::default(),
            hints,
            taken: given.chain(constants).collect(),
            memories: vec![None; code.memories.len()],
            buffers: FxHashSet::default(),
            dims: FxHashSet::default(),
            scratch: false,
            wrapping: sums::wrapping(code),
            unsigned: FxHashMap::default(),
            carried: FxHashSet::default(),
            has_rolled_loops: false,
            formula: false,
        }
    }
}

impl Printer<'_> {
    fn finish(self) -> PrintedFunction {
        let list = |set: &FxHashSet<usize>| {
            let mut list: Vec<usize> = set.iter().copied().collect();
            list.sort_unstable();
            list
        };
        let (buffers, dims) = (list(&self.buffers), list(&self.dims));
        let mut parameters = Vec::new();
        if self.scratch {
            parameters.push("void *restrict scratch".to_string());
        }
        let written = writes(self.code);
        for &n in &buffers {
            let memories = self.code.memories.iter().enumerate();
            let mut own = memories.filter(|(_, m)| m.place == Place::Buffer(n as u32));
            let (mut dtype, mut constant) = (DType::U8, "const ");
            if let Some((at, memory)) = own.next() {
                dtype = memory.dtype;
                constant = if written.contains(&Mem(at as u32)) { "" } else { constant };
            }
            let name = &self.names.buffers[n];
            parameters.push(format!("{constant}{} *restrict {name}", c_type(dtype)));
        }
        parameters.extend(dims.iter().map(|&n| format!("int64_t {}", self.names.dims[n])));
        let mut text = String::new();
        let line = format!("static void {}({})", self.names.kernel, parameters.join(", "));
        match line.len() < 100 {
            true => text += &line,
            false => {
                let all = parameters.join(",\n    ");
                let _ = write!(text, "static void {}(\n    {all})", self.names.kernel);
            }
        }
        let _ = write!(text, " {{\n{}}}\n", self.text);
        PrintedFunction {
            text,
            scratch: self.scratch,
            buffers,
            dims,
            has_rolled_loops: self.has_rolled_loops,
        }
    }

    pub(super) fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:1$}{text}", "", 2 * self.depth);
    }

    fn name(&mut self, base: &str) -> String {
        let plain = (!matches!(base, "at" | "t")).then(|| base.to_string());
        let numbered = (1..).map(|n| format!("{base}_{n}"));
        let names = plain.into_iter().chain(numbered);
        let name = names.into_iter().find(|name| !self.taken.contains(name));
        let name = name.unwrap_or_else(|| base.to_string());
        self.taken.push(name.clone());
        name
    }

    fn counter(&mut self) -> String {
        let free = COUNTERS.iter().find(|c| !self.taken.iter().any(|taken| taken == *c));
        match free {
            Some(&counter) => {
                self.taken.push(counter.into());
                counter.into()
            }
            None => self.name("i"),
        }
    }

    /// The base of a value's name: its hint, or `at` for an address.
    fn base(&self, v: V) -> String {
        match self.hints.get(&v) {
            // The underscore avoids that hints are taken for functions of the C library.
            Some(hint) => format!("{hint}_"),
            None if self.code.ty(v).dtype == DType::I64 => "at".into(),
            None => "t".into(),
        }
        .trim_end_matches('_')
        .to_string()
    }

    fn name_of(&mut self, v: V) -> String {
        let base = self.base(v);
        self.name(&variable(base))
    }

    /// Returns the expression of a value, and removes the value from the pending ones.
    pub(super) fn take(&mut self, v: V) -> Expr {
        self.pending.retain(|pending| *pending != v);
        self.values[v.0 as usize].clone().unwrap_or_else(|| Expr::atom("0"))
    }

    /// Whether the value has not been printed and will become part of its use.
    pub(super) fn is_pending(&self, v: V) -> bool {
        self.pending.contains(&v)
    }

    pub(super) fn reads(&self, v: V) -> bool {
        self.values[v.0 as usize].as_ref().is_some_and(|expr| expr.reads)
    }

    /// Returns an expression of a value that is simple enough to be written twice.
    pub(super) fn take_name(&mut self, v: V) -> Expr {
        if self.pending.contains(&v) {
            self.print_constant(v);
        }
        self.take(v)
    }

    pub(super) fn dtype(&self, v: V) -> DType {
        self.code.ty(v).dtype
    }

    /// Prints a pending value as a named constant.
    fn print_constant(&mut self, v: V) {
        let expr = self.take(v);
        let (name, ty) = (self.name_of(v), variable_type(self.dtype(v)));
        self.line(&format!("const {ty} {name} = {};", expr.text));
        self.values[v.0 as usize] = Some(Expr::atom(name));
    }

    /// Prints the pending values as named constants. If `all` is false, only those that read
    /// memory.
    fn flush(&mut self, all: bool) {
        for v in self.pending.clone() {
            if all || self.values[v.0 as usize].as_ref().is_some_and(|expr| expr.reads) {
                self.print_constant(v);
            }
        }
    }

    fn define(&mut self, v: V, expr: Expr) {
        let (once, long) =
            (self.usage.values[v.0 as usize] == 1, expr.text.len() > MAX_INLINE_LENGTH);
        let simple = expr.level <= Level::Unary && !expr.reads && expr.text.len() < 12;
        let named = simple && !expr.text.contains('(');
        self.values[v.0 as usize] = Some(expr);
        if named {
            return;
        }
        self.pending.push(v);
        if !once || long {
            self.print_constant(v);
        }
    }

    pub(super) fn dim(&mut self, n: u32) -> Expr {
        self.dims.insert(n as usize);
        Expr::atom(self.names.dims[n as usize].clone())
    }

    fn block(&mut self, body: &[Stmt]) {
        for stmt in body {
            self.stmt(stmt);
            self.place_scratch();
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        if !self.usage.needs(stmt) {
            return;
        }
        match &stmt.inst {
            Inst::For { from, to, step, carried, region } => {
                self.repeat(&stmt.results, [*from, *to, *step], carried, region);
            }
            Inst::If { condition, yes, no } => self.branch(&stmt.results, *condition, yes, no),
            Inst::Store { mem, at, value, mask, .. } | Inst::Scatter { mem, at, value, mask } => {
                self.store(*mem, *at, *value, *mask);
            }
            Inst::Prefetch { .. } => {}
            Inst::Const(bits) => {
                let (v, dtype) = (stmt.results[0], self.dtype(stmt.results[0]));
                self.values[v.0 as usize] = Some(literal(dtype, *bits));
            }
            inst => {
                let &[v] = &stmt.results[..] else { return };
                let Some(expr) = self.expression(v, inst) else { return };
                self.define(v, expr);
                // A selected address gets a name before it is used for a read: see `select`.
                if matches!(inst, Inst::Select(..)) && self.dtype(v) == DType::I64 {
                    self.take_name(v);
                }
            }
        }
    }
}

/// Returns a variable name that does not shadow a function of the C library or of the file.
/// Functions of the file end in the dtype that they take or return.
pub fn variable(name: String) -> String {
    const LIBRARY: &[&str] = &[
        "abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "erf", "exp", "expm1",
        "fabs", "floor", "fma", "log", "log1p", "pow", "rint", "round", "sin", "sinh", "sqrt",
        "tan", "tanh",
    ];
    let known = |name: &str| LIBRARY.contains(&name);
    let end = name.rsplit('_').next().unwrap_or_default();
    let own = end == "odd" || DType::ALL.iter().any(|dtype| dtype.name() == end);
    match own || known(&name) || name.strip_suffix('f').is_some_and(known) {
        true => name + "_x",
        false => name,
    }
}
