//! The lengths of transforms, and the memory that they use.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;

use crate::builder::Builder;
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::nest::Nest;

/// Lengths with a larger prime factor are transformed by a convolution (`chirp.rs`).
pub const MAX_FACTOR: i64 = 61;
/// Passes of larger factors are loops: their code would be long.
pub const MAX_UNROLLED: i64 = 13;
/// The factors of which passes of a length that is not known are specialized, in order.
pub const SPECIAL: [i64; 4] = [4, 2, 3, 5];

/// The length of a transform, with its factors.
#[derive(Clone)]
pub struct Length {
    pub value: V,
    pub factors: Factors,
}

/// The factors of a length, in the order of the passes.
#[derive(Clone)]
pub enum Factors {
    Fixed(Vec<i64>),
    /// How often each of [`SPECIAL`] occurs. Other factors are found by trial.
    Counted([V; 4]),
}

/// The memory of a kernel, and what it knows of lengths.
pub struct Plan {
    /// The elements of lines, twice: passes read one half and write the other. Elements of the same
    /// index of all lines are next to each other.
    pub re: Mem,
    pub im: Mem,
    /// The number of elements in a half.
    pub half: V,
    /// `exp(-2πi k / n)` of the length of the passes.
    pub cos: Mem,
    pub sin: Mem,
    /// The chirp and the spectrum of the filter, if there is a convolution.
    pub chirp: [Mem; 2],
    pub filter: [Mem; 2],
    /// The number of elements, and the length of passes: longer for a convolution.
    pub size: V,
    pub length: Length,
    /// Whether lines are transformed by a convolution: known, or a bool.
    pub convolves: Choice,
    /// The number of lines of a task.
    pub unit: i64,
    /// The number of lanes of a vector.
    pub lanes: u32,
    pub dtype: DType,
    /// Whether `a * b + c` is one instruction.
    pub fuses: bool,
    /// The size of the memory in bytes.
    pub scratch: Dim,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Choice {
    Always,
    Never,
    If(V),
}

/// The factors of a length, from 4 and 2 up. Errors: the largest prime factor, if passes do not
/// support it.
fn factors(mut n: i64) -> Result<Vec<i64>, i64> {
    let mut factors = Vec::new();
    for factor in SPECIAL.into_iter().chain((7..).step_by(2)) {
        while n % factor == 0 && n > 1 {
            if factor > MAX_FACTOR {
                return Err(factor);
            }
            factors.push(factor);
            n /= factor;
        }
        if n == 1 {
            return Ok(factors);
        }
        if factor > MAX_FACTOR {
            return Err(n);
        }
    }
    Ok(factors)
}

/// The length of the passes of a convolution of `n` elements: the least that is long enough of the
/// powers of 2 and a few multiples of them, whose passes are as fast.
fn convolution_length(n: i64) -> i64 {
    let enough = |factor: i64| {
        let mut length = factor;
        while length < 2 * n - 1 {
            length *= 2;
        }
        length
    };
    [1, 3, 5, 9].map(enough).into_iter().min().unwrap_or(1)
}

impl Plan {
    /// Emits the preparation for transforms of a length: its factors, and tables.
    pub fn new(nest: &mut Nest, length: &Dim, unit: i64, dtype: DType, fuses: bool) -> Plan {
        let size = nest.dim(length);
        let (long, own, convolves) = match length.as_const() {
            Some(n) => match factors(n.max(1)) {
                Ok(own) => (Dim::Const(n.max(1)), Some(own), Choice::Never),
                Err(_) => {
                    let long = convolution_length(n);
                    (Dim::Const(long), factors(long).ok(), Choice::Always)
                }
            },
            None => (length * &Dim::Const(4), None, Choice::Never),
        };
        let b = &mut nest.b;
        let (length, convolves) = match own {
            Some(own) => {
                let value = b.index(own.iter().product());
                (Length { value, factors: Factors::Fixed(own) }, convolves)
            }
            None => open_length(b, size),
        };
        // Rows are whole vectors, and tables are written beyond their ends.
        let elements = long.ceil_div(&Dim::Const(64)) * Dim::Const(64) + 64;
        let bytes = dtype.bytes() as i64;
        let mut offset = Dim::Const(0);
        let mut memory = |count: i64| {
            let at = nest.dim(&offset);
            let mem = nest.b.scratch(dtype, at);
            offset = &offset + &(&elements * &Dim::Const(count * bytes));
            mem
        };
        let (re, im) = (memory(2 * unit), memory(2 * unit));
        let (cos, sin) = (memory(1), memory(1));
        let (chirp, filter) = match convolves {
            Choice::Never => ([cos, sin], [cos, sin]),
            Choice::Always | Choice::If(_) => ([memory(1), memory(1)], [memory(1), memory(1)]),
        };
        let scratch = offset.clone();
        let half = nest.dim(&(&elements * &Dim::Const(unit)));
        let lanes = nest.lanes;
        let plan = Plan {
            re,
            im,
            half,
            cos,
            sin,
            chirp,
            filter,
            size,
            length,
            convolves,
            unit,
            lanes,
            dtype,
            fuses,
            scratch,
        };
        plan.prepare(&mut nest.b);
        plan
    }

