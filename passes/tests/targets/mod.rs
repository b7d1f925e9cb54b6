//! A target for tests: an interpreter of arrays with functions for many composites.

use mithril_ir::op::Meaning;
use mithril_passes::profile;
use mithril_passes::target::{Target, Targets};

const ARRAYS: Target = Target {
    name: "arrays",
    takes: |_, op| match op.op.meaning {
        Meaning::Scalar(_) | Meaning::Decompose(_) => !op.op.python.numpy.is_empty(),
        Meaning::Kernel(_) | Meaning::Call(_) => true,
    },
    pulls_back: |_, _, _| false,
    profile: profile::PLAIN,
};

pub const TARGETS: Targets = &[ARRAYS];
