//! Cells of notebooks: IPython's names for their code are hashes.
//!
//! `<ipython-input-3-0f1e2d>` has the number of the prompt, `/tmp/ipykernel_77/2880593134.py` has none (`get_file_name`
//! in ipykernel). Both are named as a notebook shows them: `In [3]`, and `In [?]`, with a number from the second such
//! cell on, in the order of first appearance.

use crate::Record;
use std::collections::HashMap;

/// Cells without a number that are told apart.
const MOST: usize = 10_000;

/// Names of the cells of one recording.
#[derive(Clone, Debug, Default)]
pub struct NotebookCells(HashMap<String, usize>);

impl NotebookCells {
    /// Names the file of a record that has one.
    pub(crate) fn name_in(&mut self, record: &mut Record) {
        let file = match record {
            Record::Frame(frame) => Some(&mut frame.file),
            Record::ObjectKind(kind) => kind.name.file.as_mut(),
            _ => None,
        };
        if let Some(file) = file
            && let Some(name) = self.name(file)
        {
            *file = name;
        }
    }

    /// How to name a file; `None` if it is no cell.
    pub fn name(&mut self, file: &str) -> Option<String> {
        if let Some(number) = number(file)? {
            return Some(format!("In [{number}]"));
        }
        let next = self.0.len() + 1;
        let at = match self.0.get(file) {
            Some(at) => *at,
            None if next > MOST => next,
            None => *self.0.entry(file.to_owned()).or_insert(next),
        };
        Some(if at == 1 { "In [?]".to_owned() } else { format!("In [?] #{at}") })
    }
}

/// How to name a file where cells without a number need not be told apart; `None` if it is no cell.
#[must_use]
pub fn cell_name(file: &str) -> Option<String> {
    Some(format!("In [{}]", number(file)?.unwrap_or("?")))
}

/// The number of the cell, if it is in the name of its file; `None` if that is no cell.
fn number(file: &str) -> Option<Option<&str>> {
    let is_number =
        |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let in_brackets = name.strip_prefix('<').and_then(|name| name.strip_suffix('>'));
    let stem = in_brackets.or_else(|| name.strip_suffix(".py"))?;
    if let Some(input) = stem.strip_prefix("ipython-input-") {
        let number = input.split_once('-').map(|(number, _)| number);
        return Some(number.filter(|number| is_number(number)));
    }
    let (_, folder) = folder.rsplit_once('/')?;
    let is_cell = folder.strip_prefix("ipykernel_").is_some_and(is_number) && is_number(stem);
    if is_cell { Some(None) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_named_by_their_prompts() {
        let mut cells = NotebookCells::default();
        let mut name = |file| cells.name(file);
        assert_eq!(name("<ipython-input-12-0f1e2d3c>").as_deref(), Some("In [12]"));
        assert_eq!(name("/tmp/ipython-input-3-42.py").as_deref(), Some("In [3]"));
        assert_eq!(name("/tmp/ipykernel_77/2880593134.py").as_deref(), Some("In [?]"));
        assert_eq!(name("/tmp/ipykernel_77/17.py").as_deref(), Some("In [?] #2"));
        assert_eq!(name("/tmp/ipython-input-42.py").as_deref(), Some("In [?] #3"));
        assert_eq!(name("/tmp/ipykernel_77/2880593134.py").as_deref(), Some("In [?]"));
        for file in [
            "/srv/train.py",
            "<string>",
            "/tmp/ipykernel_77/train.py",
            "/tmp/ipykernel_x/17.py",
            "ipykernel_77/17.py",
            "/usr/lib/python3/dist-packages/ipykernel/17.py",
            "",
        ] {
            assert_eq!(name(file), None, "{file}");
        }
    }
}
