//! Reports of passes in addition to the module: counts, and the rewrite log.

use indexmap::IndexMap;
use mithril_ir::loc::Loc;

/// One application of a rule: which rule, and where. `explain`, `diff` and verbose output read
/// these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewrite {
    pub pass: &'static str,
    pub rule: &'static str,
    pub loc: Loc,
}

/// The counts and the rewrite log of one run of one pass.
#[derive(Clone, Debug)]
pub struct PassContext {
    pass: &'static str,
    counts: IndexMap<&'static str, u64>,
    log: Vec<Rewrite>,
}

impl PassContext {
    pub fn new(pass: &'static str) -> PassContext {
        PassContext { pass, counts: IndexMap::new(), log: Vec::new() }
    }

    /// Adds to a statistic, such as `ops-removed`.
    pub fn count(&mut self, statistic: &'static str, n: usize) {
        if n > 0 {
            *self.counts.entry(statistic).or_default() += n as u64;
        }
    }

    /// Records that a rule was applied to an operation from `loc`.
    pub fn log(&mut self, rule: &'static str, loc: &Loc) {
        self.log.push(Rewrite { pass: self.pass, rule, loc: loc.clone() });
    }

    /// The statistics in the order of their first count.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counts.iter().map(|(name, n)| (*name, *n))
    }

    /// The rewrite log of the run.
    pub fn rewrites(&self) -> &[Rewrite] {
        &self.log
    }

    pub(crate) fn into_parts(self) -> (Vec<(&'static str, u64)>, Vec<Rewrite>) {
        (self.counts.into_iter().collect(), self.log)
    }
}
