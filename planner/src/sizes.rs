//! Sizes: shapes, bytes and alignments of the buffers that a [`Structure`] holds.
//!
//! Invariant: every size in [`Sizes`] is below 2^63, every extent is at least 1, every alignment is
//! a power of two and at least the pool's, and the rounded sizes of all buffers add up below 2^63.

use crate::error::{Error, Fault, NameKind, nearest};
use crate::expr::{Binary, Expr, Function, Kind};
use crate::names::{Names, NoValue};
use crate::spec::{Buffer, DEFAULT_ALIGN, DType, DimValue, Spanned, Spec};
use crate::structure::Structure;

/// The sizes of a pool's buffers.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// The pool's alignment in bytes.
    pub align: u64,
    /// Number of micro-batch copies.
    pub ubatches: u64,
    /// The dim that the rows of a pass replace, with its value.
    pub rows: Option<(String, u64)>,
    /// Dims known only when the pool is allocated, with their nominal values.
    pub runtime: Vec<(String, u64)>,
    /// One entry a buffer of [`Structure::buffers`].
    pub buffers: Vec<Size>,
}

/// One buffer's size.
#[derive(Clone, Debug)]
pub struct Size {
    /// Element type.
    pub dtype: DType,
    /// Extents, row-major; at nominal values where they depend on dims known later.
    pub shape: Vec<u64>,
    /// Extents as expressions over the rows and over dims known later; everything else is folded.
    pub extents: Vec<Expr>,
    /// Bytes of the tensor.
    pub tensor_bytes: u64,
    /// Bytes rounded up to the pool's alignment.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u64,
}

impl Sizes {
    /// Evaluates sizes. `None` where there is an error among them.
    pub(crate) fn resolve(
        spec: &Spec,
        structure: Option<&Structure>,
        names: &Names,
        errors: &mut Vec<Error>,
    ) -> Option<Self> {
        let before = errors.len();
        let align = pool_align(spec.align, errors);
        let ubatches = ubatches(spec, errors);
        let rows = resolve_rows(spec, names, errors);
        let runtime = runtime_dims(spec, errors);
        let mut buffers = Vec::new();
        // A group that `if` removed is not in the structure: its sizes need not exist.
        let groups = spec.groups.iter().enumerate().filter(|(declared, _)| {
            structure
                .is_none_or(|structure| structure.groups.iter().any(|g| g.declared == *declared))
        });
        let mut poisoned = false;
        for (_, group) in groups {
            for buffer in &group.buffers {
                let name = format!("{}.{}", group.name.value, buffer.name.value);
                let resolver =
                    BufferResolver { name: &name, align, names, rows: rows.as_ref(), spec };
                match resolver.resolve(buffer, errors) {
                    Some(size) => buffers.push(size),
                    None => poisoned = true,
                }
            }
        }
        if errors.len() > before || poisoned {
            return None;
        }
        let structure = structure?;
        let sum = buffers
            .iter()
            .try_fold(0_u64, |sum, size| sum.checked_add(size.bytes))
            .filter(|sum| i64::try_from(*sum).is_ok());
        if sum.is_none() || structure.buffers.len() != buffers.len() {
            errors.push(Error::new(Fault::TotalSize, spec.name.span));
            return None;
        }
        Some(Self { align: align?, ubatches: ubatches?, rows, runtime, buffers })
    }
}

/// `bytes` rounded up to `align`, a power of two; `None` beyond 63 bits.
pub(crate) fn round_up(bytes: u64, align: u64) -> Option<u64> {
    let rounded = bytes.checked_add(align.checked_sub(1)?)? & !(align - 1);
    i64::try_from(rounded).is_ok().then_some(rounded)
}

fn power_of_two(value: Spanned<i64>, errors: &mut Vec<Error>) -> Option<u64> {
    let power = u64::try_from(value.value).ok().filter(|align| align.is_power_of_two());
    if power.is_none() {
        errors.push(Error::new(Fault::AlignPower { value: value.value }, value.span));
    }
    power
}

