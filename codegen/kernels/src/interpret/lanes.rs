//! Operations on vectors: lane by lane, and operations that move lanes.

use super::{Lane, Machine, Run, Value, is_computed, lane, violation};
use crate::code::{Binary, Fold, Inst, Ty};

impl Machine<'_> {
    pub fn computed(&self, ty: Ty, inst: &Inst) -> Run<Value> {
        let count = ty.lanes as usize;
        if is_arithmetic(inst) && !is_computed(ty.dtype) {
            return violation(format!("arithmetic does not support {}", ty.dtype.name()));
        }
        Ok(match *inst {
            Inst::Const(bits) => vec![Lane::of(bits); count],
            Inst::Iota => (0..count as u64).map(Lane::of).collect(),
            Inst::Unary(op, x) => {
                self.get(x).iter().map(|&x| lane::unary(op, ty.dtype, x)).collect()
            }
            Inst::Binary(op, x, y) => {
                let pairs = self.get(x).iter().zip(self.get(y));
                let lanes = pairs.map(|(&x, &y)| lane::binary(op, ty.dtype, x, y));
                lanes.collect::<Run<Value>>()?
            }
            Inst::Fma(x, y, z) => {
                let lanes = [x, y, z].map(|v| self.get(v));
                (0..count).map(|i| lane::fma(ty.dtype, lanes.map(|lanes| lanes[i]))).collect()
            }
            Inst::Scale(x, n) => {
                let pairs = self.get(x).iter().zip(self.get(n));
                pairs.map(|(&x, &n)| lane::scale(ty.dtype, x, n)).collect()
            }
            Inst::DotPairs(x, y, sum) => dot_pairs([x, y, sum].map(|v| self.get(v))),
            Inst::Compare(op, x, y) => {
                let dtype = self.ty(x).dtype;
                let pairs = self.get(x).iter().zip(self.get(y));
                pairs.map(|(&x, &y)| lane::compare(op, dtype, x, y)).collect()
            }
            Inst::Select(c, x, y) => selected([c, x, y].map(|v| self.get(v))),
            Inst::Convert(x) => {
                let from = self.ty(x).dtype;
                self.get(x).iter().map(|&x| lane::convert(from, ty.dtype, x)).collect()
            }
            Inst::Bitcast(x) => regrouped(self.get(x), self.ty(x), ty),
            Inst::Splat(x) => vec![self.get(x)[0]; count],
            Inst::Extract(x, lane) => vec![self.get(x)[lane as usize]],
            Inst::Shuffle(x, y, ref lanes) => {
                let both = [self.get(x), self.get(y)].concat();
                lanes.iter().map(|&lane| both[lane as usize]).collect()
            }
            Inst::Fold(op, x) => vec![folded(op, ty, self.get(x))?],
            Inst::MulAdd(..) | Inst::Call(..) => {
                return violation("code for C cannot be interpreted");
            }
            Inst::Dim(_)
            | Inst::First
            | Inst::Last
            | Inst::CallPrivate(..)
            | Inst::Load { .. }
            | Inst::Store { .. }
            | Inst::Gather { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Tile(_)
            | Inst::For { .. }
            | Inst::If { .. } => return violation("the instruction has no result"),
        })
    }
}

fn is_arithmetic(inst: &Inst) -> bool {
    let op = matches!(inst, Inst::Unary(..) | Inst::Binary(..) | Inst::Fma(..));
    op || matches!(inst, Inst::Scale(..) | Inst::Fold(..))
}

/// Selects one of two numbers in each lane. A scalar condition applies to all lanes.
fn selected([c, x, y]: [&[Lane]; 3]) -> Value {
    let lane = |(i, (x, y)): (usize, (&Lane, &Lane))| {
        let c = c[i.min(c.len() - 1)];
        if c.bits != 0 { *x } else { *y }.defined_with(&[c])
    };
    x.iter().zip(y).enumerate().map(lane).collect()
}

/// Splits the same bits into lanes of another width, least significant first.
fn regrouped(lanes: &[Lane], from: Ty, to: Ty) -> Value {
    let (own, wanted) = (from.dtype.bits(), to.dtype.bits());
    let bytes: Vec<(u8, bool)> = lanes
        .iter()
        .flat_map(|lane| {
            let bytes = lane.bits.to_le_bytes().into_iter().take(own as usize / 8);
            bytes.map(|byte| (byte, lane.defined))
        })
        .collect();
    let joined = |bytes: &[(u8, bool)]| Lane {
        bits: bytes.iter().rev().fold(0, |bits, (byte, _)| bits << 8 | u64::from(*byte)),
        defined: bytes.iter().all(|(_, defined)| *defined),
    };
    bytes.chunks(wanted as usize / 8).map(joined).collect()
}

/// Reduces all lanes to one, neighbours first. The order of float sums is unspecified, so any order
/// is valid.
fn folded(fold: Fold, ty: Ty, lanes: &[Lane]) -> Run<Lane> {
    let op = match fold {
        Fold::Add => Binary::Add,
        Fold::Mul => Binary::Mul,
        Fold::Min => Binary::Min,
        Fold::Max => Binary::Max,
        Fold::And => Binary::And,
        Fold::Or => Binary::Or,
    };
    let mut lanes = lanes.to_vec();
    while lanes.len() > 1 {
        let pair = |pair: &[Lane]| match pair {
            [x, y] => lane::binary(op, ty.dtype, *x, *y),
            rest => Ok(rest[0]),
        };
        lanes = lanes.chunks(2).map(pair).collect::<Run<Value>>()?;
    }
    Ok(lanes[0])
}

fn dot_pairs([x, y, sums]: [&[Lane]; 3]) -> Value {
    let sums = sums.iter().enumerate();
    sums.map(|(i, &sum)| dot_pair(sum, [&x[2 * i..], &y[2 * i..]])).collect()
}

/// Adds the products of two adjacent bf16 pairs to a sum. Subnormal numbers count as zero.
pub fn dot_pair(sum: Lane, [x, y]: [&[Lane]; 2]) -> Lane {
    let normal = |x: f32| if x.is_subnormal() { 0.0_f32.copysign(x) } else { x };
    let wide = |lane: Lane| normal(f32::from_bits((lane.bits as u32) << 16));
    let mut total = normal(f32::from_bits(sum.bits as u32));
    for i in [1, 0] {
        total = normal(wide(x[i]).mul_add(wide(y[i]), total));
    }
    Lane::of(u64::from(total.to_bits())).defined_with(&[sum, x[0], x[1], y[0], y[1]])
}
