//! Extracts the cheapest terms from the graph. A term that is shared counts once.

use egg::Id;
use indexmap::IndexSet;
use mithril_ir::diagnostic::Result;
use mithril_ir::loc::Loc;
use mithril_ir::op::Op;
use mithril_ir::shape::Type;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::terms::{Batch, Operator, Term, Terms};
use crate::estimate;
use crate::target::Target;

/// A choice of one term for each class that is computed; cheaper in total than the original
/// function.
pub struct Extraction<'t> {
    /// The chosen term by class.
    pub chosen: FxHashMap<Id, &'t Term>,
    /// Estimated time of the original function and of this choice, in picoseconds.
    pub before: u64,
    pub after: u64,
}

/// A batch of joined products is taken only if it saves at least a tenth of the cost of the terms
/// it replaces: estimates are not more accurate than that.
const MIN_GAIN: u128 = 10;

/// Limits of `revise`: the alternatives that it tries one by one, and the classes that it visits.
const MAX_REVISIONS: usize = 1024;
const MAX_VISITS: usize = 1 << 21;

/// Functions of more classes are left unchanged: the sets of needed classes take memory quadratic
/// in their number.
const MAX_CLASSES: usize = 40_000;

/// A penalty in picoseconds that exceeds any real cost.
const PENALTY: u128 = 1 << 80;

/// One class: its terms in order, each with its own cost.
struct Class<'t> {
    terms: Vec<(&'t Term, u128)>,
    /// The index among `terms` of the term that is in the original function.
    original: Option<usize>,
}

struct Graph<'t> {
    classes: Vec<Class<'t>>,
    ids: Vec<Id>,
    roots: Vec<usize>,
    /// The cost of the original function.
    before: u128,
    /// The total penalty of superseded terms of the original function.
    penalties: u128,
    /// By class and term, the classes of the operands.
    operands: Vec<Vec<SmallVec<[usize; 3]>>>,
}

