//! The two sides of rules: terms over variables, built with Rust operators.

use std::ops;

use mithril_ir::op::{self, Kind, Op};
use smallvec::SmallVec;

use super::Attrs;
use super::matched::{Match, VARS};

/// A term. Terms are built once, with the rules, and live as long as the process.
#[derive(Clone, Copy)]
pub struct Pattern(&'static Node);

/// The kinds of terms.
pub enum Node {
    /// Any value; the same one wherever this index occurs.
    Var(usize),
    /// A value all of whose elements are this number; 0 differs from -0.
    Number(f64),
    /// A value all of whose elements are about this number, which people write with fewer digits or
    /// rounded.
    Near(f64),
    /// An operation on exactly these operands. On the right, the function gives its attributes.
    Op(Op, Vec<Pattern>, Option<AttrsOf>),
    /// Outermost only: any elementwise operation on exactly these operands; on the right, the
    /// operation that matched on the left.
    Map(Vec<Pattern>),
    /// On the left: any of these terms.
    Any(Vec<Pattern>),
    /// On the left: an operation on any number of operands, one of which is this term.
    Among(Op, Pattern),
    /// Outermost only: an operation on any number of operands. On the left, two adjacent operands
    /// match this term; on the right, this term replaces the two.
    Neighbours(Op, Pattern),
    /// On the right: the elements of the root as a literal, if its dims are known.
    Known,
    /// On the right: a slice of the one product that replaces all products sharing an operand.
    Joined,
}

/// The attributes of an operation on the right; `None` if the rule does not match after all.
pub type AttrsOf = fn(&Match) -> Option<Attrs>;

impl Pattern {
    fn new(node: Node) -> Pattern {
        Pattern(Box::leak(Box::new(node)))
    }

    pub fn node(self) -> &'static Node {
        self.0
    }

    /// The terms that this term as a whole may be.
    pub fn roots(self) -> Vec<Pattern> {
        match self.0 {
            Node::Any(terms) => terms.iter().flat_map(|term| term.roots()).collect(),
            _ => vec![self],
        }
    }

    /// The operations that may be the outermost one.
    pub fn root_ops(self) -> Vec<Op> {
        match self.0 {
            Node::Op(op, ..) | Node::Among(op, _) | Node::Neighbours(op, _) => vec![*op],
            Node::Map(args) => {
                let fits =
                    |op: &Op| op.kind == Kind::Elementwise && op.operands.len() == args.len();
                op::table().filter(fits).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether its outermost operation may be `op`.
    pub fn may_be(self, op: Op) -> bool {
        match self.0 {
            Node::Op(own, ..) | Node::Among(own, _) | Node::Neighbours(own, _) => *own == op,
            Node::Map(_) => op.kind == Kind::Elementwise,
            _ => false,
        }
    }

    /// The same operation with these attributes; the others get their defaults.
    pub fn with(self, attrs: AttrsOf) -> Pattern {
        match self.0 {
            Node::Op(op, args, _) => Pattern::new(Node::Op(*op, args.clone(), Some(attrs))),
            Node::Var(_)
            | Node::Number(_)
            | Node::Near(_)
            | Node::Map(_)
            | Node::Any(_)
            | Node::Among(..)
            | Node::Neighbours(..)
            | Node::Known
            | Node::Joined => panic!("only operations have attributes"),
        }
    }

    /// The attributes of the operations of a right side, outermost first; `None` if one of them
    /// cannot be computed, so that the rule does not match after all.
    pub fn attributes(self, found: &Match) -> Option<SmallVec<[Attrs; 1]>> {
        let mut all = Some(SmallVec::new());
        self.each_op(&mut |_, attrs| {
            let own = attrs.map_or(Some(Attrs::new()), |attrs| attrs(found));
            all = all.take().zip(own).map(|(mut all, own): (SmallVec<[Attrs; 1]>, _)| {
                all.push(own);
                all
            });
        });
        all
    }

    /// Calls `visit` on each operation, outermost first, in the order of operands.
    pub fn each_op(self, visit: &mut impl FnMut(Op, Option<AttrsOf>)) {
        match self.0 {
            Node::Op(op, args, attrs) => {
                visit(*op, *attrs);
                args.iter().for_each(|arg| arg.each_op(visit));
            }
            Node::Map(args) => args.iter().for_each(|arg| arg.each_op(visit)),
            Node::Neighbours(_, term) => term.each_op(visit),
            _ => {}
        }
    }
}

/// The variables; each topic takes as many as it needs.
pub fn vars<const N: usize>() -> [Pattern; N] {
    const { assert!(N <= VARS) };
    std::array::from_fn(|i| Pattern::new(Node::Var(i)))
}

/// A value all of whose elements are this number.
pub fn number(value: f64) -> Pattern {
    Pattern::new(Node::Number(value))
}

/// A value all of whose elements are about this number, which people write with fewer digits or
/// rounded.
pub fn near(value: f64) -> Pattern {
    Pattern::new(Node::Near(value))
}

/// Any of these terms.
pub fn any<const N: usize>(terms: [Pattern; N]) -> Pattern {
    Pattern::new(Node::Any(terms.to_vec()))
}

/// An operation on any number of operands, one of which matches this term: [`Match::part`] is its
/// index.
pub fn among(name: &str, term: Pattern) -> Pattern {
    Pattern::new(Node::Among(op::get(name), term))
}

/// An operation on any number of operands. On the left, two adjacent operands match this term; on
/// the right, this term replaces the two. [`Match::part`] is the index of the first.
pub fn neighbours(name: &str, term: Pattern) -> Pattern {
    Pattern::new(Node::Neighbours(op::get(name), term))
}

/// An elementwise operation on these operands.
pub fn map<const N: usize>(operands: [Pattern; N]) -> Pattern {
    Pattern::new(Node::Map(operands.to_vec()))
}

/// The product of three factors, multiplied in any order.
pub fn product(x: Pattern, y: Pattern, z: Pattern) -> Pattern {
    any([(x * y) * z, x * (y * z), y * (x * z)])
}

/// The root's elements as a literal.
pub fn known() -> Pattern {
    Pattern::new(Node::Known)
}

/// A slice of the one product that replaces all products sharing an operand.
pub fn part_of_joined() -> Pattern {
    Pattern::new(Node::Joined)
}

/// An operation of the table on these operands.
pub fn op<const N: usize>(name: &str, operands: [Pattern; N]) -> Pattern {
    Pattern::new(Node::Op(op::get(name), operands.to_vec(), None))
}

/// An operation of the table on one operand.
pub fn unary(name: &'static str) -> impl Fn(Pattern) -> Pattern + Copy {
    move |x| op(name, [x])
}

macro_rules! operator {
    ($trait:ident, $method:ident, $op:literal) => {
        impl ops::$trait for Pattern {
            type Output = Pattern;

            fn $method(self, other: Pattern) -> Pattern {
                op($op, [self, other])
            }
        }

        impl ops::$trait<f64> for Pattern {
            type Output = Pattern;

            fn $method(self, other: f64) -> Pattern {
                op($op, [self, number(other)])
            }
        }

        impl ops::$trait<Pattern> for f64 {
            type Output = Pattern;

            fn $method(self, other: Pattern) -> Pattern {
                op($op, [number(self), other])
            }
        }
    };
}

operator!(Add, add, "add");
operator!(Sub, sub, "sub");
operator!(Mul, mul, "mul");
operator!(Div, div, "div");
operator!(BitAnd, bitand, "and");
operator!(BitOr, bitor, "or");
operator!(BitXor, bitxor, "xor");

impl ops::Neg for Pattern {
    type Output = Pattern;

    fn neg(self) -> Pattern {
        op("neg", [self])
    }
}

impl ops::Not for Pattern {
    type Output = Pattern;

    fn not(self) -> Pattern {
        op("not", [self])
    }
}
