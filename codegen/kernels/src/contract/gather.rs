//! Operands whose elements are gathered: each axis has its own stride, and elements may lie in zero
//! padding. With such operands, a convolution reads its windows without materializing them
//! (implicit im2col).

use crate::builder::Builder;
use crate::code::{Binary, Cmp, Fold, Mem, Ty, V};
use crate::contract::{Side, task};

/// Maps indices of an operand to addresses. The outer index and `k` are row-major flat indices over
/// several axes.
#[derive(Clone, Debug)]
pub struct Gather {
    pub outer: Vec<Axis>,
    pub k: Vec<Axis>,
    pub paddings: Vec<Padding>,
}

#[derive(Clone, Debug)]
pub struct Axis {
    pub extent: V,
    /// The distance between neighbouring elements in memory.
    pub stride: V,
}

/// A padded axis. The coordinate of an element along it is `offset` plus a multiple of each index:
/// `batch`, `outer` and `k` hold the factors. The first `extent` multiples of `spacing` are
/// elements of the operand. All other coordinates are zeros.
#[derive(Clone, Debug)]
pub struct Padding {
    pub offset: V,
    pub batch: Vec<i64>,
    pub outer: Vec<i64>,
    pub k: Vec<i64>,
    pub spacing: i64,
    pub extent: V,
    /// The distance between neighbouring elements in memory. Used only if `spacing` is above 1.
    pub stride: V,
}

/// A part of an element's location: an index's contribution to the address and to the coordinate
/// along each padded axis. All values are scalars, or all are vectors of the same number of lanes.
#[derive(Clone, Debug)]
pub struct Location {
    pub address: V,
    coordinates: Vec<V>,
}

impl Side {
    /// The contribution of the offset and a batch index.
    pub fn start(&self, b: &mut Builder, batch: &[V]) -> Location {
        let at = task::start(b, self, batch);
        let location = |padding: &Padding| {
            padding.batch.iter().zip(batch).fold(padding.offset, |location, (&by, &index)| {
                let step = b.times(index, by);
                b.add(location, step)
            })
        };
        let coordinates = self.gather.iter().flat_map(|gather| &gather.paddings).map(location);
        Location { address: at, coordinates: coordinates.collect() }
    }

    /// The contribution of an outer index, or of several in the lanes of a vector.
    pub fn outer(&self, b: &mut Builder, number: V) -> Location {
        match &self.gather {
            Some(gather) => gather.location(b, &gather.outer, number, |padding| &padding.outer),
            None => Location { address: b.mul(number, self.outer), coordinates: vec![] },
        }
    }

    /// The contribution of an index along `k`.
    pub fn k(&self, b: &mut Builder, number: V) -> Location {
        match &self.gather {
            Some(gather) => gather.location(b, &gather.k, number, |padding| &padding.k),
            None => Location { address: b.mul(number, self.k), coordinates: vec![] },
        }
    }

    /// Loads the element at a location, or zero in the padding.
    pub fn element(&self, b: &mut Builder, location: &Location) -> V {
        let (at, exists) = match &self.gather {
            Some(gather) => gather.locate(b, location),
            None => (location.address, None),
        };
        b.load(self.mem, at, 1, exists)
    }
}

impl Gather {
    fn location(
        &self,
        b: &mut Builder,
        axes: &[Axis],
        number: V,
        steps: impl Fn(&Padding) -> &Vec<i64>,
    ) -> Location {
        let indices = axis_indices(b, axes, number);
        let lanes = b.ty(number).lanes;
        let start = b.int(b.ty(number), 0);
        let at = axes.iter().zip(&indices).fold(start, |at, (axis, &index)| {
            let stride = b.splat(axis.stride, lanes);
            let step = b.mul(index, stride);
            b.add(at, step)
        });
        let coordinates = self.paddings.iter().map(|padding| {
            steps(padding).iter().zip(&indices).fold(start, |location, (&by, &index)| {
                let by = b.int(b.ty(number), by);
                let step = b.mul(index, by);
                b.add(location, step)
            })
        });
        let coordinates = coordinates.collect();
        Location { address: at, coordinates }
    }

    /// Returns the address of an element, and whether it lies outside the padding: `None` if it
    /// always does.
    fn locate(&self, b: &mut Builder, location: &Location) -> (V, Option<V>) {
        let (ty, mut at) = (b.ty(location.address), location.address);
        let mut exists: Option<V> = None;
        for (padding, &coordinate) in self.paddings.iter().zip(&location.coordinates) {
            let zero = b.int(ty, 0);
            let mut conditions = vec![b.compare(Cmp::Ge, coordinate, zero)];
            let mut index = coordinate;
            if padding.spacing > 1 {
                let by = b.int(ty, padding.spacing);
                index = b.binary(Binary::Div, coordinate, by);
                let back = b.mul(index, by);
                conditions.push(b.compare(Cmp::Eq, back, coordinate));
                let stride = b.splat(padding.stride, ty.lanes);
                let step = b.mul(index, stride);
                at = b.add(at, step);
            }
            let extent = b.splat(padding.extent, ty.lanes);
            conditions.push(b.compare(Cmp::Lt, index, extent));
            for condition in conditions {
                exists = Some(match exists {
                    None => condition,
                    Some(exists) => b.binary(Binary::And, exists, condition),
                });
            }
        }
        (at, exists)
    }

