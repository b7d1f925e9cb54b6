//! Finds ranks for inputs without one: which ranks a block needs, and whether any ranks fit it.
//!
//! A block that needs ranks is lowered with trial ranks until some fit. This finds errors that no
//! choice of ranks avoids, and the dtypes of arguments and results, before the ranks are known.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Label, Result};
use mithril_ir::dim::Symbol;
use mithril_ir::graph::Module;

use super::block_error::BlockError;
use super::entry::{check_options, lower_with_trailing, root_definition, unranked};
use super::{DimSpec, Options};
use crate::block::Block;
use crate::definition::Definition;
use crate::naming::symbol;

/// The result of lowering a block.
pub enum Lowered {
    /// The functions work for every rank that the options leave open.
    Complete(Module),
    NeedsRanks(Trial),
}

/// The trial lowering of a block that needs ranks which the options leave open.
pub struct Trial {
    /// The inputs whose ranks are needed, in the block's order.
    pub inputs: Vec<Arc<str>>,
    /// The functions for one choice of ranks of these inputs. Their dims are symbols.
    pub module: Module,
}

/// Ranks in the order of trial. NumPy 1 has at most 32 axes.
const RANKS: [usize; 33] = [
    2, 3, 4, 1, 5, 0, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 27, 28, 29, 30, 31, 32,
];

/// The maximum number of lowerings with trial ranks. One input alone takes 33 if no rank fits.
const ATTEMPTS: usize = 128;

/// The number of ranks that the first search tries for each input, and its number of lowerings.
const USUAL: usize = 6;
const USUAL_ATTEMPTS: usize = 256;

/// The maximum number of inputs for which lowering is tried again without a rank, so that no more
/// inputs are named than necessary.
const DROPPED: usize = 8;

/// Lowers a block, with trial ranks if it needs ranks that are not given. `finish` turns
/// the functions into those that the compile needs.
///
/// Errors: those of [`super::lower`] and of `finish`, if no choice of ranks avoids them.
pub fn lower_or_try(
    block: &Block,
    options: &Options,
    finish: &dyn Fn(Module) -> Result<Module>,
) -> Result<Lowered> {
    let definition = root_definition(block)?;
    check_options(&definition, options)?;
    let mut search = Search {
        definition: &definition,
        finish,
        given: options.shapes.len(),
        options: options.clone(),
        levels: Vec::new(),
        failures: Vec::new(),
    };
    let first = match search.attempt() {
        Ok(module) => return Ok(Lowered::Complete(module)),
        Err(error) => error,
    };
    let Some(level) = search.next_level(&first) else {
        return Err(first.report(&definition));
    };
    search.levels.push(level.clone());
    let mut found = search.run(true);
    if found.is_none() {
        search.levels = vec![level];
        search.failures.clear();
        found = search.run(false);
    }
    match found {
        Some(module) => Ok(Lowered::NeedsRanks(search.trial(module))),
        None if first.diagnostic.needs_rank.is_none() => Err(first.report(&definition)),
        None => Err(search.failure().unwrap_or_else(|| first.report(&definition))),
    }
}

/// A depth-first search for ranks that fit.
struct Search<'a> {
    definition: &'a Definition,
    finish: &'a dyn Fn(Module) -> Result<Module>,
    /// The number of shapes that the caller gave; the shapes of the levels follow them.
    given: usize,
    options: Options,
    levels: Vec<Level>,
    /// The errors of the ranks that did not fit.
    failures: Vec<Diagnostic>,
}

/// The inputs whose ranks one block needs, and the ranks that are being tried.
#[derive(Clone)]
struct Level {
    inputs: Vec<usize>,
    choice: usize,
    /// The only rank that the block takes, if there is only one.
    only: Option<usize>,
    /// Whether the block needs the ranks of exactly these inputs. Otherwise it needs the rank of a
    /// value that may depend on other inputs.
    exact: bool,
    /// The error of the choice before this one.
    failure: Option<Diagnostic>,
}

impl Level {
    /// The ranks of the inputs for the current choice: first all the same, then the first input one
    /// higher or one lower than the others. `None`: all choices were tried.
    fn ranks(&self) -> Option<Vec<usize>> {
        let count = self.inputs.len();
        if let Some(rank) = self.only {
            return (self.choice == 0).then(|| vec![rank; count]);
        }
        if let Some(&rank) = RANKS.get(self.choice) {
            return Some(vec![rank; count]);
        }
        let (rank, is_higher) = ((self.choice - RANKS.len()) / 2, self.choice.is_multiple_of(2));
        if count < 2 || rank > 4 {
            return None;
        }
        let (first, others) = if is_higher { (rank + 1, rank) } else { (rank, rank + 1) };
        let mut ranks = vec![others; count];
        ranks[0] = first;
        Some(ranks)
    }
}

