//! The body of one function: its operations as statements. Short expressions are inlined into
//! others.

use std::sync::Arc;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::{Function, Operation, ResultDef, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::naming::{last_part, short_paths};
use mithril_ir::op::Kind;
use mithril_ir::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};

use super::expr::{CallPart, Expr};
use super::names::{Names, comment, format_text};
use super::neighbours::Neighbours;
use super::shape_sources::ShapeSources;
use super::survey::{Survey, is_constant};
use super::unit::File;

/// Maximum length in characters of an expression that is inlined into another.
const MAX_INLINED: usize = 52;

/// How a value is represented in the body.
#[derive(Clone, Debug)]
pub enum Binding {
    Missing,
    Variable(String),
    /// An expression that will be inlined into its only use.
    Pending(Expr),
    /// A Python number computed from dims.
    Number(Expr),
    /// A constant of rank 0.
    Literal(Tensor),
    /// Integers that are dims, of rank 0 or 1.
    Known(Arc<[Dim]>),
}

/// One statement of a body, before it is broken into lines.
pub enum Statement {
    Comment(String),
    /// The text before the expression (`x = `, `return `), and the expression.
    Line(String, Expr),
    /// `assert test, message`.
    Assert(Expr, Expr),
    /// `for x in xs:`: its variables, its iterable, and the statements inside.
    Loop(String, Expr, Vec<Statement>),
    /// `while test:`, and the statements inside.
    While(Expr, Vec<Statement>),
    /// `if test:`, the statements inside, and those of `else:`, if there are any.
    If(Expr, Vec<Statement>, Vec<Statement>),
    /// `del x, y`.
    Delete(Vec<Expr>),
}

/// A function's body under construction.
pub struct Body<'f, 'm> {
    pub file: &'f mut File<'m>,
    pub function: &'m Function,
    pub names: Names,
    pub bindings: Vec<Binding>,
    pub statements: Vec<Statement>,
    pub symbols: FxHashMap<Symbol, String>,
    /// Operations on the same operands, and the readers of each value.
    pub neighbours: Neighbours<'m>,
    /// The variables of complex values, by their expressions.
    pub complex_values: FxHashMap<String, String>,
    /// The shapes that each dim can be read from.
    pub shape_sources: ShapeSources<'m>,
    /// The values of which elements are subtracted from each other, once they are looked for.
    pub minuends: Option<FxHashSet<Value>>,
    /// The variables whose values are stored in memory.
    pub stored: FxHashSet<String>,
    /// By argument, whether it is read.
    pub read_arguments: Vec<bool>,
    /// The block path of the statements written last.
    path: Option<String>,
    /// Uses of values; empty before the survey.
    survey: Survey<'m>,
    /// For each value that only a barrier without code of its own reads, the result of that barrier:
    /// the value takes its name. In a chain of barriers it is the first result with a name, or the last one.
    named_after: Vec<Option<Value>>,
    results: FxHashMap<Value, String>,
    /// The suffix of the names of results.
    suffix: &'static str,
}

impl<'f, 'm> Body<'f, 'm> {
    /// `suffix` is appended to the names of the results' variables.
    pub fn new(
        file: &'f mut File<'m>,
        function: &'m Function,
        suffix: &'static str,
    ) -> Body<'f, 'm> {
        let names = file.names.inside();
        let count = function.values.len();
        let mut results = FxHashMap::default();
        for result in &function.results {
            results.entry(result.value).or_insert(format!("{}{suffix}", result.name));
        }
        let mut body = Body {
            file,
            function,
            names,
            bindings: vec![Binding::Missing; count],
            statements: Vec::new(),
            symbols: FxHashMap::default(),
            neighbours: Neighbours::of(function),
            complex_values: FxHashMap::default(),
            shape_sources: ShapeSources::of(function),
            minuends: None,
            stored: FxHashSet::default(),
            read_arguments: vec![false; function.args.len()],
            path: None,
            survey: Survey::empty(function),
            named_after: vec![None; count],
            results,
            suffix,
        };
        let paths: Vec<&str> = function.args.iter().map(|arg| &*arg.name).collect();
        let preferred_names = short_paths(&paths);
        for ((value, arg), name) in function.arguments().zip(preferred_names) {
            let gradient = if arg.role == Role::Cotangent { "_gradient" } else { "" };
            let name = body.names.unique(&format!("{name}{gradient}"));
            body.bindings[value.index()] = Binding::Variable(name);
        }
        body
    }

