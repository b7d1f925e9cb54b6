//! Conversions to dims and the arithmetic operators.

use std::iter::{Product, Sum};
use std::ops::{Add, Mul, Neg, Sub};

use super::Dim;
use super::poly::Poly;

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::Const(value)
    }
}

impl From<i32> for Dim {
    fn from(value: i32) -> Dim {
        Dim::Const(value.into())
    }
}

/// Unknown if the value does not fit in 64 bits.
impl From<usize> for Dim {
    fn from(value: usize) -> Dim {
        i64::try_from(value).ok().into()
    }
}

/// `None` is an unknown dim.
impl From<Option<i64>> for Dim {
    fn from(value: Option<i64>) -> Dim {
        value.map_or(Dim::Unknown, Dim::Const)
    }
}

fn add(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Const(a), Dim::Const(b)) => a.checked_add(*b).into(),
        (Dim::Const(0), other) | (other, Dim::Const(0)) => other.clone(),
        _ => a.combine(b, |a, b| a.add(b).map(Dim::from)),
    }
}

fn mul(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Const(a), Dim::Const(b)) => a.checked_mul(*b).into(),
        (Dim::Const(1), other) | (other, Dim::Const(1)) => other.clone(),
        _ => a.combine(b, |a, b| a.mul(b).map(Dim::from)),
    }
}

fn sub(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Const(a), Dim::Const(b)) => a.checked_sub(*b).into(),
        (other, Dim::Const(0)) => other.clone(),
        _ => a.combine(b, |a, b| a.sub(b).map(Dim::from)),
    }
}

fn neg(a: &Dim) -> Dim {
    match a {
        Dim::Const(a) => a.checked_neg().into(),
        Dim::Unknown => Dim::Unknown,
        Dim::Expr(poly) => poly.neg().map_or(Dim::Unknown, |poly: Poly| poly.into()),
    }
}

macro_rules! operator {
    ($operator:ident, $method:ident) => {
        impl $operator<&Dim> for &Dim {
            type Output = Dim;
            fn $method(self, rhs: &Dim) -> Dim {
                $method(self, rhs)
            }
        }

        impl $operator<Dim> for &Dim {
            type Output = Dim;
            fn $method(self, rhs: Dim) -> Dim {
                $method(self, &rhs)
            }
        }

        impl $operator<&Dim> for Dim {
            type Output = Dim;
            fn $method(self, rhs: &Dim) -> Dim {
                $method(&self, rhs)
            }
        }

        impl $operator<Dim> for Dim {
            type Output = Dim;
            fn $method(self, rhs: Dim) -> Dim {
                $method(&self, &rhs)
            }
        }

        impl $operator<i64> for &Dim {
            type Output = Dim;
            fn $method(self, rhs: i64) -> Dim {
                $method(self, &Dim::Const(rhs))
            }
        }

        impl $operator<i64> for Dim {
            type Output = Dim;
            fn $method(self, rhs: i64) -> Dim {
                $method(&self, &Dim::Const(rhs))
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);

impl Neg for &Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        neg(self)
    }
}

impl Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        neg(&self)
    }
}

impl Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(dims: I) -> Dim {
        dims.fold(Dim::Const(0), |total, dim| total + dim)
    }
}

impl<'a> Sum<&'a Dim> for Dim {
    fn sum<I: Iterator<Item = &'a Dim>>(dims: I) -> Dim {
        dims.fold(Dim::Const(0), |total, dim| total + dim)
    }
}

impl Product for Dim {
    fn product<I: Iterator<Item = Dim>>(dims: I) -> Dim {
        dims.fold(Dim::Const(1), |total, dim| total * dim)
    }
}

impl<'a> Product<&'a Dim> for Dim {
    fn product<I: Iterator<Item = &'a Dim>>(dims: I) -> Dim {
        dims.fold(Dim::Const(1), |total, dim| total * dim)
    }
}
