//! Matches a rule's left side against the operations that define values.

use std::ops::ControlFlow;

use mithril_ir::attr::Attr;
use mithril_ir::graph::Value;
use mithril_ir::op;
use mithril_ir::shape::Type;
use smallvec::{SmallVec, smallvec};

use super::Rule;
use super::matched::{Facts, Match, Producer, VARS};
use super::pattern::{Node, Pattern};

/// The largest relative distance of a number from the one in [`Node::Near`].
const TOLERANCE: f64 = 1e-6;

/// A stack of terms that are still to be matched, each with a value.
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
        let (vars, producers) = ([None; VARS], SmallVec::new());
        let mut state = Match { facts, result: ty, vars, producers, part: 0 };
        state.operation(left, root.clone(), Goals::new(), rule, found)
    })
}

/// Whether each operand on its own may match. Most rules fail here, before any matching state is
/// built.
fn may_fit(term: Pattern, producer: &Producer, facts: &dyn Facts) -> bool {
    let (Node::Op(_, args, _) | Node::Map(args)) = term.node() else { return true };
    let operands = &producer.operands[..];
    let fit = |(arg, operand): (&Pattern, &Value)| may_be(*arg, *operand, facts);
    args.len() == operands.len()
        && (args.iter().zip(operands).all(fit)
            || op::commutes(producer.op) && args.iter().zip(operands.iter().rev()).all(fit))
}

/// Whether a value on its own may match a term.
fn may_be(term: Pattern, value: Value, facts: &dyn Facts) -> bool {
    match term.node() {
        Node::Var(_) => true,
        Node::Number(number) => {
            facts.uniform(value).is_some_and(|uniform| uniform.to_bits() == number.to_bits())
        }
        Node::Near(number) => facts.uniform(value).is_some_and(|uniform| is_near(uniform, *number)),
        Node::Any(terms) => terms.iter().any(|term| may_be(*term, value, facts)),
        Node::Op(op, ..) | Node::Among(op, _) | Node::Neighbours(op, _) => {
            facts.has_producer(value, *op)
        }
        Node::Known | Node::Joined | Node::Map(_) => false,
    }
}

fn is_near(uniform: f64, number: f64) -> bool {
    (uniform - number).abs() <= TOLERANCE * number.abs()
}

/// The ways in which the operands of an operation may match those of a term: in both orders if it
/// commutes.
fn operand_orders(term: Pattern, producer: &Producer) -> SmallVec<[Goals; 2]> {
    let operands = &producer.operands;
    match term.node() {
        Node::Op(_, args, _) | Node::Map(args) if args.len() == operands.len() => {
            let goals = |order: &[Value]| args.iter().copied().zip(order.iter().copied()).collect();
            let mut all: SmallVec<[Goals; 2]> = smallvec![goals(operands)];
            if op::commutes(producer.op) && operands[0] != operands[1] {
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
                Some(bound) if bound == value => self.solve(goals, rule, found),
                Some(_) => ControlFlow::Continue(()),
                None => {
                    self.vars[*i] = Some(value);
                    let flow = self.solve(goals, rule, found);
                    self.vars[*i] = None;
                    flow
                }
            },
            Node::Number(number) => match self.facts.uniform(value) {
                Some(uniform) if uniform.to_bits() == number.to_bits() => {
                    self.solve(goals, rule, found)
                }
                _ => ControlFlow::Continue(()),
            },
            Node::Near(number) => match self.facts.uniform(value) {
                Some(uniform) if is_near(uniform, *number) => self.solve(goals, rule, found),
                _ => ControlFlow::Continue(()),
            },
            Node::Any(terms) => terms.iter().try_for_each(|term| {
                let mut goals = goals.clone();
                goals.push((*term, value));
                self.solve(goals, rule, found)
            }),
            Node::Op(op, ..) | Node::Among(op, _) | Node::Neighbours(op, _) => {
                let mut producers = self.facts.producers(value, *op).into_iter();
                producers.try_for_each(|producer| {
                    self.operation(pattern, producer, goals.clone(), rule, found)
                })
            }
            Node::Known | Node::Joined | Node::Map(_) => ControlFlow::Continue(()),
        }
    }

    /// Matches the operands of an operation.
    fn operation(
        &mut self,
        term: Pattern,
        producer: Producer<'a>,
        goals: Goals,
        rule: &Rule,
        found: &mut dyn FnMut(&Match<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let operand_orders = operand_orders(term, &producer);
        self.producers.push(producer);
        let flow = operand_orders.into_iter().enumerate().try_for_each(|(at, way)| {
            if let Node::Among(..) | Node::Neighbours(..) = term.node() {
                self.part = at;
            }
            let mut goals = goals.clone();
            goals.extend(way.into_iter().rev());
            self.solve(goals, rule, found)
        });
        self.producers.pop();
        flow
    }

    /// Whether no reduction has an accumulator dtype, which rules do not handle.
    fn is_plain(&self) -> bool {
        let plain = |producer: &Producer| match producer.op.attr_index("acc") {
            Some(at) => producer.attrs[at] == Attr::None,
            None => true,
        };
        self.producers.iter().all(plain)
    }
}
