//! Applies the rules to the graph until nothing new is found or a budget is spent.

use std::ops::ControlFlow;

use egg::{Id, Language};
use mithril_ir::dim::Dim;
use mithril_ir::graph::Value;
use mithril_ir::loc::Loc;
use mithril_ir::op::Op;
use mithril_ir::op::infer::complete_attrs;
use mithril_ir::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::Eqsat;
use super::terms::{Operator, Term, Terms, class};
use crate::rules::matched::{Match, VARS};
use crate::rules::matching::each_match;
use crate::rules::pattern::{Node, Pattern};
use crate::rules::{Attrs, Rule};

/// A match of a rule in the graph.
struct Found {
    rule: &'static Rule,
    class: Id,
    /// The term that matches the outermost operation.
    term: Term,
    vars: [Option<Value>; VARS],
    part: usize,
    attrs: SmallVec<[Attrs; 1]>,
    /// The origins of the matched terms, the outermost one's first.
    from: SmallVec<[u32; 4]>,
}

/// Identifies one application of a rule: its name, the origin of the root term, the variables.
type Key = (&'static str, u32, [Option<Value>; VARS]);

/// Applies rules, and returns how many applications have merged two classes. `rules` gives the
/// rules whose left side has a certain operation at its root. At most `max_terms` terms are added.
pub fn saturate<'r>(
    terms: &mut Terms,
    budget: &Eqsat,
    max_terms: usize,
    rules: &dyn Fn(Op) -> &'r [&'static Rule],
) -> usize {
    let limit = terms.graph.total_size() + max_terms;
    let mut tried: FxHashSet<Key> = FxHashSet::default();
    let mut applied = 0;
    for _ in 0..budget.iterations {
        let mut any = false;
        for found in search(terms, budget, rules, &mut tried) {
            if terms.graph.total_size() > limit {
                break;
            }
            let merged = apply(terms, &found, budget.supersede);
            any |= merged;
            applied += usize::from(merged);
        }
        terms.graph.rebuild();
        if !any {
            break;
        }
    }
    applied
}

