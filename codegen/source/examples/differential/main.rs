//! Writes emitted source with arguments and the evaluator's results, as JSON for
//! `tests/python/differential.py`: `differential FRAMEWORK KIND [COUNT] > cases.json`.

#[path = "../../../../ir/tests/cases/mod.rs"]
mod cases;
mod corners;
mod emitted;
mod forward;
mod gradients;
mod hard;
mod models;

use std::process::ExitCode;

use mithril_source::backends::find;
use serde_json::Value;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let framework = args.get(1).and_then(|name| find(name));
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
