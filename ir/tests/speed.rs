//! Building, verifying, printing and parsing take time in proportion to the operations.

use std::time::{Duration, Instant};

use mithril_ir::builder::Builder;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module, ResultDef, Role};
use mithril_ir::loc::Loc;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::text::{parse, print};
use mithril_ir::verify::verify;

/// A deep stack of small layers over a symbolic batch, with a location for each.
fn build(count: usize) -> Function {
    let b = Builder::new("main");
    let shape = |last: &[usize]| {
        let front = [Dim::symbol("batch"), Dim::symbol("length") + 1];
        Shape::new(front.into_iter().chain(last.iter().map(|&d| d.into())))
    };
    let arg = |name: &str, shape| b.var(b.arg(name, Role::Data, Type::new(DType::F32, shape)));
    let mut x = arg("x", shape(&[64]));
    let w = arg("w", Shape::fixed(&[64, 64]));
    let bias = arg("bias", Shape::fixed(&[64]));
    for layer in 0..count / 10 {
        b.set_loc(Loc::path(format!("net.layer.{layer}")));
        let y = (x.matmul(w) + bias).unary("gelu", &[]);
        let turned = y.reshape(shape(&[2, 32])).transpose(&[0, 2, 1, 3]);
        let y = turned.transpose(&[0, 2, 1, 3]).reshape(shape(&[64]));
        x = x + (y - y.reduce("mean", Some(&[-1]), true));
    }
    let value = x.value;
    let output = ResultDef { name: "output".into(), value, state: None };
    b.finish(vec![output]).unwrap()
}

/// The time this thread has run, which other programs do not lengthen; where the system tells it.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// The shortest of a few runs.
fn time<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut best = Duration::MAX;
    let mut last = None;
    for _ in 0..3 {
        let (clock, start) = (Instant::now(), processor_time());
        last = Some(run());
        let spent = processor_time().zip(start).map(|(end, start)| end - start);
        best = best.min(spent.unwrap_or_else(|| clock.elapsed()));
    }
    (best, last.expect("it ran"))
}

fn times(count: usize) -> [(&'static str, Duration); 4] {
    let (built, f) = time(|| build(count));
    let module = Module::of(f);
    let (verified, _) = time(|| verify(&module).unwrap());
    let (printed, text) = time(|| print(&module));
    let (parsed, _) = time(|| parse(&text).unwrap());
    [("build", built), ("verify", verified), ("print", printed), ("parse", parsed)]
}

#[test]
fn time_is_linear() {
    let (small, large) = (times(10_000), times(20_000));
    for ((what, one), (_, two)) in small.into_iter().zip(large) {
        println!("{what}: {one:?} for 10 000 operations, {two:?} for 20 000");
        // Twice as long, or a little more on a busy machine; quadratic would be four times.
        let bound = one * 3 + Duration::from_millis(20);
        assert!(two < bound, "{what}: {one:?} for 10 000 operations, {two:?} for 20 000");
    }
}
