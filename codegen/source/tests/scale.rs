//! Long, wide and deep models from text to source: in time that grows with their size alone, and on
//! a small stack.

use std::fmt::Write;
use std::time::Duration;

use mithril_ir::text::parse;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::{OptimizationOptions, standard};
use mithril_passes::specialise::shapes::Shapes;
use mithril_source::backends::{Backend, find};
use mithril_source::python::{Options, emit};

const TYPE: &str = "tensor<8 x 16 x f32>";

/// The time this thread has computed: that of others on the machine does not count.
fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only to `time`.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(done, 0, "there is a clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn named(name: &str) -> &'static Backend {
    find(name).expect("a backend of this name")
}

/// From text to source; how many characters, and the time.
fn compiled(text: &str, framework: &'static Backend, gradients: bool) -> (usize, Duration) {
    let start = computed();
    let target = framework.target;
    let module = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let pipeline = standard(Shapes::default(), target, gradients, &OptimizationOptions::default());
    let source = Driver { verify: false }
        .run(&pipeline, &module)
        .and_then(|(module, _)| emit(&module, framework, &Options::default()));
    let text = source.unwrap_or_else(|error| panic!("{error}")).text;
    (text.len(), computed() - start)
}

/// `main` with these lines, of which the last gives `result`.
fn function(arguments: &str, body: &str, result: &str, ty: &str) -> String {
    format!("mithril 1\nfunc @main({arguments}) -> (y: {ty}) {{\n{body}  return {result}\n}}\n")
}

fn two() -> String {
    format!("%x: {TYPE}, %w: {TYPE} param")
}

/// One operation after the other.
fn chain(count: usize) -> String {
    let mut body = "  %0 = add(%x, %w)\n".to_string();
    for i in 0..count {
        writeln!(body, "  %{} = tanh(%{i})", i + 1).unwrap();
    }
    function(&two(), &body, &format!("%{count}"), TYPE)
}

/// Random operations on recent results, the same ones in each run.
fn random(count: usize) -> String {
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut body = "  %0 = add(%x, %w)\n".to_string();
    for i in 0..count {
        let [a, b] = [0; 2].map(|_| i - draw(20.min(i + 1)));
        let text = match draw(8) {
            0 => format!("tanh(%{i})"),
            1 => format!("relu(%{a})"),
            2 => format!("sigmoid(%{i})"),
            3 => format!("maximum(%{i}, %{b})"),
            4 => format!("sub(%{i}, %{b})"),
            5 => format!("mul(%{i}, %{b})"),
            6 => format!("sin(%{i})"),
            _ => format!("add(%{i}, %{b})"),
        };
        writeln!(body, "  %{} = {text}", i + 1).unwrap();
    }
    function(&two(), &body, &format!("%{count}"), TYPE)
}

/// Many readers of one value, and all they give side by side.
fn wide(count: usize) -> String {
    let mut body = "  %v = add(%x, %w)\n".to_string();
    let mut parts = Vec::new();
    for i in 0..count / 2 {
        let op = ["tanh", "exp", "relu", "sin"][i % 4];
        writeln!(body, "  %a{i} = {op}(%v)\n  %b{i} = add(%a{i}, %w)").unwrap();
        parts.push(format!("%b{i}"));
    }
    writeln!(body, "  %y = concat({}) {{axis = 0}}", parts.join(", ")).unwrap();
    function(&two(), &body, "%y", &format!("tensor<{} x 16 x f32>", 8 * parts.len()))
}

/// Layers with a param each.
fn layers(count: usize) -> String {
    let mut arguments = "%x: tensor<n x 16 x f32>".to_string();
    let mut body = String::new();
    let mut last = "%x".to_string();
    for i in 0..count / 2 {
        write!(arguments, ", %w{i}: tensor<16 x 16 x f32> param").unwrap();
        writeln!(body, "  %h{i} = matmul({last}, %w{i})\n  %t{i} = tanh(%h{i})").unwrap();
        last = format!("%t{i}");
    }
    function(&arguments, &body, &last, "tensor<n x 16 x f32>")
}

