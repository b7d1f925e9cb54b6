//! Conversions between dtypes.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32, F32X4, F64, F64X2, I16, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use mithril_ir::dtype::DType;
use mithril_kernels::code::{Ty, V};

use crate::arithmetic::is_signed;
use crate::representation::{Pieces, Representation, count, lane, piece};
use crate::translator::Translator;
use crate::{Result, unsupported};

/// Byte indices of a shuffle that moves the upper half of a piece to the front.
const UPPER: [u8; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15];
/// Byte indices of a shuffle that concatenates the lower halves of two pieces.
const LOWER: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23];

impl Translator<'_> {
    pub fn bitcast(&mut self, x: V, to: Ty) -> Result<Representation> {
        let from = self.ty(x);
        if from.dtype == DType::Bool || (from.lanes == 1) != (to.lanes == 1) {
            return unsupported("bits of bools, or of a scalar as a vector");
        }
        let own = lane(to.dtype)?;
        if to.lanes == 1 {
            let scalar = self.scalar(x)?;
            return Ok(Representation::Scalar(self.recast(own, scalar)));
        }
        if let (Representation::Constant(bits), true) =
            (self.representation(x), from.lanes == to.lanes)
        {
            return Ok(Representation::Constant(*bits));
        }
        let pieces = self.pieces(x)?;
        Ok(Representation::Vector(pieces.into_iter().map(|x| self.recast(piece(own), x)).collect()))
    }

    pub fn convert(&mut self, x: V, to: Ty) -> Result<Representation> {
        let from = self.ty(x);
        if to.lanes == 1 {
            let scalar = self.scalar(x)?;
            return Ok(Representation::Scalar(self.convert_scalar(scalar, from.dtype, to.dtype)?));
        }
        if to.dtype == DType::Bool {
            return self.is_nonzero(x);
        }
        let target = lane(to.dtype)?;
        let lanes = to.lanes;
        let (dtype, pieces) = match from.dtype {
            DType::Bool => {
                let of = if target.is_int() { target } else { I32 };
                (if of == I32 { DType::I32 } else { to.dtype }, self.zeros_and_ones(x, of)?)
            }
            dtype => (dtype, self.pieces(x)?),
        };
        Ok(Representation::Vector(self.convert_pieces(&pieces, lanes, dtype, to.dtype)?))
    }

    /// Converts a mask to the integers 0 and 1.
    pub fn zeros_and_ones(&mut self, x: V, of: Type) -> Result<Pieces> {
        let one = self.bits(piece(of), 1);
        Ok(self.mask(x, of)?.into_iter().map(|x| self.b.ins().band(x, one)).collect())
    }

    /// A mask of the lanes where integers are not zero.
    fn is_nonzero(&mut self, x: V) -> Result<Representation> {
        let own = lane(self.ty(x).dtype)?;
        if !own.is_int() || self.ty(x).dtype.is_float() {
            return unsupported("floats as bools");
        }
        let zero = self.bits(piece(own), 0);
        let pieces = self.pieces(x)?.into_iter();
        let truth = |x| self.b.ins().icmp(IntCC::NotEqual, x, zero);
        Ok(Representation::Mask(own, pieces.map(truth).collect()))
    }

    fn convert_scalar(&mut self, x: Value, from: DType, to: DType) -> Result<Value> {
        let (a, b) = (lane(from)?, lane(to)?);
        match (from, to) {
            (_, DType::Bool) if !from.is_float() => {
                return Ok(self.b.ins().icmp_imm(IntCC::NotEqual, x, 0));
            }
            (DType::F16 | DType::BF16, _) => {
                let bits = self.b.ins().uextend(I32, x);
                let wide = self.half_to_f32(bits, from);
                return self.convert_scalar(wide, DType::F32, to);
            }
            (DType::F32, DType::F16 | DType::BF16) => {
                let bits = self.f32_to_half(x, to);
                return Ok(self.b.ins().ireduce(I16, bits));
            }
            (_, DType::F16 | DType::BF16 | DType::Bool) => {
                return unsupported(format!("{} as {}", from.name(), to.name()));
            }
            _ => {}
        }
        let ins = self.b.ins();
        Ok(match (from.is_float(), to.is_float()) {
            (true, true) if a == b => x,
            (true, true) if a == F32 => ins.fpromote(b, x),
            (true, true) => ins.fdemote(b, x),
            (true, false) if to == DType::U64 => ins.fcvt_to_uint_sat(I64, x),
            (true, false) => {
                let whole = ins.fcvt_to_sint_sat(I64, x);
                if b == I64 { whole } else { self.b.ins().ireduce(b, whole) }
            }
            (false, true) if from == DType::U64 => ins.fcvt_from_uint(b, x),
            (false, true) => {
                let whole = self.resize_integer(x, from, I64);
                self.b.ins().fcvt_from_sint(b, whole)
            }
            (false, false) => self.resize_integer(x, from, b),
        })
    }

    fn resize_integer(&mut self, x: Value, from: DType, to: Type) -> Value {
        let own = self.b.func.dfg.value_type(x);
        match own.bits().cmp(&to.bits()) {
            std::cmp::Ordering::Equal => x,
            std::cmp::Ordering::Greater => self.b.ins().ireduce(to, x),
            std::cmp::Ordering::Less if is_signed(from) => self.b.ins().sextend(to, x),
            std::cmp::Ordering::Less => self.b.ins().uextend(to, x),
        }
    }

    fn convert_pieces(&mut self, x: &Pieces, lanes: u32, from: DType, to: DType) -> Result<Pieces> {
        let (a, b) = (lane(from)?, lane(to)?);
        match (from, to) {
            _ if from == to => return Ok(x.clone()),
            (DType::F16 | DType::BF16, _) => {
                let bits = self.widen(x, lanes, I16, false);
                let wide = bits.into_iter().map(|x| self.half_to_f32(x, from)).collect();
                return self.convert_pieces(&wide, lanes, DType::F32, to);
            }
            (DType::F32, DType::F16 | DType::BF16) => {
                let bits = x.iter().map(|&x| self.f32_to_half(x, to)).collect();
                return Ok(self.narrow(&bits, lanes, I32));
            }
            (_, DType::F16 | DType::BF16) => {
                return unsupported(format!("{} as {}", from.name(), to.name()));
            }
            _ => {}
        }
        match (from.is_float(), to.is_float()) {
            (true, true) if a == F32 => Ok(self.promote(x, lanes)),
            (true, true) => Ok(self.demote(x, lanes)),
            (false, false) => Ok(self.resize_integers(x.clone(), lanes, a, b, is_signed(from))),
            (false, true) => self.integers_to_floats(x, lanes, from, to),
            (true, false) => self.floats_to_integers(x, lanes, from, to),
        }
    }

    /// Converts integers to another width.
    fn resize_integers(
        &mut self,
        x: Pieces,
        lanes: u32,
        from: Type,
        to: Type,
        signed: bool,
    ) -> Pieces {
        let (mut x, mut own) = (x, from);
        while own.bits() < to.bits() {
            x = self.widen(&x, lanes, own, signed);
            own = own.double_width().expect("a wider integer");
        }
        while own.bits() > to.bits() {
            x = self.narrow(&x, lanes, own);
            own = own.half_width().expect("a narrower integer");
        }
        x
    }

    fn integers_to_floats(
        &mut self,
        x: &Pieces,
        lanes: u32,
        from: DType,
        to: DType,
    ) -> Result<Pieces> {
        let (own, signed) = (lane(from)?, is_signed(from));
        if own == I64 {
            return self.convert_lane_by_lane(x, lanes, from, to);
        }
        if own != I32 {
            let wide = self.resize_integers(x.clone(), lanes, own, I32, signed);
            return self.integers_to_floats(&wide, lanes, DType::I32, to);
        }
        if to == DType::F32 {
            let each = |&x: &Value| match signed {
                true => self.b.ins().fcvt_from_sint(F32X4, x),
                false => self.b.ins().fcvt_from_uint(F32X4, x),
            };
            return Ok(x.iter().map(each).collect());
        }
        let half = |t: &mut Self, at: usize| {
            let low = t.half(x, at, I32);
            let ins = t.b.ins();
            let wide = if signed { ins.swiden_low(low) } else { ins.uwiden_low(low) };
            match signed {
                true => t.b.ins().fcvt_from_sint(F64X2, wide),
                false => t.b.ins().fcvt_from_uint(F64X2, wide),
            }
        };
        Ok((0..count(F64, lanes)).map(|at| half(self, at)).collect())
    }

    /// The lanes of half `at`, of two per piece, moved to the front of a piece.
    fn half(&mut self, x: &Pieces, at: usize, own: Type) -> Value {
        match at % 2 {
            0 => x[at / 2],
            _ => self.shuffle_bytes(own, x[at / 2], x[at / 2], UPPER),
        }
    }

    /// Converts floats to integers, rounding toward zero. The result for a value that does not fit
    /// is undefined.
    fn floats_to_integers(
        &mut self,
        x: &Pieces,
        lanes: u32,
        from: DType,
        to: DType,
    ) -> Result<Pieces> {
        let target = lane(to)?;
        if target == I64 {
            return self.convert_lane_by_lane(x, lanes, from, to);
        }
        let unsigned = to == DType::U32;
        let whole: Pieces = match from {
            DType::F32 => {
                let each = |&x: &Value| match unsigned {
                    true => self.b.ins().fcvt_to_uint_sat(I32X4, x),
                    false => self.b.ins().x86_cvtt2dq(I32X4, x),
                };
                x.iter().map(each).collect()
            }
            _ => self.f64_to_integers(x, lanes, unsigned),
        };
        Ok(self.resize_integers(whole, lanes, I32, target, true))
    }

    fn f64_to_integers(&mut self, x: &Pieces, lanes: u32, unsigned: bool) -> Pieces {
        let convert_two = |t: &mut Self, x: Value| {
            let zero = t.pattern(I64X2, vec![0; 16]);
            match unsigned {
                true => {
                    let wide = t.b.ins().fcvt_to_uint_sat(I64X2, x);
                    t.b.ins().uunarrow(wide, zero)
                }
                false => {
                    let wide = t.b.ins().fcvt_to_sint_sat(I64X2, x);
                    t.b.ins().snarrow(wide, zero)
                }
            }
        };
        self.join_halves(x, lanes, I32, convert_two)
    }

    /// Applies `half`, whose results fill the lower half of a piece, and concatenates pairs of
    /// results.
    fn join_halves(
        &mut self,
        x: &Pieces,
        lanes: u32,
        own: Type,
        half: impl Fn(&mut Self, Value) -> Value,
    ) -> Pieces {
        let pair = |t: &mut Self, at: usize| {
            let low = half(t, x[2 * at]);
            match x.get(2 * at + 1) {
                None => low,
                Some(&high) => {
                    let high = half(t, high);
                    t.shuffle_bytes(own, low, high, LOWER)
                }
            }
        };
        (0..count(own, lanes)).map(|at| pair(self, at)).collect()
    }

    fn promote(&mut self, x: &Pieces, lanes: u32) -> Pieces {
        let half = |t: &mut Self, at: usize| {
            let low = t.half(x, at, F32);
            t.b.ins().fvpromote_low(low)
        };
        (0..count(F64, lanes)).map(|at| half(self, at)).collect()
    }

    fn demote(&mut self, x: &Pieces, lanes: u32) -> Pieces {
        self.join_halves(x, lanes, F32, |t, x| t.b.ins().fvdemote(x))
    }

    fn convert_lane_by_lane(
        &mut self,
        x: &Pieces,
        lanes: u32,
        from: DType,
        to: DType,
    ) -> Result<Pieces> {
        let (a, b) = (lane(from)?, lane(to)?);
        let (per, per_result) = (16 / a.bytes(), 16 / b.bytes());
        let mut pieces = Pieces::new();
        for at in 0..lanes {
            let own = self.b.ins().extractlane(x[(at / per) as usize], (at % per) as u8);
            let value = self.convert_scalar(own, from, to)?;
            if at % per_result == 0 {
                pieces.push(self.b.ins().splat(piece(b), value));
            } else {
                let last = pieces.pop().expect("the first lane starts a piece");
                pieces.push(self.b.ins().insertlane(last, value, (at % per_result) as u8));
            }
        }
        Ok(pieces)
    }

    // 16-bit floats, in the low halves of 32-bit integers: a scalar or a piece of them.

    fn half_to_f32(&mut self, bits: Value, from: DType) -> Value {
        let ty = self.b.func.dfg.value_type(bits);
        let float = if ty.is_vector() { F32X4 } else { F32 };
        if from == DType::BF16 {
            let upper = self.b.ins().ishl_imm(bits, 16);
            return self.recast(float, upper);
        }
        let [low, sign_bit, endless, top] =
            [0x7fff, 0x8000, 0x7c00 << 13, 0x7f80_0000].map(|bits| self.bits(ty, bits));
        // Reads the bits as f32 and multiplies by the difference of the exponent biases, which also
        // gives subnormals their values.
        let magnitude = self.b.ins().band(bits, low);
        let magnitude = self.b.ins().ishl_imm(magnitude, 13);
        let is_endless = self.b.ins().icmp(IntCC::SignedGreaterThanOrEqual, magnitude, endless);
        let unbiased = self.recast(float, magnitude);
        let bias = self.bits(float, u64::from(2f32.powi(112).to_bits()));
        let value = self.b.ins().fmul(unbiased, bias);
        let value = self.recast(ty, value);
        let infinite = self.b.ins().bor(value, top);
        let value = self.select_value(is_endless, infinite, value);
        let sign = self.b.ins().band(bits, sign_bit);
        let sign = self.b.ins().ishl_imm(sign, 16);
        let value = self.b.ins().bor(value, sign);
        self.recast(float, value)
    }

    /// Prepares `bits` for dropping the lowest `cut` bits, rounding to nearest, ties to even: adds
    /// `rest`, which is 1 less than half of the last kept bit, and 1 more if that bit is odd. The
    /// sum may carry.
    fn round_to_even(&mut self, bits: Value, cut: i64, one: Value, rest: Value) -> Value {
        let odd = self.b.ins().ushr_imm(bits, cut);
        let odd = self.b.ins().band(odd, one);
        let sum = self.b.ins().iadd(bits, rest);
        self.b.ins().iadd(sum, odd)
    }

    /// Converts f32 to the bits of a 16-bit float, rounding to nearest, ties to even.
    fn f32_to_half(&mut self, x: Value, to: DType) -> Value {
        let (float, ty) = match self.b.func.dfg.value_type(x).is_vector() {
            true => (F32X4, I32X4),
            false => (F32, I32),
        };
        let bits = self.recast(ty, x);
        let unknown = self.compare_floats(FloatCC::NotEqual, x, x);
        if to == DType::BF16 {
            let [one, rest, nan] = [1, 0x7fff, 0x7fc0].map(|bits| self.bits(ty, bits));
            let rounded = self.round_to_even(bits, 16, one, rest);
            let upper = self.b.ins().ushr_imm(rounded, 16);
            return self.select_value(unknown, nan, upper);
        }
        let absolute = self.b.ins().fabs(x);
        let magnitude = self.recast(ty, absolute);
        let [one, rest, bias, infinity, nan] =
            [1, 0xfff, 112 << 23, 0x7c00, 0x7e00].map(|bits| self.bits(ty, bits));
        let sum = self.round_to_even(magnitude, 13, one, rest);
        let sum = self.b.ins().isub(sum, bias);
        let normal = self.b.ins().ushr_imm(sum, 13);
        // Subnormal: the last bit of the sum with 0.5 has the weight of the last bit of the result,
        // so the addition rounds.
        let half = self.bits(float, u64::from(0.5f32.to_bits()));
        let shifted = self.b.ins().fadd(absolute, half);
        let [shifted, half] = [shifted, half].map(|x| self.recast(ty, x));
        let subnormal = self.b.ins().isub(shifted, half);
        let [least, beyond] =
            [2f32.powi(-14), 65536.0].map(|x| self.bits(float, u64::from(x.to_bits())));
        let small = self.compare_floats(FloatCC::LessThan, absolute, least);
        let value = self.select_value(small, subnormal, normal);
        let large = self.compare_floats(FloatCC::GreaterThanOrEqual, absolute, beyond);
        let value = self.select_value(large, infinity, value);
        let value = self.select_value(unknown, nan, value);
        let sign = self.b.ins().ushr_imm(bits, 16);
        let sign_bit = self.bits(ty, 0x8000);
        let sign = self.b.ins().band(sign, sign_bit);
        self.b.ins().bor(value, sign)
    }
}
