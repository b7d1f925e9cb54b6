//! Chooses the sizes of a contraction's tiles, blocks and tasks from its shape alone.

mod places;
mod show;
pub(super) mod walk;

use mithril_ir::dtype::DType;

use crate::builder::Builder;
use crate::code::{TILE_BYTES, TILE_ROWS, V};
use crate::contract::task;
use crate::isa::Isa;

/// The axis along which an operand's elements are contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    AlongK,
    AlongOuter,
    Strided,
    /// No axis: see [`Gather`](super::gather::Gather).
    Gathered,
    /// Packed by [`pack`](super::pack).
    Packed,
}

/// The properties of a contraction that are known when code is generated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    pub dtype: DType,
    pub acc: DType,
    pub m: Option<i64>,
    pub n: Option<i64>,
    pub k: Option<i64>,
    pub x: Layout,
    /// The distance between rows of `x`, in elements.
    pub x_stride: Option<i64>,
    pub y: Layout,
}

/// The structure of the loops.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// Tiles that are computed directly from both operands.
    Direct,
    /// Tiles that are computed from panels of both operands, copied to scratch memory.
    Panels,
    /// Reads each row of `y` from end to end, for few rows of `x`: so many. The sums of all of them
    /// are kept while `y` is read.
    Sweep { rows: i64 },
    /// Dot products, for few rows of `x` where `x` and `y` both lie along `k`.
    Dots,
}

/// How the rows are divided among tiles.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Rows {
    /// `tiles` tiles: the first `tall` have `height` rows, the others one row less.
    Balanced { height: u32, tall: i64, tiles: i64 },
    /// As many tiles as fit of each height, the largest height first; the last height is 1.
    Greedy(Vec<u32>),
    /// Tiles of this many rows, the last of which may have fewer.
    Steps(u32),
}

/// The sizes of a contraction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    pub scheme: Scheme,
    /// Whether the results are computed as `yᵀ·xᵀ`. This is so for a `y` of one column.
    pub swapped: bool,
    /// The dtypes of the sums and of the results.
    pub work: DType,
    pub acc: DType,
    pub fma: bool,
    /// The dtype of panels, and how many neighbours along `k` they store next to each other.
    pub held: DType,
    pub group: i64,
    /// The number of steps of `k` that are multiplied at once.
    pub unit: i64,
    /// Whether the sums are in AMX tiles.
    pub amx: bool,
    /// The tile: lanes per vector, vectors per row, and its rows.
    pub lanes: u32,
    pub vectors: u32,
    rows: Rows,
    /// The lanes of a full register.
    pub register: u32,
    /// The tiles of rows and the columns in a task, where a scheme has several, and the steps of
    /// `k` in a panel.
    block_tiles: i64,
    block_cols: i64,
    pub depth: i64,
    /// Whether `k` may need several panels.
    pub deep: bool,
    /// How many panels of a block of `y` are stored: all, or one.
    pub panels: i64,
    /// Whether `x` is read in place, not packed.
    pub x_in_place: bool,
}

/// The scratch memory for a block of `y`, in bytes: about half of a second-level cache.
const BLOCK_BYTES: i64 = 512 << 10;
/// The bytes along `k` of a panel that is one of several, and of one that is the only panel. With
/// these, rows of `x` stay in the first-level cache.
const DEPTH_BYTES: i64 = 2048;
const ALONE_BYTES: i64 = 3072;
/// The size of `y` in bytes above which it is read row by row, and the bytes of sums that are kept
/// in that case.
const SWEPT_BYTES: i64 = 256 << 10;
const SUM_BYTES: i64 = 8 << 10;
/// The bytes along `k` of a panel for AMX tiles, and the columns of its block. Products are so fast
/// there that the cost of copying `x` matters.
const TILED_BYTES: i64 = 1024;
const TILED_COLS: i64 = 512;
/// The bytes of rows of `x` that stay in the first-level cache next to the other data.
const NEAR_BYTES: i64 = 28 << 10;
const MOST_ROWS: u32 = 24;
const MOST_COLS: i64 = 256;
const MOST_TILES: i64 = 16;
/// The number of products that is worth a task: about 20 µs.
const TASK_PRODUCTS: i64 = 1 << 20;
/// The maximum number of panels of a block of `y` that are all kept for the following rows.
const MOST_PANELS: i64 = 8;
/// The number of pieces of work for two threads (`PIECES`), and the smallest number that they can
/// share evenly (`SHARES`). `SWEPT_SHARES` is smaller because `Scheme::Sweep` reads rows from end
/// to end, which should be long.
const PIECES: i64 = 8;
const SHARES: i64 = 4;
const SWEPT_SHARES: i64 = 2;
/// The assumed number of rows where it is not known.
const MANY: i64 = 1000;

