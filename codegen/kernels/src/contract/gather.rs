//! Operands whose elements are gathered: each axis has a stride of its own, and elements may be
//! zeros of a padding. So a convolution's contraction reads its windows without materializing them.

use crate::builder::Builder;
use crate::code::{Binary, Cmp, Fold, Mem, Ty, V};
use crate::contract::{Side, task};

/// How the elements of an operand are found. The outer index and `k` are flat indices over several
/// axes, in row-major order.
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

/// A padded axis. Its coordinate is `offset` plus a step for each index along the other axes. The
/// first `extent` multiples of `spacing` are elements; all other coordinates are zeros.
#[derive(Clone, Debug)]
pub struct Padding {
    pub offset: V,
    pub batch: Vec<i64>,
    pub outer: Vec<i64>,
    pub k: Vec<i64>,
    pub spacing: i64,
    pub extent: V,
    /// The distance between neighbouring elements in memory, used where `spacing` is above 1.
    pub stride: V,
}

/// The amount that an index adds to an element's address, and to the coordinate along each padded
/// axis. All are scalars, or all vectors of the same number of lanes.
#[derive(Clone, Debug)]
pub struct Place {
    pub at: V,
    places: Vec<V>,
}

impl Side {
    /// Where the elements of a batch index begin.
    pub fn start(&self, b: &mut Builder, batch: &[V]) -> Place {
        let at = task::start(b, self, batch);
        let place = |padding: &Padding| {
            padding.batch.iter().zip(batch).fold(padding.offset, |place, (&by, &index)| {
                let step = b.times(index, by);
                b.add(place, step)
            })
        };
        let places = self.gather.iter().flat_map(|gather| &gather.paddings).map(place);
        Place { at, places: places.collect() }
    }

    /// The contribution of an outer index, or of several in the lanes of a vector.
    pub fn outer(&self, b: &mut Builder, number: V) -> Place {
        match &self.gather {
            Some(gather) => gather.place(b, &gather.outer, number, |padding| &padding.outer),
            None => Place { at: b.mul(number, self.outer), places: vec![] },
        }
    }

    /// The contribution of an index along `k`.
    pub fn k(&self, b: &mut Builder, number: V) -> Place {
        match &self.gather {
            Some(gather) => gather.place(b, &gather.k, number, |padding| &padding.k),
            None => Place { at: b.mul(number, self.k), places: vec![] },
        }
    }

    /// Loads the element at `place`, or zero in the padding.
    pub fn element(&self, b: &mut Builder, place: &Place) -> V {
        let (at, there) = match &self.gather {
            Some(gather) => gather.find(b, place),
            None => (place.at, None),
        };
        b.load(self.mem, at, 1, there)
    }
}

impl Gather {
    fn place(
        &self,
        b: &mut Builder,
        axes: &[Axis],
        number: V,
        steps: impl Fn(&Padding) -> &Vec<i64>,
    ) -> Place {
        let indices = digits(b, axes, number);
        let lanes = b.ty(number).lanes;
        let start = b.int(b.ty(number), 0);
        let at = axes.iter().zip(&indices).fold(start, |at, (axis, &index)| {
            let stride = b.splat(axis.stride, lanes);
            let step = b.mul(index, stride);
            b.add(at, step)
        });
        let places = self.paddings.iter().map(|padding| {
            steps(padding).iter().zip(&indices).fold(start, |place, (&by, &index)| {
                let by = b.int(b.ty(number), by);
                let step = b.mul(index, by);
                b.add(place, step)
            })
        });
        let places = places.collect();
        Place { at, places }
    }

    /// The address of an element, and whether it exists: `None` if it always does.
    fn find(&self, b: &mut Builder, place: &Place) -> (V, Option<V>) {
        let (ty, mut at) = (b.ty(place.at), place.at);
        let mut there: Option<V> = None;
        for (padding, &here) in self.paddings.iter().zip(&place.places) {
            let zero = b.int(ty, 0);
            let mut conditions = vec![b.compare(Cmp::Ge, here, zero)];
            let mut index = here;
            if padding.spacing > 1 {
                let by = b.int(ty, padding.spacing);
                index = b.binary(Binary::Div, here, by);
                let back = b.mul(index, by);
                conditions.push(b.compare(Cmp::Eq, back, here));
                let stride = b.splat(padding.stride, ty.lanes);
                let step = b.mul(index, stride);
                at = b.add(at, step);
            }
            let extent = b.splat(padding.extent, ty.lanes);
            conditions.push(b.compare(Cmp::Lt, index, extent));
            for condition in conditions {
                there = Some(match there {
                    None => condition,
                    Some(there) => b.binary(Binary::And, there, condition),
                });
            }
        }
        (at, there)
    }

