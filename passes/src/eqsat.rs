//! `eqsat`: equality saturation.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module};

use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::each_function;
use crate::rules::pattern::Node;
use crate::rules::{Class, RULES, Rule, check_names, of_root};
use crate::target::{self, Target};

mod extract;
mod lower;
mod saturate;
mod siblings;
mod terms;
mod windows;

use extract::Extraction;
use terms::Terms;

pass! {
    /// Puts each function into an e-graph of equal terms, adds the terms that the rules say are
    /// equal, and extracts those that cost least on the target. Budgets are counts, not times, so
    /// that the same input always gives the same result. Long functions are cut into windows that
    /// are rewritten one after the other. Functions longer than `largest` are left unchanged; the
    /// statistics count their operations.
    pub struct Eqsat("eqsat") {
        /// The target whose costs are minimised.
        target: Target = *target::CORE,
        /// The classes of rules to apply: exact, recognise, reassociate or fast.
        math: Class = Class::Recognise,
        /// Whether a recognised composite replaces the primitives it was recognised in, whatever it
        /// costs: gradients need some of these primitives anyway, so costs would keep them.
        supersede: bool = true,
        /// Whether products that share an operand may be joined into one. This does not pay off if
        /// the joined product is differentiated later.
        join: bool = true,
        /// The maximum number of rounds in which all rules are tried.
        iterations: usize = 8,
        /// The maximum number of terms that are added to each function.
        terms: usize = 20000,
        /// Functions of more operations than this are rewritten in windows of at most this many.
        window: usize = 2048,
        /// Functions of more operations than this are not rewritten.
        largest: usize = 16384,
        /// The maximum number of matches of one rule that are applied in one iteration.
        matches: usize = 2000,
        /// The rules to exclude.
        without: Vec<String> = Vec::new(),
        /// If not empty, only these rules are tried, and they are applied whatever they cost. For
        /// studying single rules.
        only: Vec<String> = Vec::new(),
    }
}

/// The statistic that counts operations of functions that are too large to be rewritten.
pub const TOO_LARGE: &str = "operations-not-rewritten";

/// The entry rewritten by one rule, whatever it costs; `None` if the rule does not match.
/// Errors: a composite whose decomposition fails.
pub fn apply_always(module: &Module, rule: &'static Rule) -> Result<Option<Function>> {
    let function = module.entry().expect("a module has an entry");
    let budget = Eqsat { math: Class::Fast, iterations: 1, ..Eqsat::default() };
    let mut terms = Terms::new(function);
    match is_joining(rule) {
        true => siblings::join(&mut terms, rule, false),
        false => {
            saturate::saturate(&mut terms, &budget, budget.terms, &|_| std::slice::from_ref(&rule))
        }
    };
    match Extraction::best(&terms, budget.target, true)? {
        Some(extraction) => lower::function(module, function, &terms, &extraction).map(Some),
        None => Ok(None),
    }
}

/// Whether the rule joins several operations.
fn is_joining(rule: &Rule) -> bool {
    matches!(rule.right.node(), Node::Joined)
}

impl Pass for Eqsat {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        check_names(&self.without)?;
        check_names(&self.only)?;
        each_function(module, |function| self.windowed(module, function, cx))
    }
}

impl Eqsat {
    /// Whether the options allow the rule.
    fn allows(&self, rule: &Rule) -> bool {
        let among = |names: &[String]| names.iter().any(|name| name == rule.name);
        let selected = self.only.is_empty() || among(&self.only);
        rule.class <= self.math && selected && !among(&self.without)
    }

    /// Rewrites a function, in windows if it is long; `None` if nothing is cheaper than the
    /// original.
    fn windowed(
        &self,
        module: &Module,
        function: &Function,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        let count = function.ops.len();
        if count > self.largest {
            cx.count(TOO_LARGE, count);
            return Ok(None);
        }
        if count <= self.window {
            return self.function(module, function, self.terms, cx);
        }
        let windows = windows::bounds(count, self.window);
        cx.count("windows", windows.len());
        let terms = self.terms / windows.len();
        windows::rewrite(function, &windows, &mut |window| self.function(module, window, terms, cx))
    }

    /// Rewrites a function, adding at most `max_terms` terms; `None` if nothing is cheaper than the
    /// original.
    fn function(
        &self,
        module: &Module,
        function: &Function,
        max_terms: usize,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        let mut terms = Terms::new(function);
        let mut applied = saturate::saturate(&mut terms, self, max_terms, &|op| of_root(op));
        for rule in RULES.iter().filter(|rule| self.join && is_joining(rule) && self.allows(rule)) {
            applied += siblings::join(&mut terms, rule, self.target.profile.streams);
        }
        if applied == 0 {
            return Ok(None);
        }
        cx.count("rules-applied", applied);
        let newest = !self.only.is_empty();
        let Some(extraction) = Extraction::best(&terms, self.target, newest)? else {
            return Ok(None);
        };
        cx.count("picoseconds-before", extraction.before as usize);
        cx.count("picoseconds-after", extraction.after as usize);
        for (rule, loc) in extraction.rules(&terms) {
            cx.log(rule, &loc);
        }
        lower::function(module, function, &terms, &extraction).map(Some)
    }
}
