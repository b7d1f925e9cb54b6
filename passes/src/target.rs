//! Targets as data: which operations each takes whole.

use mithril_ir::diagnostic::did_you_mean;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::{Meaning, Op};

use crate::pass::OptionValue;
use crate::profile::{self, Profile};

/// Where a program goes to: `legalize` decomposes what it does not take.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    /// Whether it has its own form of the operation, which stands in the function.
    pub takes: fn(&Function, &Operation) -> bool,
    /// Whether it computes the gradients of the operation by the one named last.
    pub pulls_back: fn(&Function, &Operation, Op) -> bool,
    /// How long things take there.
    pub profile: Profile,
}

/// What programs consist of where nothing is taken whole.
pub const CORE: &Target = &Target {
    name: "core",
    takes: |_, op| is_primitive(op.op),
    pulls_back: |_, _, _| false,
    profile: profile::NATIVE,
};

/// The targets that names in options stand for. Code generators supply them.
pub type Targets = &'static [Target];

/// Only what nothing else can express: for tests, and to see what an operation consists of.
fn is_primitive(op: Op) -> bool {
    match op.meaning {
        Meaning::Scalar(_) => crate::legalize::is_scalar_primitive(op),
        Meaning::Kernel(_) | Meaning::Call(_) => true,
        Meaning::Decompose(_) => false,
    }
}

impl PartialEq for Target {
    /// By name: there is one target of each.
    fn eq(&self, other: &Target) -> bool {
        self.name == other.name
    }
}

impl OptionValue for Target {
    fn parse(text: &str, targets: Targets) -> Result<Target, String> {
        let all = || targets.iter().chain([CORE]);
        all().find(|target| target.name == text).copied().ok_or_else(|| {
            let names = || all().map(|target| target.name);
            let list = names().collect::<Vec<_>>().join(", ");
            let near = did_you_mean(text, names());
            near.map_or_else(|| format!("one of {list}"), |near| format!("one of {list}: {near}"))
        })
    }

    fn print(&self) -> String {
        self.name.to_string()
    }
}