    /// Prepares to load vectors: one outer index per lane, at any `k`.
    pub fn lanes(&self, b: &mut Builder, outer: &Location, mask: Option<V>) -> Lanes<'_> {
        let ty = b.ty(outer.address);
        let first = b.extract(outer.address, 0);
        let (wide, iota) = (b.splat(first, ty.lanes), b.iota(ty));
        let next = b.add(wide, iota);
        let same = b.compare(Cmp::Eq, outer.address, next);
        let mut contiguous = b.fold(Fold::And, same);
        let is_spaced = self.paddings.iter().any(|padding| padding.spacing > 1);
        if is_spaced {
            contiguous = b.int(Ty::scalar(b.ty(contiguous).dtype), 0);
        }
        let bounds = outer.coordinates.iter().map(|&location| {
            let (min, max) = (b.fold(Fold::Min, location), b.fold(Fold::Max, location));
            [min, max]
        });
        Lanes {
            gather: self,
            bounds: bounds.collect(),
            outer: outer.clone(),
            first,
            contiguous,
            mask,
            is_spaced,
        }
    }
}

/// The outer indices of a vector, whose elements are loaded for each `k`.
pub struct Lanes<'a> {
    gather: &'a Gather,
    outer: Location,
    /// The address of the first lane.
    first: V,
    /// Whether the lanes are contiguous in memory.
    contiguous: V,
    /// The minimum and maximum coordinate of the lanes along each padded axis.
    bounds: Vec<[V; 2]>,
    /// The lanes that are within the operand.
    mask: Option<V>,
    is_spaced: bool,
}

impl Lanes<'_> {
    /// Whether the lanes are contiguous in memory, or `None` if they are known not to be.
    pub fn contiguous(&self) -> Option<V> {
        (!self.is_spaced).then_some(self.contiguous)
    }

    /// Loads the elements at `k`, in the lanes that are also in `extra_mask`. `contiguous` says
    /// whether the lanes are contiguous.
    pub fn load(
        &self,
        b: &mut Builder,
        mem: Mem,
        k: &Location,
        extra_mask: Option<V>,
        contiguous: bool,
    ) -> V {
        let masked = |b: &mut Builder| {
            let lanes = b.ty(self.outer.address).lanes;
            let add = |b: &mut Builder, own: V, k: V| {
                let k = b.splat(k, lanes);
                b.add(own, k)
            };
            let at = add(b, self.outer.address, k.address);
            let coordinates =
                self.outer.coordinates.iter().zip(&k.coordinates).map(|(&own, &k)| add(b, own, k));
            let location = Location { address: at, coordinates: coordinates.collect() };
            let (at, exists) = self.gather.locate(b, &location);
            let masks = [self.mask, exists, extra_mask].into_iter().flatten();
            let mask = masks.reduce(|x, y| b.binary(Binary::And, x, y));
            match contiguous {
                true => {
                    let at = b.add(self.first, k.address);
                    b.load(mem, at, lanes, mask)
                }
                false => b.gather(mem, at, mask),
            }
        };
        // If no lane is in the padding, the load needs no mask.
        match self.inside(b, k) {
            Some(inside) if contiguous => {
                let lanes = b.ty(self.outer.address).lanes;
                let whole = |b: &mut Builder| {
                    let at = b.add(self.first, k.address);
                    vec![b.load(mem, at, lanes, None)]
                };
                b.choose(inside, whole, |b: &mut Builder| vec![masked(b)])[0]
            }
            _ => masked(b),
        }
    }

    /// Tests whether all lanes are outside the padding. Returns `None` if the test does not pay.
    fn inside(&self, b: &mut Builder, k: &Location) -> Option<V> {
        if self.mask.is_some() || self.bounds.is_empty() {
            return None;
        }
        let mut inside: Option<V> = None;
        for ((padding, bounds), &k) in
            self.gather.paddings.iter().zip(&self.bounds).zip(&k.coordinates)
        {
            let [min, max] = bounds.map(|bound| b.add(bound, k));
            let zero = b.index(0);
            let conditions =
                [b.compare(Cmp::Ge, min, zero), b.compare(Cmp::Lt, max, padding.extent)];
            for condition in conditions {
                inside = Some(match inside {
                    None => condition,
                    Some(inside) => b.binary(Binary::And, inside, condition),
                });
            }
        }
        inside
    }
}

impl Location {
    /// Adds two contributions.
    pub fn plus(&self, b: &mut Builder, other: &Location) -> Location {
        let lanes = b.ty(self.address).lanes.max(b.ty(other.address).lanes);
        let mut add = |x: V, y: V| {
            let [x, y] = [x, y].map(|v| b.splat(v, lanes));
            b.add(x, y)
        };
        let at = add(self.address, other.address);
        let coordinates = self.coordinates.iter().zip(&other.coordinates).map(|(&x, &y)| add(x, y));
        Location { address: at, coordinates: coordinates.collect() }
    }
}

/// Splits a row-major flat index into one index per axis.
fn axis_indices(b: &mut Builder, axes: &[Axis], number: V) -> Vec<V> {
    let lanes = b.ty(number).lanes;
    let mut rest = number;
    let mut axis_indices = vec![number; axes.len()];
    for (at, axis) in axes.iter().enumerate().rev() {
        if at == 0 {
            axis_indices[0] = rest;
            break;
        }
        // Avoids a division by zero if the axis is empty.
        let one = b.index(1);
        let extent = match b.constant(axis.extent) {
            Some(0) => one,
            Some(_) => axis.extent,
            None => b.binary(Binary::Max, axis.extent, one),
        };
        let extent = b.splat(extent, lanes);
        (axis_indices[at], rest) = b.div_rem(rest, extent);
    }
    axis_indices
}
