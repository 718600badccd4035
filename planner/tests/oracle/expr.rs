//! Expressions: a tree, its text with no parenthesis that precedence makes needless, a parser, and the value.

use std::collections::BTreeMap;
use std::fmt;

/// Names and their values.
pub(crate) type Names = BTreeMap<String, i64>;

/// An operator of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

/// Longer spellings first, as the parser takes the first that fits.
const OPS: [(Op, &str, u8); 13] = [
    (Op::Or, "||", 1),
    (Op::And, "&&", 2),
    (Op::Eq, "==", 3),
    (Op::Ne, "!=", 3),
    (Op::Le, "<=", 3),
    (Op::Ge, ">=", 3),
    (Op::Lt, "<", 3),
    (Op::Gt, ">", 3),
    (Op::Add, "+", 4),
    (Op::Sub, "-", 4),
    (Op::Mul, "*", 5),
    (Op::Div, "/", 5),
    (Op::Rem, "%", 5),
];
const COMPARISON: u8 = 3;
const UNARY: u8 = 6;

impl Op {
    fn text(self) -> &'static str {
        OPS.iter().find(|(op, ..)| *op == self).unwrap().1
    }

    fn level(self) -> u8 {
        OPS.iter().find(|(op, ..)| *op == self).unwrap().2
    }
}

/// An expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expr {
    Int(i64),
    Name(String),
    Not(Box<Expr>),
    Binary(Op, Box<Expr>, Box<Expr>),
    Call(String, Vec<Expr>),
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    UnknownName(String),
    Inexact,
    ZeroDivisor,
    Overflow,
    /// The page leaves the value open, so the generator keeps away from it.
    Unspecified,
}

impl Expr {
    pub(crate) fn name(name: &str) -> Self {
        Self::Name(name.to_owned())
    }

    pub(crate) fn binary(op: Op, a: Expr, b: Expr) -> Self {
        Self::Binary(op, Box::new(a), Box::new(b))
    }

    /// The value, with `names` in scope.
    pub(crate) fn value(&self, names: &Names) -> Result<i64, Fault> {
        match self {
            Self::Int(n) => Ok(*n),
            Self::Name(name) => {
                names.get(name).copied().ok_or_else(|| Fault::UnknownName(name.clone()))
            }
            Self::Not(a) => Ok(i64::from(a.value(names)? == 0)),
            Self::Binary(Op::And, a, b) => {
                Ok(i64::from(a.value(names)? != 0 && b.value(names)? != 0))
            }
            Self::Binary(Op::Or, a, b) => {
                Ok(i64::from(a.value(names)? != 0 || b.value(names)? != 0))
            }
            Self::Binary(op, a, b) => apply(*op, a.value(names)?, b.value(names)?),
            Self::Call(function, arguments) => {
                let values =
                    arguments.iter().map(|a| a.value(names)).collect::<Result<Vec<_>, _>>()?;
                call(function, values[0], values[1])
            }
        }
    }

    fn level(&self) -> u8 {
        match self {
            Self::Binary(op, ..) => op.level(),
            Self::Not(_) => UNARY,
            _ => UNARY + 1,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        if self.level() < least {
            write!(f, "(")?;
            self.write(f, 0)?;
            return write!(f, ")");
        }
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Name(name) => write!(f, "{name}"),
            Self::Not(a) => {
                write!(f, "!")?;
                a.write(f, UNARY)
            }
            Self::Binary(op, a, b) => {
                // Comparisons do not chain; everything else groups to the left.
                let level = op.level();
                a.write(f, if level == COMPARISON { level + 1 } else { level })?;
                write!(f, " {} ", op.text())?;
                b.write(f, level + 1)
            }
            Self::Call(function, arguments) => {
                write!(f, "{function}(")?;
                for (i, argument) in arguments.iter().enumerate() {
                    write!(f, "{}", if i == 0 { "" } else { ", " })?;
                    argument.write(f, 0)?;
                }
                write!(f, ")")
            }
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

fn apply(op: Op, a: i64, b: i64) -> Result<i64, Fault> {
    let checked = |value: Option<i64>| value.ok_or(Fault::Overflow);
    match op {
        Op::Add => checked(a.checked_add(b)),
        Op::Sub => checked(a.checked_sub(b)),
        Op::Mul => checked(a.checked_mul(b)),
        Op::Div | Op::Rem if b == 0 => Err(Fault::ZeroDivisor),
        Op::Div if checked(a.checked_rem(b))? != 0 => Err(Fault::Inexact),
        Op::Div => checked(a.checked_div(b)),
        Op::Rem => checked(a.checked_rem(b)),
        Op::Eq => Ok(i64::from(a == b)),
        Op::Ne => Ok(i64::from(a != b)),
        Op::Lt => Ok(i64::from(a < b)),
        Op::Le => Ok(i64::from(a <= b)),
        Op::Gt => Ok(i64::from(a > b)),
        Op::Ge => Ok(i64::from(a >= b)),
        Op::And | Op::Or => unreachable!("these look at their right side only when they must"),
    }
}

fn call(function: &str, a: i64, b: i64) -> Result<i64, Fault> {
    match function {
        "min" => return Ok(a.min(b)),
        "max" => return Ok(a.max(b)),
        _ => {}
    }
    if b == 0 {
        return Err(Fault::ZeroDivisor);
    }
    if a < 0 || b < 0 {
        return Err(Fault::Unspecified);
    }
    let ceil = a / b + i64::from(a % b != 0);
    match function {
        "ceil_div" => Ok(ceil),
        "align_up" if b.count_ones() != 1 => Err(Fault::Unspecified),
        "align_up" => ceil.checked_mul(b).ok_or(Fault::Overflow),
        _ => Err(Fault::UnknownName(function.to_owned())),
    }
}

/// Reads a well-formed expression; panics on any other.
pub(crate) fn parse(text: &str) -> Expr {
    let mut rest = text.trim_start();
    let expr = binary(&mut rest, 1);
    assert!(rest.is_empty(), "{rest:?} is left of {text:?}");
    expr
}

fn take(rest: &mut &str, token: &str) -> bool {
    match rest.strip_prefix(token) {
        Some(after) => {
            *rest = after.trim_start();
            true
        }
        None => false,
    }
}

fn binary(rest: &mut &str, level: u8) -> Expr {
    if level == UNARY {
        return unary(rest);
    }
    let mut left = binary(rest, level + 1);
    loop {
        let found =
            OPS.iter().find(|(_, text, _)| rest.starts_with(text)).filter(|(.., of)| *of == level);
        let Some((op, text, _)) = found else {
            return left;
        };
        take(rest, text);
        left = Expr::binary(*op, left, binary(rest, level + 1));
    }
}

fn unary(rest: &mut &str) -> Expr {
    if take(rest, "!") {
        return Expr::Not(Box::new(unary(rest)));
    }
    if take(rest, "(") {
        let inner = binary(rest, 1);
        assert!(take(rest, ")"), "a missing parenthesis before {rest:?}");
        return inner;
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after.trim_start();
    if let Ok(n) = word.parse() {
        return Expr::Int(n);
    }
    assert!(!word.is_empty(), "an operand is missing before {rest:?}");
    if !take(rest, "(") {
        return Expr::name(word);
    }
    let mut arguments = vec![binary(rest, 1)];
    while take(rest, ",") {
        arguments.push(binary(rest, 1));
    }
    assert!(take(rest, ")"), "a missing parenthesis before {rest:?}");
    Expr::Call(word.to_owned(), arguments)
}