    /// Writes the statements of all operations that the results need.
    /// Errors: an operation or a dtype that the framework lacks; a dim that no shape gives.
    pub fn operations(&mut self) -> Result<()> {
        let live = self.survey();
        self.guards()?;
        for (value, arg) in self.function.arguments() {
            let dtype = self.file.dtype(self.function.ty(value).dtype);
            dtype.map_err(|error| error.at(format!("argument `{}`", arg.name)))?;
        }
        self.write_operations(&live)
    }

    /// Writes the statements of the operations for which `which` is true.
    pub fn write_operations(&mut self, which: &[bool]) -> Result<()> {
        let function = self.function;
        for (op, wanted) in function.ops.iter().zip(which) {
            if *wanted {
                self.operation(op)?;
            }
        }
        Ok(())
    }

    /// Marks the arguments of a role as not yet available, and returns their bindings.
    pub fn hide_arguments(&mut self, role: Role) -> Vec<(Value, Binding)> {
        let function = self.function;
        let late = function.arguments().filter(|(_, arg)| arg.role == role);
        late.map(|(v, _)| (v, std::mem::replace(&mut self.bindings[v.index()], Binding::Missing)))
            .collect()
    }

    /// Restores the arguments that `hide_arguments` hid, and adds these results, whose variables
    /// end in `suffix`.
    pub fn restore_arguments(
        &mut self,
        late: Vec<(Value, Binding)>,
        results: &[ResultDef],
        suffix: &'static str,
    ) {
        late.into_iter().for_each(|(value, binding)| self.bindings[value.index()] = binding);
        self.suffix = suffix;
        for result in results {
            self.results.insert(result.value, format!("{}{suffix}", result.name));
        }
    }

    /// Counts uses and returns which operations are live.
    pub fn survey(&mut self) -> Vec<bool> {
        self.survey = Survey::of(self.function);
        let backend = self.file.backend;
        let is_alias =
            |op: &&Operation| op.op.kind == Kind::Barrier && backend.spelling(op.op) == "{x}";
        for op in self.function.ops.iter().rev().filter(is_alias) {
            let result = op.result();
            for value in op.operands.iter().filter(|v| self.survey.uses[v.index()] == 1) {
                let own = self.function.info(result).name.is_some();
                let named = own || self.results.contains_key(&result);
                let further = self.named_after[result.index()].filter(|_| !named);
                self.named_after[value.index()] = further.or(Some(result));
            }
        }
        std::mem::take(&mut self.survey.live)
    }

    /// Asserts the relations of dims that are checked at run time: the guards, and the constraints
    /// of the signature.
    pub fn guards(&mut self) -> Result<()> {
        let function = self.function;
        for guard in &function.guards {
            let (left, relation, right) = guard.relation();
            self.require(left, relation, right, &guard.loc)?;
        }
        for constraint in &function.constraints {
            let sign = constraint.relation.sign();
            self.require(&constraint.left, sign, &constraint.right, &Loc::unknown())?;
        }
        Ok(())
    }

    /// Asserts a relation of dims, if the arguments give their symbols.
    fn require(
        &mut self,
        left: &Dim,
        relation: &'static str,
        right: &Dim,
        loc: &Loc,
    ) -> Result<()> {
        let mut bound = true;
        for dim in [left, right] {
            dim.for_each_symbol(&mut |s| bound &= self.is_bound(s));
        }
        if !bound {
            return Ok(());
        }
        let values: Vec<Expr> =
            [left, right].map(|dim| self.dim(dim)).into_iter().collect::<Result<_>>()?;
        let test = values[0].clone().binary(relation, values[1].clone());
        let texts = [left, right].into_iter().zip(&values).filter(|(d, _)| d.as_const().is_none());
        let texts: Vec<String> = texts.map(|(_, value)| format!("{{{value}=}}")).collect();
        let place = loc.blocks().map(|blocks| format!("{}: ", format_text(&blocks)));
        let place = place.unwrap_or_default();
        let message = format!("f\"{place}{test} does not hold: {}\"", texts.join(", "));
        self.statements.push(Statement::Assert(test, Expr::Literal(message)));
        Ok(())
    }