/// Chooses the sizes for a shape.
pub fn plan(shape: &Shape, isa: &Isa) -> Plan {
    if shape.n == Some(1) && shape.m != Some(1) && shape.y != Layout::Packed {
        let swapped =
            Shape { m: shape.n, n: shape.m, x: shape.y, x_stride: None, y: shape.x, ..*shape };
        return Plan { swapped: true, ..plan(&swapped, isa) };
    }
    let work = work(shape.dtype, shape.acc);
    let register = isa.bytes / work.bytes() as u32;
    let scheme = scheme(shape, work);
    let (held, group, unit) = match scheme {
        Scheme::Panels => grouped(shape, work, isa),
        _ => (work, 1, 1),
    };
    let amx = group > 1 && isa.extensions.amx;
    let (lanes, vectors) = match scheme {
        // Sums are AMX squares, two by two if there are enough columns.
        _ if amx => (register, if shape.n.is_some_and(|n| n <= TILE_ROWS) { 1 } else { 2 }),
        Scheme::Dots => (dot_lanes(shape, register), 1),
        Scheme::Sweep { .. } => (register, 2),
        _ => {
            let (lanes, vectors) = width(shape, isa, register);
            // Vectors of pairs have at least 4 lanes.
            (if group > 1 { lanes.max(4) } else { lanes }, vectors)
        }
    };
    let rows = match shape.m {
        Some(..=TILE_ROWS) if amx => Rows::Steps(TILE_ROWS as u32),
        _ if amx => Rows::Steps(2 * TILE_ROWS as u32),
        _ => share(shape.m, tallest(scheme, vectors, isa.registers)),
    };
    let mut plan = Plan {
        scheme,
        swapped: false,
        work,
        acc: shape.acc,
        fma: isa.fma && work.is_float(),
        held,
        group,
        unit,
        amx,
        lanes,
        vectors,
        rows,
        register,
        block_tiles: 1,
        block_cols: (lanes * vectors) as i64,
        depth: 0,
        deep: false,
        panels: 1,
        x_in_place: true,
    };
    match scheme {
        Scheme::Panels => plan.block(shape),
        Scheme::Sweep { rows } => plan.sweep(shape, rows),
        Scheme::Direct | Scheme::Dots => return plan,
    }
    plan.narrow(shape);
    plan
}

/// The dtype of panels, how many neighbours along `k` they store next to each other, and how many
/// steps of `k` are multiplied at once.
fn grouped(shape: &Shape, work: DType, isa: &Isa) -> (DType, i64, i64) {
    match (shape.dtype, work) {
        (DType::BF16, DType::F32) if isa.extensions.amx => (DType::BF16, 2, TILE_BYTES / 2),
        (DType::BF16, DType::F32) if isa.extensions.pairs => (DType::BF16, 2, 2),
        _ => (work, 1, 1),
    }
}

/// The dtype of the arithmetic. 8-bit integers are multiplied in 16 bits, which processors have
/// instructions for; the results wrap to the same values.
fn work(dtype: DType, acc: DType) -> DType {
    match acc {
        _ if acc.is_float() && (dtype == DType::F64 || acc == DType::F64) => DType::F64,
        _ if acc.is_float() => DType::F32,
        DType::I8 | DType::U8 => DType::I16,
        _ => acc,
    }
}

fn scheme(shape: &Shape, work: DType) -> Scheme {
    let Some(m) = shape.m.filter(|_| shape.x != Layout::Gathered) else {
        return Scheme::Panels;
    };
    if m <= 4 && shape.y == Layout::AlongK && shape.x == Layout::AlongK {
        return Scheme::Dots;
    }
    let small = products(shape).is_some_and(|products| products <= 32 * 32 * 32);
    // Packing pays from the second tile of rows on. It pays sooner where elements are converted,
    // because scalars are converted one at a time.
    let few = if work == shape.dtype { 14 } else { 4 };
    if shape.y != Layout::AlongOuter || (m > few && !small) {
        return Scheme::Panels;
    }
    let large = |n: i64, k: i64| n * k * work.bytes() as i64 > SWEPT_BYTES;
    match (shape.n, shape.k) {
        (Some(n), Some(k)) if !large(n, k) => Scheme::Direct,
        _ if (1..=few.min(8)).contains(&m) => Scheme::Sweep { rows: m },
        _ if m == 0 => Scheme::Direct,
        _ => Scheme::Panels,
    }
}

