//! Passes keep the meaning: random modules give the same bits before and after each.

mod generate;
mod targets;

use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::tensor::Tensor;
use mithril_ir::verify::verify;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;

use targets::TARGETS;

/// The results of the entry, with every NaN the same.
fn results(module: &Module, args: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let entry = module.entry().unwrap();
    let results = evaluate(module, entry, args).map_err(|error| error.to_string())?;
    Ok(results.iter().map(plain).collect())
}

fn plain(tensor: &Tensor) -> Tensor {
    if !tensor.dtype().is_float() {
        return tensor.clone();
    }
    Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &tensor.to_f64s())
}

/// Runs `pipeline` on random modules; none may change a bit, and enough must be changed at all.
fn check(pipeline: &str, seeds: u64) {
    let passes = Pipeline::parse(pipeline, TARGETS).unwrap();
    let driver = Driver { verify: true };
    let (mut ran, mut changed) = (0, 0);
    for seed in 0..seeds {
        let module = generate::module(seed);
        let args = generate::arguments(module.entry().unwrap(), seed);
        let Ok(expected) = results(&module, &args) else {
            continue;
        };
        ran += 1;
        verify(&module).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let (out, report) =
            driver.run(&passes, &module).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let got = results(&out, &args).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(got, expected, "seed {seed}, `{pipeline}`: {module}");
        changed += u64::from(report.passes.iter().any(|pass| pass.changed));
    }
    println!("`{pipeline}` changed {changed} of {ran} modules");
    assert!(ran * 2 > seeds && changed * 10 > ran, "`{pipeline}`: {changed} of {ran}");
}

#[test]
fn each_pass_keeps_the_bits() {
    for pipeline in [
        "specialise",
        "specialise{shapes=n=2}",
        "dce",
        "cse",
        "canonicalize",
        "eqsat{math=exact}",
        "eqsat{math=exact,target=core}",
        "fold-constants",
        "inline{limit=all}",
        "inline{limit=all,custom}",
        "legalize{target=arrays}",
        "legalize{target=core}",
    ] {
        check(pipeline, 400);
    }
}

#[test]
fn passes_after_each_other_keep_the_bits() {
    check(
        "specialise,infer-shapes,inline,canonicalize,cse,dce,legalize{target=arrays},cse,dce",
        400,
    );
    check(
        "legalize{target=core},cse,canonicalize,fold-constants,inline{limit=all,custom},cse,dce",
        400,
    );
}

#[test]
fn second_runs_of_passes_change_nothing() {
    let text =
        "specialise,inline,canonicalize,fold-constants,cse,dce,legalize,canonicalize,cse,dce";
    let pipeline = Pipeline::parse(text, TARGETS).unwrap();
    for seed in 0..100 {
        let (once, _) = Driver::default().run(&pipeline, &generate::module(seed)).unwrap();
        let (_, report) = Driver::default().run(&pipeline, &once).unwrap();
        let changed: Vec<&str> =
            report.passes.iter().filter(|p| p.changed).map(|p| p.pass).collect();
        assert!(changed.is_empty(), "seed {seed}: {changed:?}\n{once}");
    }
}
