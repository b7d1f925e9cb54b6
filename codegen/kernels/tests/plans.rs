//! Plans of contractions at every level. The boxes of results that their code writes must be
//! disjoint and cover the result, and their tiles must fit the registers.

use std::collections::HashSet;
use std::ops::Range;

use mithril_ir::dtype::DType;
use mithril_kernels::contract::Layout::{AlongK, AlongOuter, Gathered, Packed, Strided};
use mithril_kernels::contract::{Layout, Plan, Scheme, Shape, plan};
use mithril_kernels::host::Host;
use mithril_kernels::isa::Isa;

const LEVELS: [&str; 6] =
    ["x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+avx512bf16", "x86-64-v4+amx-bf16", "arm64"];

fn isa(level: &str) -> Isa {
    Host::parse(level).unwrap_or_else(|e| panic!("{e}")).isa
}

/// Operand and result dtypes, one pair for each way to store, convert and multiply numbers.
const DTYPES: [(DType, DType); 7] = [
    (DType::F32, DType::F32),
    (DType::F64, DType::F64),
    (DType::F32, DType::F64),
    (DType::BF16, DType::F32),
    (DType::I8, DType::I8),
    (DType::I8, DType::I32),
    (DType::I16, DType::I16),
];

fn extents(all: i64, more: &[i64]) -> Vec<Option<i64>> {
    (-1..=all).chain(more.iter().copied()).map(|extent| (extent >= 0).then_some(extent)).collect()
}

/// Runs `check` for each shape of a grid and its plan.
fn each_plan(isa: &Isa, mut check: impl FnMut(&Shape, &Plan)) {
    let (rows, columns) = (extents(26, &[40, 48, 96]), extents(34, &[64, 70, 129, 333]));
    let depths = extents(2, &[16, 33, 260, 1024, 1184, 4500, 40_000]);
    for (dtype, acc) in DTYPES {
        for x in [AlongK, AlongOuter, Strided, Gathered] {
            for y in [AlongK, AlongOuter, Strided, Gathered, Packed] {
                for &k in &depths {
                    let x_stride = x_stride(x, k);
                    for &m in &rows {
                        for &n in &columns {
                            let shape = Shape { dtype, acc, m, n, k, x, x_stride, y };
                            check(&shape, &plan(&shape, isa));
                        }
                    }
                }
            }
        }
    }
}

fn x_stride(layout: Layout, k: Option<i64>) -> Option<i64> {
    match layout {
        AlongK => k,
        AlongOuter => Some(1),
        Strided => k.map(|k| 2 * k),
        Gathered => None,
        Packed => unreachable!("only `y` is packed"),
    }
}

#[test]
fn boxes_cover_the_result() {
    for level in LEVELS {
        let isa = isa(level);
        let mut seen = HashSet::new();
        each_plan(&isa, |shape, plan| {
            let sizes = |extent: Option<i64>| match extent {
                Some(extent) => vec![extent],
                None => vec![0, 1, 7, 8, 40, 130],
            };
            for m in sizes(shape.m) {
                for n in sizes(shape.n) {
                    if seen.insert((plan.clone(), m, n)) {
                        check_boxes(plan, m, n)
                            .unwrap_or_else(|e| panic!("{level} {shape:?} {plan:?}: {e}"));
                    }
                }
            }
        });
    }
}

/// Checks that the boxes of a plan are disjoint and cover `m × n` results.
fn check_boxes(plan: &Plan, m: i64, n: i64) -> Result<(), String> {
    let mut times = vec![0_u8; (m * n) as usize];
    for [rows, columns] in plan.boxes(m, n) {
        let within = |range: &Range<i64>, end: i64| range.start >= 0 && range.end <= end;
        if !within(&rows, m) || !within(&columns, n) {
            return Err(format!("{rows:?} × {columns:?} is not within {m} × {n}"));
        }
        for row in rows {
            let from = (row * n) as usize;
            let row = &mut times[from + columns.start as usize..from + columns.end as usize];
            row.iter_mut().for_each(|times| *times += 1);
        }
    }
    match times.iter().position(|&times| times != 1) {
        None => Ok(()),
        Some(at) => {
            let (row, column) = (at as i64 / n, at as i64 % n);
            Err(format!("{} times at {row}, {column} of {m} × {n}", times[at]))
        }
    }
}

#[test]
fn tiles_fit_the_registers() {
    for level in LEVELS {
        let isa = isa(level);
        each_plan(&isa, |shape, plan| {
            let fits = plan.lanes.is_power_of_two()
                && plan.lanes <= plan.register
                && plan.register * plan.work.bytes() as u32 == isa.bytes
                && (plan.amx || plan.scheme == Scheme::Dots || sums(plan) < isa.registers as i64);
            assert!(fits, "{level} {shape:?} {plan:?}");
        });
    }
}

/// The number of vectors of sums of the tallest tile.
fn sums(plan: &Plan) -> i64 {
    let boxes = match plan.swapped {
        true => plan.boxes(1, 200),
        false => plan.boxes(200, 1),
    };
    let rows = |[x, y]: [Range<i64>; 2]| if plan.swapped { y } else { x };
    let tallest = boxes.into_iter().map(rows).map(|rows| rows.end - rows.start).max();
    tallest.unwrap_or(0) * plan.vectors as i64
}
