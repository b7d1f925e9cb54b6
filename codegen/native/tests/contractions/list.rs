//! Which contractions are tried: what code is made for, and the extents that it is run with.

use std::hash::{DefaultHasher, Hash, Hasher};

use mithril_ir::dtype::DType::{self, *};
use mithril_kernels::contract::Layout::{self, AlongK, AlongOuter, Packed, Strided};
use mithril_kernels::contract::Shape;

use crate::levels::Level;
use crate::matmul::{Case, PAIRS, PLAIN};

/// A contraction as code is made for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Form {
    pub dtypes: (DType, DType),
    pub x: Layout,
    pub y: Layout,
    /// `m`, `n` and `k` where they are static.
    pub extents: [Option<i64>; 3],
}

/// Extents are tried from 0 to here; where they are not the one that is swept, some of them.
pub const MOST: i64 = 40;
const SOME: [i64; 6] = [0, 1, 7, 8, 17, 33];
/// Open columns are tried up to here: two strips of the widest vectors.
pub const MOST_COLUMNS: i64 = 130;

pub const LAYOUTS: [(Layout, Layout); 12] = [
    (AlongK, AlongOuter),
    (AlongK, AlongK),
    (AlongOuter, AlongOuter),
    (AlongOuter, AlongK),
    (Strided, Strided),
    (AlongK, Strided),
    (Strided, AlongK),
    (AlongOuter, Strided),
    (Strided, AlongOuter),
    (AlongK, Packed),
    (AlongOuter, Packed),
    (Strided, Packed),
];

impl Form {
    pub fn case(&self) -> Case {
        let [m, n, k] = self.extents.map(|extent| extent.unwrap_or(1));
        let open = self.extents.map(|extent| extent.is_none());
        let dynamic = [false, open[0], open[1], open[2]];
        let (dtype, acc) = self.dtypes;
        Case { m, n, k, dynamic, x: self.x, y: self.y, dtype, acc, ..PLAIN }
    }

    /// What is known of it when code is made.
    pub fn shape(&self) -> Shape {
        let [m, n, k] = self.extents;
        let x_stride = match self.x {
            AlongK => k,
            AlongOuter => Some(1),
            Strided => k.map(|k| 2 * k),
            Packed => unreachable!("`y` alone is packed"),
            Layout::Gathered => unreachable!("these cases lie in steps"),
        };
        let (dtype, acc) = self.dtypes;
        Shape { dtype, acc, m, n, k, x: self.x, x_stride, y: self.y }
    }

    /// The extents that its code is run with.
    pub fn sizes(&self) -> Vec<[i64; 3]> {
        let all: Vec<i64> = (0..=MOST).collect();
        let open = self.extents.iter().filter(|extent| extent.is_none()).count();
        let swept = |axis: Option<usize>| -> Vec<[i64; 3]> {
            let along = |at: usize| match self.extents[at] {
                Some(extent) => vec![extent],
                None if open == 2 && axis != Some(at) => SOME.to_vec(),
                None => all.clone(),
            };
            product([along(0), along(1), along(2)])
        };
        let mut sizes = match open {
            2 => (0..3)
                .filter(|&at| self.extents[at].is_none())
                .flat_map(|at| swept(Some(at)))
                .collect(),
            _ => swept(None),
        };
        if self.extents[1].is_none() {
            let few = |extent: Option<i64>| extent.map_or(vec![1, 9], |extent| vec![extent]);
            let columns = (MOST + 1..=MOST_COLUMNS).collect();
            sizes.extend(product([few(self.extents[0]), columns, few(self.extents[2])]));
        }
        sizes
    }
}

fn product([m, n, k]: [Vec<i64>; 3]) -> Vec<[i64; 3]> {
    let mut all = Vec::with_capacity(m.len() * n.len() * k.len());
    for &m in &m {
        for &k in &k {
            all.extend(n.iter().map(|&n| [m, n, k]));
        }
    }
    all
}

/// What is static: nothing, or one axis that is swept and the others or some of them among a few.
pub fn extents() -> Vec<[Option<i64>; 3]> {
    let mut all = vec![[None; 3]];
    for axis in 0..3 {
        for swept in 0..=MOST {
            let others: Vec<Option<i64>> = [None].into_iter().chain(SOME.map(Some)).collect();
            for &one in &others {
                for &other in &others {
                    let mut extents = [one; 3];
                    extents[(axis + 1) % 3] = other;
                    extents[axis] = Some(swept);
                    all.push(extents);
                }
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

/// The forms of some dtypes.
pub fn forms(dtypes: (DType, DType)) -> impl Iterator<Item = Form> {
    LAYOUTS.into_iter().flat_map(move |(x, y)| {
        extents().into_iter().map(move |extents| Form { dtypes, x, y, extents })
    })
}

/// The dtypes whose plans a level has for itself.
pub fn dtypes(level: &Level) -> impl Iterator<Item = (DType, DType)> {
    let own = level.isa.extensions.pairs || level.isa.extensions.amx;
    PAIRS.into_iter().filter(move |&(dtype, _)| !own || dtype == BF16)
}

/// Which of many cases are run: all where `MITHRIL_TESTS=all`, else a sample by `MITHRIL_SEED`.
#[derive(Clone, Copy)]
pub struct Sample {
    all: bool,
    seed: u64,
}

impl Sample {
    pub fn of_environment() -> Sample {
        let all = std::env::var("MITHRIL_TESTS").is_ok_and(|which| which == "all");
        let seed = std::env::var("MITHRIL_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(0);
        if !all {
            println!("MITHRIL_SEED={seed}");
        }
        Sample { all, seed }
    }

    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Whether a case is one of the sample, to which one of `of` belongs.
    pub fn has(&self, case: impl Hash, of: u64) -> bool {
        self.all || self.draws(case, of)
    }

    /// The same, but of all cases too no more than a sample is run.
    pub fn draws(&self, case: impl Hash, of: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.seed, case).hash(&mut hasher);
        hasher.finish().is_multiple_of(of)
    }
}
