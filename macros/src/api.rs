//! Third stage: what the generated types offer, apart from any number.
//!
//! It is made from the plan where there is one, and else, after an error, from the names alone: the
//! same methods and fields, so that their uses do not fail too.

use proc_macro2::Ident;
use scratchpool_planner::plan::Plan;
use scratchpool_planner::spec::{Group, Step, Target};

use crate::parse::{Declaration, unraw};

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
    pub(crate) fn new(declaration: &Declaration, plan: Option<&Plan>) -> Self {
        let buffers = declaration
            .fields
            .iter()
            .enumerate()
            .map(|(field, each)| plan.map_or(Some(field), |plan| plan.buffer(&each.buffer)))
            // A buffer that `if` removed is in no plan; nothing hands it out.
            .map(|buffer| buffer.unwrap_or(usize::MAX))
            .collect();
        let mut steps: Vec<StepApi> = Vec::new();
        for step in &declaration.spec.steps {
            let span = declaration.places.find(step.name.span).0;
            let mut pascal = pascal_case(&step.name.value);
            while steps.iter().any(|each| each.guard == format!("{pascal}Step")) {
                pascal.push('_');
            }
            steps.push(StepApi {
                name: step.name.value.clone(),
                method: identifier(&step.name.value, span),
                guard: Ident::new(&format!("{pascal}Step"), span),
                views: Ident::new(&format!("{pascal}Buffers"), span),
                optional: match plan {
                    Some(plan) => plan
                        .structure
                        .steps
                        .iter()
                        .any(|each| each.name == step.name.value && each.runs.contains(&false)),
                    None => step.when.is_some(),
                },
                fields: views(declaration, plan, step),
            });
        }
        Self { steps, buffers }
    }
}

fn views(declaration: &Declaration, plan: Option<&Plan>, step: &Step) -> Vec<ViewApi> {
    let mut views = Vec::new();
    for (field, each) in declaration.fields.iter().enumerate() {
        let names = |targets: &[Target]| {
            targets.iter().any(|target| match &target.buffer {
                Some(buffer) => format!("{}.{buffer}", target.group) == each.buffer,
                None => each.buffer.split('.').next() == Some(&target.group),
            })
        };
        let write = names(&step.writes);
        if !write && !names(&step.reads) {
            continue;
        }
        let optional = match plan {
            Some(plan) => {
                let Some(buffer) = plan.buffer(&each.buffer) else { continue };
                let resolved = plan.structure.steps.iter().find(|s| s.name == step.name.value);
                let Some(resolved) = resolved else { continue };
                let layers = 0..plan.structure.layers;
                let runs = |layer: &usize| resolved.runs.get(*layer) == Some(&true);
                let active = |layer: usize| plan.structure.active(resolved, buffer, layer);
                let present = layers.clone().any(active);
                if !present {
                    // Declared, but in no layer: there is nothing to hand out.
                    continue;
                }
                layers.filter(runs).any(|layer| !active(layer))
            }
            None => {
                let of_group =
                    |group: &&Group| each.buffer.starts_with(&format!("{}.", group.name.value));
                let group = declaration.spec.groups.iter().find(of_group);
                let text = |when: &Option<scratchpool_planner::expr::Expr>| {
                    when.as_ref().map(ToString::to_string)
                };
                group.is_some_and(|group| {
                    group.when.is_some() && text(&group.when) != text(&step.when)
                })
            }
        };
        views.push(ViewApi { field, write, optional });
    }
    views
}

/// `index_q` becomes `IndexQ`.
pub(crate) fn pascal_case(name: &str) -> String {
    name.split('_')
        .filter_map(|part| {
            let mut letters = part.chars();
            letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>())
        })
        .collect()
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
        for (name, ty) in [("index_q", "IndexQ"), ("fork", "Fork"), ("_a__b", "AB")] {
            assert_eq!(pascal_case(name), ty);
        }
    }
}
