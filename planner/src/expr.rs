//! Expressions of a spec: sizes, counts and layer conditions.
//!
//! One small language for both front ends: integers, names (`a.b` where a configuration nests),
//! `+ - * / %`, comparisons, `&& || !`, parentheses and `min max ceil_div align_up`. Values are
//! 64-bit signed integers; a comparison gives 1 or 0, and a condition holds when it is not 0. Nothing
//! rounds and nothing wraps: `/` must divide exactly, and an overflow is an error with the operands
//! in it.
//!
//! Text, `"full_attention"`, without escapes, can be compared with text by `==` and `!=`, and looked
//! for by `in`. `value in list` is 1 where the named list has the value.
//!
//! Precedence, loosest first: `||`, `&&`, comparisons and `in` (which do not chain), `+ -`, `* / %`,
//! unary `- !`. `&&` and `||` evaluate their right side only when it decides.
//!
//! Invariant: a parsed expression has at most [`MAX_NODES`] nodes and nests at most
//! [`MAX_DEPTH`] deep, so that walking it cannot exhaust the stack.

use std::fmt;

use scratchpool_tables::{Name, Span};

use crate::value::{Value, is_name};

/// Most nodes in one expression.
pub const MAX_NODES: usize = 1024;

/// Deepest nesting of parentheses, calls and unary operators.
pub const MAX_DEPTH: usize = 64;

/// An expression and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// What it is.
    pub kind: Kind,
    /// Where it was written.
    pub span: Span,
}

/// The forms of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Int(i64),
    /// Text, without its quotes.
    Text(String),
    /// A name to look up.
    Name(String),
    /// `-x` or `!x`.
    Unary(Unary, Box<Expr>),
    /// `x op y`.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `x in list`.
    In(Box<Expr>, Name),
    /// `f(x, …)`.
    Call(Function, Vec<Expr>),
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `-`
    Neg,
    /// `!`
    Not,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `||`
    Or,
    /// `&&`
    And,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`, exact
    Div,
    /// `%`, with the sign of the left operand
    Rem,
}

impl Binary {
    const fn level(self) -> u8 {
        match self {
            Self::Or => 0,
            Self::And => 1,
            Self::Eq | Self::Ne | Self::Lt | Self::Le | Self::Gt | Self::Ge => 2,
            Self::Add | Self::Sub => 3,
            Self::Mul | Self::Div | Self::Rem => 4,
        }
    }

    /// The operator as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Rem => "%",
        }
    }
}

/// Functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Smallest of two or more.
    Min,
    /// Largest of two or more.
    Max,
    /// `ceil_div(a, b)`: a / b rounded up; b must be positive.
    CeilDiv,
    /// `align_up(a, b)`: the least multiple of b that is not below a; b must be positive.
    AlignUp,
}

impl Function {
    /// All functions.
    pub const ALL: [Self; 4] = [Self::Min, Self::Max, Self::CeilDiv, Self::AlignUp];

    /// The function as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::CeilDiv => "ceil_div",
            Self::AlignUp => "align_up",
        }
    }
}

/// What is wrong with an expression, by its text or by its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It ended where an operand was expected.
    Unfinished,
    /// A character or word that cannot stand here.
    Unexpected(String),
    /// Two comparisons in a row.
    ChainedComparison,
    /// A `(` without its `)`.
    Unclosed,
    /// Deeper than [`MAX_DEPTH`] or longer than [`MAX_NODES`].
    TooLarge,
    /// An integer literal beyond 63 bits.
    Literal(String),
    /// A function that does not exist.
    UnknownFunction(String),
    /// A function called with a number of arguments that it does not take.
    Arguments(Function, usize),
    /// A name that is not defined.
    UnknownName(String),
    /// A list where an integer is needed.
    List(String),
    /// Text where an integer is needed.
    Text(String),
    /// Text compared with an integer: both as they are written.
    Mixed(String, String),
    /// A name after `in` that is no list.
    NotAList(String),
    /// A `"` without the one that ends the text.
    UnclosedText,
    /// `a / b` with a remainder.
    Inexact(i64, i64),
    /// A division by zero, or a step of rounding below 1.
    Divisor(&'static str, i64, i64),
    /// A result beyond 64 bits.
    Overflow(&'static str, i64, i64),
}

/// A problem and the part of the expression that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// What is wrong.
    pub problem: Problem,
    /// The part that is wrong.
    pub span: Span,
}

