//! Both sides of rules: terms of the host's algebra over variables.

use std::ops;

use mithril_ir::op::{self, Kind, Op};

use super::Attrs;
use super::matching::Match;

/// A term. Terms are made once, with the rules, and live as long as the process.
#[derive(Clone, Copy)]
pub struct Pattern(&'static Node);

/// What a term is.
pub enum Node {
    /// Any value; the same one wherever the number stands.
    Var(usize),
    /// A value all of whose elements are this number; 0 differs from -0.
    Number(f64),
    /// A value all of whose elements are this number, written with fewer digits or rounded.
    Near(f64),
    /// An operation on exactly these operands. On the right, the function gives its attributes.
    Op(Op, Vec<Pattern>, Option<AttrsOf>),
    /// Outermost: an elementwise operation on exactly these operands, whichever it is; on the right
    /// the one that was found on the left.
    Map(Vec<Pattern>),
    /// On the left: any of these terms.
    Any(Vec<Pattern>),
    /// On the left: an operation on any number of operands, one of which is this term.
    Among(Op, Pattern),
    /// Outermost: an operation on any number of operands, two of which, next to each other, are this
    /// term; on the right the one that was found, with this term in their place.
    Neighbours(Op, Pattern),
    /// On the right: the elements of the root as a literal, where its dims are known.
    Known,
    /// On the right: a part of one product that stands for all which share an operand.
    Joined,
}

/// The attributes of an operation on the right; `None` where the rule does not fit after all.
pub type AttrsOf = fn(&Match) -> Option<Attrs>;

/// How many variables a rule may have.
pub const VARS: usize = 6;

impl Pattern {
    fn new(node: Node) -> Pattern {
        Pattern(Box::leak(Box::new(node)))
    }

    pub fn node(self) -> &'static Node {
        self.0
    }

    /// The terms that it may be, as a whole.
    pub fn roots(self) -> Vec<Pattern> {
        match self.0 {
            Node::Any(terms) => terms.iter().flat_map(|term| term.roots()).collect(),
            _ => vec![self],
        }
    }

    /// The operations that its outermost one may be.
    pub fn heads(self) -> Vec<Op> {
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

    /// Whether its outermost operation may be this one.
    pub fn may_be(self, op: Op) -> bool {
        match self.0 {
            Node::Op(own, ..) | Node::Among(own, _) | Node::Neighbours(own, _) => *own == op,
            Node::Map(_) => op.kind == Kind::Elementwise,
            _ => false,
        }
    }

    /// The same operation with these attributes; defaults fill the others.
    pub fn with(self, attrs: AttrsOf) -> Pattern {
        match self.0 {
            Node::Op(op, args, _) => Pattern::new(Node::Op(*op, args.clone(), Some(attrs))),
            _ => unreachable!("operations have attributes"),
        }
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

/// The variables, of which a topic takes what it needs.
pub fn vars<const N: usize>() -> [Pattern; N] {
    const { assert!(N <= VARS) };
    std::array::from_fn(|i| Pattern::new(Node::Var(i)))
}

/// A value all of whose elements are this number.
pub fn number(value: f64) -> Pattern {
    Pattern::new(Node::Number(value))
}

/// A value all of whose elements are this number, written with fewer digits or rounded.
pub fn near(value: f64) -> Pattern {
    Pattern::new(Node::Near(value))
}

/// Any of these terms.
pub fn any<const N: usize>(terms: [Pattern; N]) -> Pattern {
    Pattern::new(Node::Any(terms.to_vec()))
}

/// An operation on any number of operands, one of which is this term: [`Match::part`] says which.
pub fn among(name: &str, term: Pattern) -> Pattern {
    Pattern::new(Node::Among(op::get(name), term))
}

/// An operation on any number of operands, two of which, next to each other, are this term, or one
/// in their place: [`Match::part`] says which is the first.
pub fn neighbours(name: &str, term: Pattern) -> Pattern {
    Pattern::new(Node::Neighbours(op::get(name), term))
}

/// An elementwise operation on these operands.
pub fn map<const N: usize>(operands: [Pattern; N]) -> Pattern {
    Pattern::new(Node::Map(operands.to_vec()))
}

/// The product of three factors, in whatever order they are multiplied.
pub fn product(x: Pattern, y: Pattern, z: Pattern) -> Pattern {
    any([(x * y) * z, x * (y * z), y * (x * z)])
}

/// The root's elements as a literal.
pub fn known() -> Pattern {
    Pattern::new(Node::Known)
}

/// A part of one product that stands for all which share an operand.
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