fn pool_align(align: Option<Spanned<i64>>, errors: &mut Vec<Error>) -> Option<u64> {
    let default = Spanned::new(DEFAULT_ALIGN, crate::spec::Span::default());
    power_of_two(align.unwrap_or(default), errors)
}

fn ubatches(spec: &Spec, errors: &mut Vec<Error>) -> Option<u64> {
    let Some(value) = spec.ubatches else {
        return Some(1);
    };
    let copies = u64::try_from(value.value).ok().filter(|copies| (1..=64).contains(copies));
    if copies.is_none() {
        errors.push(Error::new(Fault::Ubatches { value: value.value }, value.span));
    }
    copies
}

fn resolve_rows(spec: &Spec, names: &Names, errors: &mut Vec<Error>) -> Option<(String, u64)> {
    let rows = spec.rows.as_ref()?;
    let Some(dim) = spec.dims.iter().find(|dim| dim.name.value == rows.value) else {
        let nearest = nearest(&rows.value, spec.dims.iter().map(|dim| dim.name.value.as_str()));
        let fault = Fault::UnknownName { kind: NameKind::Dim, name: rows.value.clone(), nearest };
        errors.push(Error::new(fault, rows.span));
        return None;
    };
    let expr = Expr { kind: Kind::Name(rows.value.clone()), span: rows.span };
    match names.eval(&expr, &|_| None) {
        Ok(value) => match u64::try_from(value) {
            Ok(value) if value >= 1 => Some((rows.value.clone(), value)),
            // `runtime_dims` has reported it.
            _ if matches!(dim.value, DimValue::Runtime { .. }) => None,
            _ => {
                let fault = Fault::DimValue { dim: rows.value.clone(), value };
                errors.push(Error::new(fault, dim.name.span));
                None
            }
        },
        Err(NoValue::Poisoned) => None,
        Err(NoValue::Error(error)) => {
            errors.push(*error);
            None
        }
    }
}

fn runtime_dims(spec: &Spec, errors: &mut Vec<Error>) -> Vec<(String, u64)> {
    let mut dims = Vec::new();
    for dim in &spec.dims {
        if let DimValue::Runtime { nominal, span } = &dim.value {
            match u64::try_from(*nominal) {
                Ok(value) if value >= 1 => dims.push((dim.name.value.clone(), value)),
                _ => {
                    let fault = Fault::DimValue { dim: dim.name.value.clone(), value: *nominal };
                    errors.push(Error::new(fault, *span));
                }
            }
        }
    }
    dims
}

struct BufferResolver<'r> {
    name: &'r str,
    /// `None`: the pool's alignment is in error.
    align: Option<u64>,
    names: &'r Names,
    rows: Option<&'r (String, u64)>,
    spec: &'r Spec,
}