    fn operation(&mut self, op: &'m Operation) -> Result<()> {
        match op.op.kind {
            Kind::Constant if is_constant(op) => return self.constant(op),
            Kind::Call => return self.call(op),
            Kind::Elementwise
            | Kind::Reduce
            | Kind::Contraction
            | Kind::Layout
            | Kind::Index
            | Kind::Order
            | Kind::Matrix
            | Kind::Random
            | Kind::Constant
            | Kind::Dim
            | Kind::Barrier
            | Kind::Composite => {}
        }
        let result = op.result();
        if let Some(known) = &self.function.info(result).known {
            self.bindings[result.index()] = Binding::Known(known.clone());
            return Ok(());
        }
        if let Some(binding) = self.numeric(op)? {
            self.bindings[result.index()] = binding;
            return Ok(());
        }
        if !matches!(self.bindings[result.index()], Binding::Missing) || self.is_within_linear(op) {
            return Ok(());
        }
        self.settle(op);
        let expr = self.spell_in_order(op)?;
        let expr = self.with_shared_call(op, expr);
        if op.op.kind == Kind::Dim {
            self.bindings[result.index()] = Binding::Number(expr);
            return Ok(());
        }
        match expr.part() {
            Some(part) => self.keep_parts(op, part),
            None => {
                self.keep(result, expr);
                Ok(())
            }
        }
    }

