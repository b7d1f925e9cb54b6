//! Contractions of all small extents, open and static, at every level: sums of whole numbers.
//!
//! Cranelift makes the code of each level on every machine; LLVM that of the levels that this
//! machine has, for a sample. `MITHRIL_TESTS=all` runs all of the list, else a sample is drawn by
//! `MITHRIL_SEED`.

#[path = "../amx/mod.rs"]
mod amx;
mod levels;
mod list;
#[path = "../matmul/mod.rs"]
#[allow(dead_code)]
mod matmul;
mod numbers;
mod plans;
mod room;
mod run;

use mithril_ir::dtype::DType;
use mithril_kernels::contract::{Layout, plan};

use levels::Level;
use list::{Form, MOST, MOST_COLUMNS, Sample, dtypes, forms};
use numbers::Numbers;
use run::{Compiler, Contraction, Memory};

/// Of how many forms and runs one is drawn, where not all are run.
const FORMS: u64 = 400;
const RUNS: u64 = 60;
/// Of how many forms LLVM compiles one, and of all of them where all are run.
const LLVM: u64 = 60_000;
const LLVM_OF_ALL: u64 = 3_000;

/// All forms of a level that are drawn, by all sizes or those that are drawn.
fn sweep(level: &Level) {
    let sample = Sample::of_environment();
    let mut memory = Memory::new();
    for pair in dtypes(level) {
        let packs = packs(level, pair);
        let numbers = Numbers::new(pair, [MOST, MOST_COLUMNS, MOST], true);
        for form in forms(pair).filter(|form| packs || form.y != Layout::Packed) {
            let open = form.extents == [None; 3];
            if level.instant.is_some() && (open || sample.has((level.name, form), FORMS)) {
                try_form(level, &form, Compiler::Cranelift, sample, &numbers, &mut memory);
            }
            // Only LLVM supports tiles and pairs.
            let of = match (sample.is_all(), level.instant.is_some()) {
                (false, true) => LLVM,
                (true, true) | (false, false) => LLVM_OF_ALL,
                (true, false) => LLVM_OF_ALL / 100,
            };
            let drawn = sample.draws((level.name, form, 1), of) || open && level.instant.is_none();
            if level.here && drawn {
                try_form(level, &form, Compiler::Llvm, sample, &numbers, &mut memory);
            }
        }
    }
}

/// Whether constants of a dtype are packed: where panels hold the same dtype.
fn packs(level: &Level, dtypes: (DType, DType)) -> bool {
    let (x, y) = (Layout::AlongK, Layout::Packed);
    let form = Form { dtypes, x, y, extents: [None; 3] };
    plan(&form.shape(), &level.isa).panel_dtype == dtypes.0
}

fn try_form(
    level: &Level,
    form: &Form,
    compiler: Compiler,
    sample: Sample,
    numbers: &Numbers,
    memory: &mut Memory,
) {
    let contraction = Contraction::new(level, *form, compiler);
    let sizes = form.sizes();
    // Traps take long.
    let of = if level.isa.extensions.amx { RUNS * 10 } else { RUNS };
    let open = form.extents.iter().filter(|extent| extent.is_none()).count();
    let few = open == 0 || open == 1 && !level.isa.extensions.amx;
    for (i, &sizes) in sizes.iter().enumerate() {
        if few || sample.has((form, sizes), of) || i == 0 {
            contraction.check(memory, numbers, sizes);
        }
    }
}

#[test]
fn sweep_of_x86_64_v2() {
    sweep(&levels::v2());
}

#[test]
fn sweep_of_x86_64_v3() {
    sweep(&levels::v3());
}

#[test]
fn sweep_of_x86_64_v4() {
    sweep(&levels::v4());
}

#[test]
fn sweep_of_pairs_of_bf16() {
    sweep(&levels::pairs());
}

#[test]
fn sweep_of_tiles_of_bf16() {
    sweep(&levels::tiles());
}

/// Linear layers of 7 and 8 features with an open batch: their weights' gradients.
#[test]
fn few_rows_and_an_open_axis() {
    let mut memory = Memory::new();
    for level in levels::all().into_iter().filter(|level| level.instant.is_some()) {
        for dtype in [DType::F32, DType::F64, DType::I32] {
            let numbers = Numbers::new((dtype, dtype), [MOST, MOST_COLUMNS, MOST], true);
            for m in [1, 4, 5, 6, 7, 8, 9, 15, 16] {
                for (x, y) in list::LAYOUTS.into_iter().filter(|&(_, y)| y != Layout::Packed) {
                    for extents in [[Some(m), None, Some(9)], [Some(m), Some(9), None]] {
                        let form = Form { dtypes: (dtype, dtype), x, y, extents };
                        let made = Contraction::new(&level, form, Compiler::Cranelift);
                        for sizes in form.sizes().into_iter().step_by(4) {
                            made.check(&mut memory, &numbers, sizes);
                        }
                    }
                }
            }
        }
    }
}