/// The number of multiplications, if known.
fn products(shape: &Shape) -> Option<i64> {
    Some(shape.m?.saturating_mul(shape.n?).saturating_mul(shape.k?))
}

/// How many dot products are accumulated at a time, to get vectors of results.
fn dot_lanes(shape: &Shape, register: u32) -> u32 {
    let most = match shape.m {
        Some(..=1) => 16,
        Some(..=3) => 8,
        _ => 4,
    };
    let columns = shape.n.map_or(most, |n| (n.clamp(1, 64) as u32).next_power_of_two());
    most.min(columns).min(register)
}

/// The lanes and vectors of a tile's rows: those with the lowest cost for all columns. A packed `y`
/// has to serve any number of rows.
fn width(shape: &Shape, isa: &Isa, register: u32) -> (u32, u32) {
    let m = if shape.y == Layout::Packed { None } else { shape.m };
    let Some(n) = shape.n.map(|n| n.max(1)) else {
        return (register, 2);
    };
    if n <= register as i64 && m != Some(1) {
        return ((n.max(2) as u32).next_power_of_two(), 1);
    }
    if let Some(m @ 1..=4) = m {
        let most = (isa.registers / 2) as i64 / m;
        return (register, most.min(parts(n, register as i64)) as u32);
    }
    let bytes = isa.bytes as i64 / register as i64;
    let cost = |vectors: u32| -> i64 {
        let height = tallest(Scheme::Panels, vectors, isa.registers) as i64;
        let v = vectors as i64;
        let rows = m.map_or(MANY, |m| m.max(1));
        let tiles = parts(rows, height);
        let strips = parts(n, v * register as i64);
        // Two multiplications or loads are issued at a time. Loads of `y` come from a farther
        // cache, and so do loads of `x` if its rows are too long.
        let far = match shape.k {
            Some(k) if k * bytes <= ALONE_BYTES && height * k * bytes > NEAR_BYTES => rows * v,
            _ => 0,
        };
        strips * (20 * (rows * v).max(rows + tiles * v) + 6 * tiles * v + 2 * far)
    };
    let most = if isa.registers >= 32 { 5 } else { 3 };
    let vectors = [2, 3, 4, 5, 1].into_iter().filter(|&v| v <= most).min_by_key(|&v| cost(v));
    (register, vectors.expect("there are some"))
}

/// The maximum number of rows of a tile whose sums fit the registers together with a row of `y` and
/// an element of `x`.
fn tallest(scheme: Scheme, vectors: u32, registers: u32) -> u32 {
    match scheme {
        Scheme::Dots => 4,
        _ => ((registers - vectors - 1) / vectors).clamp(1, MOST_ROWS),
    }
}

fn share(m: Option<i64>, tallest: u32) -> Rows {
    match m {
        Some(m) if m > 0 => {
            let tiles = parts(m, tallest as i64);
            let height = parts(m, tiles);
            Rows::Balanced { height: height as u32, tall: m - tiles * (height - 1), tiles }
        }
        _ if tallest > 4 => Rows::Greedy(vec![tallest, 4, 1]),
        _ => Rows::Greedy(vec![tallest, 1]),
    }
}

impl Plan {
    /// The number of columns of a tile.
    pub fn strip(&self) -> i64 {
        (self.lanes * self.vectors) as i64
    }

    /// Whether the last strip of `n` columns is known to be full.
    pub(super) fn whole_strips(&self, b: &Builder, n: V) -> bool {
        b.constant(n).is_some_and(|n| n % self.strip() == 0)
    }

    /// Whether it pays to prefetch rows of `x`.
    pub(super) fn rows_ahead(&self) -> bool {
        !matches!(self.rows, Rows::Balanced { tiles: ..=4, .. })
    }

    /// The elements of a cache line.
    pub(super) fn line(&self) -> i64 {
        64 / self.held.bytes() as i64
    }

    /// The elements of a vector register of a panel.
    pub(super) fn wide(&self) -> i64 {
        self.register as i64 * self.group
    }

    /// The steps of `k` in a panel, padded to a multiple of the unit.
    pub(super) fn filled(&self, b: &mut Builder, k: V) -> V {
        match self.unit {
            1 => k,
            unit => {
                let units = task::blocks(b, k, unit);
                b.times(units, unit)
            }
        }
    }

