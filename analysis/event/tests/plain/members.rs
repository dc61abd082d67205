//! The members of `args`, by the types that are declared in `record/`: names and form from serde's attributes, meaning
//! from the comments.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of #[test]")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, Field, Fields, GenericArgument, Item, Lit, Meta, PathArguments, Token, Type,
    Variant,
};

/// Types that records consist of, in the order in which they are found.
pub(super) struct DeclaredTypes(Vec<Item>);

impl DeclaredTypes {
    /// The types in these sources that derive `Serialize`.
    pub(super) fn of(sources: impl IntoIterator<Item = String>) -> Self {
        let files = sources.into_iter().map(|source| syn::parse_file(&source).unwrap());
        Self(files.flat_map(|file| file.items).filter(|item| attributes(item).is_some()).collect())
    }

    /// Names of all members, and all words.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let names = self.0.iter().flat_map(|item| match item {
            Item::Struct(found) => found.fields.iter().filter_map(member_name).collect(),
            Item::Enum(found) => {
                let cases = serde_value(&found.attrs, "rename_all");
                let words = found.variants.iter().map(|word| cased(word, cases.as_deref()));
                words.collect()
            }
            _ => Vec::new(),
        });
        names.collect()
    }

    fn item(&self, name: &str) -> Option<&Item> {
        self.0.iter().find(|item| match item {
            Item::Struct(found) => found.ident == name,
            Item::Enum(found) => found.ident == name,
            _ => false,
        })
    }

    /// A table of the type's members. Tables of the types in it follow, unless `done` names them. Empty for a type
    /// without members.
    pub(super) fn tables(&self, name: &str, done: &mut Vec<String>) -> String {
        let (mut text, mut nested) = (String::new(), Vec::new());
        match self.item(name) {
            Some(Item::Struct(found)) => {
                for field in &found.fields {
                    self.member(field, &mut text, &mut nested);
                }
                if !text.is_empty() {
                    text = format!("\n| member | is | meaning |\n|---|---|---|\n{text}");
                }
            }
            Some(Item::Enum(found)) => {
                text.push_str("\n| word | meaning |\n|---|---|\n");
                let cases = serde_value(&found.attrs, "rename_all");
                for variant in &found.variants {
                    word(variant, cases.as_deref(), &mut text);
                }
            }
            _ => {}
        }
        for name in nested {
            if !done.contains(&name) {
                done.push(name.clone());
                let doc = self.item(&name).and_then(attributes).map(doc).unwrap_or_default();
                let table = self.tables(&name, done);
                write!(text, "\n`{name}`: {doc}\n{table}").unwrap();
            }
        }
        text
    }

    fn member(&self, field: &Field, text: &mut String, nested: &mut Vec<String>) {
        let Some(ident) = &field.ident else { return };
        if serde_has(&field.attrs, "skip") {
            // A member of the line beside `args`. The table of kinds has `pid` and `tid`.
            let name = match ident.to_string().as_str() {
                "stack" => "sf",
                "end_ns" => "dur",
                name if name.ends_with("_ns") && text.contains("| `ts` |") => "dur",
                name if name.ends_with("_ns") => "ts",
                _ => return,
            };
            let doc = doc(&field.attrs).replace(", in ns of CLOCK_MONOTONIC", "");
            return writeln!(text, "| `{name}` | of the line | {doc} |").unwrap();
        }
        let Some(name) = member_name(field) else { return };
        let inner = serde_has(&field.attrs, "flatten").then(|| path(&field.ty).0);
        if let Some(inner) = inner {
            // A type that writes its own members says so on the page.
            if let Some(Item::Struct(found)) = self.item(&inner) {
                found.fields.iter().for_each(|field| self.member(field, text, nested));
            }
            return;
        }
        let is = self.form(&field.ty, nested);
        writeln!(text, "| `{name}` | {is} | {} |", doc(&field.attrs)).unwrap();
    }

    /// How JSON has a value of this type.
    fn form(&self, of: &Type, nested: &mut Vec<String>) -> String {
        match of {
            Type::Array(array) => format!("list of {}", self.form(&array.elem, nested)),
            Type::Tuple(tuple) => {
                let each: Vec<String> =
                    tuple.elems.iter().map(|of| self.form(of, nested)).collect();
                format!("[{}]", each.join(", "))
            }
            _ => {
                let (name, arguments) = path(of);
                let mut argument =
                    |at: usize| arguments.get(at).map_or(String::new(), |of| self.form(of, nested));
                match name.as_str() {
                    "Option" | "Box" => argument(0),
                    "Vec" => format!("list of {}", argument(0)),
                    "BTreeMap" => format!("object of {}", argument(1)),
                    "String" | "Cow" => "text".to_owned(),
                    "bool" => "`true` or `false`".to_owned(),
                    name if self.item(name).is_some() => {
                        nested.push(name.to_owned());
                        format!("`{name}`")
                    }
                    "Counters" => "object of number".to_owned(),
                    _ => "number".to_owned(),
                }
            }
        }
    }
}

