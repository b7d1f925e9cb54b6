//! Writes emitted source with arguments and the evaluator's results, as JSON for
//! `tests/python/differential.py`: `differential FRAMEWORK KIND [COUNT] > cases.json`. The framework
//! is the name of a built-in backend, or the `.json` file of another one's definition.

#[path = "../../../../ir/tests/cases/mod.rs"]
mod cases;
mod corners;
mod emitted;
mod forward;
mod gradients;
mod hard;
mod models;

use std::process::ExitCode;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::op::Op;
use mithril_source::backends::{Backend, find};
use mithril_source::custom::{Definition, register};
use serde_json::Value;

/// The operations that source can have without a device mesh.
fn operations() -> impl Iterator<Item = Op> {
    cases::operations().filter(|op| op.name != "constrain")
}

/// The backend of a name, or of a definition in a file.
fn framework(name: &str) -> Result<Option<&'static Backend>> {
    if !name.ends_with(".json") {
        return Ok(find(name));
    }
    let text = std::fs::read_to_string(name);
    let text =
        text.map_err(|error| Box::new(Diagnostic::new("the file cannot be read").got(error)))?;
    register(Definition::from_json(&text)?).map(Some)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let framework = match args.get(1).map_or(Ok(None), |name| framework(name)) {
        Ok(framework) => framework,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let count = args.get(3).and_then(|n| n.parse().ok()).unwrap_or(8);
    let cases = framework.and_then(|framework| match args.get(2)?.as_str() {
        "models" => Some(models::cases(framework)),
        "forward" => Some(forward::cases(framework, count)),
        "corners" => Some(corners::cases(framework)),
        "gradients" => Some(gradients::cases(framework)),
        "kinks" => Some(gradients::kinks(framework)),
        "hard" => Some(hard::cases(framework)),
        _ => None,
    });
    let Some(cases) = cases else {
        eprintln!(
            "usage: differential numpy|torch|jax|mlx|tinygrad models|forward|corners|gradients|kinks|hard [COUNT]"
        );
        return ExitCode::FAILURE;
    };
    println!("{}", Value::from(cases));
    ExitCode::SUCCESS
}
