//! `mithril diff`: compares one model on several backends. The Python package runs them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use mithril_ir::diagnostic::Result;
use mithril_model::DimSpec;
use serde_json::{Value, json};

use crate::optimization::OptimizationOptions;
use crate::python;
use crate::saved::Saved;

/// What is compared, and with what.
#[derive(Args)]
pub struct Diff {
    #[command(flatten)]
    model: Saved,
    #[command(flatten)]
    optimization: OptimizationOptions,
    /// numpy, torch, jax, cpu, c; by default those that are there.
    #[arg(short, long, value_name = "NAME,…", value_delimiter = ',')]
    backends: Vec<String>,
    /// What they are compared with: a backend, or float64 for double precision. By default the model as
    /// it is written, on NumPy.
    #[arg(long, value_name = "NAME")]
    against: Option<String>,
    /// Arrays of inputs by name, in an .npz file; the others are drawn.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// What arrays are drawn with.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How far numbers may be apart, relative to the greatest of their array.
    #[arg(long)]
    tolerance: Option<f64>,
    /// Compare the gradients of params, too.
    #[arg(long)]
    gradients: bool,
    /// Find the pass, and the rule, after which the numbers differ.
    #[arg(long)]
    bisect: bool,
}

impl Diff {
    /// Prints the comparison; the exit code says whether backends differ.
    ///
    /// Errors: an input that is given two shapes; Python cannot be started.
    pub fn run(&self) -> Result<ExitCode> {
        let mut command = python::call("difference", &self.request()?.to_string());
        let status = command.status().map_err(|error| python::absent(&error))?;
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

fn dim(dim: &DimSpec) -> Value {
    match dim {
        DimSpec::Number(number) => json!(number),
        DimSpec::Any => Value::Null,
        DimSpec::Named(name) => json!(**name),
    }
}
