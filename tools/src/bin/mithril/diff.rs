//! `mithril diff`: compares one model on several backends. The Python package runs them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use mithril_driver::targets;
use mithril_ir::diagnostic::Result;
use mithril_model::DimSpec;
use serde_json::{Value, json};

use crate::optimization::OptimizationOptions;
use crate::python;
use crate::saved::Saved;

/// The options of `mithril diff`.
#[derive(Args)]
pub struct Diff {
    #[command(flatten)]
    model: Saved,
    #[command(flatten)]
    optimization: OptimizationOptions,
    /// The names of the backends to compare.
    #[arg(short, long, value_name = "NAME,…", value_delimiter = ',', help = help())]
    backends: Vec<String>,
    /// The reference: a backend, or float64 for double precision. Defaults to the unoptimized model
    /// on NumPy.
    #[arg(long, value_name = "NAME")]
    against: Option<String>,
    /// An .npz file with arrays of inputs by name; other arrays are drawn at random.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// The seed of random arrays.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The largest difference allowed, relative to the largest number of the array.
    #[arg(long)]
    tolerance: Option<f64>,
    /// Also compare the gradients of params.
    #[arg(long)]
    gradients: bool,
    /// Find the pass and the rule that introduce the difference.
    #[arg(long)]
    bisect: bool,
}

impl Diff {
    /// Prints the comparison; the exit code says whether backends differ.
    ///
    /// Errors: an input that is given two shapes; Python cannot be started.
    pub fn run(&self) -> Result<ExitCode> {
        let mut command = python::call("difference", &self.request()?.to_string());
        let status = command.status().map_err(|error| python::cannot_start(&error))?;
        Ok(ExitCode::from(status.code().map_or(2, |code| code as u8)))
    }

    /// The model's file and the keyword arguments of `ml.diff`, as JSON.
    fn request(&self) -> Result<Value> {
        let options = self.model.options()?;
        let shapes = options.shapes.iter().map(|(name, dims)| {
            let dims: Vec<Value> = dims.iter().map(dim).collect();
            (name.to_string(), Value::from(dims))
        });
        let optimization = self.optimization.options();
        Ok(json!({
            "file": self.model.file,
            "trust_code": self.model.trust_code,
            "arrays": self.inputs,
            "dtype": options.dtype.array_name(),
            "backends": if self.backends.is_empty() { Value::Null } else { json!(self.backends) },
            "keywords": {
                "against": self.against,
                "shapes": Value::Object(shapes.collect()),
                "seed": self.seed,
                "tolerance": self.tolerance,
                "gradients": self.gradients,
                "bisect": self.bisect,
                "inference": options.mode == mithril_model::Mode::Inference,
                "math": optimization.math.name(),
                "optimization_level": optimization.level.name(),
            },
        }))
    }
}

/// The help of `--backends`.
fn help() -> String {
    let names = targets::names().join(", ");
    format!("The backends to compare: {names}. Defaults to all that are available")
}

fn dim(dim: &DimSpec) -> Value {
    match dim {
        DimSpec::Number(number) => json!(number),
        DimSpec::Any => Value::Null,
        DimSpec::Named(name) => json!(**name),
    }
}
