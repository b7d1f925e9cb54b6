//! Every plan that there is for a grid of shapes is run, and so is every remainder of its tiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use mithril_ir::dtype::DType::{self, *};
use mithril_kernels::contract::Layout::Packed;
use mithril_kernels::contract::{Plan, plan};

use crate::levels::{self, Level};
use crate::list::{Form, LAYOUTS, MOST, MOST_COLUMNS, Sample, forms};
use crate::numbers::Numbers;
use crate::run::{Compiler, Contraction, Memory};

/// One pair of dtypes for each way to hold, convert and multiply numbers.
const DTYPES: [(DType, DType); 7] =
    [(F32, F32), (F64, F64), (F32, F64), (BF16, F32), (I8, I8), (I8, I32), (I16, I16)];

/// Of how many plans one is run, where not all are.
const PLANS: u64 = 30;
const LLVM: u64 = 1500;

/// The pairs whose plans a level has for itself.
fn dtypes(level: &Level) -> impl Iterator<Item = (DType, DType)> {
    let own = level.isa.extensions.pairs || level.isa.extensions.amx;
    DTYPES.into_iter().filter(move |&(dtype, _)| !own || dtype == BF16)
}

fn extents(all: i64, more: &[i64]) -> Vec<Option<i64>> {
    (-1..=all).chain(more.iter().copied()).map(|extent| (extent >= 0).then_some(extent)).collect()
}

/// The plans of a grid of shapes: as layouts and text, with the shape that has the fewest products.
fn variants(level: &Level, dtypes: (DType, DType)) -> BTreeMap<String, Form> {
    let mut all: BTreeMap<String, (i64, Form)> = BTreeMap::new();
    let (rows, columns) = (extents(26, &[33, 48, 96, 129]), extents(34, &[64, 70, 129, 333]));
    let depths = extents(2, &[16, 17, 33, 260, 1024, 1184, 4500, 20_000]);
    for (x, y) in LAYOUTS {
        for &m in &rows {
            for &n in &columns {
                for &k in &depths {
                    let form = Form { dtypes, x, y, extents: [m, n, k] };
                    let plan = plan(&form.shape(), &level.isa);
                    if y == Packed && plan.panel_dtype != dtypes.0 {
                        continue;
                    }
                    let products = [m, n, k].map(|extent| extent.unwrap_or(9)).iter().product();
                    let own = all.entry(format!("{x:?} {y:?}: {plan}")).or_insert((products, form));
                    // What has no products says nothing.
                    if own.0 == 0 || (1..own.0).contains(&products) {
                        *own = (products, form);
                    }
                }
            }
        }
    }
    all.into_iter().map(|(name, (_, form))| (name, form)).collect()
}

/// Runs each plan of a level that is drawn.
fn run(level: &Level) {
    let sample = Sample::of_environment();
    let mut memory = Memory::new();
    for pair in dtypes(level) {
        for (name, form) in variants(level, pair) {
            if level.instant.is_some() && sample.has((level.name, pair, &name), PLANS) {
                run_one(level, form, Compiler::Cranelift, &mut memory);
            }
            let of = if level.instant.is_some() { LLVM } else { PLANS * 4 };
            if level.here && sample.draws((level.name, pair, &name, 1), of) {
                run_one(level, form, Compiler::Llvm, &mut memory);
            }
        }
    }
}

fn run_one(level: &Level, form: Form, compiler: Compiler, memory: &mut Memory) {
    let made = Contraction::new(level, form, compiler);
    for open in [[9, 9, 9], [33, 70, 37]] {
        let sizes = std::array::from_fn(|axis| form.extents[axis].unwrap_or(open[axis]));
        made.check(memory, &Numbers::new(form.dtypes, sizes, false), sizes);
        if !form.extents.contains(&None) {
            break;
        }
    }
}

#[test]
fn plans_of_x86_64_v2() {
    run(&levels::v2());
}

#[test]
fn plans_of_x86_64_v3() {
    run(&levels::v3());
}

#[test]
fn plans_of_x86_64_v4() {
    run(&levels::v4());
}

#[test]
fn plans_of_pairs_of_bf16() {
    run(&levels::pairs());
}

#[test]
fn plans_of_tiles_of_bf16() {
    run(&levels::tiles());
}