    /// Assigns the parts of a call to the results of the operations that they compute, in one
    /// statement if there are several.
    fn keep_parts(&mut self, op: &'m Operation, part: CallPart) -> Result<()> {
        let mut values = vec![None; part.count];
        values[part.at] = Some(op.result());
        let others: Vec<&'m Operation> = match op.op.kind {
            Kind::Composite => self.neighbours.composites(&op.operands).collect(),
            _ => self.neighbours.siblings(op.op.0.name, &op.operands).collect(),
        };
        let others = others.into_iter().filter(|other| other.first > op.first);
        for other in others {
            let own = self.spell(other)?.part().filter(|own| own.call == part.call);
            if let Some(own) = own.filter(|_| self.is_used(other.result())) {
                values[own.at] = Some(other.result());
            }
        }
        if values.iter().flatten().count() == 1 {
            let expr = part.call.index(vec![Expr::int(part.at as i64)]);
            self.keep(op.result(), expr);
            return Ok(());
        }
        let names = values.iter().map(|value| match value {
            Some(value) => self.name_result(*value),
            None => "_".to_string(),
        });
        let names: Vec<String> = names.collect();
        self.write(op.result(), format!("{} = ", names.join(", ")), part.call);
        Ok(())
    }

    /// Binds the value to a new variable. The caller must write its assignment.
    fn name_result(&mut self, value: Value) -> String {
        let name = self.new_name(value);
        self.bindings[value.index()] = Binding::Variable(name.clone());
        name
    }

    /// Inlines the expression into its only use if it is short; otherwise assigns it to a variable.
    pub fn keep(&mut self, value: Value, expr: Expr) {
        if let Expr::Name(name) = &expr {
            self.bindings[value.index()] = Binding::Variable(name.clone());
        } else if self.is_inlined(value) && expr.fits(MAX_INLINED) {
            self.bindings[value.index()] = Binding::Pending(expr);
        } else if !self.keep_transposed(value, &expr) {
            self.assign(value, expr);
        }
    }

    /// The variables of arrays that operations compute.
    pub fn computed_arrays(&self) -> FxHashSet<String> {
        let computed =
            self.function.ops.iter().filter(|op| !is_constant(op)).flat_map(|op| op.results());
        let arrays = computed.filter(|value| self.function.ty(*value).shape.rank() != Some(0));
        let named = arrays.filter_map(|value| match &self.bindings[value.index()] {
            Binding::Variable(name) => Some(name.clone()),
            _ => None,
        });
        named.collect()
    }

    pub fn is_inlined(&self, value: Value) -> bool {
        self.survey.uses[value.index()] == 1
            && !self.survey.escapes[value.index()]
            && self.function.info(value).name.is_none()
    }

    pub fn is_read_once(&self, value: Value) -> bool {
        self.survey.uses[value.index()] == 1
    }

    pub fn is_result(&self, value: Value) -> bool {
        self.results.contains_key(&value)
    }

    pub fn is_used(&self, value: Value) -> bool {
        self.survey.uses[value.index()] > 0
    }

    /// How many characters the value's expression may take on one line.
    pub fn budget(&self, value: Value) -> usize {
        let prefix = "     = ".len() + self.preferred_name(value).chars().count();
        super::layout::WIDTH.saturating_sub(prefix + 2)
    }

    /// The preferred name of a value.
    fn preferred_name(&self, value: Value) -> String {
        let named = |value: Value| {
            let own = self.function.info(value).name.as_deref();
            own.or_else(|| self.results.get(&value).map(String::as_str))
        };
        let last = self.named_after[value.index()].unwrap_or(value);
        if let Some(name) = named(value).or_else(|| named(last)) {
            return super::names::identifier(name);
        }
        let escapes = self.survey.escapes[last.index()] && !self.is_merged(last);
        let path = self.survey.paths[last.index()].filter(|_| escapes);
        let name = path.map_or_else(|| self.op_name(last), last_part);
        super::names::identifier(name)
    }

    /// Whether the operation that defines the value was merged from several blocks, so that no
    /// single block path describes it.
    fn is_merged(&self, value: Value) -> bool {
        self.definition(value).is_some_and(|op| op.loc.paths().len() > 1)
    }

    /// The operation that defines a value.
    pub fn definition(&self, value: Value) -> Option<&'m Operation> {
        let ops = &self.function.ops;
        let at = ops.partition_point(|op| op.first <= value);
        at.checked_sub(1).map(|i| &ops[i])
    }

    /// The result name of the operation that defines a value. For a call, the name of the callee's
    /// result.
    fn op_name(&self, value: Value) -> &'m str {
        let Some(op) = self.definition(value) else {
            return "value";
        };
        let callee = op.functions().next().and_then(|name| self.file.module.get(name));
        let result = callee.and_then(|f| {
            // The first result of the body of a `while` is the next condition.
            let skipped = f.results.len().saturating_sub(op.results as usize);
            f.results.get((value.0 - op.first.0) as usize + skipped)
        });
        result.map_or_else(|| op.op.result_name(), |result| &result.name)
    }

    /// Writes a statement that gives the value a name.
    pub fn assign(&mut self, value: Value, expr: Expr) {
        let name = self.name_result(value);
        self.write(value, format!("{name} = "), expr);
    }

    pub fn new_name(&mut self, value: Value) -> String {
        let preferred_name = self.preferred_name(value);
        match self.suffix {
            // A value of the backward pass has the name of its forward counterpart, plus the
            // suffix.
            suffix if !preferred_name.ends_with(suffix) && self.names.has(&preferred_name) => {
                self.names.unique(&format!("{preferred_name}{suffix}"))
            }
            _ => self.names.unique(&preferred_name),
        }
    }

    /// Writes a line under the value's block path.
    pub fn write(&mut self, value: Value, prefix: String, expr: Expr) {
        self.comment(value);
        self.statements.push(Statement::Line(prefix, expr));
    }

    /// Writes the value's block path, unless the statement before is under the same one.
    pub fn comment(&mut self, value: Value) {
        if let Some(path) = self.survey.paths[value.index()] {
            if self.path.as_deref() != Some(path) {
                self.path = Some(path.to_string());
                self.statements.push(Statement::Comment(comment(path)));
            }
        }
    }

    /// Assigns a value that would have been inlined to a variable instead.
    pub fn assign_pending(&mut self, value: Value) {
        if let Binding::Pending(expr) = &self.bindings[value.index()] {
            let expr = expr.clone();
            self.assign(value, expr);
        }
    }

    /// Marks an argument as read.
    pub fn mark_read(&mut self, value: Value) {
        if let Some(read) = self.read_arguments.get_mut(value.index()) {
            *read = true;
        }
    }
}
