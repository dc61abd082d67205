//! Keys while something lies over the screen or waits for text: the help, the list of columns, the filter, the
//! interval.

use super::Effect;
use super::Geometry;
use super::Overlay;
use super::State;
use super::moved;
use crate::top::view::columns;
use crate::top::view::columns::Column;
use crate::top::view::keys::Action;
use gctrace_analysis::live::Snapshot;
use std::time::Duration;

/// Shortest and longest interval, and steps between them.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/// Most characters of a filter.
const LONGEST_PROMPT: usize = 200;

impl State {
    pub(super) fn step_interval(&mut self, by: i32) -> Effect {
        let now = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let next = if by > 0 {
            INTERVALS_MS.iter().find(|step| **step > now)
        } else {
            INTERVALS_MS.iter().rev().find(|step| **step < now)
        };
        match next {
            Some(next) => {
                self.interval = Duration::from_millis(*next);
                Effect::Interval
            }
            None => Effect::Draw,
        }
    }

    pub(super) fn on_help(&mut self, action: Action, drawn: &Geometry) -> Effect {
        let Overlay::Help(from) = &mut self.overlay else {
            return Effect::Draw;
        };
        let page = i32::from(drawn.body.height.saturating_add(drawn.lower.height).max(1));
        let most = drawn.most_of_help;
        match action {
            Action::Move(by) | Action::Wheel { by, .. } => *from = moved(*from, by).min(most),
            Action::Page(by) => *from = moved(*from, by.saturating_mul(page)).min(most),
            Action::Home => *from = 0,
            Action::End => *from = most,
            _ => self.overlay = Overlay::None,
        }
        Effect::Draw
    }

    pub(super) fn on_sort_menu(&mut self, action: Action, snapshot: &Snapshot) -> Effect {
        let Overlay::Sort(chosen) = &mut self.overlay else {
            return Effect::Draw;
        };
        let last = columns::ALL.len() - 1;
        match action {
            Action::Move(by) | Action::Page(by) => *chosen = moved(*chosen, by).min(last),
            Action::Wheel { by, .. } => *chosen = moved(*chosen, by.signum()).min(last),
            Action::Home => *chosen = 0,
            Action::End => *chosen = last,
            Action::Expand | Action::Accept => {
                let column = columns::ALL.get(*chosen).copied().unwrap_or(Column::Rate);
                self.overlay = Overlay::None;
                if column != self.sort.by {
                    self.sort_by(column, snapshot);
                }
            }
            _ => self.overlay = Overlay::None,
        }
        Effect::Draw
    }

    pub(super) fn on_prompt(&mut self, action: Action, snapshot: &Snapshot) -> Effect {
        match (&mut self.overlay, action) {
            (Overlay::Filter(_), Action::Type(char)) => {
                if self.filter.chars().count() < LONGEST_PROMPT {
                    self.filter.push(char);
                }
            }
            (Overlay::Filter(_), Action::Erase) => {
                self.filter.pop();
            }
            (Overlay::Filter(_), Action::EraseAll) => self.filter.clear(),
            (Overlay::Filter(before), Action::Back) => {
                self.filter = std::mem::take(before);
                self.overlay = Overlay::None;
            }
            (Overlay::Interval(typed), Action::Type(char)) => {
                if typed.chars().count() < LONGEST_PROMPT {
                    typed.push(char);
                }
            }
            (Overlay::Interval(typed), Action::Erase) => {
                typed.pop();
            }
            (Overlay::Interval(typed), Action::EraseAll) => typed.clear(),
            (Overlay::Interval(typed), Action::Accept) => {
                let typed = std::mem::take(typed);
                self.overlay = Overlay::None;
                return self.typed_interval(&typed);
            }
            (_, Action::Accept | Action::Back) => self.overlay = Overlay::None,
            (_, Action::Move(by)) => {
                self.arrange(snapshot);
                self.choose(by, snapshot);
            }
            _ => return Effect::Draw,
        }
        self.arrange(snapshot);
        Effect::Draw
    }

    fn typed_interval(&mut self, typed: &str) -> Effect {
        if typed.trim().is_empty() {
            return Effect::Draw;
        }
        match interval(typed) {
            Some(interval) => {
                self.interval = interval;
                Effect::Interval
            }
            None => {
                self.message = Some("The interval is between 0.1 and 60 seconds.".to_owned());
                Effect::Draw
            }
        }
    }
}

/// `2`, `0.5`, `500ms`, `2s`.
pub(super) fn interval(typed: &str) -> Option<Duration> {
    let typed = typed.trim().replace(',', ".");
    let (number, unit) = match typed.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (typed.strip_suffix('s').unwrap_or(&typed), 1.0),
    };
    let seconds = number.trim().parse::<f64>().ok()? * unit;
    // In steps of 0.1 s: finer is nothing kept.
    let seconds = (seconds * 10.0).round() / 10.0;
    let allowed = (0.1..=60.0).contains(&seconds);
    allowed.then(|| Duration::from_secs_f64(seconds))
}
