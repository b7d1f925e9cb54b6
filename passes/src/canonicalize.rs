//! `canonicalize`: applies the small exact rules until none matches.

use std::ops::ControlFlow;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::Op;
use mithril_ir::op::infer::complete_attrs;
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use smallvec::SmallVec;

use crate::context::PassContext;
use crate::dce;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};
use crate::rules::matched::{Facts, Producer, VARS};
use crate::rules::matching::each_match;
use crate::rules::pattern::{Node, Pattern};
use crate::rules::{self, Attrs, Rule, of_root};

pass! {
    /// Applies the small exact rules until none matches: identities, signs, layouts that change
    /// nothing, casts that cancel, selects with a known condition, known dims. Results stay the
    /// same, bit for bit. Removes dead operations.
    pub struct Canonicalize("canonicalize") {
        /// The rules to exclude.
        without: Vec<String> = Vec::new(),
    }
}

impl Pass for Canonicalize {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        rules::check_names(&self.without)?;
        each_function(module, |function| {
            let simplified = simplify(module, function, &self.without, cx)?;
            let swept = dce::without_dead_operations(simplified.as_ref().unwrap_or(function));
            let result = swept.or(simplified);
            if let Some(result) = &result {
                cx.count("ops-removed", function.ops.len().saturating_sub(result.ops.len()));
            }
            Ok(result)
        })
    }
}

/// The maximum depth of rules that are applied to operations that other rules have built. The rules
/// of this crate terminate without it.
const MAX_DEPTH: usize = 32;

/// Applies rules to a function; `None` if none matches. One pass is enough: an operation is tried
/// after its operands are finished, and so is each operation that a rule builds.
fn simplify(
    module: &Module,
    function: &Function,
    without: &[String],
    cx: &mut PassContext,
) -> Result<Option<Function>> {
    let mut simplifier = Simplifier {
        rebuild: Rebuild::new(module, function),
        uniform: vec![None; function.args.len()],
        definitions: vec![None; function.args.len()],
        without,
        cx,
        applied: 0,
    };
    for op in &function.ops {
        simplifier.operation(op)?;
    }
    if simplifier.applied == 0 {
        return Ok(None);
    }
    let count = simplifier.applied;
    let result = simplifier.rebuild.finish()?;
    cx.count("rules-applied", count);
    Ok(Some(result))
}

struct Simplifier<'f, 'c> {
    rebuild: Rebuild<'f>,
    /// By value of the new function, the number that every element equals, if it is known.
    uniform: Vec<Option<f64>>,
    definitions: Vec<Option<u32>>,
    without: &'c [String],
    cx: &'c mut PassContext,
    applied: usize,
}

/// The function under construction, as the matcher sees it.
struct FunctionFacts<'a> {
    function: &'a Function,
    uniform: &'a [Option<f64>],
    definitions: &'a [Option<u32>],
}

impl Facts for FunctionFacts<'_> {
    fn ty(&self, value: Value) -> &Type {
        self.function.ty(value)
    }

    fn uniform(&self, value: Value) -> Option<f64> {
        self.uniform[value.index()]
    }

    fn has_producer(&self, value: Value, by: Op) -> bool {
        self.definitions[value.index()].is_some_and(|at| self.function.ops[at as usize].op == by)
    }

    fn producers(&self, value: Value, by: Op) -> SmallVec<[Producer<'_>; 2]> {
        let number = self.definitions[value.index()].filter(|_| self.has_producer(value, by));
        let producer = number.map(|number| {
            let op = &self.function.ops[number as usize];
            Producer { op: op.op, operands: op.operands.clone(), attrs: &op.attrs, number }
        });
        producer.into_iter().collect()
    }
}

/// The index of the operation that a rule is tried on, which is not in the function yet.
const ROOT: u32 = u32::MAX;

/// A match, copied so that it does not borrow the function.
struct Found {
    rule: &'static Rule,
    vars: [Option<Value>; VARS],
    part: usize,
    /// Attributes of the operations on the right side, outermost first.
    attrs: SmallVec<[Attrs; 1]>,
    loc: Loc,
}

/// The operation that rules are tried on.
struct Root<'a> {
    op: Op,
    operands: &'a [Value],
    attrs: &'a [Attr],
    ty: &'a Type,
}

impl Simplifier<'_, '_> {
    fn operation(&mut self, op: &Operation) -> Result<()> {
        let operands = self.rebuild.operands(op);
        if !of_root(op.op).is_empty() {
            let info = self.rebuild.source.info(op.result());
            let root = Root { op: op.op, operands: &operands, attrs: &op.attrs, ty: &info.ty };
            if let Some(new) = self.apply(&root, info.known.as_deref(), &op.loc, MAX_DEPTH)? {
                self.rebuild.replace(op.result(), new);
                return Ok(());
            }
        }
        self.rebuild.keep_on(op, operands)?;
        self.record_newest();
        Ok(())
    }