/// Every match that has not been tried yet, in the order of classes, terms and rules.
fn search<'r>(
    terms: &Terms,
    budget: &Eqsat,
    rules: &dyn Fn(Op) -> &'r [&'static Rule],
    tried: &mut FxHashSet<Key>,
) -> Vec<Found> {
    let mut classes: Vec<Id> = terms.graph.classes().map(|class| class.id).collect();
    classes.sort_unstable();
    let mut counts: FxHashMap<&'static str, usize> = FxHashMap::default();
    let mut all = Vec::new();
    for id in classes {
        let ty = terms.ty(id);
        // Types that compare equal may still differ where dims are unknown.
        if ty.shape.dims.iter().any(Dim::is_unknown) {
            continue;
        }
        for term in &terms.graph[id].nodes {
            let Operator::Op { op, .. } = terms.operator(term) else {
                continue;
            };
            if terms.is_of_itself(id, term) {
                continue;
            }
            for rule in rules(*op) {
                let count = counts.entry(rule.name).or_default();
                let term_alone = !matches!(rule.right.node(), Node::Known | Node::Joined);
                let wanted = term_alone && budget.allows(rule) && *count < budget.matches;
                let Some(producer) = terms.as_producer(term, *op).filter(|_| wanted) else {
                    continue;
                };
                let _ = each_match(rule, producer, ty, terms, &mut |found: &Match| {
                    let attrs = rule.right.attributes(found).filter(|_| found.is_known());
                    let Some(attrs) = attrs else {
                        return ControlFlow::Continue(());
                    };
                    if tried.insert((rule.name, term.origin, found.vars())) {
                        let from = found.numbers().collect();
                        let (vars, part, term) = (found.vars(), found.part(), term.clone());
                        all.push(Found { rule, class: id, term, vars, part, attrs, from });
                        *count += 1;
                    }
                    match *count < budget.matches {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                });
            }
        }
    }
    all
}

/// Applies a match. Returns whether it has merged two classes.
fn apply(terms: &mut Terms, found: &Found, supersede: bool) -> bool {
    let mut attrs = found.attrs.iter();
    let before = terms.graph.total_size();
    terms.newest = None;
    let mut right = construct(terms, found.rule.right, found, &mut attrs);
    if let Node::Number(_) = found.rule.right.node() {
        right = right.and_then(|number| broadcast(terms, number, found));
    }
    let Some(right) = right.filter(|right| terms.ty(*right) == terms.ty(found.class)) else {
        return false;
    };
    // Because of earlier merges, the right side may be the same term as the left side.
    let root = found.term.clone().map_children(|id| terms.graph.find(id));
    if supersede && found.rule.supersedes && terms.newest.as_ref() != Some(&root) {
        terms.superseded.insert(found.from[0]);
        if let Node::Op(op, ..) = found.rule.right.node() {
            terms.preferred.push((found.class, *op));
        }
    }
    if terms.graph.find(right) == terms.graph.find(found.class) {
        return false;
    }
    // The right side existed before, so no extracted term names this rule as its origin. The merge
    // is recorded here instead.
    if terms.graph.total_size() == before {
        terms.dropped.push((found.rule, found.from[0], found.class));
    }
    terms.graph.union(found.class, right)
}

/// Adds the right side; `None` if the operands do not allow it.
fn construct(
    terms: &mut Terms,
    right: Pattern,
    found: &Found,
    attrs: &mut std::slice::Iter<Attrs>,
) -> Option<Id> {
    match right.node() {
        Node::Var(i) => Some(class(found.vars[*i]?)),
        Node::Number(number) => {
            let dtype = terms.ty(found.class).dtype;
            let origin = origin(terms, found);
            Some(terms.constant(Tensor::scalar(dtype, *number), origin))
        }
        Node::Op(op, args, _) => {
            let own = attrs.next().expect("each operation on the right has attributes");
            let own = complete_attrs(*op, own).ok()?;
            let operands = args.iter().map(|arg| construct(terms, *arg, found, attrs));
            let operands: Option<SmallVec<[Id; 3]>> = operands.collect();
            let origin = origin(terms, found);
            terms.operation_on(*op, own, operands?, origin)
        }
        Node::Map(args) => {
            let (op, own) = match terms.operator(&found.term) {
                Operator::Op { op, attrs, .. } => (*op, attrs.clone()),
                Operator::Leaf(..) => return None,
            };
            let operands = args.iter().map(|arg| construct(terms, *arg, found, attrs));
            let operands: Option<SmallVec<[Id; 3]>> = operands.collect();
            let origin = origin(terms, found);
            terms.operation_on(op, own, operands?, origin)
        }
        Node::Neighbours(op, term) => {
            let own = match terms.operator(&found.term) {
                Operator::Op { attrs, .. } => attrs.clone(),
                Operator::Leaf(..) => return None,
            };
            let one = construct(terms, *term, found, attrs)?;
            let mut operands: SmallVec<[Id; 3]> = found.term.operands.clone();
            operands[found.part] = one;
            operands.remove(found.part + 1);
            let origin = origin(terms, found);
            terms.operation_on(*op, own, operands, origin)
        }
        _ => None,
    }
}

/// Broadcasts a number to the shape of the whole.
fn broadcast(terms: &mut Terms, number: Id, found: &Found) -> Option<Id> {
    let shape = terms.ty(found.class).shape.clone();
    if shape.rank() == Some(0) {
        return Some(number);
    }
    let op = mithril_ir::op::get("broadcast_in_dim");
    let attrs = complete_attrs(op, &[("shape", shape.into())]).ok()?;
    let origin = origin(terms, found);
    terms.operation_on(op, attrs, SmallVec::from_iter([number]), origin)
}

fn origin(terms: &mut Terms, found: &Found) -> u32 {
    let mut loc = Loc::unknown();
    for origin in &found.from {
        loc.merge(&terms.origins[*origin as usize].loc);
    }
    terms.origin(loc, None, Some(found.rule), found.from.clone())
}