impl BufferResolver<'_> {
    /// All errors of one buffer; `None` where it has any or uses a poisoned name.
    fn resolve(&self, buffer: &Buffer, errors: &mut Vec<Error>) -> Option<Size> {
        let mut shape = Vec::new();
        for (axis, extent) in buffer.shape.iter().enumerate() {
            shape.push(self.extent(axis, extent, errors));
        }
        let own = buffer.align.map(|align| (power_of_two(align, errors), align));
        if let (Some((Some(own), at)), Some(pool)) = (own, self.align)
            && own < pool
        {
            errors.push(Error::new(Fault::AlignBelow { value: at.value, pool }, at.span));
            return None;
        }
        let shape: Vec<u64> = shape.into_iter().collect::<Option<_>>()?;
        let tensor_bytes = shape
            .iter()
            .try_fold(buffer.dtype.value.bytes(), |bytes, extent| bytes.checked_mul(*extent))
            .filter(|bytes| i64::try_from(*bytes).is_ok());
        let Some(tensor_bytes) = tensor_bytes else {
            let fault = Fault::Size { buffer: self.name.to_owned() };
            errors.push(Error::new(fault, buffer.name.span));
            return None;
        };
        let extents: Vec<Expr> = buffer.shape.iter().map(|each| self.names.reduce(each)).collect();
        if let (Some((rows, _)), Some((leading, declared))) =
            (self.rows, extents.first().zip(buffer.shape.first()))
            && !grows_with(leading, rows)
        {
            let fault = Fault::Rows { buffer: self.name.to_owned(), rows: rows.clone() };
            errors.push(Error::new(fault, declared.span));
            return None;
        }
        let pool = self.align?;
        let align = match own {
            Some((own, _)) => own?,
            None => pool,
        };
        let Some(bytes) = round_up(tensor_bytes, pool) else {
            let fault = Fault::Size { buffer: self.name.to_owned() };
            errors.push(Error::new(fault, buffer.name.span));
            return None;
        };
        Some(Size { dtype: buffer.dtype.value, shape, extents, tensor_bytes, bytes, align })
    }

    fn extent(&self, axis: usize, extent: &Expr, errors: &mut Vec<Error>) -> Option<u64> {
        match self.names.eval(extent, &|_| None) {
            Ok(value) => {
                let dimension = u64::try_from(value).ok().filter(|value| *value >= 1);
                if dimension.is_none() {
                    let buffer = self.name.to_owned();
                    let fault = Fault::Dimension { buffer, axis, value };
                    errors.push(Error::new(fault, extent.span));
                }
                dimension
            }
            Err(NoValue::Poisoned) => None,
            Err(NoValue::Error(mut error)) => {
                if let Fault::UnknownName { name, .. } = &error.fault
                    && self.spec.layers.columns.iter().any(|column| column.name.value == *name)
                {
                    error.fault = Fault::AttributeInShape { name: name.clone() };
                }
                errors.push(*error);
                None
            }
        }
    }
}

/// Whether a leading extent is defined for every number of rows from 0 up and never grows as rows
/// shrink. Sufficient, by form: sums, products, `min`, `max`, `ceil_div` and `align_up` of names and
/// of constants that are not negative.
fn grows_with(extent: &Expr, rows: &str) -> bool {
    !mentions(extent, rows) || grows_by_form(extent, rows)
}

fn mentions(expr: &Expr, rows: &str) -> bool {
    let mut found = false;
    expr.names(&mut |name, _| found |= name == rows);
    found
}

fn grows_by_form(part: &Expr, rows: &str) -> bool {
    match &part.kind {
        Kind::Int(value) => *value >= 0,
        Kind::Name(_) => true,
        Kind::Binary(Binary::Add | Binary::Mul, left, right) => {
            grows_by_form(left, rows) && grows_by_form(right, rows)
        }
        Kind::Call(Function::Min | Function::Max, arguments) => {
            arguments.iter().all(|each| grows_by_form(each, rows))
        }
        Kind::Call(Function::CeilDiv | Function::AlignUp, arguments) => {
            arguments.iter().all(|each| grows_by_form(each, rows))
                && arguments.iter().skip(1).all(|divisor| !mentions(divisor, rows))
        }
        // A comparison, by `in` too, falls as well as it rises.
        Kind::Unary(..) | Kind::Binary(..) | Kind::In(..) | Kind::Text(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Span;

    fn expr(text: &str) -> Expr {
        Expr::parse(text, &|_, _| Span::default()).unwrap()
    }

    #[test]
    fn leading_extents_must_follow_the_rows() {
        for text in
            ["n", "n * 6", "n + 1", "ceil_div(n, 64) * 64", "min(n, 128)", "align_up(n, 8)", "7"]
        {
            assert!(grows_with(&expr(text), "n"), "{text}");
        }
        for text in [
            "n - 1",
            "8192 - n",
            "n / 2",
            "n % 3",
            "-n",
            "n * (0 - 1)",
            "ceil_div(64, n)",
            "n == 2",
        ] {
            assert!(!grows_with(&expr(text), "n"), "{text}");
        }
    }

    #[test]
    fn rounding_stops_at_63_bits() {
        assert_eq!(round_up(0, 256), Some(0));
        assert_eq!(round_up(1, 256), Some(256));
        assert_eq!(round_up(256, 256), Some(256));
        assert_eq!(round_up(u64::try_from(i64::MAX).unwrap(), 256), None);
    }
}