/// The name of a member of `args`; `None` if the field is none.
fn member_name(field: &Field) -> Option<String> {
    let name = field.ident.as_ref().filter(|_| !serde_has(&field.attrs, "skip"))?;
    Some(serde_value(&field.attrs, "rename").unwrap_or_else(|| name.to_string()))
}

fn word(variant: &Variant, cases: Option<&str>, text: &mut String) {
    let meaning = doc(&variant.attrs);
    let word = match variant.fields {
        Fields::Unit => format!("`{}`", cased(variant, cases)),
        _ => "any other".to_owned(),
    };
    writeln!(text, "| {word} | {meaning} |").unwrap();
}

/// The name of a variant in these cases of serde's.
fn cased(variant: &Variant, cases: Option<&str>) -> String {
    let separator = match cases {
        Some("kebab-case") => "-",
        Some("snake_case") => "_",
        _ => "",
    };
    let mut name = String::new();
    for letter in variant.ident.to_string().chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push_str(separator);
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// Attributes of a type that is written; `None` of other items.
fn attributes(item: &Item) -> Option<&[Attribute]> {
    let attributes = match item {
        Item::Struct(found) => &found.attrs,
        Item::Enum(found) => &found.attrs,
        _ => return None,
    };
    let is_written = attributes.iter().filter(|one| one.path().is_ident("derive")).any(|derive| {
        let names = derive.parse_args_with(Punctuated::<syn::Path, Token![,]>::parse_terminated);
        names.unwrap().iter().any(|name| name.is_ident("Serialize"))
    });
    is_written.then_some(attributes)
}

/// The last name of a type's path, and the types in its brackets.
fn path(of: &Type) -> (String, Vec<Type>) {
    let Type::Path(found) = of else { return (String::new(), Vec::new()) };
    let Some(last) = found.path.segments.last() else { return (String::new(), Vec::new()) };
    let PathArguments::AngleBracketed(brackets) = &last.arguments else {
        return (last.ident.to_string(), Vec::new());
    };
    let types = brackets.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(of) => Some(of.clone()),
        _ => None,
    });
    (last.ident.to_string(), types.collect())
}

/// The parts of all `serde` attributes.
fn serde(attributes: &[Attribute]) -> Vec<Meta> {
    let serde = attributes.iter().filter(|one| one.path().is_ident("serde"));
    let parts = serde
        .map(|one| one.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap());
    parts.flatten().collect()
}

fn serde_has(attributes: &[Attribute], name: &str) -> bool {
    serde(attributes).iter().any(|part| part.path().is_ident(name))
}

fn serde_value(attributes: &[Attribute], name: &str) -> Option<String> {
    serde(attributes).iter().find_map(|part| match part {
        Meta::NameValue(pair) if pair.path.is_ident(name) => literal(&pair.value),
        _ => None,
    })
}

fn literal(of: &Expr) -> Option<String> {
    match of {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The comment as a line of Markdown: without the targets of links within the code, and in the words of JSON.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|one| match &one.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => literal(&pair.value),
        _ => None,
    });
    let lines: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    let words = lines.join(" ").replace(". `None`", ". Missing").replace("`None`", "missing");
    let (mut text, mut rest) = (String::new(), words.replace("  ", " "));
    while let Some((before, after)) = rest.split_once("[`") {
        let (name, after) = after.split_once("`]").unwrap();
        let after = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').unwrap().1,
            None => after,
        };
        let name = name.rsplit("::").next().unwrap_or(name);
        write!(text, "{before}`{name}`").unwrap();
        rest = after.to_owned();
    }
    (text + &rest).replace('|', "\\|")
}
