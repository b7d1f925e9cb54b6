//! The passes of Mithril: the driver, one file per pass, and the rewrite rules.

// This comes first, because the other modules use its macro.
#[macro_use]
pub mod pass;

pub mod autodiff;
pub mod batch_scans;
pub mod bisect;
pub mod call_graph;
pub mod canonicalize;
pub mod checkpoint;
pub mod context;
pub mod cost;
pub mod cse;
pub mod dce;
pub mod divide;
pub mod driver;
pub mod eqsat;
pub mod estimate;
pub mod explain;
pub mod factors;
pub mod fold_constants;
pub mod indexed;
pub mod infer_shapes;
pub mod inline;
pub mod keep;
pub mod legalize;
pub mod library;
pub mod outline;
mod part;
pub mod pipeline;
pub mod profile;
pub mod rebuild;
pub mod registry;
pub mod remove_barriers;
pub mod rules;
mod same;
pub mod select_bodies;
pub mod shard;
pub mod specialise;
pub mod split_concats;
pub mod split_reductions;
pub mod table;
pub mod target;
pub mod transfer;
