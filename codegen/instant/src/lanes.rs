//! Moves lanes: splats, shuffles, reductions of a vector to a scalar, wider and narrower integers.

use cranelift_codegen::ir::types::{F32, F64, I8, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use mithril_ir::dtype::DType;
use mithril_kernels::code::{Binary, Fold, Ty, V};

use crate::representation::{PIECE, Pieces, Representation, count, lane, piece};
use crate::translator::Translator;
use crate::{Result, unsupported};

impl Translator<'_> {
    pub fn iota(&mut self, ty: Ty) -> Result<Representation> {
        let lane = lane(ty.dtype)?;
        let (per, width) = (PIECE / lane.bytes(), lane.bytes() as usize);
        let number = |at: u32| -> [u8; 8] {
            match lane {
                F32 => u64::from((at as f32).to_bits()).to_le_bytes(),
                F64 => f64::from(at).to_bits().to_le_bytes(),
                _ => u64::from(at).to_le_bytes(),
            }
        };
        let pieces = (0..count(lane, ty.lanes) as u32).map(|at| {
            let lanes = (0..per).flat_map(|i| number(at * per + i)[..width].to_vec());
            self.pattern(piece(lane), lanes.collect())
        });
        Ok(Representation::Vector(pieces.collect()))
    }

    pub fn splat(&mut self, x: V, ty: Ty) -> Result<Representation> {
        if let Some(bits) = self.constant(x) {
            return Ok(Representation::Constant(bits));
        }
        let scalar = self.scalar(x)?;
        if ty.dtype == DType::Bool {
            return Ok(Representation::SplatBool(scalar));
        }
        let all = self.b.ins().splat(piece(lane(ty.dtype)?), scalar);
        Ok(Representation::Splat(scalar, all))
    }

    /// The pieces of a vector and their lane type, for moving lanes. For a mask, the integers that
    /// represent it.
    fn movable(&mut self, x: V) -> Result<(Type, Pieces)> {
        let dtype = self.ty(x).dtype;
        match dtype {
            DType::Bool => {
                let of = self.mask_lane(x);
                Ok((of, self.mask(x, of)?))
            }
            _ => Ok((lane(dtype)?, self.pieces(x)?)),
        }
    }

    pub fn extract(&mut self, x: V, at: u32) -> Result<Representation> {
        let (own, pieces) = self.movable(x)?;
        let per = PIECE / own.bytes();
        let value = self.b.ins().extractlane(pieces[(at / per) as usize], (at % per) as u8);
        Ok(Representation::Scalar(match self.ty(x).dtype {
            DType::Bool => self.truth(value),
            _ => value,
        }))
    }

    /// Converts a lane of a mask to a scalar bool.
    fn truth(&mut self, lane: Value) -> Value {
        let ty = self.b.func.dfg.value_type(lane);
        let byte = if ty == I8 { lane } else { self.b.ins().ireduce(I8, lane) };
        self.b.ins().band_imm(byte, 1)
    }

    pub fn shuffle(&mut self, x: V, y: V, lanes: &[u32]) -> Result<Representation> {
        let bools = self.ty(x).dtype == DType::Bool;
        let (own, mut pieces, others) = match bools {
            true => (I32, self.mask(x, I32)?, self.mask(y, I32)?),
            false => (lane(self.ty(x).dtype)?, self.pieces(x)?, self.pieces(y)?),
        };
        let (per, width) = (PIECE / own.bytes(), self.ty(x).lanes);
        let second = pieces.len() as u32 * per;
        pieces.extend(others);
        // The index of a lane among those of all pieces, counting the unused lanes of a short
        // vector.
        let index = |at: u32| if at < width { at } else { at - width + second };
        let chunks = lanes.chunks(per as usize).map(|own_lanes| {
            let indices: Vec<u32> = own_lanes.iter().map(|&at| index(at)).collect();
            self.assemble(own, &pieces, &indices)
        });
        let result: Pieces = chunks.collect();
        Ok(if bools { Representation::Mask(own, result) } else { Representation::Vector(result) })
    }

    /// Builds a piece from lanes of `pieces`. `indices` are their indices among the lanes of all
    /// pieces.
    fn assemble(&mut self, own: Type, pieces: &[Value], indices: &[u32]) -> Value {
        let (per, width) = (PIECE / own.bytes(), own.bytes());
        let mut sources: Vec<u32> = indices.iter().map(|at| at / per).collect();
        sources.sort_unstable();
        sources.dedup();
        let first = sources[0];
        let mut result = pieces[first as usize];
        let is_unchanged = indices.iter().enumerate().all(|(i, &at)| at == first * per + i as u32);
        if is_unchanged {
            return result;
        }
        // Each shuffle adds the lanes of one more piece; the other lanes stay where they are.
        let others = if sources.len() == 1 { &sources[..] } else { &sources[1..] };
        for (step, &source) in others.iter().enumerate() {
            let bytes = std::array::from_fn(|byte| {
                let (i, byte) = (byte as u32 / width, byte as u32 % width);
                let from = match indices.get(i as usize) {
                    Some(at) if at / per == source => per + at % per,
                    Some(at) if step == 0 && at / per == first => at % per,
                    _ => i,
                };
                (from * width + byte) as u8
            });
            result = self.shuffle_bytes(own, result, pieces[source as usize], bytes);
        }
        result
    }

    /// Selects bytes by index from the concatenation of two pieces.
    pub fn shuffle_bytes(&mut self, own: Type, x: Value, y: Value, bytes: [u8; 16]) -> Value {
        let ty = piece(own);
        let (x, y) = (self.recast(piece(I8), x), self.recast(piece(I8), y));
        let bytes = self.b.func.dfg.immediates.push(bytes[..].into());
        let result = self.b.ins().shuffle(x, y, bytes);
        self.recast(ty, result)
    }

    /// Reduces all lanes of a vector to one scalar: combines the upper half with the lower until
    /// one lane is left, in the same order as LLVM.
    pub fn fold(&mut self, fold: Fold, x: V) -> Result<Representation> {
        let Ty { dtype, lanes } = self.ty(x);
        let op = match fold {
            Fold::Add => Binary::Add,
            Fold::Mul => Binary::Mul,
            Fold::Min => Binary::Min,
            Fold::Max => Binary::Max,
            Fold::And => Binary::And,
            Fold::Or => Binary::Or,
        };
        let (own, mut pieces) = self.movable(x)?;
        while pieces.len() > 1 {
            let upper: Pieces = pieces.drain(pieces.len() / 2..).collect();
            for (lower, upper) in pieces.iter_mut().zip(upper) {
                *lower = self.step(op, dtype, *lower, upper)?;
            }
        }
        let mut left = lanes.min(PIECE / own.bytes());
        let mut value = pieces[0];
        while left > 1 {
            left /= 2;
            let upper = self.upper(own, value, left);
            value = self.step(op, dtype, value, upper)?;
        }
        let value = self.b.ins().extractlane(value, 0);
        Ok(Representation::Scalar(if dtype == DType::Bool { self.truth(value) } else { value }))
    }

    fn step(&mut self, op: Binary, dtype: DType, x: Value, y: Value) -> Result<Value> {
        match (dtype, op) {
            (DType::F16 | DType::BF16, _) => unsupported("reductions of 16-bit floats"),
            (DType::Bool, Binary::And) => Ok(self.b.ins().band(x, y)),
            (DType::Bool, Binary::Or) => Ok(self.b.ins().bor(x, y)),
            (DType::Bool, _) => unsupported("arithmetic of bools"),
            _ => self.binary_value(op, dtype, x, y),
        }
    }

    /// Moves the lanes from `from` on to the front.
    fn upper(&mut self, own: Type, value: Value, from: u32) -> Value {
        let by = (from * own.bytes()) as u8;
        self.shuffle_bytes(own, value, value, std::array::from_fn(|i| (i as u8 + by) % 16))
    }

    /// Extends integers to twice the width.
    pub fn widen(&mut self, pieces: &Pieces, lanes: u32, from: Type, signed: bool) -> Pieces {
        let to = from.double_width().expect("a wider integer");
        let half = |t: &mut Self, at: usize| {
            let (x, ins) = (pieces[at / 2], t.b.ins());
            match (at % 2, signed) {
                (0, true) => ins.swiden_low(x),
                (0, false) => ins.uwiden_low(x),
                (_, true) => ins.swiden_high(x),
                (_, false) => ins.uwiden_high(x),
            }
        };
        (0..count(to, lanes)).map(|at| half(self, at)).collect()
    }

    /// Narrows a mask to integers of half the width. Saturation keeps lanes whose bits are all set
    /// or all clear as they are.
    pub fn narrow_mask(&mut self, pieces: &Pieces, lanes: u32, from: Type) -> Pieces {
        if from == I64 {
            return self.narrow(pieces, lanes, from);
        }
        let to = from.half_width().expect("a narrower integer");
        let pair = |at: usize| {
            let low = pieces[2 * at];
            let high = pieces.get(2 * at + 1).copied().unwrap_or(low);
            self.b.ins().snarrow(low, high)
        };
        (0..count(to, lanes)).map(pair).collect()
    }

    /// Truncates integers to half the width.
    pub fn narrow(&mut self, pieces: &Pieces, lanes: u32, from: Type) -> Pieces {
        let to = from.half_width().expect("a narrower integer");
        let width = to.bytes() as u8;
        let bytes = std::array::from_fn(|i| {
            let i = i as u8;
            i / width * 2 * width + i % width
        });
        let pair = |t: &mut Self, at: usize| {
            let low = pieces[2 * at];
            let high = pieces.get(2 * at + 1).copied().unwrap_or(low);
            t.shuffle_bytes(to, low, high, bytes)
        };
        (0..count(to, lanes)).map(|at| pair(self, at)).collect()
    }
}
