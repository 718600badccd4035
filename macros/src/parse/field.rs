//! Fields: a buffer each.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use scratchpool_planner::error::{Fault, LeftOut, NameKind, nearest};
use scratchpool_planner::expr::Expr;
use scratchpool_planner::spec::{Buffer, DType, Group, Name, Spanned};

use super::declaration::{Field, unraw};
use super::parser::{Parser, is_inert};
use crate::places::{plain, split_at_commas};

impl Parser {
    pub(super) fn field(&mut self, field: &syn::Field, before: &[Field]) -> Option<Field> {
        let ident = field.ident.clone()?;
        let word = unraw(&ident);
        if let Some(first) = before.iter().find(|each| unraw(&each.name) == word) {
            let first = self.places.add(first.name.span());
            self.error(Fault::Duplicate { kind: "fields", name: word, first }, ident.span());
            return None;
        }
        let place = format!("field `{word}`");
        let mut attributes = Vec::new();
        let mut given: Vec<(String, Span)> = Vec::new();
        let (mut group, mut shape, mut align) = (None, None, None);
        for attribute in &field.attrs {
            if is_inert(attribute) {
                attributes.push(attribute.clone());
                continue;
            }
            let key = self.attribute(attribute, &["group", "shape", "align"], &place);
            let Some((key, list)) = key else { continue };
            let span = list.as_ref().map_or(ident.span(), |(_, span)| *span);
            if self.again(&mut given, "attributes", key, span) {
                continue;
            }
            match key {
                "group" => group = list,
                "shape" => shape = list,
                _ => align = list,
            }
        }
        let dtype = self.dtype(&field.ty, &word);
        for (name, key) in [("group", "#[group(…)]"), ("shape", "#[shape(…)]")] {
            if !given.iter().any(|(each, _)| each == name) {
                self.error(Fault::Missing { key, table: place.clone() }, ident.span());
            }
        }
        let group = group.and_then(|(tokens, span)| self.field_group(tokens, span, &ident));
        let shape = shape.map(|(tokens, span)| self.shape(tokens, span));
        let align = align.and_then(|(tokens, span)| {
            let tokens: Vec<TokenTree> = tokens.into_iter().collect();
            self.integer("align", &tokens, span)
        });
        // A field in error keeps its place, so that its uses are no errors too.
        let (group, buffer) = match group {
            Some(names) => names,
            None => {
                self.left_out.unnamed(&LeftOut::GROUPS);
                (self.name(&ident), self.name(&ident))
            }
        };
        let shape = shape.unwrap_or_else(|| vec![Expr::int(1, buffer.span)]);
        let dtype = dtype.unwrap_or(Spanned::new(DType::U8, buffer.span));
        let full = format!("{}.{}", group.value, buffer.value);
        let rank = shape.len();
        let element = dtype.value;
        let added = Buffer { name: buffer, dtype, shape, align };
        match self.spec.groups.iter_mut().find(|each| each.name.value == group.value) {
            Some(known) => known.buffers.push(added),
            None => self.spec.groups.push(Group {
                name: group,
                when: None,
                condition: None,
                buffers: vec![added],
            }),
        }
        Some(Field { name: ident, attributes, buffer: full, dtype: element, rank })
    }

    /// `#[group(name)]` or `#[group(name.buffer)]` on a field.
    pub(super) fn field_group(
        &mut self,
        tokens: TokenStream,
        around: Span,
        field: &Ident,
    ) -> Option<(Name, Name)> {
        let parts: Vec<TokenTree> = tokens.into_iter().collect();
        let comma = parts
            .iter()
            .position(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ','));
        let (parts, rest) = parts.split_at(comma.unwrap_or(parts.len()));
        let names = match parts {
            [TokenTree::Ident(group)] => Some((self.name(group), self.name(field))),
            [TokenTree::Ident(group), TokenTree::Punct(dot), TokenTree::Ident(buffer)]
                if dot.as_char() == '.' =>
            {
                Some((self.name(group), self.name(buffer)))
            }
            other => {
                let expected = "a group, or `group.buffer`";
                self.wrong_type("group", expected, other, around);
                None
            }
        };
        if let (Some((group, _)), [_, extra, ..]) = (&names, rest) {
            let text = format!(
                "what holds for the whole group stands on the struct: `#[group({}, …)]`",
                group.value
            );
            self.malformed(text, extra.span());
        }
        names
    }

    /// As many extents as are written, also where some are in error.
    pub(super) fn shape(&mut self, tokens: TokenStream, around: Span) -> Vec<Expr> {
        let parts = split_at_commas(tokens);
        let extent = |part: &Vec<TokenTree>| {
            self.expr(part, around).unwrap_or_else(|| self.unread(part, around))
        };
        parts.iter().map(extent).collect()
    }

    pub(super) fn dtype(&mut self, ty: &syn::Type, field: &str) -> Option<Spanned<DType>> {
        let tokens: Vec<TokenTree> = plain(ty.to_token_stream()).into_iter().collect();
        let [TokenTree::Ident(word)] = tokens.as_slice() else {
            self.wrong_type(field, "an element type, such as `bf16`", &tokens, Span::call_site());
            return None;
        };
        let mut found = DType::from_word(&unraw(word));
        if found.is_none() {
            let nearest = nearest(&unraw(word), DType::ALL.iter().map(|each| each.as_str()));
            found = nearest.as_deref().and_then(DType::from_word);
            let fault = Fault::UnknownName { kind: NameKind::DType, name: unraw(word), nearest };
            self.error(fault, word.span());
        }
        found.map(|dtype| Spanned::new(dtype, self.places.add(word.span())))
    }
}
