//! Matches a rule's left side against the operations that define values.

use std::ops::ControlFlow;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;
use mithril_ir::op::access::{FoldAxes, fold_axes};
use mithril_ir::op::infer::{as_ints, find_attr};
use mithril_ir::op::{self, Kind, Op};
use mithril_ir::shape::{Shape, Type};
use smallvec::{SmallVec, smallvec};

use super::pattern::{Node, Pattern, VARS};
use super::{Attrs, Rule};

/// The largest relative distance of a number from the one in [`Node::Near`].
const NEAR: f64 = 1e-6;

/// The facts about values that the matcher needs, from a function or from an e-graph.
pub trait Facts {
    fn ty(&self, value: Value) -> &Type;

    /// The number that every element of the value equals, if there is one.
    fn uniform(&self, value: Value) -> Option<f64>;

    /// Whether an operation `by` defines the value.
    fn is_made(&self, value: Value, by: Op) -> bool;

    /// The operations `by` that define the value.
    fn made(&self, value: Value, by: Op) -> SmallVec<[Producer<'_>; 2]>;
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
    facts: &'a dyn Facts,
    /// The type of the whole.
    pub result: &'a Type,
    vars: [Option<Value>; VARS],
    /// The operations of the left side, outermost first.
    made: SmallVec<[Producer<'a>; 4]>,
    /// The index of the operand that matches the term of [`Node::Among`], or the first term of
    /// [`Node::Neighbours`].
    part: usize,
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

/// Terms that are still to be matched, each with a value; the next one is the last.
type Goals = SmallVec<[(Pattern, Value); 8]>;

/// Calls `found` for every way in which the rule matches the operation `root`, including its
/// condition, until `found` breaks.
pub fn each_match<'a>(
    rule: &Rule,
    root: Producer<'a>,
    ty: &'a Type,
    facts: &'a dyn Facts,
    found: &mut dyn FnMut(&Match<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let roots = rule.left.roots();
    let fits = |left: &Pattern| left.may_be(root.op) && may_fit(*left, &root, facts);
    let mut fitting = roots.into_iter().filter(fits);
    fitting.try_for_each(|left| {
        let (vars, made) = ([None; VARS], SmallVec::new());
        let mut state = Match { facts, result: ty, vars, made, part: 0 };
        state.operation(left, root.clone(), Goals::new(), rule, found)
    })
}

/// Whether each operand on its own may match. Most rules fail here, before any matching state is
/// built.
fn may_fit(term: Pattern, made: &Producer, facts: &dyn Facts) -> bool {
    let (Node::Op(_, args, _) | Node::Map(args)) = term.node() else { return true };
    let operands = &made.operands[..];
    let fit = |(arg, operand): (&Pattern, &Value)| may_be(*arg, *operand, facts);
    args.len() == operands.len()
        && (args.iter().zip(operands).all(fit)
            || op::commutes(made.op) && args.iter().zip(operands.iter().rev()).all(fit))
}

/// Whether a value on its own may match a term.
fn may_be(term: Pattern, value: Value, facts: &dyn Facts) -> bool {
    match term.node() {
        Node::Var(_) => true,
        Node::Number(number) => {
            facts.uniform(value).is_some_and(|own| own.to_bits() == number.to_bits())
        }
        Node::Near(number) => facts.uniform(value).is_some_and(|own| is_near(own, *number)),
        Node::Any(terms) => terms.iter().any(|term| may_be(*term, value, facts)),
        Node::Op(op, ..) | Node::Among(op, _) | Node::Neighbours(op, _) => {
            facts.is_made(value, *op)
        }
        Node::Known | Node::Joined | Node::Map(_) => false,
    }
}

fn is_near(own: f64, number: f64) -> bool {
    (own - number).abs() <= NEAR * number.abs()
}

/// The ways in which the operands of an operation may match those of a term: in both orders if it
/// commutes.
fn ways(term: Pattern, made: &Producer) -> SmallVec<[Goals; 2]> {
    let operands = &made.operands;
    match term.node() {
        Node::Op(_, args, _) | Node::Map(args) if args.len() == operands.len() => {
            let goals = |order: &[Value]| args.iter().copied().zip(order.iter().copied()).collect();
            let mut all: SmallVec<[Goals; 2]> = smallvec![goals(operands)];
            if op::commutes(made.op) && operands[0] != operands[1] {
                all.push(goals(&[operands[1], operands[0]]));
            }
            all
        }
        Node::Neighbours(_, part) => {
            let both = |pair: &[Value]| pair.iter().map(|operand| (*part, *operand)).collect();
            operands.windows(2).map(both).collect()
        }
        Node::Among(_, part) => {
            operands.iter().map(|operand| smallvec![(*part, *operand)]).collect()
        }
        _ => SmallVec::new(),
    }
}

impl<'a> Match<'a> {
    fn solve(
        &mut self,
        mut goals: Goals,
        rule: &Rule,
        found: &mut dyn FnMut(&Match<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some((pattern, value)) = goals.pop() else {
            return match self.is_plain() && rule.when.is_none_or(|when| when(self)) {
                true => found(self),
                false => ControlFlow::Continue(()),
            };
        };
        match pattern.node() {
            Node::Var(i) => match self.vars[*i] {
                Some(own) if own == value => self.solve(goals, rule, found),
                Some(_) => ControlFlow::Continue(()),
                None => {
                    self.vars[*i] = Some(value);
                    let flow = self.solve(goals, rule, found);
                    self.vars[*i] = None;
                    flow
                }
            },
            Node::Number(number) => match self.facts.uniform(value) {
                Some(own) if own.to_bits() == number.to_bits() => self.solve(goals, rule, found),
                _ => ControlFlow::Continue(()),
            },
            Node::Near(number) => match self.facts.uniform(value) {
                Some(own) if is_near(own, *number) => self.solve(goals, rule, found),
                _ => ControlFlow::Continue(()),
            },
            Node::Any(terms) => terms.iter().try_for_each(|term| {
                let mut goals = goals.clone();
                goals.push((*term, value));
                self.solve(goals, rule, found)
            }),
            Node::Op(op, ..) | Node::Among(op, _) | Node::Neighbours(op, _) => {
                let mut made = self.facts.made(value, *op).into_iter();
                made.try_for_each(|made| self.operation(pattern, made, goals.clone(), rule, found))
            }
            Node::Known | Node::Joined | Node::Map(_) => ControlFlow::Continue(()),
        }
    }

    /// Matches the operands of an operation.
    fn operation(
        &mut self,
        term: Pattern,
        made: Producer<'a>,
        goals: Goals,
        rule: &Rule,
        found: &mut dyn FnMut(&Match<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let ways = ways(term, &made);
        self.made.push(made);
        let flow = ways.into_iter().enumerate().try_for_each(|(at, way)| {
            if let Node::Among(..) | Node::Neighbours(..) = term.node() {
                self.part = at;
            }
            let mut goals = goals.clone();
            goals.extend(way.into_iter().rev());
            self.solve(goals, rule, found)
        });
        self.made.pop();
        flow
    }

    /// Whether no reduction has an accumulator dtype, which rules do not handle.
    fn is_plain(&self) -> bool {
        let plain = |made: &Producer| match made.op.attr_index("acc") {
            Some(at) => made.attrs[at] == Attr::None,
            None => true,
        };
        self.made.iter().all(plain)
    }

    /// Whether the dims of all operands are known. Of two unknown dims, one may be 1 where the
    /// other is larger.
    pub fn is_known(&self) -> bool {
        let operands = self.made.iter().flat_map(|made| &made.operands);
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
        self.made.iter().map(|made| made.number)
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

    /// The same number for an attribute: with the fewest digits that represent it in its dtype.
    pub fn number(&self, i: usize) -> Option<f64> {
        let own = self.uniform(i)?;
        match self.dtype(i) {
            DType::F64 => Some(own),
            _ => (own as f32).to_string().parse().ok(),
        }
    }

    /// The type of an operand of operation `i` of the left side.
    pub fn operand(&self, i: usize, operand: usize) -> &'a Type {
        self.facts.ty(self.made[i].operands[operand])
    }

    /// For an operation on any number of operands: the index of the operand that matched, or of the
    /// first of two.
    pub fn part(&self) -> usize {
        self.part
    }

    /// The types of the operands of operation `i` of the left side.
    pub fn operands(&self, i: usize) -> impl Iterator<Item = &'a Type> + '_ {
        self.made[i].operands.iter().map(|operand| self.facts.ty(*operand))
    }

    /// The axes that the outermost operation reduces.
    pub fn folded(&self) -> FoldAxes {
        let root = &self.made[0];
        fold_axes(root.op, root.attrs, self.operand(0, 0), self.result)
    }

    /// The index of the first operation of this name on the left side.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.made.iter().position(|made| made.op.name == name)
    }

    /// The indices of the operations of this name on the left side.
    pub fn all(&self, name: &str) -> SmallVec<[usize; 2]> {
        (0..self.made.len()).filter(|at| self.made[*at].op.name == name).collect()
    }

    /// An attribute of operation `i` of the left side; 0 is the outermost.
    pub fn attr(&self, i: usize, name: &str) -> &'a Attr {
        find_attr(self.made[i].op, self.made[i].attrs, name)
    }

    /// All attributes of operation `i`, with `value` for the attribute `name`.
    pub fn attrs_but(&self, i: usize, name: &str, value: Attr) -> Attrs {
        let mut attrs = self.attrs(i);
        attrs.iter_mut().filter(|(own, _)| *own == name).for_each(|(_, old)| *old = value.clone());
        attrs
    }

    /// All attributes of operation `i`.
    pub fn attrs(&self, i: usize) -> Attrs {
        let made = &self.made[i];
        made.op.attrs.iter().map(|def| def.name).zip(made.attrs.iter().cloned()).collect()
    }

    /// The axes in an attribute of operation `i`, counted from the front of `rank` axes.
    pub fn axes(&self, i: usize, name: &str, rank: usize) -> Option<Vec<usize>> {
        let axes = as_ints(self.attr(i, name))?.iter();
        Some(axes.map(|a| a.rem_euclid(rank.max(1) as i64) as usize).collect())
    }

    /// The attributes of the operations of a right side, outermost first; `None` if one of them
    /// cannot be given, so that the rule does not match after all.
    pub fn attributes(&self, right: Pattern) -> Option<SmallVec<[Attrs; 1]>> {
        let mut all = Some(SmallVec::new());
        right.each_op(&mut |_, attrs| {
            let own = attrs.map_or(Some(Attrs::new()), |attrs| attrs(self));
            all = all.take().zip(own).map(|(mut all, own): (SmallVec<[Attrs; 1]>, _)| {
                all.push(own);
                all
            });
        });
        all
    }
}
