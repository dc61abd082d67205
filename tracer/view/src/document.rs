//! The output of commands, in whatever form: sections of blocks, built once.
//!
//! Owns the blocks, and their form on terminals and in plain text (`document/terminal.rs`) and as Markdown
//! (`document/markdown.rs`); `render/page.rs` writes them for browsers. Names of recorded programs come in as they are:
//! each writer escapes them.

mod block;
mod markdown;
mod style;
mod table;
mod terminal;

pub use block::{
    AdviceBlock, Badge, BarPart, Block, Card, Paragraph, Section, Tone, hanging, line, paragraph,
    plain,
};
pub use markdown::{escaped, markdown};
pub use style::Style;
pub use table::{Cell, Column, Table, TableOf};
pub use terminal::{blocks_text, is_cut, lines, text};

pub use crate::units::cut;

/// Default width in characters, if standard output is not a terminal.
pub const WIDTH: usize = 80;

/// Width that a page has room for, in characters: it breaks lines itself.
pub const WIDEST: usize = 240;

/// The indent of a section's lines.
pub const INDENT: &str = "  ";
