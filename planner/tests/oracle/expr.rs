//! Expressions: a tree, its text with no parenthesis that precedence makes needless, a parser, and the value.

use std::collections::BTreeMap;
use std::fmt;

/// Names and their values. A nested name has its dots: `text_config.hidden_size`.
pub(crate) type Names = BTreeMap<String, Value>;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Int(i64),
    Text(String),
    List(Vec<Value>),
}

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
    Text(String),
    /// Whether the value of the first name is in the list that the second stands for.
    In(String, String),
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
    /// A string or a list where a number must stand, a number beside a string.
    Type,
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

    /// The number that it is, with `names` in scope.
    pub(crate) fn value(&self, names: &Names) -> Result<i64, Fault> {
        match self {
            Self::Int(n) => Ok(*n),
            Self::Name(_) | Self::Text(_) => match self.any(names)? {
                Value::Int(n) => Ok(n),
                Value::Text(_) | Value::List(_) => Err(Fault::Type),
            },
            Self::In(name, list) => {
                let find =
                    |name: &String| names.get(name).ok_or_else(|| Fault::UnknownName(name.clone()));
                match (find(name)?, find(list)?) {
                    (Value::List(_), _) => Err(Fault::Type),
                    (value, Value::List(list)) => Ok(i64::from(list.contains(value))),
                    _ => Err(Fault::Type),
                }
            }
            Self::Not(a) => Ok(i64::from(a.value(names)? == 0)),
            Self::Binary(Op::And, a, b) => {
                Ok(i64::from(a.value(names)? != 0 && b.value(names)? != 0))
            }
            Self::Binary(Op::Or, a, b) => {
                Ok(i64::from(a.value(names)? != 0 || b.value(names)? != 0))
            }
            Self::Binary(op @ (Op::Eq | Op::Ne), a, b) => match (a.any(names)?, b.any(names)?) {
                (Value::Int(a), Value::Int(b)) => apply(*op, a, b),
                (Value::Text(a), Value::Text(b)) => Ok(i64::from((a == b) == (*op == Op::Eq))),
                _ => Err(Fault::Type),
            },
            Self::Binary(op, a, b) => apply(*op, a.value(names)?, b.value(names)?),
            Self::Call(function, arguments) => {
                let values =
                    arguments.iter().map(|a| a.value(names)).collect::<Result<Vec<_>, _>>()?;
                call(function, values[0], values[1])
            }
        }
    }

    /// The value, be it a number, a string or a list.
    fn any(&self, names: &Names) -> Result<Value, Fault> {
        match self {
            Self::Name(name) => {
                names.get(name).cloned().ok_or_else(|| Fault::UnknownName(name.clone()))
            }
            Self::Text(text) => Ok(Value::Text(text.clone())),
            _ => self.value(names).map(Value::Int),
        }
    }

    /// All names that stand in it, looked at or not.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Int(_) | Self::Text(_) => vec![],
            Self::Name(name) => vec![name],
            Self::In(name, list) => vec![name, list],
            Self::Not(a) => a.names(),
            Self::Binary(_, a, b) => [a.names(), b.names()].concat(),
            Self::Call(_, arguments) => arguments.iter().flat_map(Self::names).collect(),
        }
    }

    fn level(&self) -> u8 {
        match self {
            Self::Binary(op, ..) => op.level(),
            Self::In(..) => COMPARISON,
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
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::In(name, list) => write!(f, "{name} in {list}"),
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
    if level == COMPARISON
        && let Some(after) = rest.strip_prefix("in ")
    {
        *rest = after.trim_start();
        return match (left, binary(rest, level + 1)) {
            (Expr::Name(name), Expr::Name(list)) => Expr::In(name, list),
            other => panic!("{other:?} around `in`"),
        };
    }
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
    if take(rest, "\"") {
        let (text, after) = rest.split_once('"').unwrap();
        let text = Expr::Text(text.to_owned());
        *rest = after.trim_start();
        return text;
    }
    let of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let end = rest.find(|c: char| !of_a_name(c)).unwrap_or(rest.len());
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