/// The remainders of an extent by a size, as bits.
#[derive(Default)]
struct Remainders(BTreeMap<i64, [u64; 4]>);

impl Remainders {
    fn add(&mut self, size: i64, extent: Option<i64>, most: i64) {
        let bits = self.0.entry(size).or_default();
        let mut add =
            |extent: i64| bits[(extent % size) as usize / 64] |= 1 << (extent % size % 64);
        match extent {
            Some(extent) => add(extent),
            None => (0..=most).for_each(add),
        }
    }

    /// How many of each size there are.
    fn print(&self) -> String {
        let one = |(size, bits): (&i64, &[u64; 4])| {
            let count: u32 = bits.iter().map(|bits| bits.count_ones()).sum();
            if count as i64 == *size { format!("{size}") } else { format!("{size}: {count}") }
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

fn tallest(plan: &Plan) -> i64 {
    let boxes = match plan.swapped {
        true => plan.boxes(1, 200),
        false => plan.boxes(200, 1),
    };
    let rows = boxes.into_iter().map(|[x, y]| if plan.swapped { y } else { x });
    rows.map(|rows| rows.end - rows.start).max().unwrap_or(1)
}

/// What the list has: the remainders of rows by the tallest tile, of columns by a strip, and of
/// steps of `k` by a turn of the innermost loop.
fn remainders(level: &Level, dtypes: (DType, DType), report: &mut String) {
    let mut all: [Remainders; 3] = Default::default();
    for form in forms(dtypes) {
        let plan = plan(&form.shape(), &level.isa);
        let [mut m, mut n, k] = form.extents;
        let mut most = [MOST, MOST_COLUMNS];
        if plan.swapped {
            (m, n, most) = (n, m, [MOST_COLUMNS, MOST]);
        }
        all[0].add(tallest(&plan), m, most[0]);
        all[1].add(plan.strip(), n, most[1]);
        all[2].add((4 * plan.group).max(plan.unit), k, MOST);
    }
    for (what, remainders) in ["rows", "columns", "steps"].into_iter().zip(all) {
        writeln!(report, "  remainders of {what}: {}", remainders.print()).expect("memory");
    }
}

/// How many tiles there are, and what they have for rows and for columns.
fn summary(tiles: &[String]) -> String {
    let part = |at: usize| -> BTreeSet<&str> {
        tiles.iter().filter_map(|tile| tile.split(" x ").nth(at)).collect()
    };
    // Tiles that are known differ by their height, and whether there are several.
    let (known, open): (Vec<&str>, Vec<&str>) =
        part(0).into_iter().partition(|rows| rows.starts_with(|c: char| c.is_ascii_digit()));
    let heights: BTreeSet<u32> = known
        .iter()
        .flat_map(|rows| rows.split('+'))
        .filter_map(|height| height.trim_end_matches('.').parse().ok())
        .collect();
    let heights =
        heights.iter().map(u32::to_string).chain(open.iter().map(|rows| rows.to_string()));
    let heights: Vec<String> = heights.collect();
    let columns: Vec<&str> = part(1).into_iter().collect();
    format!("{} plans, {} x {}", tiles.len(), heights.join(" "), columns.join(" "))
}

/// The plans and remainders of each level, as they were recorded. `BLESS=1` records them anew.
#[test]
fn plans_are_those_that_were_recorded() {
    let mut report = String::new();
    for level in levels::all() {
        for pair in dtypes(&level) {
            writeln!(report, "{} {:?} {:?}", level.name, pair.0, pair.1).expect("memory");
            let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for name in variants(&level, pair).into_keys() {
                let (_, plan) = name.split_once(": ").expect("layouts");
                let (kind, tile) = plan.split_once("; ").expect("a tile");
                kinds.entry(kind.into()).or_default().push(tile.into());
            }
            for (kind, tiles) in kinds {
                writeln!(report, "  {kind}: {}", summary(&tiles)).expect("memory");
            }
            remainders(&level, pair, &mut report);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contractions/plans.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &report).expect("the record is written");
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = report.lines().zip(recorded.lines()).find(|(now, then)| now != then);
    assert!(
        report == recorded,
        "plans are others than recorded; BLESS=1 records them\n{differs:?}"
    );
}
