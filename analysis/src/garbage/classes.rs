//! Classes that a loop makes: they differ in a number in their name (`Row1`, `Row2`), and are one kind
//! (`Row*`).

use gctrace_event::KindName;
use std::collections::HashMap;

/// Names remembered; the classes beyond are shown by their pattern.
const NAMES: usize = 1_024;

/// Names of classes by pattern.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassNames(HashMap<String, Option<String>>);

impl ClassNames {
    /// The kind with the pattern of its name, if it is a class with a number in its name.
    pub(super) fn generalized(&mut self, kind: KindName) -> KindName {
        let name = if is_metaclass(&kind.type_name) { kind.function.as_deref() } else { None };
        let Some(name) = name else { return kind };
        let Some(pattern) = pattern(name) else { return kind };
        let is_known = self.0.contains_key(&pattern);
        if is_known || self.0.len() < NAMES {
            let only = self.0.entry(pattern.clone()).or_insert_with(|| Some(name.to_owned()));
            if only.as_deref() != Some(name) {
                *only = None;
            }
        }
        KindName { function: Some(pattern), ..kind }
    }

    /// A kind as it is shown: a class by its name if it is the only one.
    pub(super) fn shown(&self, kind: &KindName) -> KindName {
        let mut shown = kind.clone();
        if is_metaclass(&kind.type_name)
            && let Some(pattern) = kind.function.as_deref()
            && let Some(Some(only)) = self.0.get(pattern)
        {
            shown.function = Some(only.clone());
        }
        shown
    }
}

/// Whether objects of this type are classes, as far as its name says.
fn is_metaclass(type_name: &str) -> bool {
    type_name == "type" || type_name.ends_with("Meta") || type_name.ends_with("Metaclass")
}

/// The name with `*` for each number; `None` without any.
fn pattern(name: &str) -> Option<String> {
    let mut pattern = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter.is_ascii_digit() {
            true if pattern.ends_with('*') => {}
            true => pattern.push('*'),
            false => pattern.push(letter),
        }
    }
    if pattern != name { Some(pattern) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_differ_by_numbers_are_one() {
        let mut names = ClassNames::default();
        let of = |type_name: &str, name: &str| KindName {
            type_name: type_name.to_owned(),
            function: Some(name.to_owned()),
            ..KindName::default()
        };
        let mut kind = |type_name, name| names.generalized(of(type_name, name)).function.unwrap();
        assert_eq!(kind("ModelMetaclass", "Row1"), "Row*");
        assert_eq!(kind("ModelMetaclass", "Row23"), "Row*");
        assert_eq!(kind("type", "Conv2d"), "Conv*d");
        assert_eq!(kind("type", "Conv2d"), "Conv*d");
        assert_eq!(kind("type", "Point"), "Point");
        // The function that an instance was born in.
        assert_eq!(kind("__main__.Node", "step2"), "step2");
        let shown = |type_name, name| names.shown(&of(type_name, name)).function.unwrap();
        assert_eq!(shown("type", "Row*"), "Row*");
        assert_eq!(shown("type", "Conv*d"), "Conv2d");
        assert_eq!(shown("function", "Conv*d"), "Conv*d");
    }
}