impl<'t> Extraction<'t> {
    /// The rules that led to the extracted terms, and where they were applied.
    pub fn rules(&self, terms: &Terms) -> Vec<(&'static str, Loc)> {
        let emitted: FxHashSet<u32> = self.terms().map(|term| term.origin).collect();
        let mut open: Vec<u32> = self.terms().map(|term| term.origin).collect();
        let mut seen = FxHashSet::default();
        let mut used = FxHashSet::default();
        while let Some(origin) = open.pop() {
            if seen.insert(origin) {
                used.insert(origin);
                open.extend(&terms.origins[origin as usize].from);
            }
        }
        let by_rule = (terms.origins.iter().enumerate())
            .filter(|(at, _)| used.contains(&(*at as u32)))
            .filter_map(|(_, origin)| Some((origin.rule?, &origin.loc)));
        let dropped = terms.dropped.iter().filter(|(_, origin, class)| {
            !emitted.contains(origin) && self.chosen.contains_key(&terms.graph.find(*class))
        });
        let dropped =
            dropped.map(|(rule, origin, _)| (*rule, &terms.origins[*origin as usize].loc));
        let entries = by_rule.chain(dropped).map(|(rule, loc)| (rule.name, loc.clone()));
        let all: IndexSet<(&'static str, Loc), FxBuildHasher> = entries.collect();
        all.into_iter().collect()
    }

    /// The terms that are computed.
    pub fn terms(&self) -> impl Iterator<Item = &'t Term> + '_ {
        self.chosen.values().copied()
    }

    /// The cheapest choice; `None` if nothing is cheaper than the original function. With `newest`,
    /// terms made by rules are preferred whatever they cost.
    /// Errors: a composite whose decomposition fails.
    pub fn best(terms: &'t Terms, target: Target, newest: bool) -> Result<Option<Extraction<'t>>> {
        if terms.graph.number_of_classes() > MAX_CLASSES {
            return Ok(None);
        }
        let mut graph = Graph::new(terms, target)?;
        graph.penalize(terms, newest);
        let original: Vec<Option<usize>> =
            graph.classes.iter().map(|class| class.original).collect();
        let mut best = graph.greedy();
        for (choice, original) in best.iter_mut().zip(&original) {
            *choice = choice.or(*original);
        }
        let Some(mut after) = graph.total(&best) else {
            return Ok(None);
        };
        graph.revise(&mut best, &original, &mut after);
        for batch in &terms.batches {
            graph.try_batch(terms, batch, &mut best, &mut after);
        }
        if after >= graph.before + graph.penalties && !newest {
            return Ok(None);
        }
        let mut chosen = FxHashMap::default();
        graph.closure(&best, &mut |class, term| {
            chosen.insert(graph.ids[class], graph.classes[class].terms[term].0);
        });
        let picoseconds = |cost: u128| (cost % PENALTY) as u64;
        let (before, after) = (picoseconds(graph.before), picoseconds(after));
        Ok(Some(Extraction { chosen, before, after }))
    }
}

impl<'t> Graph<'t> {
    fn new(terms: &'t Terms, target: Target) -> Result<Graph<'t>> {
        let mut ids: Vec<Id> = terms.graph.classes().map(|class| class.id).collect();
        ids.sort_unstable();
        let numbers: FxHashMap<Id, usize> =
            ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let number = |id: &Id| numbers[&terms.graph.find(*id)];
        let mut costs = Costs { terms, target, known: FxHashMap::default() };
        let mut classes = Vec::with_capacity(ids.len());
        let mut operands = Vec::with_capacity(ids.len());
        for id in &ids {
            let mut all: Vec<&Term> = terms.graph[*id].nodes.iter().collect();
            // Terms of the original function come first, so that they win ties.
            all.sort_by_key(|term| term.origin);
            operands.push(all.iter().map(|t| t.operands.iter().map(number).collect()).collect());
            let costed = all.iter().map(|term| Ok((*term, costs.of(term, *id)?)));
            let costed: Result<Vec<(&Term, u128)>> = costed.collect();
            let original = all.iter().position(|term| {
                let leaf = matches!(terms.operator(term), Operator::Leaf(..));
                leaf || terms.origins[term.origin as usize].operation.is_some()
            });
            classes.push(Class { terms: costed?, original });
        }
        let before = costs.function()?;
        let roots = terms.roots().iter().map(|id| numbers[id]).collect();
        Ok(Graph { before, penalties: 0, classes, ids, roots, operands })
    }

    /// Adds the penalty to superseded terms; with `newest`, also to terms that a rule has an
    /// alternative for.
    fn penalize(&mut self, terms: &Terms, newest: bool) {
        let by_rule = |term: &Term| terms.origins[term.origin as usize].rule.is_some();
        let dropped =
            |term: &Term| terms.dropped.iter().any(|(_, origin, _)| *origin == term.origin);
        let mut preferred: FxHashMap<Id, Vec<Op>> = FxHashMap::default();
        for (class, op) in &terms.preferred {
            preferred.entry(terms.graph.find(*class)).or_default().push(*op);
        }
        for (id, class) in self.ids.iter().zip(&mut self.classes) {
            let others = class.terms.iter().any(|(term, _)| by_rule(term));
            let wanted = preferred.get(id);
            for (term, cost) in &mut class.terms {
                let another = match (wanted, terms.operator(term)) {
                    (Some(ops), Operator::Op { op, .. }) => !ops.contains(op),
                    _ => false,
                };
                let superseded = another || terms.superseded.contains(&term.origin);
                let older = newest && (dropped(term) || (others && !by_rule(term)));
                if superseded || older {
                    *cost += PENALTY;
                }
                let original = terms.origins[term.origin as usize].operation.is_some();
                self.penalties += if superseded && original { PENALTY } else { 0 };
            }
        }
    }

    /// For each class, the term that costs least including everything it needs; `None` for classes
    /// that only cyclic terms compute.
    fn greedy(&self) -> Vec<Option<usize>> {
        let mut best: Vec<Option<(u128, Set, usize)>> = vec![None; self.classes.len()];
        let mut changed = true;
        // Each round can lower costs further. This terminates, because costs are integers.
        while changed {
            changed = false;
            for class in 0..self.classes.len() {
                for term in 0..self.classes[class].terms.len() {
                    let Some((cost, set)) = self.cost_with_needs(class, term, &best) else {
                        continue;
                    };
                    if best[class].as_ref().is_none_or(|(lowest, ..)| cost < *lowest) {
                        best[class] = Some((cost, set, term));
                        changed = true;
                    }
                }
            }
        }
        best.into_iter().map(|best| best.map(|(_, _, term)| term)).collect()
    }

    /// The cost of a term including everything it needs, and the set of classes needed.
    fn cost_with_needs(
        &self,
        class: usize,
        term: usize,
        best: &[Option<(u128, Set, usize)>],
    ) -> Option<(u128, Set)> {
        let operands = &self.operands[class][term];
        let mut needs = operands.iter().map(|operand| best[*operand].as_ref());
        let own_cost = self.classes[class].terms[term].1;
        let Some(first) = needs.next() else {
            let mut set = Set::new(self.classes.len());
            set.insert(class);
            return Some((own_cost, set));
        };
        let (mut cost, mut set) = first.map(|(cost, set, _)| (*cost, set.clone()))?;
        for need in needs {
            let (_, other, _) = need?;
            set.absorb(other, |new| {
                let chosen = best[new].as_ref().map_or(0, |(_, _, term)| *term);
                cost += self.classes[new].terms[chosen].1;
            });
        }
        if set.contains(class) {
            return None;
        }
        set.insert(class);
        Some((cost + own_cost, set))
    }

    /// Tries other terms one by one, because a shared term costs less than it appears to on its
    /// own. Terms of the original function are taken if they cost no more.
    fn revise(&self, best: &mut [Option<usize>], original: &[Option<usize>], lowest: &mut u128) {
        let mut tries = 0;
        let mut computed = vec![false; best.len()];
        self.closure(best, &mut |class, _| computed[class] = true);
        for class in (0..best.len()).rev().filter(|class| computed[*class]) {
            for term in 0..self.classes[class].terms.len() {
                if self.classes[class].terms.len() == 1 || best[class] == Some(term) {
                    continue;
                }
                tries += 1;
                if tries > MAX_REVISIONS || tries * best.len() > MAX_VISITS {
                    return;
                }
                let chosen = best[class].replace(term);
                match self.total(best) {
                    Some(total) if total < *lowest => *lowest = total,
                    Some(total) if total == *lowest && original[class] == Some(term) => {}
                    _ => best[class] = chosen,
                }
            }
        }
    }

    /// Tries to take all slices of a batch at once: computing the joined value for a single slice
    /// does not pay off.
    fn try_batch(
        &self,
        terms: &Terms,
        batch: &Batch,
        best: &mut Vec<Option<usize>>,
        lowest: &mut u128,
    ) {
        let mut other = best.clone();
        for (class, origin) in batch {
            let id = terms.graph.find(*class);
            let Ok(class) = self.ids.binary_search(&id) else { return };
            let mut all = self.classes[class].terms.iter();
            let part = all.position(|(term, _)| term.origin == *origin);
            other[class] = part.or(other[class]);
        }
        let Some(total) = self.total(&other).filter(|total| total < lowest) else {
            return;
        };
        let mut computed = vec![None; best.len()];
        self.closure(&other, &mut |class, term| computed[class] = Some(term));
        let mut replaced = 0;
        self.closure(best, &mut |class, term| {
            let stays = computed[class] == Some(term);
            replaced += if stays { 0 } else { self.classes[class].terms[term].1 };
        });
        if (*lowest - total) * MIN_GAIN >= replaced {
            (*best, *lowest) = (other, total);
        }
    }

    /// The cost of a choice; `None` if it is cyclic.
    fn total(&self, choice: &[Option<usize>]) -> Option<u128> {
        let mut total = 0;
        let ends = self.closure(choice, &mut |class, term| {
            total += self.classes[class].terms[term].1;
        });
        ends.then_some(total)
    }

    /// Visits each class that the roots need, operands first, with the index of its chosen term.
    /// Returns false if the choice is cyclic.
    fn closure(&self, choice: &[Option<usize>], visit: &mut dyn FnMut(usize, usize)) -> bool {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut states = vec![State::New; self.classes.len()];
        let mut stack: Vec<(usize, usize)> =
            self.roots.iter().rev().map(|root| (*root, 0)).collect();
        while let Some((class, next)) = stack.pop() {
            let Some(term) = choice[class] else {
                return false;
            };
            match (states[class], next) {
                (State::Done, _) => continue,
                (State::Open, 0) => return false,
                _ => states[class] = State::Open,
            }
            match self.operands[class][term].get(next) {
                Some(operand) => {
                    stack.push((class, next + 1));
                    stack.push((*operand, 0));
                }
                None => {
                    states[class] = State::Done;
                    visit(class, term);
                }
            }
        }
        true
    }
}

/// The cache key of a cost: the operator, and for each operand its type and the index of the first
/// operand that is the same class.
type CostKey = (u32, SmallVec<[(usize, u32); 3]>);

/// Costs of terms, cached by operator and operand types.
struct Costs<'t, 'f> {
    terms: &'t Terms<'f>,
    target: Target,
    known: FxHashMap<CostKey, u128>,
}

impl Costs<'_, '_> {
    /// The cost of the operations of the function; equal operations count once.
    fn function(&mut self) -> Result<u128> {
        let mut classes: Vec<Id> = self.terms.classes.clone();
        classes.sort_unstable();
        classes.dedup();
        classes.into_iter().map(|id| self.of(self.terms.graph.id_to_node(id), id)).sum()
    }

    fn of(&mut self, term: &Term, class: Id) -> Result<u128> {
        let Operator::Op { op, attrs, .. } = self.terms.operator(term) else {
            return Ok(0);
        };
        let places = estimate::first_occurrences(&term.operands);
        let types = term.operands.iter().map(|id| self.terms.graph[*id].data.ty);
        let key = (term.operator, places.iter().copied().zip(types).collect());
        if self.terms.graph[class].data.literal {
            return Ok(0);
        }
        if let Some(cost) = self.known.get(&key) {
            return Ok(*cost);
        }
        let types: SmallVec<[(usize, &Type); 3]> =
            places.into_iter().zip(term.operands.iter().map(|id| self.terms.ty(*id))).collect();
        let cost = estimate::time(*op, attrs, &types, self.terms.ty(class), self.target)? as u128;
        self.known.insert(key, cost);
        Ok(cost)
    }
}

/// A bit set of class indices.
#[derive(Clone)]
struct Set(Vec<u64>);

impl Set {
    fn new(count: usize) -> Set {
        Set(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    fn contains(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 == 1
    }

    /// Adds another set, and calls `new` for each member that is new.
    fn absorb(&mut self, other: &Set, mut new: impl FnMut(usize)) {
        for (at, (word, other)) in self.0.iter_mut().zip(&other.0).enumerate() {
            let mut added = other & !*word;
            *word |= other;
            while added != 0 {
                new(at * 64 + added.trailing_zeros() as usize);
                added &= added - 1;
            }
        }
    }
}
