//! A target for tests: an interpreter of arrays with functions for some composites.

use mithril_ir::op::Meaning;
use mithril_passes::profile;
use mithril_passes::target::{CORE, Target, Targets};

const WHOLE: [&str; 8] =
    ["mean", "variance", "softmax", "swap_axes", "expand_dims", "squeeze", "stack", "clamp"];

const ARRAYS: Target = Target {
    name: "arrays",
    takes: &|_, op| match op.op.meaning {
        Meaning::Decompose(_) => WHOLE.contains(&op.op.name),
        Meaning::Scalar(_) | Meaning::Kernel(_) | Meaning::Call(_) => true,
    },
    profile: profile::PLAIN,
    ..*CORE
};

pub const TARGETS: Targets = &[ARRAYS];