    /// The value by which a rule replaces the operation; `None` if no rule matches.
    fn apply(
        &mut self,
        root: &Root,
        known: Option<&[Dim]>,
        loc: &Loc,
        fuel: usize,
    ) -> Result<Option<Value>> {
        // Types that compare equal may still differ where dims are unknown.
        if fuel == 0 || root.ty.shape.dims.iter().any(Dim::is_unknown) {
            return Ok(None);
        }
        for rule in of_root(root.op).iter().filter(|rule| rule.always) {
            if self.without.iter().any(|name| name == rule.name) {
                continue;
            }
            let Some(mut found) = self.find(rule, root, loc) else {
                continue;
            };
            if let Some(value) = self.build(&mut found, root, known, fuel)? {
                self.applied += 1;
                self.cx.log(rule.name, loc);
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn find(&self, rule: &'static Rule, root: &Root, loc: &Loc) -> Option<Found> {
        self.rebuild.builder.with(|function| {
            let facts =
                FunctionFacts { function, uniform: &self.uniform, definitions: &self.definitions };
            let operands = root.operands.into();
            let producer = Producer { op: root.op, operands, attrs: root.attrs, number: ROOT };
            let mut first = None;
            let _ = each_match(rule, producer, root.ty, &facts, &mut |found| {
                let Some(attrs) = rule.right.attributes(found) else {
                    return ControlFlow::Continue(());
                };
                let mut loc = loc.clone();
                let inner = found.numbers().filter(|number| *number != ROOT);
                inner.for_each(|number| loc.merge(&function.ops[number as usize].loc));
                let (vars, part) = (found.vars(), found.part());
                first = Some(Found { rule, vars, part, attrs, loc });
                ControlFlow::Break(())
            });
            first
        })
    }

    /// Builds the right side; `None` if its type differs from the root's.
    fn build(
        &mut self,
        found: &mut Found,
        root: &Root,
        known: Option<&[Dim]>,
        fuel: usize,
    ) -> Result<Option<Value>> {
        match found.rule.right.node() {
            Node::Known => {
                let numbers: Option<Vec<i64>> =
                    known.and_then(|k| k.iter().map(Dim::as_const).collect());
                let (Some(numbers), Some(shape)) = (numbers, root.ty.shape.as_fixed()) else {
                    return Ok(None);
                };
                self.rebuild.builder.set_loc(found.loc.clone());
                let tensor = Tensor::from_i64s(root.ty.dtype, shape, &numbers);
                let value = self.rebuild.builder.constant(tensor);
                self.record_newest();
                Ok(Some(value))
            }
            Node::Op(op, args, _) => {
                let attrs = complete_attrs(*op, &found.attrs.remove(0))?;
                let operands = args.iter().map(|arg| self.term(*arg, found, root.ty, fuel));
                let operands: Result<SmallVec<[Value; 3]>> = operands.collect();
                self.add(*op, &operands?, attrs, Some(root.ty), &found.loc, fuel - 1)
            }
            Node::Neighbours(op, term) => {
                let value = self.term(*term, found, root.ty, fuel)?;
                let mut operands = root.operands.to_vec();
                operands.splice(found.part..found.part + 2, [value]);
                let attrs = root.attrs.into();
                self.add(*op, &operands, attrs, Some(root.ty), &found.loc, fuel - 1)
            }
            Node::Var(i) => {
                let value = found.vars[*i].expect("the left side has the right side's variables");
                let same = self.rebuild.builder.with(|f| f.ty(value) == root.ty);
                Ok(same.then_some(value))
            }
            _ => Ok(None),
        }
    }

    /// Builds a term inside the right side.
    fn term(&mut self, term: Pattern, found: &mut Found, ty: &Type, fuel: usize) -> Result<Value> {
        match term.node() {
            Node::Var(i) => {
                Ok(found.vars[*i].expect("the left side has the right side's variables"))
            }
            Node::Number(number) => {
                let tensor = Tensor::scalar(ty.dtype, *number);
                self.rebuild.builder.set_loc(found.loc.clone());
                let value = self.rebuild.builder.constant(tensor);
                self.record_newest();
                Ok(value)
            }
            Node::Op(op, args, _) => {
                let attrs = complete_attrs(*op, &found.attrs.remove(0))?;
                let operands = args.iter().map(|arg| self.term(*arg, found, ty, fuel));
                let operands: Result<SmallVec<[Value; 3]>> = operands.collect();
                let value = self.add(*op, &operands?, attrs, None, &found.loc, fuel - 1)?;
                Ok(value.expect("no type is asked for"))
            }
            Node::Near(_)
            | Node::Map(_)
            | Node::Any(_)
            | Node::Among(..)
            | Node::Neighbours(..)
            | Node::Known
            | Node::Joined => {
                let what =
                    format!("the rule `{}` has a term that it cannot build", found.rule.name);
                Diagnostic::of(ErrorKind::Bug, what).err()
            }
        }
    }

    /// Adds an operation, or its simplified form; `None` if its type is not `want`.
    fn add(
        &mut self,
        op: Op,
        operands: &[Value],
        attrs: SmallVec<[Attr; 2]>,
        want: Option<&Type>,
        loc: &Loc,
        fuel: usize,
    ) -> Result<Option<Value>> {
        let builder = &self.rebuild.builder;
        let ty = match (builder.type_of(op, operands, &attrs), want) {
            (Ok(ty), None) => ty,
            (Ok(ty), Some(want)) if ty == *want => ty,
            (Err(error), None) => return Err(error),
            _ => return Ok(None),
        };
        let root = Root { op, operands, attrs: &attrs, ty: &ty };
        if let Some(value) = self.apply(&root, None, loc, fuel)? {
            return Ok(Some(value));
        }
        self.rebuild.builder.set_loc(loc.clone());
        let value = self.rebuild.builder.push(op, operands, attrs)?;
        self.record_newest();
        Ok(Some(value))
    }

    /// Records the facts about the newest operation for the matcher.
    fn record_newest(&mut self) {
        let (uniform, definitions) = (&mut self.uniform, &mut self.definitions);
        self.rebuild.builder.with(|f| {
            let Some(op) = f.ops.last() else {
                return;
            };
            let operand = |i: usize| uniform[op.operands[i].index()];
            let number = rules::matched::uniform(op.op, &op.attrs, op.operands.len(), &operand);
            uniform.resize(f.values.len(), number);
            definitions.resize(f.values.len(), Some(f.ops.len() as u32 - 1));
        });
    }
}