    /// Prepares to load the elements at some outer indices, one per lane, for each `k`.
    pub fn lanes(&self, b: &mut Builder, outer: &Place, mask: Option<V>) -> Lanes<'_> {
        let ty = b.ty(outer.at);
        let first = b.extract(outer.at, 0);
        let (wide, iota) = (b.splat(first, ty.lanes), b.iota(ty));
        let next = b.add(wide, iota);
        let same = b.compare(Cmp::Eq, outer.at, next);
        let mut follow = b.fold(Fold::And, same);
        let is_spread = self.paddings.iter().any(|padding| padding.spacing > 1);
        if is_spread {
            follow = b.int(Ty::scalar(b.ty(follow).dtype), 0);
        }
        let ends = outer.places.iter().map(|&place| {
            let (least, most) = (b.fold(Fold::Min, place), b.fold(Fold::Max, place));
            [least, most]
        });
        Lanes {
            gather: self,
            ends: ends.collect(),
            outer: outer.clone(),
            first,
            follow,
            mask,
            is_spread,
        }
    }
}

/// Loads one vector of elements for each `k`.
pub struct Lanes<'a> {
    gather: &'a Gather,
    outer: Place,
    /// The address of the first lane.
    first: V,
    /// Whether the lanes are contiguous in memory.
    follow: V,
    /// The minimum and maximum coordinate of the lanes along each padded axis.
    ends: Vec<[V; 2]>,
    /// The lanes that are within the operand.
    mask: Option<V>,
    is_spread: bool,
}

impl Lanes<'_> {
    /// Whether the lanes are contiguous in memory; `None` where they are known not to be.
    pub fn follow(&self) -> Option<V> {
        (!self.is_spread).then_some(self.follow)
    }

    /// Loads the elements at `k`, in the lanes that are also in the mask `also`. `follow` says
    /// whether the lanes are contiguous.
    pub fn load(&self, b: &mut Builder, mem: Mem, k: &Place, also: Option<V>, follow: bool) -> V {
        let masked = |b: &mut Builder| {
            let lanes = b.ty(self.outer.at).lanes;
            let add = |b: &mut Builder, own: V, k: V| {
                let k = b.splat(k, lanes);
                b.add(own, k)
            };
            let at = add(b, self.outer.at, k.at);
            let places = self.outer.places.iter().zip(&k.places).map(|(&own, &k)| add(b, own, k));
            let place = Place { at, places: places.collect() };
            let (at, there) = self.gather.find(b, &place);
            let masks = [self.mask, there, also].into_iter().flatten();
            let mask = masks.reduce(|x, y| b.binary(Binary::And, x, y));
            match follow {
                true => {
                    let at = b.add(self.first, k.at);
                    b.load(mem, at, lanes, mask)
                }
                false => b.gather(mem, at, mask),
            }
        };
        // Away from the padding the load needs no mask.
        match self.inside(b, k) {
            Some(inside) if follow => {
                let lanes = b.ty(self.outer.at).lanes;
                let whole = |b: &mut Builder| {
                    let at = b.add(self.first, k.at);
                    vec![b.load(mem, at, lanes, None)]
                };
                b.choose(inside, whole, |b: &mut Builder| vec![masked(b)])[0]
            }
            _ => masked(b),
        }
    }

    /// Whether all lanes are outside the padding; `None` where the test does not pay.
    fn inside(&self, b: &mut Builder, k: &Place) -> Option<V> {
        if self.mask.is_some() || self.ends.is_empty() {
            return None;
        }
        let mut inside: Option<V> = None;
        for ((padding, ends), &k) in self.gather.paddings.iter().zip(&self.ends).zip(&k.places) {
            let [least, most] = ends.map(|end| b.add(end, k));
            let zero = b.index(0);
            let conditions =
                [b.compare(Cmp::Ge, least, zero), b.compare(Cmp::Lt, most, padding.extent)];
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

impl Place {
    /// The sum of both contributions.
    pub fn with(&self, b: &mut Builder, other: &Place) -> Place {
        let lanes = b.ty(self.at).lanes.max(b.ty(other.at).lanes);
        let mut add = |x: V, y: V| {
            let [x, y] = [x, y].map(|v| b.splat(v, lanes));
            b.add(x, y)
        };
        let at = add(self.at, other.at);
        let places = self.places.iter().zip(&other.places).map(|(&x, &y)| add(x, y));
        Place { at, places: places.collect() }
    }
}

/// The index along each axis that a flat index stands for.
fn digits(b: &mut Builder, axes: &[Axis], number: V) -> Vec<V> {
    let lanes = b.ty(number).lanes;
    let mut rest = number;
    let mut digits = vec![number; axes.len()];
    for (at, axis) in axes.iter().enumerate().rev() {
        if at == 0 {
            digits[0] = rest;
            break;
        }
        // An axis without elements has no index: this avoids a division by zero.
        let one = b.index(1);
        let extent = match b.constant(axis.extent) {
            Some(0) => one,
            Some(_) => axis.extent,
            None => b.binary(Binary::Max, axis.extent, one),
        };
        let extent = b.splat(extent, lanes);
        (digits[at], rest) = b.div_rem(rest, extent);
    }
    digits
}
