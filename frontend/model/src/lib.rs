//! Logical models: blocks, how they are connected and trained, and how they are lowered to
//! functions of the IR.
//!
//! The two-layer network of the README, in Rust:
//!
//! ```
//! use mithril_model::{Model, Options, block, lower};
//!
//! # fn main() -> mithril_ir::diagnostic::Result<()> {
//! let model1 = Model::new();
//! model1.extend(block!(Linear(dimension = 32))?)?;
//! model1.extend(block!(Relu())?)?;
//! model1.extend(block!(Linear(dimension = 16))?.output("output")?)?;
//!
//! let model2 = Model::new();
//! model2.extend(block!(Linear(dimension = 32))?)?;
//! model2.extend(block!(LeakyRelu())?)?;
//! model2.extend(block!(Linear(dimension = 16))?.output("output")?)?;
//!
//! let model = Model::new();
//! model.extend(model1.seal()?.output("output1")?)?;
//! model.extend(model2.seal()?.output("output2")?)?;
//! let add = block!(Add())?.connect([("left", "output1"), ("right", "output2")])?;
//! model.extend(add.output("output")?)?;
//!
//! let module = lower(&model.block()?, &Options::default())?;
//! let main = module.entry().expect("the entry comes first");
//! let names: Vec<&str> = main.args.iter().map(|a| &*a.name).collect();
//! assert_eq!(&names[..3], ["input", "model_0.linear_0.w", "model_0.linear_0.b"]);
//! # Ok(())
//! # }
//! ```

pub mod block;
pub mod blocks;
pub mod definition;
mod derived;
pub mod draw;
mod function;
mod identity;
pub mod init;
pub mod literal;
mod load;
pub mod lower;
pub mod model;
pub mod naming;
pub mod numerics;
pub mod page;
pub mod place;
mod save;
pub mod setting;
pub mod stub;
pub mod summary;
mod text_function;
pub mod train;

pub use block::Block;
pub use definition::{Outlet, Terminal};
pub use function::custom::Custom;
pub use literal::Literal;
pub use load::Code;
pub use lower::{DimSpec, Mode, Options, lower};
pub use model::{Connection, IoKey, Model, Source};
pub use setting::Setting;
pub use text_function::check_targets;
pub use train::{Loss, Select, TrainModel, WEIGHT};
