//! Matching a rule's left side against an operation that is about to be added to a function.

use mithril_ir::attr::Attr;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Op;
use mithril_ir::op::infer::{as_ints, find_attr};
use mithril_ir::shape::{Shape, Type};
use smallvec::SmallVec;

use super::Rule;
use super::pattern::{Node, Pattern, VARS};

/// What the matcher knows of the function: who makes each value, and which are uniform.
pub trait Facts {
    fn function(&self) -> &Function;

    /// The operation that makes the value; `None` for arguments.
    fn definition(&self, value: Value) -> Option<&Operation>;

    /// The number that every element of the value is.
    fn uniform(&self, value: Value) -> Option<f64>;
}

/// The operation that a rule is tried on.
pub struct Root<'a> {
    pub op: Op,
    pub operands: &'a [Value],
    pub attrs: &'a [Attr],
    pub ty: &'a Type,
}

/// What a rule's left side has been matched with.
pub struct Match<'a> {
    function: &'a Function,
    pub root: &'a Root<'a>,
    vars: [Option<Value>; VARS],
    /// The operations of the left side and their attributes, outermost first.
    ops: SmallVec<[(Op, &'a [Attr]); 4]>,
    /// Those among them that the function has already.
    pub inner: SmallVec<[&'a Operation; 4]>,
}

/// Matches the rule, its condition included.
pub fn matched<'a>(rule: &Rule, root: &'a Root<'a>, facts: &'a dyn Facts) -> Option<Match<'a>> {
    let Node::Op(op, args) = rule.left.node() else {
        return None;
    };
    let mut found = Match {
        function: facts.function(),
        root,
        vars: [None; VARS],
        ops: SmallVec::new(),
        inner: SmallVec::new(),
    };
    if *op != root.op || args.len() != root.operands.len() {
        return None;
    }
    found.ops.push((root.op, root.attrs));
    let fits = found.all(args, root.operands, facts);
    (fits && rule.when.is_none_or(|when| when(&found))).then_some(found)
}

impl<'a> Match<'a> {
    fn all(&mut self, patterns: &[Pattern], values: &[Value], facts: &'a dyn Facts) -> bool {
        patterns.len() == values.len()
            && patterns.iter().zip(values).all(|(p, v)| self.one(*p, *v, facts))
    }

    fn one(&mut self, pattern: Pattern, value: Value, facts: &'a dyn Facts) -> bool {
        match pattern.node() {
            Node::Var(i) => *self.vars[*i].get_or_insert(value) == value,
            Node::Number(number) => {
                let same = |uniform: f64| uniform.to_bits() == number.to_bits();
                facts.uniform(value).is_some_and(same)
            }
            Node::Op(op, args) => match facts.definition(value) {
                Some(inner) if inner.op == *op => {
                    self.ops.push((inner.op, &inner.attrs));
                    self.inner.push(inner);
                    self.all(args, &inner.operands, facts)
                }
                _ => false,
            },
            Node::Known => false,
        }
    }

    /// The values of the variables.
    pub fn vars(&self) -> [Option<Value>; VARS] {
        self.vars
    }

    /// The value of variable number `i`.
    pub fn var(&self, i: usize) -> Value {
        self.vars[i].expect("the right side has the left side's variables")
    }

    /// The dtype of variable number `i`.
    pub fn dtype(&self, i: usize) -> DType {
        self.function.ty(self.var(i)).dtype
    }

    /// The shape of variable number `i`.
    pub fn shape(&self, i: usize) -> &Shape {
        &self.function.ty(self.var(i)).shape
    }

    /// An attribute of operation number `i` of the left side, 0 being the outermost.
    pub fn attr(&self, i: usize, name: &str) -> &'a Attr {
        let (op, attrs) = self.ops[i];
        find_attr(op, attrs, name)
    }

    /// Axes among the attributes of operation number `i`, from the front of `rank` axes.
    pub fn axes(&self, i: usize, name: &str, rank: usize) -> Option<Vec<usize>> {
        let axes = as_ints(self.attr(i, name))?.iter();
        Some(axes.map(|a| a.rem_euclid(rank.max(1) as i64) as usize).collect())
    }
}
