//! Lowers a part that computes in other dtypes than the model around it.

use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;

use crate::lower::block_error::BlockResult;
use crate::lower::instance::Current;
use crate::lower::instance::frame::{Frame, Slot};
use crate::model::seal::Part;
use crate::numerics::check_width;

impl<'a> Frame<'a, '_> {
    /// Lowers the part with its float inputs cast to its dtype, and casts its float outputs back.
    pub(super) fn in_own_dtypes(&mut self, at: u32, part: &'a Part) -> BlockResult<()> {
        let outer = self.lowering.numerics;
        let own = Current {
            float: part.numerics.dtype.unwrap_or(outer.float),
            acc: part.numerics.acc.or(outer.acc),
        };
        // An inherited `acc` is left out where the dtype is wider.
        if let Some(acc) = part.numerics.acc {
            check_width(own.float, acc)?;
        }
        let nets: Vec<u32> = part.inputs.iter().flat_map(|feed| feed.nets()).copied().collect();
        let before: Vec<Slot> = nets.iter().map(|net| self.slots[*net as usize].clone()).collect();
        for net in &nets {
            if let Slot::Value(value) = self.slots[*net as usize] {
                self.slots[*net as usize] =
                    Slot::Value(self.cast(value, outer.float, own.float)?);
            }
        }
        let within: Vec<Slot> = nets.iter().map(|net| self.slots[*net as usize].clone()).collect();
        self.lowering.numerics = own;
        self.builder.set_accumulator(own.accumulator());
        let lowered = self.lowered(at, part);
        self.lowering.numerics = outer;
        self.builder.set_accumulator(outer.accumulator());
        lowered?;
        self.builder.set_loc(self.loc(&part.name));
        for ((net, before), within) in nets.iter().zip(before).zip(within) {
            self.restore(*net, before, &within, own.float)?;
        }
        for net in part.outputs.iter().flatten() {
            if let Slot::Value(value) = self.slots[*net as usize] {
                let value = self.cast(value, own.float, outer.float)?;
                self.bind(*net, value)?;
            }
        }
        Ok(())
    }

    /// Gives an input back the value that other parts read. The next value of a state is cast to the
    /// dtype of the state.
    fn restore(&mut self, net: u32, before: Slot, within: &Slot, own: DType) -> BlockResult<()> {
        let (Slot::Value(old), Slot::Value(cast)) = (&before, within) else { return Ok(()) };
        match self.slots[net as usize] {
            Slot::Value(next) if next != *cast => {
                let dtype = self.builder.ty(*old).dtype;
                let value = self.cast(next, own, dtype)?;
                self.slots[net as usize] = Slot::Value(value);
                let states = self.states.iter_mut().filter(|(_, state)| *state == next);
                states.for_each(|state| state.1 = value);
            }
            _ => self.slots[net as usize] = before,
        }
        Ok(())
    }

    /// The value, cast if it has the dtype `from`.
    fn cast(&self, value: Value, from: DType, to: DType) -> BlockResult<Value> {
        match self.builder.ty(value).dtype == from && from != to {
            true => Ok(self.builder.op("cast", &[value], &[("dtype", to.into())])?),
            false => Ok(value),
        }
    }
}