impl Search<'_> {
    /// The functions for the first ranks that fit. `levels` keeps those ranks.
    ///
    /// With many inputs there are too many choices to try all. So a search that `jumps` tries the
    /// usual ranks alone, and leaves a level as soon as two of its choices give the same error
    /// (backjumping).
    fn run(&mut self, jumps: bool) -> Option<Module> {
        let attempts = if jumps { USUAL_ATTEMPTS } else { ATTEMPTS };
        for _ in 0..attempts {
            match self.attempt() {
                Ok(module) => return Some(module),
                Err(error) => match self.next_level(&error) {
                    Some(level) => self.levels.push(level),
                    None => {
                        let failure = error.report(self.definition);
                        let cause = jumps.then(|| cause(&failure));
                        self.failures.push(*failure);
                        self.advance(cause)?;
                    }
                },
            }
        }
        None
    }

    /// Lowers with the ranks that the levels choose.
    fn attempt(&mut self) -> std::result::Result<Module, Box<BlockError>> {
        self.options.shapes.truncate(self.given);
        for level in &self.levels {
            let ranks = level.ranks().unwrap_or_default();
            for (&input, rank) in level.inputs.iter().zip(ranks) {
                let name = self.definition.inputs[input].name.to_string();
                self.options.shapes.push((name, vec![DimSpec::Any; rank]));
            }
        }
        let (module, _) = lower_with_trailing(self.definition, &self.options)?;
        Ok((self.finish)(module)?)
    }

    /// Advances to the next choice. Levels that did not change the error are left. `None`: no choice
    /// is left.
    fn advance(&mut self, error: Option<Diagnostic>) -> Option<()> {
        loop {
            let is_first = self.levels.len() == 1;
            let level = self.levels.last_mut()?;
            let is_same = error.is_some() && level.failure == error;
            level.choice += 1;
            let is_usual = error.is_none() || is_first || (level.choice < USUAL && !is_same);
            if level.ranks().is_some() && is_usual {
                level.failure = error;
                return Some(());
            }
            self.levels.pop();
        }
    }

    /// The inputs whose ranks may avoid this error. `None` if there are none.
    fn next_level(&self, error: &BlockError) -> Option<Level> {
        let shapes = error.operands.iter().filter_map(|operand| operand.shape.as_ref());
        let leads: Vec<&Symbol> = match &error.diagnostic.needs_rank {
            Some(needs) => vec![&needs.lead],
            // Shapes that do not fit may fit for other ranks.
            None if error.diagnostic.is_shape_mismatch() => {
                shapes.filter_map(|shape| shape.lead.as_ref()).collect()
            }
            None => Vec::new(),
        };
        if leads.is_empty() {
            return None;
        }
        let open = unranked(self.definition, &self.options);
        let name = |input: usize| symbol(&self.definition.inputs[input].name);
        let exact = leads.iter().all(|lead| open.iter().any(|&input| name(input) == **lead));
        let is_asked = |input: &usize| !exact || leads.contains(&&name(*input));
        let inputs: Vec<usize> = open.iter().copied().filter(is_asked).collect();
        let only = error.diagnostic.needs_rank.as_ref().and_then(|needs| needs.rank);
        let only = only.filter(|_| exact);
        (!inputs.is_empty()).then_some(Level { inputs, choice: 0, only, exact, failure: None })
    }

    /// The trial, with as few inputs as necessary.
    fn trial(mut self, mut module: Module) -> Trial {
        let guessed = self.levels.iter().enumerate().filter(|(_, level)| !level.exact);
        let guessed: Vec<(usize, usize)> =
            guessed.flat_map(|(at, level)| level.inputs.iter().map(move |&i| (at, i))).collect();
        for (at, input) in guessed.into_iter().take(DROPPED) {
            let before = self.levels[at].inputs.clone();
            self.levels[at].inputs.retain(|&other| other != input);
            match self.attempt() {
                Ok(less) => module = less,
                Err(_) => self.levels[at].inputs = before,
            }
        }
        let mut inputs: Vec<usize> =
            self.levels.iter().flat_map(|level| level.inputs.iter().copied()).collect();
        inputs.sort_unstable();
        let name = |input: usize| self.definition.inputs[input].name.clone();
        Trial { inputs: inputs.into_iter().map(name).collect(), module }
    }

    /// The error to report if no ranks fit: preferably one that is not about shapes, otherwise one
    /// from the block at which most ranks failed.
    fn failure(self) -> Option<Box<Diagnostic>> {
        let times = |error: &Diagnostic| {
            self.failures.iter().filter(|other| other.place == error.place).count()
        };
        let weight = |error: &Diagnostic| (!error.is_shape_mismatch(), times(error));
        let best = self.failures.iter().enumerate();
        let best = best.max_by_key(|(at, error)| (weight(error), std::cmp::Reverse(*at)))?.0;
        self.failures.into_iter().nth(best).map(Box::new)
    }
}

/// The error without the types of operands that it does not complain of.
fn cause(error: &Diagnostic) -> Diagnostic {
    let mut cause = error.clone();
    cause.facts.retain(|fact| matches!(fact.label, Label::Got | Label::Expected));
    cause
}
