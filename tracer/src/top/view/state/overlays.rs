//! Actions in overlays and prompts: help, sort menu, filter, interval.

use super::{Geometry, Overlay, ViewEffect, ViewState, moved};
use crate::top::view::columns;
use crate::top::view::keys::KeyAction;
use gctrace_analysis::live::Snapshot;
use std::time::Duration;

/// Steps of the interval.
const INTERVALS_MS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/// Maximum characters of a filter or interval.
const LONGEST_PROMPT: usize = 200;

impl ViewState {
    pub(super) fn step_interval(&mut self, by: i32) -> ViewEffect {
        let mut steps = INTERVALS_MS.map(Duration::from_millis).into_iter();
        let next = if by > 0 {
            steps.find(|step| *step > self.interval)
        } else {
            steps.rev().find(|step| *step < self.interval)
        };
        match next {
            Some(next) => {
                self.interval = next;
                ViewEffect::Interval
            }
            None => ViewEffect::Draw,
        }
    }

    pub(super) fn on_help(&mut self, action: KeyAction, drawn: &Geometry) -> ViewEffect {
        let Overlay::Help(from) = &mut self.overlay else { return ViewEffect::Draw };
        let page = (i32::from(drawn.body.height) + i32::from(drawn.lower.height)).max(1);
        let most = drawn.most_of_help;
        match action {
            KeyAction::Move(by) | KeyAction::Wheel { by, .. } => *from = moved(*from, by).min(most),
            KeyAction::Page(by) => *from = moved(*from, by * page).min(most),
            KeyAction::Home => *from = 0,
            KeyAction::End => *from = most,
            _ => self.overlay = Overlay::None,
        }
        ViewEffect::Draw
    }

    pub(super) fn on_sort_menu(&mut self, action: KeyAction, snapshot: &Snapshot) -> ViewEffect {
        let Overlay::Sort(chosen) = &mut self.overlay else { return ViewEffect::Draw };
        let last = columns::COLUMNS.len() - 1;
        match action {
            KeyAction::Move(by) | KeyAction::Page(by) => *chosen = moved(*chosen, by).min(last),
            KeyAction::Wheel { by, .. } => *chosen = moved(*chosen, by.signum()).min(last),
            KeyAction::Home => *chosen = 0,
            KeyAction::End => *chosen = last,
            KeyAction::Expand | KeyAction::Accept => {
                let column = columns::COLUMNS[*chosen].column;
                self.overlay = Overlay::None;
                if column != self.sort.by {
                    self.sort_by(column, snapshot);
                }
            }
            _ => self.overlay = Overlay::None,
        }
        ViewEffect::Draw
    }

    pub(super) fn on_prompt(&mut self, action: KeyAction, snapshot: &Snapshot) -> ViewEffect {
        match (&mut self.overlay, action) {
            (Overlay::Filter(_), KeyAction::Type(char)) => {
                if self.filter.chars().count() < LONGEST_PROMPT {
                    self.filter.push(char);
                }
            }
            (Overlay::Filter(_), KeyAction::Erase) => {
                self.filter.pop();
            }
            (Overlay::Filter(_), KeyAction::EraseAll) => self.filter.clear(),
            (Overlay::Filter(before), KeyAction::Back) => {
                self.filter = std::mem::take(before);
                self.overlay = Overlay::None;
            }
            (Overlay::Interval(typed), KeyAction::Type(char)) => {
                if typed.chars().count() < LONGEST_PROMPT {
                    typed.push(char);
                }
            }
            (Overlay::Interval(typed), KeyAction::Erase) => {
                typed.pop();
            }
            (Overlay::Interval(typed), KeyAction::EraseAll) => typed.clear(),
            (Overlay::Interval(typed), KeyAction::Accept) => {
                let typed = std::mem::take(typed);
                self.overlay = Overlay::None;
                return self.typed_interval(&typed);
            }
            (_, KeyAction::Accept | KeyAction::Back) => self.overlay = Overlay::None,
            (_, KeyAction::Move(by)) => {
                self.arrange(snapshot);
                self.choose(by, snapshot);
            }
            _ => return ViewEffect::Draw,
        }
        self.arrange(snapshot);
        ViewEffect::Draw
    }

    fn typed_interval(&mut self, typed: &str) -> ViewEffect {
        if typed.trim().is_empty() {
            return ViewEffect::Draw;
        }
        match interval(typed) {
            Some(interval) => {
                self.interval = interval;
                ViewEffect::Interval
            }
            None => {
                self.message = Some("The interval must be from 0.1 to 60 seconds.".to_owned());
                ViewEffect::Draw
            }
        }
    }
}

/// Parses a typed interval: `2`, `0.5`, `500ms`, `2s`; rounded to 0.1 s, `None` if not within 0.1
/// to 60 s.
pub(super) fn interval(typed: &str) -> Option<Duration> {
    let typed = typed.trim().replace(',', ".");
    let (number, unit) = match typed.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (typed.strip_suffix('s').unwrap_or(&typed), 1.0),
    };
    let seconds = number.trim().parse::<f64>().ok()? * unit;
    // The history has a resolution of 0.1 s.
    let seconds = (seconds * 10.0).round() / 10.0;
    let allowed = (0.1..=60.0).contains(&seconds);
    if allowed { Some(Duration::from_secs_f64(seconds)) } else { None }
}
