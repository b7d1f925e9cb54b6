//! What the interpreter and the verifier find in kernels that are wrong.

use mithril_ir::text as mir;
use mithril_kernels::code::parse::parse;
use mithril_kernels::code::verify::verify;
use mithril_kernels::code::{Code, Inst, Stmt};
use mithril_kernels::interpret::{Buffer, Launch, run};

use crate::program::{Interpreted, isa};

/// Runs statements that have `%m0` to read from and `%m1` to write to, 16 numbers of f32 each, in
/// four tasks, of which `%0` is the number; gives what is found.
fn found(body: &str) -> String {
    let text = format!(
        "kernel buffers 2 dims 1 streams {{\n  memory %m0 = buffer 0 : f32 readonly\n  \
         memory %m1 = buffer 1 : f32\n  memory %m2 = scratch %2 : f32\n  %0 = first : i64\n  \
         %1 = const 4 : i64\n  %2 = const 0 : i64\n  %3 = mul %0, %1 : i64\n{body}}}\n"
    );
    let code = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if let Err(error) = verify(&code) {
        return error.to_string();
    }
    let mut buffers = [Buffer::given(vec![0; 64]), Buffer::result(64)];
    let launch = Launch { buffers: &mut buffers, dims: &[16], tasks: 4, scratch: 32 };
    match run(&code, launch) {
        Ok(()) => "nothing".into(),
        Err(violation) => violation.to_string(),
    }
}

/// Four numbers of each task.
const RIGHT: &str = "  %4 = load %m0[%3] : f32x4\n  store %m1[%3], %4\n";

#[test]
fn nothing_in_what_is_right() {
    assert_eq!(found(RIGHT), "nothing");
}

#[test]
fn a_tail_that_is_left_unwritten() {
    let body = "  %4 = load %m0[%3] : f32x2\n  store %m1[%3], %4\n";
    assert_eq!(found(body), "byte 8 of the 64 of buffer 1 is left unwritten");
}

#[test]
fn a_read_past_the_end() {
    let body = "  %4 = load %m0[%3] : f32x8\n  %5 = shuffle %4, %4 [0, 1, 2, 3] : f32x4\n  \
                store %m1[%3], %5\n";
    let what = "out of bounds: 4 bytes from 64 on of the 64 of buffer 0\n  at: %4 = load %m0[%3] : \
                f32x8\n  task: 3";
    assert_eq!(found(body), what);
}

#[test]
fn a_write_past_the_end() {
    let body = format!("{RIGHT}  %5 = add %3, %1 : i64\n  store %m1[%5], %4\n");
    assert!(found(&body).starts_with("buffer 1: task 0 wrote byte 16, too"), "{}", found(&body));
}

#[test]
fn two_tasks_at_one_place() {
    let body = "  %4 = load %m0[%3] : f32x4\n  store %m1[%2], %4\n";
    let what = "buffer 1: task 0 wrote byte 0, too\n  at: store %m1[%2], %4\n  task: 1";
    assert_eq!(found(body), what);
}

#[test]
fn what_another_task_wrote() {
    let body = format!("{RIGHT}  %5 = load %m1[%2] : f32x4\n");
    let what = "buffer 1: task 0 wrote byte 3, which is read";
    assert!(found(&body).starts_with(what), "{}", found(&body));
}

#[test]
fn a_misaligned_store_past_the_caches() {
    let body = "  %4 = const 1.0 : f32x4\n  %5 = const 2 : i64\n  %6 = add %3, %5 : i64\n  \
                store %m1[%6], %4 streaming\n";
    let what = "misaligned: byte 8, not a multiple of 16";
    assert!(found(body).starts_with(what), "{}", found(body));
}

#[test]
fn numbers_that_nobody_wrote() {
    let body = "  %4 = load %m2[%2] : f32x4\n  store %m1[%3], %4\n";
    let what = "what is stored in buffer 1 is not defined";
    assert!(found(body).starts_with(what), "{}", found(body));
    // They may be there where they decide nothing.
    let body = "  %4 = load %m2[%2] : f32x4\n  %5 = load %m0[%3] : f32x4\n  %6 = const true : bool\n  \
                %7 = select %6, %5, %4 : f32x4\n  store %m1[%3], %7\n";
    assert_eq!(found(body), "nothing");
}

#[test]
fn divisions_and_shifts_without_a_result() {
    let body = format!("{RIGHT}  %5 = div %1, %2 : i64\n");
    assert!(found(&body).starts_with("a division by zero"), "{}", found(&body));
    let body = "  %4 = const 64 : i64\n  %5 = shl %1, %4 : i64\n  %6 = load %m0[%5] : f32\n";
    assert!(found(body).starts_with("%5 is not defined, and decides"), "{}", found(body));
}

