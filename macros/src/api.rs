//! Third stage: what the generated types offer, apart from any number.
//!
//! It is made from the plan where there is one, and else, after an error, from what was meant: the
//! same methods and fields, so that their uses do not fail too.

use proc_macro2::Ident;
use scratchpool_planner::expr::Expr;
use scratchpool_planner::plan::Plan;
use scratchpool_planner::spec::{Group, Spec, Step, Target};

use crate::meant::Meant;
use crate::parse::{Declaration, Field, unraw};

/// What the generated types offer.
pub(crate) struct Api {
    pub(crate) steps: Vec<StepApi>,
    /// For each field, the buffer's index in the plan.
    pub(crate) buffers: Vec<usize>,
}

/// One step.
pub(crate) struct StepApi {
    /// Its name in the spec.
    pub(crate) name: String,
    /// The method on the layer.
    pub(crate) method: Ident,
    /// The constant that is its place in the order of issue.
    pub(crate) constant: Ident,
    /// The guard's type.
    pub(crate) guard: Ident,
    /// The type of its views together.
    pub(crate) views: Ident,
    /// Whether it does not run in some layer.
    pub(crate) optional: bool,
    pub(crate) fields: Vec<ViewApi>,
}

/// One view that a step hands out.
pub(crate) struct ViewApi {
    /// Index of the field.
    pub(crate) field: usize,
    /// Whether the step writes the buffer.
    pub(crate) write: bool,
    /// Whether the buffer does not exist in some layer in which the step runs.
    pub(crate) optional: bool,
}

impl Api {
    /// What the types of a planned pool offer.
    pub(crate) fn new(declaration: &Declaration, plan: &Plan) -> Self {
        Self::build(declaration, &declaration.spec, &|step| {
            let resolved = plan.structure.steps.iter().find(|each| each.name == step.name.value);
            let absent = resolved.is_some_and(|step| step.runs.contains(&false));
            let views = views(declaration, step, |field| {
                match presence(plan, step, &field.buffer) {
                    // Declared, but in no layer: there is nothing to hand out.
                    Presence::Nowhere => None,
                    Presence::Everywhere => Some(false),
                    Presence::Somewhere => Some(true),
                }
            });
            (absent, views)
        })
        .with_buffers(declaration, plan)
    }

    /// What the types of a pool in error should offer.
    pub(crate) fn meant(declaration: &Declaration, meant: &Meant) -> Self {
        let vague = |expr: &Option<Expr>| expr.as_ref().is_some_and(|expr| meant.is_vague(expr));
        // The repaired spec has lost the conditions that were in error.
        let declared = |name: &str| {
            let steps = declaration.spec.steps.iter();
            steps.filter(|step| step.name.value == name).find_map(|step| step.when.clone())
        };
        Self::build(declaration, &meant.spec, &|step| {
            let when = declared(&step.name.value);
            let resolved = meant.plan.as_ref().and_then(|plan| {
                plan.structure.steps.iter().find(|each| each.name == step.name.value)
            });
            let absent = match resolved {
                Some(resolved) if !vague(&when) => resolved.runs.contains(&false),
                _ => when.is_some(),
            };
            let views = views(declaration, step, |field| {
                let of_group = |group: &&Group| group_of(&field.buffer) == group.name.value;
                let group = declaration.spec.groups.iter().find(of_group);
                let exists = group.and_then(|group| group.when.clone());
                let partly = match &meant.plan {
                    Some(plan) if !vague(&when) && !vague(&exists) => {
                        presence(plan, step, &field.buffer) == Presence::Somewhere
                    }
                    // A step that is not in every layer is likely where its buffers are.
                    Some(_) => exists.is_some() && when.is_none(),
                    None => exists.is_some_and(|exists| {
                        when.as_ref().is_none_or(|when| when.to_string() != exists.to_string())
                    }),
                };
                Some(partly)
            });
            (absent, views)
        })
    }

    fn build(
        declaration: &Declaration,
        spec: &Spec,
        types: &dyn Fn(&Step) -> (bool, Vec<ViewApi>),
    ) -> Self {
        let mut steps: Vec<StepApi> = Vec::new();
        for step in &spec.steps {
            let span = declaration.places.find(step.name.span).0;
            let pascal = pascal_case(&step.name.value);
            let taken = |word: &str| steps.iter().any(|each| each.guard == format!("{word}Step"));
            let numbered = (2..).map(|number| format!("{pascal}{number}"));
            let mut words = std::iter::once(pascal.clone()).chain(numbered);
            let word = words.find(|word| !taken(word)).unwrap_or_default();
            let mut constant = step.name.value.to_uppercase();
            while steps.iter().any(|each| each.constant == constant) {
                constant.push('_');
            }
            let (optional, fields) = types(step);
            steps.push(StepApi {
                name: step.name.value.clone(),
                method: identifier(&step.name.value, span),
                constant: identifier(&constant, span),
                guard: Ident::new(&format!("{word}Step"), span),
                views: Ident::new(&format!("{word}Buffers"), span),
                optional,
                fields,
            });
        }
        Self { steps, buffers: (0..declaration.fields.len()).collect() }
    }