impl Expr {
    /// Parses `text`; `place` turns a byte range of the text into a span of the front end's source.
    ///
    /// # Errors
    /// The first thing in the text that is not an expression.
    ///
    /// ```
    /// use scratchpool_planner::{expr::Expr, spec::{Span, Value}};
    /// let place = |start: usize, end: usize| Span::new(start as u32, end as u32);
    /// let expr = Expr::parse("ceil_div(n, 64) * 2", &place)?;
    /// assert_eq!(expr.eval(&|name: &str| (name == "n").then_some(Value::Int(65)))?, 4);
    /// # Ok::<(), scratchpool_planner::expr::ExprError>(())
    /// ```
    pub fn parse(text: &str, place: &dyn Fn(usize, usize) -> Span) -> Result<Self, ExprError> {
        let mut parser = Parser { text, at: 0, nodes: 0, place };
        let expr = parser.binary(0, 0)?;
        match parser.peek() {
            None => Ok(expr),
            Some(token) => Err(parser.unexpected(&token)),
        }
    }

    /// An integer literal.
    pub const fn int(value: i64, span: Span) -> Self {
        Self { kind: Kind::Int(value), span }
    }

    /// Evaluates, looking names up in `scope`.
    ///
    /// # Errors
    /// An unknown name, a list or text where an integer is needed, text compared with an integer, an
    /// inexact division, a divisor that is not allowed, or an overflow of 64 bits.
    pub fn eval(&self, scope: &dyn Fn(&str) -> Option<Value>) -> Result<i64, ExprError> {
        match self.scalar(scope)? {
            Scalar::Int(value) => Ok(value),
            Scalar::Text(_) => {
                Err(ExprError { problem: Problem::Text(self.to_string()), span: self.span })
            }
        }
    }

    /// The value of an expression that may be text.
    fn scalar(&self, scope: &dyn Fn(&str) -> Option<Value>) -> Result<Scalar, ExprError> {
        match &self.kind {
            Kind::Text(text) => Ok(Scalar::Text(text.clone())),
            Kind::Name(name) => {
                let problem = match scope(name) {
                    Some(Value::Int(value)) => return Ok(Scalar::Int(value)),
                    Some(Value::Text(text)) => return Ok(Scalar::Text(text)),
                    Some(Value::List(_) | Value::Texts(_)) => Problem::List(name.clone()),
                    None => Problem::UnknownName(name.clone()),
                };
                Err(ExprError { problem, span: self.span })
            }
            _ => self.integer(scope).map(Scalar::Int),
        }
    }