#[test]
fn what_the_verifier_refuses() {
    for (body, what) in [
        ("  %4 = add %3, %9 : i64\n", "%9 is not defined here"),
        ("  %3 = add %1, %2 : i64\n", "%3 is defined twice"),
        ("  %4 = const 1.0 : f32\n  %5 = add %3, %4 : i64\n", "%4 is of type f32, not i64"),
        ("  %4 = load %m0[%3] : f64\n", "%m0 has elements of f32"),
        ("  %4 = load %m0[%3] : f32x4\n  store %m0[%3], %4\n", "%m0 is constant"),
        ("  %4 = load %m0[%3] : f32x4\n  %5 = extract %4 [4] : f32\n", "there is no such lane"),
        ("  %4 = dim 1 : i64\n", "there is no such dim"),
        ("  tile_zero 0\n", "the kernel says it has no tiles"),
        (
            "  for %4 = %2 to %1 step %1 {\n    %5 = add %4, %1 : i64\n  }\n  %6 = add %5, %1 : i64\n",
            "%5 is not defined here",
        ),
        (
            "  %4 = const 1.0 : f32\n  %5 = for %6 = %2 to %1 step %1 carry %7 = %4 : f32 {\n    \
             yield %6\n  }\n",
            "the yields are of other types",
        ),
        (
            "  %4 = load %m0[%3] : f32x4\n  %5 = const true : boolx2\n  store %m1[%3], %4 mask %5\n",
            "the mask %5 is of type boolx2, not boolx4",
        ),
    ] {
        assert!(found(body).starts_with(what), "{}\n{body}", found(body));
    }
}

#[test]
fn what_is_no_loop_code() {
    let error = parse("kernel buffers 1 dims 0 {\n  %0 = frobnicate %1 : i64\n}\n").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("line 2") && error.contains("%0 = frobnicate %1 : i64"), "{error}");
}

/// The kernel of a product of 9 rows, with one thing about it changed; what is found.
fn of_product(change: impl FnOnce(&mut Code, &mut i64)) -> Option<String> {
    let source = "mithril 1\n\nfunc @f(%x: tensor<9 x 20 x f32>, %y: tensor<20 x 24 x f32>) -> (z: \
                  tensor<9 x 24 x f32>) {\n  %z = dot_general(%x, %y) {x_contract = [1], \
                  y_contract = [0]}\n  return %z\n}\n";
    let made = Interpreted::new(&mir::parse(source).expect("a module"), &isa("x86-64-v3"));
    let kernel = &made.plan.kernels[0];
    let mut code = kernel.lowered.code.clone();
    let mut tasks = kernel.lowered.tasks.as_const().expect("a number");
    let scratch = kernel.lowered.scratch.as_const().expect("a number") as usize;
    change(&mut code, &mut tasks);
    let ones = |count: usize| Buffer::given(1f32.to_le_bytes().repeat(count));
    let mut buffers = [ones(9 * 20), ones(20 * 24), Buffer::result(9 * 24 * 4)];
    let launch = Launch { buffers: &mut buffers, dims: &[], tasks, scratch };
    run(&code, launch).err().map(|violation| violation.to_string())
}

/// Runs `change` on the stores of a kernel until it says that it has done enough.
fn stores(body: &mut Vec<Stmt>, change: &mut dyn FnMut(&mut Vec<Stmt>, usize) -> bool) -> bool {
    for at in 0..body.len() {
        let done = match &mut body[at].inst {
            Inst::Store { .. } => change(body, at),
            Inst::For { region, .. } => stores(&mut region.body, change),
            Inst::If { yes, no, .. } => {
                stores(&mut yes.body, change) || stores(&mut no.body, change)
            }
            _ => false,
        };
        if done {
            return true;
        }
    }
    false
}

#[test]
fn a_tile_that_is_lost() {
    assert_eq!(of_product(|_, _| {}), None);
    let mut count = 0;
    of_product(|code, _| {
        stores(&mut code.body, &mut |_, _| {
            count += 1;
            false
        });
    });
    assert!(count > 4, "{count} stores");
    for lost in 0..count {
        let mut number = 0;
        let found = of_product(|code, _| {
            stores(&mut code.body, &mut |body, at| {
                number += 1;
                let is = number == lost + 1;
                if is {
                    body.remove(at);
                }
                is
            });
        });
        let found = found.unwrap_or_else(|| panic!("store {lost} is not missed"));
        assert!(found.contains("unwritten") || found.contains("not defined"), "{found}");
    }
}

#[test]
fn tasks_that_no_plan_has() {
    let fewer = of_product(|_, tasks| *tasks -= 1).expect("a violation");
    assert!(fewer.contains("left unwritten"), "{fewer}");
    let more = of_product(|_, tasks| *tasks += 1).expect("a violation");
    assert!(more.contains("out of bounds") || more.contains(", too"), "{more}");
}
