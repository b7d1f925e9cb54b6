//! A match of a rule's left side: the values of its variables, and its operations.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;
use mithril_ir::op::access::{FoldAxes, fold_axes};
use mithril_ir::op::infer::{as_ints, find_attr};
use mithril_ir::op::{Kind, Op};
use mithril_ir::shape::{Shape, Type};
use smallvec::SmallVec;

use super::Attrs;

/// The maximum number of variables of a rule.
pub const VARS: usize = 6;

/// The facts about values that the matcher needs, from a function or from an e-graph.
pub trait Facts {
    fn ty(&self, value: Value) -> &Type;

    /// The number that every element of the value equals, if there is one.
    fn uniform(&self, value: Value) -> Option<f64>;

    /// Whether an operation `by` defines the value.
    fn has_producer(&self, value: Value, by: Op) -> bool;

    /// The operations `by` that define the value.
    fn producers(&self, value: Value, by: Op) -> SmallVec<[Producer<'_>; 2]>;
}

/// An operation that defines a value.
#[derive(Clone)]
pub struct Producer<'a> {
    pub op: Op,
    pub operands: SmallVec<[Value; 3]>,
    pub attrs: &'a [Attr],
    /// Its index among the operations of the [`Facts`] it comes from.
    pub number: u32,
}

/// A match of a rule's left side.
pub struct Match<'a> {
    pub(super) facts: &'a dyn Facts,
    /// The type of the whole.
    pub result: &'a Type,
    pub(super) vars: [Option<Value>; VARS],
    /// The operations of the left side, outermost first.
    pub(super) producers: SmallVec<[Producer<'a>; 4]>,
    /// The index of the operand that matches the term of `Node::Among`, or the first term of
    /// `Node::Neighbours`.
    pub(super) part: usize,
}

/// The number that every element of an operation's result equals, if there is one. Layouts of one
/// operand only repeat and move its elements.
pub fn uniform(
    op: Op,
    attrs: &[Attr],
    operands: usize,
    operand: &dyn Fn(usize) -> Option<f64>,
) -> Option<f64> {
    match (op.kind, attrs.first(), operands) {
        (Kind::Constant, Some(Attr::Tensor(tensor)), 0) => {
            tensor.repeated().map(|one| one.element_f64(0))
        }
        (Kind::Layout, _, 1) => operand(0),
        _ => None,
    }
}

impl<'a> Match<'a> {
    /// Whether the dims of all operands are known. Of two unknown dims, one may be 1 where the
    /// other is larger.
    pub fn is_known(&self) -> bool {
        let operands = self.producers.iter().flat_map(|producer| &producer.operands);
        let mut dims = operands.flat_map(|value| &self.facts.ty(*value).shape.dims);
        !dims.any(Dim::is_unknown)
    }

    /// The facts about values.
    pub fn facts(&self) -> &'a dyn Facts {
        self.facts
    }

    /// The values of the variables.
    pub fn vars(&self) -> [Option<Value>; VARS] {
        self.vars
    }

    /// The indices of the matched operations, the outermost one's first.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.producers.iter().map(|producer| producer.number)
    }

    /// The value of variable `i`.
    pub fn var(&self, i: usize) -> Value {
        self.vars[i].expect("the right side has the left side's variables")
    }

    /// The type of variable `i`.
    pub fn ty(&self, i: usize) -> &'a Type {
        self.facts.ty(self.var(i))
    }

    /// The dtype of variable `i`.
    pub fn dtype(&self, i: usize) -> DType {
        self.ty(i).dtype
    }

    /// The shape of variable `i`.
    pub fn shape(&self, i: usize) -> &'a Shape {
        &self.ty(i).shape
    }

    /// The number that every element of variable `i` equals.
    pub fn uniform(&self, i: usize) -> Option<f64> {
        self.facts.uniform(self.var(i))
    }

    /// The number that every element of variable `i` equals, for an attribute: with the fewest
    /// digits that represent it in its dtype.
    pub fn number(&self, i: usize) -> Option<f64> {
        let own = self.uniform(i)?;
        match self.dtype(i) {
            DType::F64 => Some(own),
            _ => (own as f32).to_string().parse().ok(),
        }
    }

    /// The type of an operand of operation `i` of the left side.
    pub fn operand(&self, i: usize, operand: usize) -> &'a Type {
        self.facts.ty(self.producers[i].operands[operand])
    }

    /// For an operation on any number of operands, the index of the operand that matched. If two
    /// adjacent operands matched, the index of the first.
    pub fn part(&self) -> usize {
        self.part
    }

    /// The types of the operands of operation `i` of the left side.
    pub fn operands(&self, i: usize) -> impl Iterator<Item = &'a Type> + '_ {
        self.producers[i].operands.iter().map(|operand| self.facts.ty(*operand))
    }

    /// The axes that the outermost operation reduces.
    pub fn folded(&self) -> FoldAxes {
        let root = &self.producers[0];
        fold_axes(root.op, root.attrs, self.operand(0, 0), self.result)
    }

    /// The index of the first operation of this name on the left side.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.producers.iter().position(|producer| producer.op.name == name)
    }

    /// The indices of the operations of this name on the left side.
    pub fn all(&self, name: &str) -> SmallVec<[usize; 2]> {
        (0..self.producers.len()).filter(|at| self.producers[*at].op.name == name).collect()
    }

    /// An attribute of operation `i` of the left side; 0 is the outermost.
    pub fn attr(&self, i: usize, name: &str) -> &'a Attr {
        find_attr(self.producers[i].op, self.producers[i].attrs, name)
    }

    /// All attributes of operation `i`, with `value` for the attribute `name`.
    pub fn attrs_but(&self, i: usize, name: &str, value: Attr) -> Attrs {
        let mut attrs = self.attrs(i);
        attrs.iter_mut().filter(|(own, _)| *own == name).for_each(|(_, old)| *old = value.clone());
        attrs
    }

    /// All attributes of operation `i`.
    pub fn attrs(&self, i: usize) -> Attrs {
        let producer = &self.producers[i];
        producer.op.attrs.iter().map(|def| def.name).zip(producer.attrs.iter().cloned()).collect()
    }

    /// The axes in an attribute of operation `i`, counted from the front of `rank` axes.
    pub fn axes(&self, i: usize, name: &str, rank: usize) -> Option<Vec<usize>> {
        let axes = as_ints(self.attr(i, name))?.iter();
        Some(axes.map(|a| a.rem_euclid(rank.max(1) as i64) as usize).collect())
    }
}
