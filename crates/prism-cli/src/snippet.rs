//! What is wrong with a job file, at its place in the text.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use prism_job::{Plan, Violation, Violations};
use prism_report::{Style, count, plan_name};

/// All violations, and the possible plans nearest to an impossible one.
pub(crate) fn errors(all: &Violations, style: Style) -> String {
    let n = all.violations.len();
    let mut groups: Vec<Group<'_>> =
        all.violations.iter().map(|v| group(&Level::ERROR, v, &all.name, &all.text)).collect();
    let plans = possible(all);
    if !plans.is_empty() {
        let mut near =
            Group::with_title(Level::HELP.secondary_title("possible plans near this one"));
        for plan in plans {
            near = near.element(Level::NOTE.no_name().message(plan));
        }
        groups.push(near);
    }
    if n > 1 {
        let text = format!("{n} things to change in {}", place(&all.name));
        groups.push(Group::with_title(Level::ERROR.secondary_title(text)));
    }
    render(&groups, style)
}

/// Possible plans near the one that is impossible, in words.
pub(crate) fn possible(all: &Violations) -> Vec<String> {
    let words = |p: &Plan| {
        let schedule =
            if p.pipeline_parallel > 1 { format!(", {}", p.schedule) } else { String::new() };
        format!("{}{schedule}, on {} GPUs", plan_name(p), count(p.gpus() as usize))
    };
    all.nearest_plans.iter().map(words).collect()
}

/// Warnings about a job file.
pub(crate) fn warnings(name: &str, text: &str, all: &[Violation], style: Style) -> String {
    let groups: Vec<Group<'_>> =
        all.iter().map(|v| group(&Level::WARNING, v, name, text)).collect();
    render(&groups, style)
}

fn place(name: &str) -> String {
    if name.is_empty() { "the job file".to_owned() } else { format!("`{name}`") }
}

fn render(groups: &[Group<'_>], style: Style) -> String {
    let renderer = if style.colour { Renderer::styled() } else { Renderer::plain() };
    // One report each: within a report, later groups are notes on the first.
    let one = |group: &Group<'_>| renderer.render(std::slice::from_ref(group));
    groups.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

fn group<'a>(level: &Level<'a>, v: &'a Violation, name: &'a str, text: &'a str) -> Group<'a> {
    let mut group = Group::with_title(level.clone().primary_title(v.message.as_str()));
    group = match (&v.span, &v.set) {
        (_, Some(set)) => group.element(Level::NOTE.message(format!("given by `--set {set}`"))),
        (Some(span), None) => group.element(
            Snippet::source(text)
                .path((!name.is_empty()).then_some(name))
                .annotation(AnnotationKind::Primary.span(span.clone())),
        ),
        (None, None) => group,
    };
    match &v.hint {
        Some(hint) => group.element(Level::HELP.message(hint.as_str())),
        None => group,
    }
}
