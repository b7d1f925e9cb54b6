//! Interprets operations on tile registers (AMX).

use mithril_ir::dtype::DType;

use super::lanes::dot_pair;
use super::{Lane, Machine, Run};
use crate::code::{Mem, Memory, TILE_BYTES, TILE_ROWS, TileOp, V};

/// The number of f32 sums in a row.
const SUMS: usize = TILE_BYTES as usize / 4;
const ROWS: usize = TILE_ROWS as usize;
const BYTES: usize = TILE_BYTES as usize;

/// The tile registers. Each byte is a lane, so that it records whether it is defined.
pub struct Tiles([Vec<Lane>; 8]);

impl Default for Tiles {
    fn default() -> Tiles {
        Tiles(std::array::from_fn(|_| vec![Lane::undefined(); ROWS * BYTES]))
    }
}

impl Machine<'_> {
    pub fn tile(&mut self, op: TileOp) -> Run<()> {
        match op {
            TileOp::Zero(tile) => self.tiles.0[tile as usize].fill(Lane::of(0)),
            TileOp::Load { tile, mem, at, stride } => {
                let places = self.tile_bytes(mem, at, stride)?;
                let (memory, base) = (self.bytes_of(mem), self.base(mem)?);
                let bytes = places.into_iter().map(|at| self.memories.load(&memory, base, at));
                self.tiles.0[tile as usize] = bytes.collect::<Run<_>>()?;
            }
            TileOp::Store { tile, mem, at, stride } => {
                let places = self.tile_bytes(mem, at, stride)?;
                let (memory, base) = (self.bytes_of(mem), self.base(mem)?);
                for (at, &lane) in places.into_iter().zip(&self.tiles.0[tile as usize]) {
                    self.memories.store(&memory, base, at, lane)?;
                }
            }
            TileOp::Dot { sum, x, y } => self.dot([sum, x, y].map(usize::from)),
        }
        Ok(())
    }

    /// A memory viewed as bytes.
    fn bytes_of(&self, mem: Mem) -> Memory {
        Memory { dtype: DType::U8, ..self.code.memories[mem.0 as usize] }
    }

    /// The byte offsets of a tile in memory.
    fn tile_bytes(&self, mem: Mem, at: V, stride: V) -> Run<Vec<i64>> {
        let size = self.code.memories[mem.0 as usize].dtype.bytes() as i64;
        let (at, stride) = (self.index(at)?, self.index(stride)?);
        let row = |row: i64| {
            let first = at.wrapping_add(row.wrapping_mul(stride)).wrapping_mul(size);
            (0..TILE_BYTES).map(move |byte| first.wrapping_add(byte))
        };
        Ok((0..TILE_ROWS).flat_map(row).collect())
    }

    fn dot(&mut self, [sum, x, y]: [usize; 3]) {
        let tiles = &mut self.tiles.0;
        for i in 0..ROWS {
            for k in 0..SUMS {
                for j in 0..SUMS {
                    let total = group(&tiles[sum], (i * SUMS + j) * 4, 4);
                    let pair = |tile: &[Lane], at: usize| {
                        [group(tile, at * 4, 2), group(tile, at * 4 + 2, 2)]
                    };
                    let (a, b) = (pair(&tiles[x], i * SUMS + k), pair(&tiles[y], k * SUMS + j));
                    let total = dot_pair(total, [&a, &b]);
                    for byte in 0..4 {
                        let bits = total.bits >> (8 * byte) & 0xff;
                        tiles[sum][(i * SUMS + j) * 4 + byte] = Lane { bits, ..total };
                    }
                }
            }
        }
    }
}

/// Joins `bytes` bytes of a tile into one number.
fn group(tile: &[Lane], at: usize, bytes: usize) -> Lane {
    let own = &tile[at..at + bytes];
    Lane {
        bits: own.iter().rev().fold(0, |bits, lane| bits << 8 | lane.bits),
        defined: own.iter().all(|lane| lane.defined),
    }
}
