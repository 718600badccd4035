//! `#[group(…)]` on the struct.

use proc_macro2::{Span, TokenStream};
use scratchpool_planner::error::LeftOut;
use scratchpool_planner::spec::Group;

use super::entry::{Entry, EntryValue};
use super::parser::Parser;

impl Parser {
    /// `#[group(name, when = …, if = …)]` on the struct.
    pub(super) fn group(&mut self, tokens: TokenStream, around: Span) {
        let mut entries = self.entries(tokens, around).into_iter();
        let name = match entries.next() {
            Some(Entry { key, value: EntryValue::Bare }) => self.name(&key),
            other => {
                let span = other.map_or(around, |entry| entry.key.span());
                self.malformed("a group begins with its name: `#[group(name, …)]`", span);
                self.left_out.unnamed(&LeftOut::GROUPS);
                return;
            }
        };
        let table = format!("group `{}`", name.value);
        let mut group = Group { name, when: None, condition: None, buffers: Vec::new() };
        let mut seen = Vec::new();
        for entry in entries {
            let Some(key) = self.key(&entry, &table, &["when", "if"], &mut seen) else { continue };
            let expr = Some(self.expr_of(&entry));
            if key == "when" {
                group.when = expr;
            } else {
                group.condition = expr;
            }
        }
        self.spec.groups.push(group);
    }
}