    /// The value of an expression that is neither a name nor text.
    fn integer(&self, scope: &dyn Fn(&str) -> Option<Value>) -> Result<i64, ExprError> {
        let fail = |problem| Err(ExprError { problem, span: self.span });
        match &self.kind {
            Kind::Int(value) => Ok(*value),
            Kind::Text(_) | Kind::Name(_) => self.eval(scope),
            Kind::In(value, list) => {
                let value = value.scalar(scope)?;
                let problem = match (scope(&list.value), &value) {
                    (Some(Value::List(items)), Scalar::Int(value)) => {
                        return Ok(i64::from(items.contains(value)));
                    }
                    (Some(Value::Texts(items)), Scalar::Text(text)) => {
                        return Ok(i64::from(items.contains(text)));
                    }
                    // An empty list of a configuration is of no kind.
                    (Some(Value::List(items)), Scalar::Text(_)) if items.is_empty() => {
                        return Ok(0);
                    }
                    (Some(Value::List(items)), Scalar::Text(text)) => {
                        let item = items.first().map_or_else(String::new, i64::to_string);
                        Problem::Mixed(quoted(text), item)
                    }
                    (Some(Value::Texts(items)), Scalar::Int(value)) => {
                        let item = items.first().map_or_else(String::new, |text| quoted(text));
                        Problem::Mixed(item, value.to_string())
                    }
                    (Some(Value::Int(_) | Value::Text(_)), _) => {
                        Problem::NotAList(list.value.clone())
                    }
                    (None, _) => Problem::UnknownName(list.value.clone()),
                };
                Err(ExprError { problem, span: list.span })
            }
            Kind::Binary(op @ (Binary::Eq | Binary::Ne), left, right) => {
                let same = match (left.scalar(scope)?, right.scalar(scope)?) {
                    (Scalar::Int(left), Scalar::Int(right)) => left == right,
                    (Scalar::Text(left), Scalar::Text(right)) => left == right,
                    (Scalar::Text(text), Scalar::Int(value))
                    | (Scalar::Int(value), Scalar::Text(text)) => {
                        return fail(Problem::Mixed(quoted(&text), value.to_string()));
                    }
                };
                Ok(i64::from(same == (*op == Binary::Eq)))
            }
            Kind::Unary(Unary::Not, operand) => Ok(i64::from(operand.eval(scope)? == 0)),
            Kind::Unary(Unary::Neg, operand) => {
                let value = operand.eval(scope)?;
                value.checked_neg().map_or_else(|| fail(Problem::Overflow("-", 0, value)), Ok)
            }
            Kind::Binary(Binary::And, left, right) => {
                Ok(i64::from(left.eval(scope)? != 0 && right.eval(scope)? != 0))
            }
            Kind::Binary(Binary::Or, left, right) => {
                Ok(i64::from(left.eval(scope)? != 0 || right.eval(scope)? != 0))
            }
            Kind::Binary(op, left, right) => {
                let (left, right) = (left.eval(scope)?, right.eval(scope)?);
                arithmetic(*op, left, right).or_else(fail)
            }
            Kind::Call(function, arguments) => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(argument.eval(scope)?);
                }
                call(*function, &values).or_else(fail)
            }
        }
    }

    /// Calls `visit` with each name in the expression and its place, whether evaluated or not.
    pub fn names<'e>(&'e self, visit: &mut dyn FnMut(&'e str, Span)) {
        match &self.kind {
            Kind::Int(_) | Kind::Text(_) => {}
            Kind::Name(name) => visit(name, self.span),
            Kind::In(value, list) => {
                value.names(visit);
                visit(&list.value, list.span);
            }
            Kind::Unary(_, operand) => operand.names(visit),
            Kind::Binary(_, left, right) => {
                left.names(visit);
                right.names(visit);
            }
            Kind::Call(_, arguments) => arguments.iter().for_each(|each| each.names(visit)),
        }
    }

    fn level(&self) -> u8 {
        match &self.kind {
            Kind::Binary(op, ..) => op.level(),
            Kind::In(..) => Binary::Eq.level(),
            Kind::Unary(..) => 5,
            Kind::Int(value) if *value < 0 => 5,
            _ => 6,
        }
    }
}

/// What an expression gives.
enum Scalar {
    Int(i64),
    Text(String),
}

/// Text as it is written.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn arithmetic(op: Binary, left: i64, right: i64) -> Result<i64, Problem> {
    let overflow = Problem::Overflow(op.as_str(), left, right);
    let zero = || Problem::Divisor(op.as_str(), left, right);
    match op {
        Binary::Or => Ok(i64::from(left != 0 || right != 0)),
        Binary::And => Ok(i64::from(left != 0 && right != 0)),
        Binary::Eq => Ok(i64::from(left == right)),
        Binary::Ne => Ok(i64::from(left != right)),
        Binary::Lt => Ok(i64::from(left < right)),
        Binary::Le => Ok(i64::from(left <= right)),
        Binary::Gt => Ok(i64::from(left > right)),
        Binary::Ge => Ok(i64::from(left >= right)),
        Binary::Add => left.checked_add(right).ok_or(overflow),
        Binary::Sub => left.checked_sub(right).ok_or(overflow),
        Binary::Mul => left.checked_mul(right).ok_or(overflow),
        Binary::Div | Binary::Rem if right == 0 => Err(zero()),
        Binary::Div => match left.checked_rem(right) {
            None => Err(overflow),
            Some(0) => left.checked_div(right).ok_or(overflow),
            Some(_) => Err(Problem::Inexact(left, right)),
        },
        // The remainder by -1 is 0, also where the quotient would not fit.
        Binary::Rem => Ok(left.checked_rem(right).unwrap_or(0)),
    }
}

