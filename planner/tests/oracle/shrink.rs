//! Makes a spec smaller while it still shows the same trouble.

use super::model::{Launch, Spec};

/// The smallest spec found, one removal at a time, that still fails.
pub(crate) fn shrink(spec: &Spec, fails: &dyn Fn(&Spec) -> bool) -> Spec {
    let mut best = spec.clone();
    'again: loop {
        for candidate in smaller(&best) {
            if candidate != best && fails(&candidate) {
                best = candidate;
                continue 'again;
            }
        }
        return best;
    }
}

fn smaller(spec: &Spec) -> Vec<Spec> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Spec)| {
        let mut other = spec.clone();
        change(&mut other);
        all.push(other);
    };
    for (i, step) in spec.steps.iter().enumerate() {
        with(&|other| {
            other.steps.remove(i);
            for left in &mut other.steps {
                left.after.retain(|after| after.step != step.name);
            }
        });
    }
    for (i, group) in spec.groups.iter().enumerate() {
        with(&|other| {
            other.groups.remove(i);
            other.exclusive.retain(|name| *name != group.name);
            forget(other, &group.name);
        });
        for (j, buffer) in group.buffers.iter().enumerate() {
            if group.buffers.len() > 1 {
                with(&|other| {
                    other.groups[i].buffers.remove(j);
                    forget(other, &format!("{}.{}", group.name, buffer.name));
                });
            }
            with(&|other| other.groups[i].buffers[j].align = None);
            for k in 0..buffer.shape.len() {
                if buffer.shape.len() > 1 {
                    with(&|other| {
                        other.groups[i].buffers[j].shape.remove(k);
                    });
                }
            }
        }
        with(&|other| other.groups[i].when = None);
        with(&|other| other.groups[i].keep = None);
    }
    for (i, step) in spec.steps.iter().enumerate() {
        with(&|other| other.steps[i].when = None);
        with(&|other| other.steps[i].launch = Launch::Full);
        with(&|other| "main".clone_into(&mut other.steps[i].stream));
        for j in 0..step.after.len() {
            with(&|other| {
                other.steps[i].after.remove(j);
            });
        }
        for j in 0..step.writes.len() {
            with(&|other| {
                other.steps[i].writes.remove(j);
            });
        }
        for j in 0..step.reads.len() {
            with(&|other| {
                other.steps[i].reads.remove(j);
            });
        }
    }
    // An operand that `&&` and `||` never look at must still be a name, so only unused names go.
    let text = spec.toml();
    for (i, (name, _)) in spec.dims.iter().enumerate() {
        if text.matches(name.as_str()).count() == 1 {
            with(&|other| {
                other.dims.remove(i);
            });
        }
    }
    let columns = spec.layers.iter().flat_map(|layers| &layers.columns);
    if columns.into_iter().all(|(name, _)| text.matches(name.as_str()).count() <= 2) {
        with(&|other| other.layers = None);
    }
    with(&|other| other.exclusive.clear());
    // The default alignment is larger than some buffer's own.
    if spec.groups.iter().flat_map(|group| &group.buffers).all(|buffer| buffer.align.is_none()) {
        with(&|other| other.align = None);
    }
    all
}

/// Removes a group, or a buffer, from all accesses.
fn forget(spec: &mut Spec, name: &str) {
    let inside = format!("{name}.");
    for step in &mut spec.steps {
        step.writes.retain(|item| item != name && !item.starts_with(&inside));
        step.reads.retain(|item| item != name && !item.starts_with(&inside));
    }
}