    /// The elements per column of a strip, with one row of padding: strips a power of two apart
    /// would compete for the same cache sets.
    pub(super) fn room(&self) -> i64 {
        self.depth + self.group
    }

    /// The rows of the tallest tile. A task may have several tiles, which only [`walk`] enumerates.
    fn height(&self) -> i64 {
        match &self.rows {
            Rows::Balanced { height, .. } | Rows::Steps(height) => *height as i64,
            Rows::Greedy(heights) => heights[0] as i64,
        }
    }

    fn sweep(&mut self, shape: &Shape, rows: i64) {
        let most = SUM_BYTES / (self.work.bytes() as i64 * rows);
        let most = most.max(self.strip()) / self.strip() * self.strip();
        self.block_cols = shape.n.map_or(most, |n| even(n, most, self.strip()));
    }

    fn block(&mut self, shape: &Shape) {
        let bytes = self.held.bytes() as i64;
        let (alone, deep, cols) = match self.amx {
            true => (TILED_BYTES, TILED_BYTES, TILED_COLS),
            false => (ALONE_BYTES, DEPTH_BYTES, MOST_COLS),
        };
        self.depth = deep / bytes;
        match shape.k {
            Some(k) if k * bytes <= alone => self.depth = up(k.max(1), self.unit),
            Some(k) => {
                self.depth = even(k, self.depth, self.line());
                let panels = parts(k, self.depth);
                self.deep = true;
                self.panels = if panels <= MOST_PANELS { panels } else { 1 };
            }
            None => self.deep = true,
        }
        // Rows at a stride that is a multiple of 2048 bytes would evict each other from the cache.
        let stride = shape.x_stride.map(|s| s * bytes);
        self.x_in_place = shape.dtype == self.held
            && shape.x == Layout::AlongK
            && (self.unit == 1 || shape.k.is_some_and(|k| k % self.unit == 0))
            && (!self.amx || shape.m.is_some_and(|m| m % TILE_ROWS == 0))
            && stride.is_some_and(|bytes| bytes % 2048 != 0);
        let most = (BLOCK_BYTES / (self.depth * bytes)).min(cols).max(self.strip());
        // A thread copies the block of `y` again for each piece of work that it takes, so each
        // piece should have a block of its own.
        let narrow = !self.deep && self.x_in_place && shape.y != Layout::Packed;
        let most = match shape.n {
            Some(n) if narrow => most.min((n / PIECES).max(self.strip())),
            _ => most,
        };
        let most = most / self.strip() * self.strip();
        self.block_cols = shape.n.map_or(most, |n| even(n, most, self.strip()));
        // If there are several panels of `y`, each task reads all of them.
        let most = match self.deep {
            false => TASK_PRODUCTS / (self.height() * self.block_cols * self.depth).max(1),
            true => MOST_TILES,
        };
        let most = most.clamp(1, MOST_TILES);
        self.block_tiles = match self.rows {
            Rows::Balanced { tiles, .. } => even(tiles, most, 1),
            Rows::Greedy(_) | Rows::Steps(_) => {
                shape.m.map_or(most, |m| even(parts(m.max(1), self.height()), most, 1))
            }
        };
    }

    /// Makes the blocks of columns narrower if there would be too few tasks for the threads.
    fn narrow(&mut self, shape: &Shape) {
        let (Some(m), Some(n), Some(products)) = (shape.m, shape.n, products(shape)) else {
            return;
        };
        let rows = parts(parts(m.max(1), self.height()), self.block_tiles);
        let is_sweep = matches!(self.scheme, Scheme::Sweep { .. });
        let most = if is_sweep { SWEPT_SHARES } else { SHARES };
        let columns = parts((products / TASK_PRODUCTS).clamp(1, most), rows);
        if parts(n.max(1), self.block_cols) < columns {
            let most = (n / columns / self.strip() * self.strip()).max(self.strip());
            self.block_cols = even(n, most, self.strip());
        }
    }
}

/// The size of nearly equal parts of `whole`: at most `most`, and a multiple of `unit`.
fn even(whole: i64, most: i64, unit: i64) -> i64 {
    let parts = (whole.max(1) as u64).div_ceil(most as u64);
    let units = (whole.max(1) as u64).div_ceil(unit as u64);
    units.div_ceil(parts) as i64 * unit
}

/// How many parts of `size` cover `whole`.
pub(super) fn parts(whole: i64, size: i64) -> i64 {
    (whole as u64).div_ceil(size as u64) as i64
}

/// Rounds up to a multiple of `unit`.
fn up(size: i64, unit: i64) -> i64 {
    parts(size, unit) * unit
}
