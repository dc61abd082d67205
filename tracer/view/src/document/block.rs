//! Sections and their blocks.

use super::{INDENT, Table, TableOf};

/// A part of a document with a heading.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// For links to it; empty where there are none.
    pub id: &'static str,
    /// May be empty.
    pub heading: String,
    /// Beside the heading of a page; may be empty.
    pub about: String,
    /// Of the first section of a page: how good or bad its heading is.
    pub badge: Option<Badge>,
    /// Its content. A section without any is left out.
    pub blocks: Vec<Block>,
}

impl Section {
    /// A section with this heading.
    pub fn new(heading: impl Into<String>, blocks: Vec<Block>) -> Self {
        Self { heading: heading.into(), blocks, ..Self::default() }
    }

    /// A section of paragraphs.
    pub fn of_sentences<T: ToString>(
        heading: &str,
        sentences: impl IntoIterator<Item = T>,
    ) -> Self {
        Self::new(heading, sentences.into_iter().map(paragraph).collect())
    }

    /// The same with an id, for pages.
    pub fn id(self, id: &'static str) -> Self {
        Self { id, ..self }
    }

    /// The same with a remark beside its heading.
    pub fn about(self, about: impl Into<String>) -> Self {
        Self { about: about.into(), ..self }
    }

    /// Its text, without the heading.
    #[cfg(test)]
    pub fn text(&self) -> String {
        super::blocks_text(&self.blocks, super::Style::OF_FILES)
    }

    /// Whether it shows nothing.
    pub fn is_empty(&self) -> bool {
        self.blocks.iter().all(Block::is_empty)
    }
}

/// A word in a color.
#[derive(Clone, Debug)]
pub struct Badge {
    /// May not be empty.
    pub name: &'static str,
    /// `good`, `warn` or `bad`.
    pub class: &'static str,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// Sentences, broken into lines.
    Paragraph(Paragraph),
    /// A line that is cut, never broken: indent and text, such as code or a name.
    Line(&'static str, String),
    /// An empty line; pages have none.
    Gap,
    /// In smaller letters, on pages.
    Note(String),
    /// Code or a command to copy; it is not broken.
    Code(String),
    /// A heading within the section.
    Heading(String),
    /// A table.
    Table(Table),
    /// A change to make.
    Advice(AdviceBlock),
    /// A command, with its purpose before it.
    Command(String, String),
    /// Parts that a page folds at first, their summary first.
    More(String, Vec<Block>),
    /// Figures in large letters, on pages only.
    Cards(Vec<Card>),
    /// A whole in parts, its name first, on pages only.
    Bar(String, Vec<BarPart>),
    /// A drawing of a run by the page's script: its kind, and the place of the run in the data.
    Drawing(&'static str, usize),
}

impl Block {
    fn is_empty(&self) -> bool {
        match self {
            Self::Paragraph(paragraph) => paragraph.text.is_empty(),
            Self::Gap => true,
            _ => false,
        }
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl<R> From<TableOf<R>> for Block {
    fn from(table: TableOf<R>) -> Self {
        Self::Table(table.table())
    }
}

impl From<Paragraph> for Block {
    fn from(paragraph: Paragraph) -> Self {
        Self::Paragraph(paragraph)
    }
}

/// Sentences that are broken at whitespace.
#[derive(Clone, Debug, Default)]
pub struct Paragraph {
    /// An empty one is left out.
    pub text: String,
    /// The start of the first line.
    pub first: String,
    /// The start of the other lines.
    pub indent: &'static str,
    /// At the right end of the last line, or below it where there is no room; may be empty.
    pub aside: String,
    /// Its color.
    pub tone: Tone,
}

/// The color of a paragraph, where there are colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// None.
    #[default]
    Plain,
    /// Bold.
    Strong,
    /// Green.
    Good,
    /// Yellow.
    Warning,
    /// Red.
    Bad,
}

impl Tone {
    /// Sentences in this color, without an indent.
    pub fn of(self, text: impl Into<String>) -> Block {
        Paragraph { text: text.into(), tone: self, ..Paragraph::default() }.into()
    }
}

/// A paragraph of a section.
pub fn paragraph(text: impl ToString) -> Block {
    hanging(text, INDENT, INDENT)
}

/// A paragraph without an indent.
pub fn plain(text: impl ToString) -> Block {
    hanging(text, "", "")
}

/// A paragraph: its first line starts with `first`, the others with `indent`.
pub fn hanging(text: impl ToString, first: impl Into<String>, indent: &'static str) -> Block {
    let (text, first) = (text.to_string(), first.into());
    Paragraph { text, first, indent, ..Paragraph::default() }.into()
}

/// A line of a section that is cut, never broken.
pub fn line(text: impl Into<String>) -> Block {
    Block::Line(INDENT, text.into())
}

/// A change to make.
#[derive(Clone, Debug, Default)]
pub struct AdviceBlock {
    /// Its place in the list, from 1.
    pub number: usize,
    /// The change.
    pub action: String,
    /// Why.
    pub why: String,
    /// The saving; may be empty, like the fields below.
    pub saves: String,
    /// The change, as code.
    pub code: String,
    /// The risk of the change.
    pub risk: String,
}

/// A figure with its name.
#[derive(Clone, Debug)]
pub struct Card {
    /// With its unit.
    pub figure: String,
    /// The name of the figure.
    pub name: &'static str,
}

/// A part of a bar.
#[derive(Clone, Debug)]
pub struct BarPart {
    /// The name of the part.
    pub name: String,
    /// Its share as the report states it.
    pub share: String,
    /// Its width, in percent.
    pub width: String,
    /// The number of one of the page's colors, from 0.
    pub color: usize,
}
