//! Building, verifying, printing and parsing 10,000 operations take less than 50 ms each, and more
//! of them take longer in proportion.

use std::time::{Duration, Instant};

use mithril_ir::builder::Builder;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module, ResultDef, Role};
use mithril_ir::loc::Loc;
use mithril_ir::shape::{Shape, Type};
use mithril_ir::text::{parse, print};
use mithril_ir::verify::verify;

/// What each step may take for 10,000 operations. Assertions and overflow checks, which what is
/// shipped does without, may cost as much again.
const BOUND: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 50 });

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

/// The shortest of a few runs: as many as `enough` asks for, at most 20.
fn time<T>(enough: impl Fn(usize, Duration) -> bool, mut run: impl FnMut() -> T) -> (Duration, T) {
    let (mut best, mut count) = (Duration::MAX, 0);
    loop {
        let (clock, start) = (Instant::now(), processor_time());
        let result = run();
        let spent = processor_time().zip(start).map(|(end, start)| end - start);
        best = best.min(spent.unwrap_or_else(|| clock.elapsed()));
        count += 1;
        if enough(count, best) || count == 20 {
            return (best, result);
        }
    }
}

fn times(count: usize, enough: fn(usize, Duration) -> bool) -> [(&'static str, Duration); 4] {
    let (built, f) = time(enough, || build(count));
    let module = Module::of(f);
    let (verified, _) = time(enough, || verify(&module).unwrap());
    let (printed, text) = time(enough, || print(&module));
    let (parsed, _) = time(enough, || parse(&text).unwrap());
    [("build", built), ("verify", verified), ("print", printed), ("parse", parsed)]
}

/// One test, so that nothing else of this file runs at the same time.
#[test]
fn times_are_bounded_and_linear() {
    // Other programs share the caches, so what seems slow is run again.
    let small = times(10_000, |count, best| count >= 3 && best < BOUND);
    let large = times(20_000, |count, _| count >= 3);
    for ((what, one), (_, two)) in small.into_iter().zip(large) {
        println!("{what}: {one:?} for 10 000 operations, {two:?} for 20 000");
        assert!(one < BOUND, "{what}: {one:?} for 10 000 operations");
        // Twice as long, or a little more on a busy machine; quadratic would be four times.
        let bound = one * 3 + Duration::from_millis(20);
        assert!(two < bound, "{what}: {one:?} for 10 000 operations, {two:?} for 20 000");
    }
}