/// Open dims that guards make equal.
fn guarded(count: usize) -> String {
    let mut arguments = "%x: tensor<n x f32>".to_string();
    let mut body = String::new();
    let mut last = "%x".to_string();
    for i in 0..count / 2 {
        write!(arguments, ", %w{i}: tensor<a{i} x f32> param").unwrap();
        writeln!(body, "  %h{i} = add({last}, %w{i})\n  %t{i} = tanh(%h{i})").unwrap();
        last = format!("%t{i}");
    }
    function(&arguments, &body, &last, "tensor<n x f32>")
}

/// Functions that each call the next.
fn nested(count: usize) -> String {
    let mut text = "mithril 1\n".to_string();
    for i in 0..count {
        let next = i + 1;
        writeln!(
            text,
            "func @f{i}(%x: {TYPE}, %w: {TYPE} param) -> (y: {TYPE}) {{\n  %a = tanh(%x)\n  \
             %b = call(%a, %w) {{callee = @f{next}}}\n  return %b\n}}"
        )
        .unwrap();
    }
    let add = "  %a = add(%x, %w)\n  return %a\n}";
    writeln!(text, "func @f{count}({}) -> (y: {TYPE}) {{\n{add}", two()).unwrap();
    text
}

type Kind = (&'static str, fn(usize) -> String);

const KINDS: [Kind; 7] = [
    ("chain", chain),
    ("random", random),
    ("wide", wide),
    ("layers", layers),
    ("guarded", guarded),
    ("nested", nested),
    ("values", |count| chain(count).replace("%", "%value.")),
];

/// Whether gradients are looked at, too. Those of functions that stay functions pass what they keep
/// through all that call them, which grows with the square of how deep they nest.
fn differentiates(name: &str) -> bool {
    name != "nested"
}

/// Four times the operations take at most so many times as long. What is quadratic takes sixteen.
const RATIO: u32 = 8;
/// What is short anyway: that much time is measured too coarsely.
const SHORT: Duration = Duration::from_millis(400);

#[test]
fn time_grows_with_size() {
    for (name, kind) in KINDS {
        for gradients in [false, differentiates(name)] {
            let least = |count| {
                let times = (0..2).map(|_| compiled(&kind(count), named("numpy"), gradients).1);
                times.min().expect("there are two")
            };
            let (small, large) = (least(10_000), least(40_000));
            println!("{name}, gradients {gradients}: {small:?}, {large:?}");
            assert!(large < SHORT.max(small * RATIO), "{name}: {small:?} and {large:?}");
        }
    }
}

#[test]
fn hundred_thousand_operations() {
    let every = std::env::var("MITHRIL_TESTS").is_ok_and(|tests| tests == "all");
    for (number, (name, kind)) in KINDS.into_iter().enumerate() {
        let text = kind(100_000);
        let all = [(named("numpy"), true), (named("torch"), false), (named("jax"), false)];
        // A sample has one of them for each kind.
        let at = number % all.len();
        for &(framework, gradients) in if every { &all[..] } else { &all[at..=at] } {
            let gradients = gradients && differentiates(name);
            let (length, time) = compiled(&text, framework, gradients);
            println!(
                "{name} for {framework:?}, gradients {gradients}: {time:?}, {length} characters"
            );
            assert!(length > 100_000);
            assert!(time < Duration::from_secs(20), "{name} for {framework:?}: {time:?}");
        }
    }
}

/// A stack of 1 MB does for whatever is long or nested.
#[test]
fn stack_of_a_megabyte() {
    let all = || {
        for (_, kind) in KINDS {
            compiled(&kind(20_000), named("numpy"), true);
        }
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(all);
    thread.expect("there are threads").join().expect("none of it overflows the stack");
}