    fn with_buffers(mut self, declaration: &Declaration, plan: &Plan) -> Self {
        let buffers = declaration.fields.iter().map(|field| plan.buffer(&field.buffer));
        // A buffer that `if` removed is in no plan; nothing hands it out.
        self.buffers = buffers.map(|buffer| buffer.unwrap_or(usize::MAX)).collect();
        self
    }
}

/// The views of a step. `optional` says whether a view may be absent; `None`: there is none.
fn views(
    declaration: &Declaration,
    step: &Step,
    optional: impl Fn(&Field) -> Option<bool>,
) -> Vec<ViewApi> {
    let names = |targets: &[Target], buffer: &str| {
        targets.iter().any(|target| match &target.buffer {
            Some(name) => format!("{}.{name}", target.group) == buffer,
            None => group_of(buffer) == target.group,
        })
    };
    let mut views = Vec::new();
    for (position, field) in declaration.fields.iter().enumerate() {
        let write = names(&step.writes, &field.buffer);
        if !write && !names(&step.reads, &field.buffer) {
            continue;
        }
        if let Some(optional) = optional(field) {
            views.push(ViewApi { field: position, write, optional });
        }
    }
    views
}

/// In which of the layers in which a step runs it touches a buffer.
#[derive(PartialEq, Eq)]
enum Presence {
    Nowhere,
    Somewhere,
    Everywhere,
}

fn presence(plan: &Plan, step: &Step, buffer: &str) -> Presence {
    let structure = &plan.structure;
    let resolved = structure.steps.iter().find(|each| each.name == step.name.value);
    let (Some(resolved), Some(buffer)) = (resolved, plan.buffer(buffer)) else {
        return Presence::Nowhere;
    };
    let layers = 0..structure.layers;
    let mut active = layers
        .filter(|layer| resolved.runs.get(*layer) == Some(&true))
        .map(|layer| structure.active(resolved, buffer, layer));
    match active.next() {
        None => Presence::Nowhere,
        Some(first) if active.all(|each| each == first) => {
            if first {
                Presence::Everywhere
            } else {
                Presence::Nowhere
            }
        }
        Some(_) => Presence::Somewhere,
    }
}

/// The group in a buffer's full name.
fn group_of(buffer: &str) -> &str {
    buffer.split_once('.').map_or(buffer, |(group, _)| group)
}

/// `index_q` becomes `IndexQ`.
pub(crate) fn pascal_case(name: &str) -> String {
    let words = name.split('_').filter_map(|part| {
        let mut letters = part.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>())
    });
    let word: String = words.collect();
    // A name such as `_1` has no letter to begin with.
    if word.chars().next().is_none_or(char::is_alphabetic) { word } else { format!("_{word}") }
}

/// `EagerScratch` becomes `eager_scratch`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut letters = name.chars().peekable();
    let mut before = None::<char>;
    while let Some(letter) = letters.next() {
        // A capital begins a word after a small letter, and before one in a run of capitals.
        let begins = before.is_some_and(|b| !b.is_uppercase() && b != '_')
            || (before.is_some_and(char::is_uppercase)
                && letters.peek().is_some_and(|next| next.is_lowercase()));
        if letter.is_uppercase() && begins {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
        before = Some(letter);
    }
    snake
}

/// A word as an identifier, raw where Rust keeps the word for itself.
pub(crate) fn identifier(word: &str, span: proc_macro2::Span) -> Ident {
    match syn::parse_str::<Ident>(word) {
        Ok(_) => Ident::new(word, span),
        Err(_) if matches!(word, "self" | "Self" | "super" | "crate" | "_") => {
            // Reported as no name; this stands in.
            Ident::new("unnamed", span)
        }
        Err(_) => Ident::new_raw(word, span),
    }
}

/// `index_values` becomes `INDEX_VALUES`.
pub(crate) fn upper_case(field: &Ident) -> String {
    unraw(field).to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_become_module_names() {
        for (name, module) in [
            ("EagerScratch", "eager_scratch"),
            ("A", "a"),
            ("MLAPool", "mla_pool"),
            ("V4Flash", "v4_flash"),
        ] {
            assert_eq!(snake_case(name), module);
        }
    }

    #[test]
    fn step_names_become_type_names() {
        for (name, ty) in
            [("index_q", "IndexQ"), ("fork", "Fork"), ("_a__b", "AB"), ("_1", "_1"), ("__", "")]
        {
            assert_eq!(pascal_case(name), ty);
        }
    }
}