fn call(function: Function, values: &[i64]) -> Result<i64, Problem> {
    let wrong = || Problem::Arguments(function, values.len());
    match (function, values) {
        (Function::Min, [_, _, ..]) => values.iter().copied().min().ok_or_else(wrong),
        (Function::Max, [_, _, ..]) => values.iter().copied().max().ok_or_else(wrong),
        (Function::CeilDiv | Function::AlignUp, &[value, step]) => {
            if step < 1 {
                return Err(Problem::Divisor(function.as_str(), value, step));
            }
            // With step >= 1 neither the quotient nor its successor can overflow: the successor
            // is taken only where the remainder is positive, so step >= 2.
            let quotient = value.div_euclid(step) + i64::from(value.rem_euclid(step) != 0);
            if function == Function::CeilDiv {
                return Ok(quotient);
            }
            quotient.checked_mul(step).ok_or(Problem::Overflow(function.as_str(), value, step))
        }
        _ => Err(wrong()),
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |f: &mut fmt::Formatter<'_>, expr: &Self, least: u8| {
            if expr.level() < least { write!(f, "({expr})") } else { write!(f, "{expr}") }
        };
        match &self.kind {
            Kind::Int(value) => write!(f, "{value}"),
            Kind::Text(text) => f.write_str(&quoted(text)),
            Kind::Name(name) => f.write_str(name),
            Kind::In(value, list) => {
                inner(f, value, Binary::Add.level())?;
                write!(f, " in {}", list.value)
            }
            Kind::Unary(op, operand) => {
                f.write_str(if *op == Unary::Neg { "-" } else { "!" })?;
                inner(f, operand, 6)
            }
            Kind::Binary(op, left, right) => {
                // Comparisons do not chain, so both sides of one need the tighter level.
                let left_level = op.level() + u8::from(op.level() == 2);
                inner(f, left, left_level)?;
                write!(f, " {} ", op.as_str())?;
                inner(f, right, op.level() + 1)
            }
            Kind::Call(function, arguments) => {
                write!(f, "{}(", function.as_str())?;
                for (position, argument) in arguments.iter().enumerate() {
                    if position > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{argument}")?;
                }
                f.write_str(")")
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Token<'t> {
    text: &'t str,
    start: usize,
}

impl Token<'_> {
    const fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    nodes: usize,
    place: &'t dyn Fn(usize, usize) -> Span,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        let rest = self.text.get(self.at..)?;
        let trimmed = rest.trim_start();
        let start = self.at + (rest.len() - trimmed.len());
        let first = trimmed.chars().next()?;
        let word = |c: char| c == '_' || c.is_alphanumeric();
        let length = if word(first) {
            trimmed.find(|c| !word(c)).unwrap_or(trimmed.len())
        } else if first == '"' {
            // Up to the next quote, or all where there is none.
            let text = trimmed.get(1..)?.find('"');
            text.map_or(trimmed.len(), |length| length + 2)
        } else if ["==", "!=", "<=", ">=", "&&", "||"].iter().any(|op| trimmed.starts_with(op)) {
            2
        } else {
            first.len_utf8()
        };
        Some(Token { text: trimmed.get(..length)?, start })
    }

    fn next(&mut self) -> Result<Token<'t>, ExprError> {
        let token = self.peek().ok_or_else(|| self.error_at_end())?;
        self.at = token.end();
        Ok(token)
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.peek() {
            Some(token) if token.text == text => {
                self.at = token.end();
                true
            }
            _ => false,
        }
    }

    fn error_at_end(&self) -> ExprError {
        let end = self.text.len();
        let last = self.text.trim_end().len().saturating_sub(1);
        ExprError { problem: Problem::Unfinished, span: (self.place)(last, end) }
    }

    fn unexpected(&self, token: &Token<'_>) -> ExprError {
        let problem = Problem::Unexpected(token.text.to_owned());
        ExprError { problem, span: (self.place)(token.start, token.end()) }
    }

    fn node(&mut self, kind: Kind, start: usize, end: usize) -> Result<Expr, ExprError> {
        let span = (self.place)(start, end);
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(ExprError { problem: Problem::TooLarge, span });
        }
        Ok(Expr { kind, span })
    }

    fn operator(&self, level: u8) -> Option<Binary> {
        const ALL: [Binary; 13] = [
            Binary::Or,
            Binary::And,
            Binary::Eq,
            Binary::Ne,
            Binary::Lt,
            Binary::Le,
            Binary::Gt,
            Binary::Ge,
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::Div,
            Binary::Rem,
        ];
        let token = self.peek()?;
        ALL.into_iter().find(|op| op.level() == level && op.as_str() == token.text)
    }

    fn binary(&mut self, level: u8, depth: usize) -> Result<Expr, ExprError> {
        if level > 4 {
            return self.unary(depth);
        }
        let start = self.peek().map_or(self.at, |token| token.start);
        let mut left = self.binary(level + 1, depth)?;
        let mut compared = false;
        while let Some(token) = self.peek() {
            let kind = if let Some(op) = self.operator(level) {
                self.at = token.end();
                let right = self.binary(level + 1, depth)?;
                Kind::Binary(op, Box::new(left), Box::new(right))
            } else if level == Binary::Eq.level() && token.text == "in" {
                self.at = token.end();
                Kind::In(Box::new(left), self.list_name()?)
            } else {
                break;
            };
            if level == Binary::Eq.level() && compared {
                let span = (self.place)(token.start, token.end());
                return Err(ExprError { problem: Problem::ChainedComparison, span });
            }
            compared = true;
            left = self.node(kind, start, self.at)?;
        }
        Ok(left)
    }

    /// The name after `in`.
    fn list_name(&mut self) -> Result<Name, ExprError> {
        let token = self.next()?;
        if !is_name(token.text) {
            return Err(self.unexpected(&token));
        }
        let (name, end) = self.path(&token)?;
        Ok(Name::new(name, (self.place)(token.start, end)))
    }

    /// A name with the names nested in it, `a.b.c`, of which the first has been read, and its end.
    fn path(&mut self, first: &Token<'_>) -> Result<(String, usize), ExprError> {
        let (mut name, mut end) = (first.text.to_owned(), first.end());
        while self.eat(".") {
            let token = self.next()?;
            if !is_name(token.text) {
                return Err(self.unexpected(&token));
            }
            name.push('.');
            name.push_str(token.text);
            end = token.end();
        }
        Ok((name, end))
    }

    fn unary(&mut self, depth: usize) -> Result<Expr, ExprError> {
        let token = self.next()?;
        let span = (self.place)(token.start, token.end());
        if depth > MAX_DEPTH {
            return Err(ExprError { problem: Problem::TooLarge, span });
        }
        match token.text {
            "(" => {
                let inner = self.binary(0, depth + 1)?;
                self.close(span)?;
                Ok(inner)
            }
            "-" | "!" => {
                let op = if token.text == "-" { Unary::Neg } else { Unary::Not };
                let operand = self.unary(depth + 1)?;
                self.node(Kind::Unary(op, Box::new(operand)), token.start, self.at)
            }
            text if text.starts_with(|c: char| c.is_ascii_digit()) => {
                let digits: String = text.chars().filter(|c| *c != '_').collect();
                if !digits.chars().all(|c| c.is_ascii_digit()) {
                    return Err(self.unexpected(&token));
                }
                let value = digits
                    .parse()
                    .map_err(|_| ExprError { problem: Problem::Literal(text.to_owned()), span })?;
                self.node(Kind::Int(value), token.start, token.end())
            }
            text if text.starts_with('"') => {
                let Some(inside) = text.get(1..).and_then(|rest| rest.strip_suffix('"')) else {
                    return Err(ExprError { problem: Problem::UnclosedText, span });
                };
                // What an escape would mean differs between the spellings.
                if inside.contains('\\') {
                    return Err(self.unexpected(&token));
                }
                self.node(Kind::Text(inside.to_owned()), token.start, token.end())
            }
            text if is_name(text) => {
                if self.eat("(") {
                    return self.call(token, span, depth);
                }
                let (name, end) = self.path(&token)?;
                self.node(Kind::Name(name), token.start, end)
            }
            _ => Err(self.unexpected(&token)),
        }
    }

    fn call(&mut self, name: Token<'_>, span: Span, depth: usize) -> Result<Expr, ExprError> {
        let function = Function::ALL.into_iter().find(|each| each.as_str() == name.text);
        let Some(function) = function else {
            return Err(ExprError { problem: Problem::UnknownFunction(name.text.into()), span });
        };
        let mut arguments = Vec::new();
        loop {
            arguments.push(self.binary(0, depth + 1)?);
            if !self.eat(",") {
                break;
            }
        }
        self.close(span)?;
        let takes_many = matches!(function, Function::Min | Function::Max);
        if arguments.len() < 2 || (!takes_many && arguments.len() > 2) {
            let problem = Problem::Arguments(function, arguments.len());
            return Err(ExprError { problem, span });
        }
        self.node(Kind::Call(function, arguments), name.start, self.at)
    }

    fn close(&mut self, open: Span) -> Result<(), ExprError> {
        if self.eat(")") {
            return Ok(());
        }
        match self.peek() {
            Some(token) => Err(self.unexpected(&token)),
            None => Err(ExprError { problem: Problem::Unclosed, span: open }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(start: usize, end: usize) -> Span {
        Span::new(u32::try_from(start).unwrap(), u32::try_from(end).unwrap())
    }

    fn eval(text: &str) -> Result<i64, Problem> {
        let scope = |name: &str| match name {
            "n" => Some(Value::Int(8192)),
            "ratios" => Some(Value::List(vec![0, 4, 128])),
            "empty" => Some(Value::List(vec![])),
            "kind" => Some(Value::Text("full".into())),
            "kinds" => Some(Value::Texts(vec!["full".into(), "sliding".into()])),
            "deep.er.n" => Some(Value::Int(7)),
            _ => None,
        };
        Expr::parse(text, &place).and_then(|expr| expr.eval(&scope)).map_err(|error| error.problem)
    }

    #[test]
    fn precedence_and_values_follow_the_spec() {
        for (text, value) in [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("7 - 2 - 1", 4),
            ("n / 2 % 1000", 96),
            ("-7 % 3", -1),
            ("1 + 1 == 2 && 3 < 2 || !0", 1),
            ("(1 < 2) == 1", 1),
            ("1 == (2 < 3)", 1),
            ("!n", 0),
            ("min(3, 1, 2) + max(3, 1, 2)", 4),
            ("ceil_div(7, 2) * 100 + align_up(7, 4)", 408),
            ("ceil_div(-7, 2)", -3),
            ("align_up(0, 4)", 0),
            ("1_000", 1000),
            ("0 && 1 / 0", 0),
            ("1 || 1 / 0", 1),
            ("- 9223372036854775807 - 1", i64::MIN),
            ("(-9223372036854775807 - 1) % -1", 0),
            ("deep.er.n + 1", 8),
            ("deep . er . n", 7),
            ("kind == \"full\"", 1),
            ("\"full\" != kind && 1", 0),
            ("kind == \"a b, (1) && 2\"", 0),
            ("\"\" == \"\"", 1),
            ("n - 8188 in ratios", 1),
            ("5 in ratios", 0),
            ("kind in kinds", 1),
            ("!(\"none\" in kinds)", 1),
            ("kind in empty || 3 in empty", 0),
            ("(0 in ratios) == 1", 1),
        ] {
            assert_eq!(eval(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_a_named_problem() {
        let max = i64::MAX;
        for (text, problem) in [
            ("", Problem::Unfinished),
            ("1 +", Problem::Unfinished),
            ("1 2", Problem::Unexpected("2".into())),
            ("0x10", Problem::Unexpected("0x10".into())),
            ("a = 1", Problem::Unexpected("=".into())),
            ("n & 1", Problem::Unexpected("&".into())),
            ("1 < 2 < 3", Problem::ChainedComparison),
            ("1 == (2 < 3) == 1", Problem::ChainedComparison),
            ("(1 + 2", Problem::Unclosed),
            ("1 + 2)", Problem::Unexpected(")".into())),
            ("9223372036854775808", Problem::Literal("9223372036854775808".into())),
            ("floor(1, 2)", Problem::UnknownFunction("floor".into())),
            ("min(1)", Problem::Arguments(Function::Min, 1)),
            ("align_up(1, 2, 3)", Problem::Arguments(Function::AlignUp, 3)),
            ("m + 1", Problem::UnknownName("m".into())),
            ("ratios + 1", Problem::List("ratios".into())),
            ("deep.n", Problem::UnknownName("deep.n".into())),
            ("deep.", Problem::Unfinished),
            ("deep.7", Problem::Unexpected("7".into())),
            ("7.n", Problem::Unexpected(".".into())),
            ("kind", Problem::Text("kind".into())),
            ("kind + 1", Problem::Text("kind".into())),
            ("kind < \"n\"", Problem::Text("kind".into())),
            ("1 && \"a\"", Problem::Text("\"a\"".into())),
            ("kind == 3", Problem::Mixed("\"full\"".into(), "3".into())),
            ("3 != kind", Problem::Mixed("\"full\"".into(), "3".into())),
            ("kinds == kind", Problem::List("kinds".into())),
            ("kind in ratios", Problem::Mixed("\"full\"".into(), "0".into())),
            ("n in kinds", Problem::Mixed("\"full\"".into(), "8192".into())),
            ("1 in n", Problem::NotAList("n".into())),
            ("1 in none", Problem::UnknownName("none".into())),
            ("1 in 2", Problem::Unexpected("2".into())),
            ("0 in ratios == 1", Problem::ChainedComparison),
            ("1 in ratios in ratios", Problem::ChainedComparison),
            ("kind == \"full", Problem::UnclosedText),
            ("kind == \"a\\n\"", Problem::Unexpected("\"a\\n\"".into())),
            ("7 / 2", Problem::Inexact(7, 2)),
            ("7 / 0", Problem::Divisor("/", 7, 0)),
            ("7 % 0", Problem::Divisor("%", 7, 0)),
            ("ceil_div(7, 0)", Problem::Divisor("ceil_div", 7, 0)),
            ("9223372036854775807 + 1", Problem::Overflow("+", max, 1)),
            ("(-9223372036854775807 - 1) / -1", Problem::Overflow("/", i64::MIN, -1)),
            ("align_up(9223372036854775807, 2)", Problem::Overflow("align_up", max, 2)),
        ] {
            assert_eq!(eval(text), Err(problem), "{text}");
        }
    }

    #[test]
    fn hostile_nesting_and_length_are_refused_not_overflowed() {
        let deep = "(".repeat(1_000_000);
        assert_eq!(eval(&deep), Err(Problem::TooLarge));
        assert_eq!(eval(&"-".repeat(1_000_000)), Err(Problem::TooLarge));
        assert_eq!(eval(&vec!["1"; 1_000_000].join("+")), Err(Problem::TooLarge));
    }

    #[test]
    fn printing_keeps_the_meaning() {
        for text in [
            "(1 + 2) * 3",
            "1 - (2 - 3)",
            "!(1 == 2)",
            "(1 == 2) == 3",
            "a || b && c",
            "(a || b) && c",
            "min(a, -b, c % 2)",
            "-(a + b)",
            "a.b == \"c d\" || a + 1 in b.c",
            "!(a in b)",
            "(a in b) == 1",
        ] {
            let expr = Expr::parse(text, &place).unwrap();
            assert_eq!(expr.to_string(), text);
        }
    }
}
