//! Faults that the interpreter and the verifier must report.

use mithril_ir::dtype::DType;
use mithril_ir::text as mir;
use mithril_kernels::code::parse::parse;
use mithril_kernels::code::verify::verify;
use mithril_kernels::code::{Code, Inst, Stmt};
use mithril_kernels::contract::Layout::{AlongK, AlongOuter};
use mithril_kernels::contract::{self, Shape};
use mithril_kernels::interpret::{Buffer, Launch, run};

use crate::program::{Interpreted, isa};

const LEVEL: &str = "x86-64-v3";

/// A fault that the test plants in a compiled kernel.
struct Fault {
    name: &'static str,
    kernel: fn() -> Kernel,
    plant: fn(&mut Kernel),
    report: &'static str,
}

const FAULTS: [Fault; 6] = [
    Fault {
        name: "an unwritten tail",
        kernel: softmax,
        plant: |kernel| {
            // The last columns of a row, which has 19, are stored with a mask.
            change_first(&mut kernel.code.body, &mut |body, at| {
                let is_tail = matches!(body[at].inst, Inst::Store { mask: Some(_), .. });
                is_tail.then(|| drop(body.remove(at))).is_some()
            });
        },
        report: "byte 64 of the 456 of buffer 1 is not written",
    },
    Fault {
        name: "a read past the end",
        kernel: softmax,
        plant: |kernel| {
            change_first(&mut kernel.code.body, &mut |body, at| match &mut body[at].inst {
                Inst::Load { mask, .. } => mask.take().is_some(),
                _ => false,
            });
        },
        report: "out of bounds: 4 bytes at byte 456 of buffer 0, which has 456 bytes",
    },
    Fault {
        name: "a lost row tile",
        kernel: product,
        plant: |kernel| {
            // The loop over tiles of rows is inside the loop over tasks.
            let tasks = kernel.code.body.iter_mut().find_map(|stmt| match &mut stmt.inst {
                Inst::For { region, .. } => Some(&mut region.body),
                _ => None,
            });
            change_first(
                tasks.expect("a loop over tasks"),
                &mut |body, at| match &mut body[at].inst {
                    Inst::For { from, step, .. } => {
                        *from = *step;
                        true
                    }
                    _ => false,
                },
            );
        },
        report: "byte 0 of the 864 of buffer 2 is not written",
    },
    Fault {
        name: "two tasks on one row",
        kernel: softmax,
        plant: |kernel| {
            // Each task begins at row 0.
            change_first(&mut kernel.code.body, &mut |body, at| match &mut body[at].inst {
                first @ Inst::First => {
                    *first = Inst::Const(0);
                    true
                }
                _ => false,
            });
        },
        report: "buffer 1: task 0 also wrote byte 0",
    },
    Fault {
        name: "a misaligned store",
        kernel: softmax,
        plant: |kernel| {
            // Rows of 19 numbers are not aligned, but streaming stores must be.
            kernel.code.streams = true;
            change_first(&mut kernel.code.body, &mut |body, at| match &mut body[at].inst {
                Inst::Store { mem, mask: None, streaming, .. } if mem.0 == 1 => {
                    *streaming = true;
                    true
                }
                _ => false,
            });
        },
        report: "misaligned: byte 76, not a multiple of 32",
    },
    Fault {
        name: "a plan wider than its code",
        kernel: product,
        plant: |kernel| kernel.result = planned(PRODUCT[0] + 1),
        report: "byte 864 of the 960 of buffer 2 is not written",
    },
];

#[test]
fn each_planted_fault_is_reported() {
    for Fault { name, kernel, plant, report } in FAULTS {
        let mut kernel = kernel();
        assert_eq!(kernel.report(), None, "{name}: without the fault");
        plant(&mut kernel);
        let found = kernel.report().unwrap_or_else(|| panic!("{name} is not reported"));
        assert!(found.starts_with(report), "{name}: {found}\n{}", kernel.code);
    }
}

/// A compiled kernel with its launch.
struct Kernel {
    code: Code,
    tasks: i64,
    scratch: usize,
    /// The sizes of the arguments and of the result, in elements of f32.
    arguments: Vec<usize>,
    result: usize,
}

impl Kernel {
    /// Compiles the only kernel of a function.
    fn of(function: &str, arguments: &[usize], result: usize) -> Kernel {
        let module = mir::parse(&format!("mithril 1\n\n{function}")).expect("a module");
        let mut made = Interpreted::new(&module, &isa(LEVEL));
        assert_eq!(made.plan.kernels.len(), 1, "one kernel");
        let lowered = made.plan.kernels.remove(0).lowered;
        Kernel {
            tasks: lowered.tasks.as_const().expect("a number"),
            scratch: lowered.scratch.as_const().expect("a number") as usize,
            code: lowered.code,
            arguments: arguments.to_vec(),
            result,
        }
    }

