//! Lowers random numbers. Each element depends only on its key and its index, as in the evaluator.

use std::sync::LazyLock;

use mithril_ir::attr::Attr;
use mithril_ir::dtype::DType;
use mithril_ir::eval::random::{ERF_INV_F32, ERF_INV_F64};
use mithril_ir::graph::Operation;
use mithril_ir::op::access::Random;
use mithril_ir::scalar::expr::Expr;
use mithril_ir::scalar::round;

use super::index::Ix;
use super::layout::int;
use super::nest::Nest;
use crate::code::{Binary, Cmp, Ty, V};

/// The rotation of the second word in each round of Threefry-2x32 (Salmon et al., SC 2011), in
/// bits.
const ROTATIONS: [i64; 8] = [13, 15, 26, 6, 17, 29, 16, 24];

static ERF_INV: LazyLock<[Expr; 2]> = LazyLock::new(|| {
    [ERF_INV_F32, ERF_INV_F64]
        .map(|text| Expr::parse(text, &["x"], &[]).expect("the inverse error function parses"))
});

impl Nest<'_> {
    pub fn random(&mut self, op: &Operation, random: Random, index: &[Ix]) -> V {
        let dims = self.dims(op.result());
        match random {
            Random::Bits => {
                let number = self.flat_index(dims, index);
                self.word(op, number, self.dtype(op.result()).bits())
            }
            Random::Uniform => {
                let number = self.flat_index(dims, index);
                let [low, high] = ["low", "high"].map(|name| float(op, name));
                self.uniform(op, number, low, high)
            }
            Random::Normal => {
                let number = self.flat_index(dims, index);
                self.normal(op, number)
            }
            Random::KeySplit => self.word_of_block(op, index[0], index[1]),
            Random::KeyFold => {
                let data = match op.attr("data") {
                    Attr::Shape(given) => Ix::Uniform(self.dim(&given.dims[0])),
                    _ => self.ix_const(i64::from(int(op, "data") as u32)),
                };
                self.word_of_block(op, data, index[0])
            }
        }
    }

    fn key(&mut self, op: &Operation) -> [V; 2] {
        [0, 1].map(|i| {
            let at = self.ix_const(i);
            self.pull(op.operands[0], &[at])
        })
    }

    /// Returns word `which` (0 or 1) of the cipher block for a number.
    fn word_of_block(&mut self, op: &Operation, number: Ix, which: Ix) -> V {
        let [high, low] = self.cipher_block(op, number);
        let which = self.as_value(which);
        let zero = self.b.int(self.b.ty(which), 0);
        let first = self.b.compare(Cmp::Eq, which, zero);
        self.select_lanes(first, high, low)
    }

    /// Encrypts a number with the operation's key.
    fn cipher_block(&mut self, op: &Operation, number: Ix) -> [V; 2] {
        let [k0, k1] = self.key(op);
        let number = self.as_value(number);
        let ty = self.b.ty(number);
        let half = self.b.int(ty, 32);
        let unsigned = self.b.bitcast(number, DType::U64);
        let half = self.b.bitcast(half, DType::U64);
        let high = self.b.binary(Binary::Shr, unsigned, half);
        let counter = [high, unsigned].map(|v| self.b.convert(v, DType::U32));
        let keys = [k0, k1].map(|k| self.splat(k, ty.lanes));
        self.threefry(keys, counter)
    }

    fn threefry(&mut self, key: [V; 2], counter: [V; 2]) -> [V; 2] {
        let ty = self.b.ty(counter[0]);
        let parity = self.b.int(ty, 0x1bd1_1bda);
        let both = self.b.binary(Binary::Xor, key[0], key[1]);
        let keys = [key[0], key[1], self.b.binary(Binary::Xor, both, parity)];
        let mut x = [self.b.add(counter[0], keys[0]), self.b.add(counter[1], keys[1])];
        for round in 0..20 {
            x[0] = self.b.add(x[0], x[1]);
            let rotated = self.rotated(x[1], ROTATIONS[round % 8]);
            x[1] = self.b.binary(Binary::Xor, rotated, x[0]);
            // Every four rounds the key schedule is added, rotated by one word.
            if round % 4 == 3 {
                let nth = round / 4 + 1;
                x[0] = self.b.add(x[0], keys[nth % 3]);
                x[1] = self.b.add(x[1], keys[(nth + 1) % 3]);
                let nth = self.b.int(ty, nth as i64);
                x[1] = self.b.add(x[1], nth);
            }
        }
        x
    }

    fn rotated(&mut self, x: V, by: i64) -> V {
        let ty = self.b.ty(x);
        let [left, right] = [by, 32 - by].map(|n| self.b.int(ty, n));
        let up = self.b.binary(Binary::Shl, x, left);
        let down = self.b.binary(Binary::Shr, x, right);
        self.b.binary(Binary::Or, up, down)
    }

    /// A random unsigned integer of `width` bits.
    fn word(&mut self, op: &Operation, number: Ix, width: u32) -> V {
        let [high, low] = self.cipher_block(op, number);
        if width == 64 {
            let [high, low] = [high, low].map(|v| self.b.convert(v, DType::U64));
            let half = self.b.int(self.b.ty(high), 32);
            let high = self.b.binary(Binary::Shl, high, half);
            return self.b.binary(Binary::Or, high, low);
        }
        let word = self.b.binary(Binary::Xor, high, low);
        let dtype = match width {
            8 => DType::U8,
            16 => DType::U16,
            _ => DType::U32,
        };
        self.b.convert(word, dtype)
    }

    /// Uniformly distributed in `low..high`: random mantissa bits, scaled and shifted.
    fn uniform(&mut self, op: &Operation, number: Ix, low: f64, high: f64) -> V {
        let dtype = self.dtype(op.result());
        let mantissa = round::mantissa_bits(dtype);
        let width = if mantissa < 8 { 8 } else { dtype.bits() };
        let word = self.word(op, number, width);
        let shift = self.b.int(self.b.ty(word), i64::from(width - mantissa));
        let bits = self.b.binary(Binary::Shr, word, shift);
        let register = super::nest::register_dtype(dtype);
        let whole = self.b.convert(bits, register);
        let ty = self.b.ty(whole);
        let [low, high] = [low, high].map(|v| round::round(dtype, v));
        let span = round::round(dtype, high - low);
        let unit = self.b.number(ty, 2f64.powi(-(mantissa as i32)));
        let u = self.b.mul(whole, unit);
        let [low, span] = [low, span].map(|v| self.b.number(ty, v));
        let value = match dtype == register {
            true => self.b.fma(u, span, low),
            false => {
                let scaled = self.b.mul(u, span);
                let scaled = self.rounded(scaled, dtype);
                let moved = self.b.add(scaled, low);
                self.rounded(moved, dtype)
            }
        };
        let below = self.b.compare(Cmp::Lt, value, low);
        self.b.select(below, low, value)
    }

    /// Rounds a value to `dtype`, as a store and a load would.
    fn rounded(&mut self, v: V, dtype: DType) -> V {
        let own = self.b.ty(v).dtype;
        let short = self.b.convert(v, dtype);
        self.b.convert(short, own)
    }

    /// Normally distributed with mean 0 and variance 1: √2 erf⁻¹(u), with u uniform between -1 and
    /// 1.
    fn normal(&mut self, op: &Operation, number: Ix) -> V {
        let dtype = self.dtype(op.result());
        let lowest = 2f64.powi(-(round::mantissa_bits(dtype) as i32) - 1) - 1.0;
        let u = self.uniform(op, number, lowest, 1.0);
        let Ty { dtype: work, lanes } = self.b.ty(u);
        let inverse = &ERF_INV[usize::from(work == DType::F64)];
        let y = crate::scalar::expression(&mut self.b, inverse, work, &[work], &[u], &[], lanes);
        let y = self.rounded(y, dtype);
        let root = self.b.number(self.b.ty(y), round::round(dtype, std::f64::consts::SQRT_2));
        self.b.mul(root, y)
    }
}

fn float(op: &Operation, name: &str) -> f64 {
    match op.attr(name) {
        Attr::Float(value) => *value,
        Attr::Int(value) => *value as f64,
        _ => 0.0,
    }
}
