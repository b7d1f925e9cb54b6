//! The extension module `mithril._core`. Stubs are generated from it: see
//! `tests/tidy/tests/stubs.rs`.

mod amount;
mod arrays;
mod block;
mod check;
mod compile;
mod connection;
mod cost;
mod dtype;
mod error;
mod explanation;
mod file;
mod function;
mod key;
mod keywords;
mod library;
mod model;
mod native;
mod output;
mod params;
mod processor;
mod program;
mod sharding;
mod snapshot;
mod target;
mod terminals;
mod value;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use super::amount::amount;
    #[pymodule_export]
    use super::block::Block;
    #[pymodule_export]
    use super::check::Checker;
    #[pymodule_export]
    use super::compile::{Constant, compile_block};
    #[pymodule_export]
    use super::connection::{Connection, Method};
    #[pymodule_export]
    use super::cost::{Cost, Costs};
    #[pymodule_export]
    use super::dtype::DType;
    #[pymodule_export]
    use super::error::{did_you_mean, elsewhere};
    #[pymodule_export]
    use super::explanation::{Explanation, Fired, table};
    #[pymodule_export]
    use super::function::{custom, load_function};
    #[pymodule_export]
    use super::key::IOKey;
    #[pymodule_export]
    use super::library::{BlockInfo, block_info, block_listing, block_names};
    #[pymodule_export]
    use super::model::{Model, TrainModel};
    #[pymodule_export]
    use super::native::Native;
    #[pymodule_export]
    use super::params::{
        begin_params, end_params, load_params, params_layout, refuse_renamed, renamed, save_params,
    };
    #[pymodule_export]
    use super::processor::{processor, processors};
    #[pymodule_export]
    use super::program::{Part, Program};
    #[pymodule_export]
    use super::sharding::{BlockSharding, Shardings, links, sharding};
    #[pymodule_export]
    use super::snapshot::Snapshot;
    #[pymodule_export]
    use super::target::{Target, array_functions, register_target, targets};
    #[pymodule_export]
    use super::terminals::{Argument, Outcome};
    use super::*;

    /// The version of Mithril.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = mithril_driver::VERSION;

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::error::catch_panics();
        Ok(())
    }
}
