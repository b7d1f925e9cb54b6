//! Takes the cheapest terms out of the graph, where each shared one is computed once.

use egg::Id;
use indexmap::IndexSet;
use mithril_ir::diagnostic::Result;
use mithril_ir::loc::Loc;
use mithril_ir::op::Op;
use mithril_ir::shape::Type;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::terms::{Batch, Head, Term, Terms};
use crate::estimate;
use crate::target::Target;

/// A choice among the terms of each class, cheaper than that of the function.
pub struct Extraction<'t> {
    /// By class.
    pub chosen: FxHashMap<Id, &'t Term>,
    /// Picoseconds.
    pub before: u64,
    pub after: u64,
}

/// What is joined gains at least one part in so many of what it replaces: less is within what
/// estimates are worth.
const GAIN: u128 = 10;

/// The most choices that are tried anew one by one, and the most classes that are visited for that.
const REVISED: usize = 1024;
const VISITED: usize = 1 << 21;

/// Functions of more classes stay as they are: what each needs takes memory by the square.
const CLASSES: usize = 40_000;

/// More picoseconds than anything takes.
const DISFAVOUR: u128 = 1 << 80;

/// One class in order, with its terms and what each costs by itself.
struct Class<'t> {
    terms: Vec<(&'t Term, u128)>,
    /// Among `terms`, that of the function.
    own: Option<usize>,
}

struct Graph<'t> {
    classes: Vec<Class<'t>>,
    ids: Vec<Id>,
    roots: Vec<usize>,
    /// What the function costs as it stands.
    before: u128,
    /// What is added to that for terms that are superseded.
    disfavoured: u128,
    /// By class and term, the classes of the operands.
    operands: Vec<Vec<SmallVec<[usize; 3]>>>,
}

impl<'t> Extraction<'t> {
    /// The rules that have to do with what was taken out, and where they were applied.
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
        let made = (terms.origins.iter().enumerate())
            .filter(|(at, _)| used.contains(&(*at as u32)))
            .filter_map(|(_, origin)| Some((origin.rule?, &origin.loc)));
        let dropped = terms.dropped.iter().filter(|(_, origin, class)| {
            !emitted.contains(origin) && self.chosen.contains_key(&terms.graph.find(*class))
        });
        let dropped =
            dropped.map(|(rule, origin, _)| (*rule, &terms.origins[*origin as usize].loc));
        let entries = made.chain(dropped).map(|(rule, loc)| (rule.name, loc.clone()));
        let all: IndexSet<(&'static str, Loc), FxBuildHasher> = entries.collect();
        all.into_iter().collect()
    }

    /// The terms that are computed.
    pub fn terms(&self) -> impl Iterator<Item = &'t Term> + '_ {
        self.chosen.values().copied()
    }

    /// `None` where nothing is cheaper than the function. With `newest`, what rules have made is
    /// cheaper whatever it costs.
    /// Errors: a composite whose decomposition fails.
    pub fn best(terms: &'t Terms, target: Target, newest: bool) -> Result<Option<Extraction<'t>>> {
        if terms.graph.number_of_classes() > CLASSES {
            return Ok(None);
        }
        let mut graph = Graph::new(terms, target)?;
        graph.disfavour(terms, newest);
        let own: Vec<Option<usize>> = graph.classes.iter().map(|class| class.own).collect();
        let mut best = graph.greedy();
        for (choice, own) in best.iter_mut().zip(&own) {
            *choice = choice.or(*own);
        }
        let Some(mut after) = graph.total(&best) else {
            return Ok(None);
        };
        graph.revise(&mut best, &own, &mut after);
        for batch in &terms.batches {
            graph.together(terms, batch, &mut best, &mut after);
        }
        if after >= graph.before + graph.disfavoured && !newest {
            return Ok(None);
        }
        let mut chosen = FxHashMap::default();
        graph.closure(&best, &mut |class, term| {
            chosen.insert(graph.ids[class], graph.classes[class].terms[term].0);
        });
        let picoseconds = |cost: u128| (cost % DISFAVOUR) as u64;
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
            // Those of the function come first: of equal ones they stay.
            all.sort_by_key(|term| term.origin);
            operands.push(all.iter().map(|t| t.operands.iter().map(number).collect()).collect());
            let costed = all.iter().map(|term| Ok((*term, costs.of(term, *id)?)));
            let costed: Result<Vec<(&Term, u128)>> = costed.collect();
            let own = all.iter().position(|term| {
                let leaf = matches!(terms.head(term), Head::Leaf(..));
                leaf || terms.origins[term.origin as usize].operation.is_some()
            });
            classes.push(Class { terms: costed?, own });
        }
        let before = costs.function()?;
        let roots = terms.roots().iter().map(|id| numbers[id]).collect();
        Ok(Graph { before, disfavoured: 0, classes, ids, roots, operands })
    }

    /// Makes terms dear that are superseded; with `newest`, those for which a rule knows others.
    fn disfavour(&mut self, terms: &Terms, newest: bool) {
        let made = |term: &Term| terms.origins[term.origin as usize].rule.is_some();
        let dropped =
            |term: &Term| terms.dropped.iter().any(|(_, origin, _)| *origin == term.origin);
        let mut preferred: FxHashMap<Id, Vec<Op>> = FxHashMap::default();
        for (class, op) in &terms.preferred {
            preferred.entry(terms.graph.find(*class)).or_default().push(*op);
        }
        for (id, class) in self.ids.iter().zip(&mut self.classes) {
            let others = class.terms.iter().any(|(term, _)| made(term));
            let wanted = preferred.get(id);
            for (term, cost) in &mut class.terms {
                let another = match (wanted, terms.head(term)) {
                    (Some(ops), Head::Op { op, .. }) => !ops.contains(op),
                    _ => false,
                };
                let superseded = another || terms.superseded.contains(&term.origin);
                let older = newest && (dropped(term) || (others && !made(term)));
                if superseded || older {
                    *cost += DISFAVOUR;
                }
                let own = terms.origins[term.origin as usize].operation.is_some();
                self.disfavoured += if superseded && own { DISFAVOUR } else { 0 };
            }
        }
    }

