//! Makes a spec smaller while it still shows the same trouble.

use super::model::{Launch, Spec, element_bytes};

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
            with(&|other| {
                other.groups[i].buffers[j].parts = None;
                let parts = format!("{}.{}[", group.name, buffer.name);
                forget_where(other, &|item| item.starts_with(&parts));
            });
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
        with(&|other| other.groups[i].per_layer = false);
        with(&|other| {
            other.groups[i].persistent = false;
            other.groups[i].per_layer = false;
        });
        with(&|other| {
            other.groups[i].external = false;
            other.groups[i].per_layer = false;
        });
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
        for j in 0..step.uses.len() {
            with(&|other| {
                other.steps[i].uses.remove(j);
            });
        }
    }
    // An operand that `&&` and `||` never look at must still be a name, so only unused names go.
    let text = spec.toml();
    for i in 0..spec.modes.len() {
        with(&|other| {
            other.modes.remove(i);
        });
        for j in 0..spec.modes[i].1.len() {
            if spec.modes[i].1.len() > 1 {
                with(&|other| {
                    other.modes[i].1.remove(j);
                });
            }
        }
    }
    for i in 0..spec.rows.len() {
        with(&|other| {
            other.rows.remove(i);
        });
    }
    if !["hidden", "quant", "tied", "text_config"].iter().any(|name| text.contains(name)) {
        with(&|other| other.config = None);
    }
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
    for i in 0..spec.exclusive.len() {
        with(&|other| {
            other.exclusive.remove(i);
        });
    }
    // The default alignment is larger than some buffer's own.
    if spec.groups.iter().flat_map(|group| &group.buffers).all(|buffer| buffer.align.is_none()) {
        with(&|other| other.align = None);
    }
    // Nothing may become less aligned than its elements.
    all.retain(|spec| {
        let mut buffers = spec.groups.iter().flat_map(|group| &group.buffers);
        buffers.all(|it| it.align.unwrap_or(spec.pool_align()) >= element_bytes(&it.dtype))
    });
    all
}

/// Removes a group, or a buffer with its parts, from all accesses and claims.
fn forget(spec: &mut Spec, name: &str) {
    let (buffers, parts) = (format!("{name}."), format!("{name}["));
    let of = |item: &str| item == name || item.starts_with(&buffers) || item.starts_with(&parts);
    forget_where(spec, &of);
    spec.exclusive.retain(|item| !of(item));
}

fn forget_where(spec: &mut Spec, gone: &dyn Fn(&str) -> bool) {
    for step in &mut spec.steps {
        step.writes.retain(|item| !gone(item));
        step.reads.retain(|item| !gone(item));
        step.uses.retain(|item| !gone(item));
    }
}