    /// Returns the report of the verifier or the interpreter, if any.
    fn report(&self) -> Option<String> {
        if let Err(error) = verify(&self.code) {
            return Some(error.to_string());
        }
        let ones = |count: &usize| Buffer::input(1f32.to_le_bytes().repeat(*count));
        let mut buffers: Vec<Buffer> = self.arguments.iter().map(ones).collect();
        buffers.push(Buffer::result(self.result * 4));
        let &Kernel { tasks, scratch, .. } = self;
        let launch = Launch { buffers: &mut buffers, dims: &[], tasks, scratch };
        run(&self.code, launch).err().map(|violation| violation.to_string())
    }
}

/// The kernel of a softmax of six rows. Each row is a task.
fn softmax() -> Kernel {
    let source = "func @f(%x: tensor<6 x 19 x f32>) -> (y: tensor<6 x 19 x f32>) {\n  \
                  %y = softmax(%x) {axis = -1}\n  return %y\n}\n";
    Kernel::of(source, &[6 * 19], 6 * 19)
}

/// The rows, columns and depth of a matrix product.
const PRODUCT: [i64; 3] = [9, 24, 20];

fn product() -> Kernel {
    let [m, n, k] = PRODUCT;
    let source = format!(
        "func @f(%x: tensor<{m} x {k} x f32>, %y: tensor<{k} x {n} x f32>) -> (z: tensor<{m} x {n} \
         x f32>) {{\n  %z = dot_general(%x, %y) {{x_contract = [1], y_contract = [0]}}\n  \
         return %z\n}}\n"
    );
    Kernel::of(&source, &[(m * k) as usize, (k * n) as usize], planned(m))
}

/// The number of results that the plan for a product with `m` rows covers.
fn planned(m: i64) -> usize {
    let [_, n, k] = PRODUCT;
    let shape = Shape {
        dtype: DType::F32,
        acc: DType::F32,
        m: Some(m),
        n: Some(n),
        k: Some(k),
        x: AlongK,
        x_stride: Some(k),
        y: AlongOuter,
    };
    let boxes = contract::plan(&shape, &isa(LEVEL)).boxes(m, n);
    let sizes = boxes.into_iter().map(|[rows, columns]| {
        (rows.end - rows.start) as usize * (columns.end - columns.start) as usize
    });
    sizes.sum()
}

