//! Where things stand: the planner's spans are numbers of tokens, and this table turns them back.
//!
//! Every token that could be pointed at gets the next number. A planner span `a..b` is the source
//! from token `a` up to token `b - 1`.

use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};
use scratchpool_planner::expr::{Expr, ExprError};
use scratchpool_planner::spec;

/// The tokens seen so far.
#[derive(Default)]
pub(crate) struct Places {
    tokens: Vec<Span>,
}

impl Places {
    /// The planner's span for a token.
    pub(crate) fn add(&mut self, token: Span) -> spec::Span {
        // A struct with 2^32 tokens does not fit rustc's own tables.
        let number = u32::try_from(self.tokens.len()).unwrap_or(u32::MAX - 1);
        self.tokens.push(token);
        spec::Span::new(number, number + 1)
    }

    /// The first and the last token of a planner span.
    pub(crate) fn find(&self, span: spec::Span) -> (Span, Span) {
        let token = |number: u32| {
            usize::try_from(number).ok().and_then(|number| self.tokens.get(number)).copied()
        };
        let first = token(span.start).unwrap_or_else(Span::call_site);
        (first, token(span.end.saturating_sub(1)).unwrap_or(first))
    }

    /// The planner's span for a run of tokens; that of `around` if there is none.
    pub(crate) fn add_all(&mut self, tokens: &[TokenTree], around: Span) -> spec::Span {
        let mut span = None;
        for token in tokens {
            let one = self.add(token.span());
            span = Some(span.map_or(one, |so_far: spec::Span| so_far.join(one)));
        }
        span.unwrap_or_else(|| self.add(around))
    }

    /// Parses tokens with the planner's expression language, so that both spellings of a spec have
    /// one grammar.
    pub(crate) fn expr(&mut self, tokens: &[TokenTree], around: Span) -> Result<Expr, ExprError> {
        let mut text = String::new();
        let mut table: Vec<(usize, usize, spec::Span)> = Vec::new();
        self.flatten(tokens, &mut text, &mut table);
        let around = match (table.first(), table.last()) {
            (Some((.., first)), Some((.., last))) => first.join(*last),
            _ => self.add(around),
        };
        Expr::parse(&text, &|start, end| {
            table
                .iter()
                .filter(|(from, to, _)| *from < end.max(start + 1) && start < *to)
                .map(|(.., span)| *span)
                .reduce(spec::Span::join)
                .unwrap_or(around)
        })
    }

    fn flatten(
        &mut self,
        tokens: &[TokenTree],
        text: &mut String,
        table: &mut Vec<(usize, usize, spec::Span)>,
    ) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    let (open, close) = match group.delimiter() {
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::Brace => ("{", "}"),
                        // `None` is what `macro_rules!` puts around a pasted expression:
                        // parentheses that nobody wrote.
                        Delimiter::Parenthesis | Delimiter::None => ("(", ")"),
                    };
                    self.push(open, group.span_open(), text, table);
                    self.flatten(&inner, text, table);
                    self.push(close, group.span_close(), text, table);
                }
                TokenTree::Punct(punct) => {
                    self.push(&punct.as_char().to_string(), punct.span(), text, table);
                    if punct.spacing() == Spacing::Joint {
                        text.truncate(text.trim_end().len());
                    }
                }
                TokenTree::Ident(ident) => {
                    let word = ident.to_string();
                    let word = word.strip_prefix("r#").unwrap_or(&word);
                    self.push(word, ident.span(), text, table);
                }
                TokenTree::Literal(literal) => {
                    self.push(&literal.to_string(), literal.span(), text, table);
                }
            }
        }
    }

    fn push(
        &mut self,
        word: &str,
        span: Span,
        text: &mut String,
        table: &mut Vec<(usize, usize, spec::Span)>,
    ) {
        let start = text.len();
        text.push_str(word);
        table.push((start, text.len(), self.add(span)));
        text.push(' ');
    }
}

/// Tokens without the invisible groups that `macro_rules!` puts around one pasted token, such as a
/// literal. Those around several stay: they hold an expression together.
pub(crate) fn plain(tokens: TokenStream) -> TokenStream {
    // What nobody pasted into is left as it is, with the places of its brackets.
    if !pasted(&tokens) {
        return tokens;
    }
    let plain_one = |token: TokenTree| {
        let TokenTree::Group(group) = token else { return token };
        let inner = plain(group.stream());
        let mut parts = inner.clone().into_iter();
        match (group.delimiter(), parts.next(), parts.next()) {
            (Delimiter::None, Some(only), None) => only,
            (delimiter, ..) => {
                let mut same = Group::new(delimiter, inner);
                same.set_span(group.span());
                TokenTree::Group(same)
            }
        }
    };
    tokens.into_iter().map(plain_one).collect()
}

fn pasted(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::None || pasted(&group.stream()),
        _ => false,
    })
}

/// Token trees, split at top-level commas.
pub(crate) fn split_at_commas(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    split_with_commas(tokens).into_iter().map(|(part, _)| part).collect()
}

/// Token trees, split at top-level commas, each part with the comma after it.
pub(crate) fn split_with_commas(tokens: TokenStream) -> Vec<(Vec<TokenTree>, Option<Span>)> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    for token in tokens {
        if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',') {
            parts.push((std::mem::take(&mut part), Some(token.span())));
        } else {
            part.push(token);
        }
    }
    // A comma after the last part is allowed; an empty part elsewhere is the caller's to report.
    if !part.is_empty() {
        parts.push((part, None));
    }
    parts
}