    fn prepare(&self, b: &mut Builder) {
        let sizes = self.length.value;
        self.fill(b, [self.cos, self.sin], sizes, sizes, |_, k| k);
        match self.convolves {
            Choice::Never => {}
            Choice::Always => self.prepare_chirp(b),
            Choice::If(condition) => b.when(condition, |b| self.prepare_chirp(b)),
        }
    }

    /// Fills a table with the cosines and sines of `2π index(k) / turn` for each `k` below a count.
    /// The index is computed from vectors of f64.
    pub fn fill(
        &self,
        b: &mut Builder,
        table: [Mem; 2],
        count: V,
        turn: V,
        index: impl FnOnce(&mut Builder, V) -> V,
    ) {
        let lanes = self.lanes;
        let wide = Ty { dtype: DType::F64, lanes };
        let zero = b.index(0);
        let ramp = (lanes > 1).then(|| {
            let ramp = b.iota(wide.with(DType::I64));
            b.convert(ramp, DType::F64)
        });
        let turn = b.convert(turn, DType::F64);
        let turn = b.splat(turn, lanes);
        b.each(zero, count, i64::from(lanes), |b, first| {
            let k = b.convert(first, DType::F64);
            let mut k = b.splat(k, lanes);
            if let Some(ramp) = ramp {
                k = b.add(k, ramp);
            }
            let k = index(b, k);
            for (mem, v) in table.into_iter().zip(crate::scalar::turn(b, k, turn)) {
                let v = b.convert(v, self.dtype);
                b.store(mem, first, v, None);
            }
        });
    }

    /// Emits `body` for each vector of lines, with the number of lines before it and in it.
    pub fn each_line(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, V, u32)) {
        let (zero, unit) = (b.index(0), b.index(self.unit));
        match self.unit % i64::from(self.lanes) {
            0 => b.each(zero, unit, i64::from(self.lanes), |b, line| body(b, line, self.lanes)),
            _ => b.each(zero, unit, 1, |b, line| body(b, line, 1)),
        }
    }
}

/// Finds the factors of a length that is known at run time. If one is too large, the length is that
/// of a convolution.
fn open_length(b: &mut Builder, size: V) -> (Length, Choice) {
    let (zero, one) = (b.index(0), b.index(1));
    let own = b.binary(Binary::Max, size, one);
    let mut rest = own;
    let counts = SPECIAL.map(|factor| {
        let (rounds, divisor) = (b.index(40), b.index(factor));
        let found = b.repeat(zero, rounds, 1, &[rest, zero], |b, _, state| {
            divided(b, state, divisor).to_vec()
        });
        rest = found[0];
        found[1]
    });
    let convolves = has_other_factors(b, rest);
    // The least power of 2 that the convolution fits in, and its exponent.
    let needed = b.add(own, own);
    let needed = b.offset(needed, -1);
    let rounds = b.index(40);
    let power = b.repeat(zero, rounds, 1, &[one, zero], |b, _, state| {
        let less = b.compare(Cmp::Lt, state[0], needed);
        let (twice, next) = (b.add(state[0], state[0]), b.offset(state[1], 1));
        vec![b.select(less, twice, state[0]), b.select(less, next, state[1])]
    });
    let two = b.index(2);
    let (fours, twos) = (b.div(power[1], two), b.binary(Binary::Rem, power[1], two));
    let mut select = |long: V, own: V| b.select(convolves, long, own);
    let value = select(power[0], own);
    let counted = [
        select(fours, counts[0]),
        select(twos, counts[1]),
        select(zero, counts[2]),
        select(zero, counts[3]),
    ];
    (Length { value, factors: Factors::Counted(counted) }, Choice::If(convolves))
}

/// Whether a number has a prime factor that passes do not support. It has none of [`SPECIAL`].
fn has_other_factors(b: &mut Builder, rest: V) -> V {
    let (zero, one) = (b.index(0), b.index(1));
    let more = b.compare(Cmp::Gt, rest, one);
    let divided_by_all = |b: &mut Builder| {
        let (first, limit, rounds) = (b.index(7), b.index(MAX_FACTOR + 1), b.index(12));
        b.repeat(first, limit, 2, &[rest], |b, factor, state| {
            let found = b.repeat(zero, rounds, 1, &[state[0], zero], |b, _, state| {
                divided(b, state, factor).to_vec()
            });
            vec![found[0]]
        })
    };
    let left = b.choose(more, divided_by_all, |_| vec![rest])[0];
    b.compare(Cmp::Gt, left, one)
}

/// Divides the first number by a factor if it is a multiple, and counts that.
fn divided(b: &mut Builder, state: &[V], factor: V) -> [V; 2] {
    let (zero, one) = (b.index(0), b.index(1));
    let quotient = b.div(state[0], factor);
    let whole = b.mul(quotient, factor);
    let remainder = b.sub(state[0], whole);
    let divides = b.compare(Cmp::Eq, remainder, zero);
    let count = b.select(divides, one, zero);
    [b.select(divides, quotient, state[0]), b.add(state[1], count)]
}