    /// For each class the term that, with all it needs, costs least; `None` of what has no end.
    fn greedy(&self) -> Vec<Option<usize>> {
        let mut best: Vec<Option<(u128, Set, usize)>> = vec![None; self.classes.len()];
        let mut changed = true;
        // Each round can lower costs further; costs in whole numbers end.
        while changed {
            changed = false;
            for class in 0..self.classes.len() {
                for term in 0..self.classes[class].terms.len() {
                    let Some((cost, set)) = self.with_needs(class, term, &best) else {
                        continue;
                    };
                    if best[class].as_ref().is_none_or(|(least, ..)| cost < *least) {
                        best[class] = Some((cost, set, term));
                        changed = true;
                    }
                }
            }
        }
        best.into_iter().map(|best| best.map(|(_, _, term)| term)).collect()
    }

    /// The cost of a term with all it needs, and the classes that are.
    fn with_needs(
        &self,
        class: usize,
        term: usize,
        best: &[Option<(u128, Set, usize)>],
    ) -> Option<(u128, Set)> {
        let operands = &self.operands[class][term];
        let mut needs = operands.iter().map(|operand| best[*operand].as_ref());
        let own = self.classes[class].terms[term].1;
        let Some(first) = needs.next() else {
            let mut set = Set::new(self.classes.len());
            set.insert(class);
            return Some((own, set));
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
        Some((cost + own, set))
    }

    /// Tries other terms one by one: what is shared costs less than it seems to by itself. Terms of
    /// the function are taken where they cost no more.
    fn revise(&self, best: &mut [Option<usize>], own: &[Option<usize>], least: &mut u128) {
        let mut tries = 0;
        let mut computed = vec![false; best.len()];
        self.closure(best, &mut |class, _| computed[class] = true);
        for class in (0..best.len()).rev().filter(|class| computed[*class]) {
            for term in 0..self.classes[class].terms.len() {
                if self.classes[class].terms.len() == 1 || best[class] == Some(term) {
                    continue;
                }
                tries += 1;
                if tries > REVISED || tries * best.len() > VISITED {
                    return;
                }
                let chosen = best[class].replace(term);
                match self.total(best) {
                    Some(total) if total < *least => *least = total,
                    Some(total) if total == *least && own[class] == Some(term) => {}
                    _ => best[class] = chosen,
                }
            }
        }
    }

    /// Tries a batch: what its parts come from is worth computing for all of them, not for one.
    fn together(
        &self,
        terms: &Terms,
        batch: &Batch,
        best: &mut Vec<Option<usize>>,
        least: &mut u128,
    ) {
        let mut other = best.clone();
        for (class, origin) in batch {
            let id = terms.graph.find(*class);
            let Ok(class) = self.ids.binary_search(&id) else { return };
            let mut all = self.classes[class].terms.iter();
            let part = all.position(|(term, _)| term.origin == *origin);
            other[class] = part.or(other[class]);
        }
        let Some(total) = self.total(&other).filter(|total| total < least) else {
            return;
        };
        let mut computed = vec![None; best.len()];
        self.closure(&other, &mut |class, term| computed[class] = Some(term));
        let mut replaced = 0;
        self.closure(best, &mut |class, term| {
            let stays = computed[class] == Some(term);
            replaced += if stays { 0 } else { self.classes[class].terms[term].1 };
        });
        if (*least - total) * GAIN >= replaced {
            (*best, *least) = (other, total);
        }
    }

    /// What a choice costs; `None` where it has no end.
    fn total(&self, choice: &[Option<usize>]) -> Option<u128> {
        let mut total = 0;
        let ends = self.closure(choice, &mut |class, term| {
            total += self.classes[class].terms[term].1;
        });
        ends.then_some(total)
    }

    /// Visits each class that the roots need, with the number of its term. Whether it ends.
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

/// A head, and the operands it is on: where each is the first of its value, and of which type.
type Sort = (u32, SmallVec<[(usize, u32); 3]>);

/// What terms cost, each sort of term on operands of the same types once.
struct Costs<'t, 'f> {
    terms: &'t Terms<'f>,
    target: Target,
    known: FxHashMap<Sort, u128>,
}

impl Costs<'_, '_> {
    /// What the operations of the function cost, those that are the same once.
    fn function(&mut self) -> Result<u128> {
        let mut own: Vec<Id> = self.terms.classes.clone();
        own.sort_unstable();
        own.dedup();
        own.into_iter().map(|id| self.of(self.terms.graph.id_to_node(id), id)).sum()
    }

    fn of(&mut self, term: &Term, class: Id) -> Result<u128> {
        let Head::Op { op, attrs, .. } = self.terms.head(term) else {
            return Ok(0);
        };
        let places = estimate::first_places(&term.operands);
        let types = term.operands.iter().map(|id| self.terms.graph[*id].data.ty);
        let key = (term.head, places.iter().copied().zip(types).collect());
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

/// A set of small numbers.
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

    /// Adds another set, calling `new` on each number that was not there.
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