/// Runs `change` on the statements of a kernel until it returns that it has changed one.
fn change_first(
    body: &mut Vec<Stmt>,
    change: &mut dyn FnMut(&mut Vec<Stmt>, usize) -> bool,
) -> bool {
    for at in 0..body.len() {
        if change(body, at) {
            return true;
        }
        let done = match &mut body[at].inst {
            Inst::For { region, .. } => change_first(&mut region.body, change),
            Inst::If { yes, no, .. } => {
                change_first(&mut yes.body, change) || change_first(&mut no.body, change)
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
fn each_lost_store_is_reported() {
    let is_store = |body: &[Stmt], at: usize| matches!(body[at].inst, Inst::Store { .. });
    let mut count = 0;
    change_first(&mut product().code.body, &mut |body, at| {
        count += usize::from(is_store(body, at));
        false
    });
    assert!(count > 4, "{count} stores");
    for lost in 0..count {
        let mut kernel = product();
        let mut number = 0;
        change_first(&mut kernel.code.body, &mut |body, at| {
            number += usize::from(is_store(body, at));
            let is = number == lost + 1;
            if is {
                body.remove(at);
            }
            is
        });
        let found =
            kernel.report().unwrap_or_else(|| panic!("removed store {lost} is not reported"));
        assert!(found.contains("not written") || found.contains("undefined"), "{found}");
    }
}

#[test]
fn wrong_numbers_of_tasks_are_reported() {
    let with = |more: i64| {
        let mut kernel = product();
        kernel.tasks += more;
        kernel.report().expect("a violation")
    };
    let fewer = with(-1);
    assert!(fewer.contains("is not written"), "{fewer}");
    let more = with(1);
    assert!(more.contains("out of bounds") || more.contains("also wrote"), "{more}");
}

/// Returns the report for a kernel with these statements, or "nothing". The kernel runs in four
/// tasks; `%0` is the task number. `%m0` is its argument and `%m1` its result, each with 16 f32
/// numbers.
fn report_of(body: &str) -> String {
    let text = format!(
        "kernel buffers 2 dims 1 streams {{\n  memory %m0 = buffer 0 : f32 readonly\n  \
         memory %m1 = buffer 1 : f32\n  memory %m2 = scratch %2 : f32\n  %0 = first : i64\n  \
         %1 = const 4 : i64\n  %2 = const 0 : i64\n  %3 = mul %0, %1 : i64\n{body}}}\n"
    );
    let code = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if let Err(error) = verify(&code) {
        return error.to_string();
    }
    let mut buffers = [Buffer::input(vec![0; 64]), Buffer::result(64)];
    let launch = Launch { buffers: &mut buffers, dims: &[16], tasks: 4, scratch: 32 };
    match run(&code, launch) {
        Ok(()) => "nothing".into(),
        Err(violation) => violation.to_string(),
    }
}

/// Each task copies four numbers.
const COPY: &str = "  %4 = load %m0[%3] : f32x4\n  store %m1[%3], %4\n";

#[test]
fn correct_code_passes() {
    assert_eq!(report_of(COPY), "nothing");
}

#[test]
fn unwritten_results_are_reported() {
    let body = "  %4 = load %m0[%3] : f32x2\n  store %m1[%3], %4\n";
    assert_eq!(report_of(body), "byte 8 of the 64 of buffer 1 is not written");
}

#[test]
fn reads_out_of_bounds_are_reported() {
    let body = "  %4 = load %m0[%3] : f32x8\n  %5 = shuffle %4, %4 [0, 1, 2, 3] : f32x4\n  \
                store %m1[%3], %5\n";
    let what = "out of bounds: 4 bytes at byte 64 of buffer 0, which has 64 bytes\n  at: %4 = load \
                %m0[%3] : f32x8\n  task: 3";
    assert_eq!(report_of(body), what);
}

#[test]
fn writes_into_the_part_of_another_task_are_reported() {
    let body = format!("{COPY}  %5 = add %3, %1 : i64\n  store %m1[%5], %4\n");
    assert!(
        report_of(&body).starts_with("buffer 1: task 0 also wrote byte 16"),
        "{}",
        report_of(&body)
    );
}

#[test]
fn writes_of_two_tasks_to_one_address_are_reported() {
    let body = "  %4 = load %m0[%3] : f32x4\n  store %m1[%2], %4\n";
    let what = "buffer 1: task 0 also wrote byte 0\n  at: store %m1[%2], %4\n  task: 1";
    assert_eq!(report_of(body), what);
}

#[test]
fn reads_of_results_of_another_task_are_reported() {
    let body = format!("{COPY}  %5 = load %m1[%2] : f32x4\n");
    let what = "buffer 1: task 0 wrote byte 3, which this task reads";
    assert!(report_of(&body).starts_with(what), "{}", report_of(&body));
}

#[test]
fn misaligned_streaming_stores_are_reported() {
    let body = "  %4 = const 1.0 : f32x4\n  %5 = const 2 : i64\n  %6 = add %3, %5 : i64\n  \
                store %m1[%6], %4 streaming\n";
    let what = "misaligned: byte 8, not a multiple of 16";
    assert!(report_of(body).starts_with(what), "{}", report_of(body));
}

#[test]
fn stores_of_undefined_numbers_are_reported() {
    let body = "  %4 = load %m2[%2] : f32x4\n  store %m1[%3], %4\n";
    let what = "the value stored in buffer 1 is undefined";
    assert!(report_of(body).starts_with(what), "{}", report_of(body));
    // Undefined numbers may be computed if they determine nothing.
    let body = "  %4 = load %m2[%2] : f32x4\n  %5 = load %m0[%3] : f32x4\n  %6 = const true : bool\n  \
                %7 = select %6, %5, %4 : f32x4\n  store %m1[%3], %7\n";
    assert_eq!(report_of(body), "nothing");
}

#[test]
fn undefined_divisions_and_shifts_are_reported() {
    let body = format!("{COPY}  %5 = div %1, %2 : i64\n");
    assert!(report_of(&body).starts_with("a division by zero"), "{}", report_of(&body));
    let body = "  %4 = const 64 : i64\n  %5 = shl %1, %4 : i64\n  %6 = load %m0[%5] : f32\n";
    assert!(report_of(body).starts_with("%5 is undefined, but determines"), "{}", report_of(body));
}

#[test]
fn the_verifier_refuses_invalid_code() {
    for (body, what) in [
        ("  %4 = add %3, %9 : i64\n", "%9 is not defined here"),
        ("  %3 = add %1, %2 : i64\n", "%3 is defined twice"),
        ("  %4 = const 1.0 : f32\n  %5 = add %3, %4 : i64\n", "%4 is of type f32, not i64"),
        ("  %4 = load %m0[%3] : f64\n", "%m0 has elements of f32"),
        ("  %4 = load %m0[%3] : f32x4\n  store %m0[%3], %4\n", "%m0 is constant"),
        ("  %4 = load %m0[%3] : f32x4\n  %5 = extract %4 [4] : f32\n", "there is no such lane"),
        ("  %4 = dim 1 : i64\n", "there is no such dim"),
        ("  tile_zero 0\n", "tile operation in a kernel without `tiles`"),
        (
            "  for %4 = %2 to %1 step %1 {\n    %5 = add %4, %1 : i64\n  }\n  %6 = add %5, %1 : i64\n",
            "%5 is not defined here",
        ),
        (
            "  %4 = const 1.0 : f32\n  %5 = for %6 = %2 to %1 step %1 carry %7 = %4 : f32 {\n    \
             yield %6\n  }\n",
            "the types of the yields do not match",
        ),
        (
            "  %4 = load %m0[%3] : f32x4\n  %5 = const true : boolx2\n  store %m1[%3], %4 mask %5\n",
            "the mask %5 is of type boolx2, not boolx4",
        ),
    ] {
        assert!(report_of(body).starts_with(what), "{}\n{body}", report_of(body));
    }
}

#[test]
fn the_parser_refuses_other_text() {
    let error = parse("kernel buffers 1 dims 0 {\n  %0 = frobnicate %1 : i64\n}\n").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("line 2") && error.contains("%0 = frobnicate %1 : i64"), "{error}");
}
