//! The subscriber of the pager's `tracing` events: each becomes a line among the [last decisions](crate::control::DecisionLevel)
//! of its process.
//!
//! It neither allocates nor touches thread-local storage. The pager's events are emitted with the engine locked, or
//! before other threads exist: the first use of an event takes locks of `tracing`, and a fork must not find them held. A
//! process that dies emits one without that lock: a child forked meanwhile dies as well.

use super::pager;
use crate::control::{DecisionLevel, LineText};
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher, span};

#[derive(Debug)]
struct Decisions {
    level: LevelFilter,
}

/// Keeps the events of a level and those above it from now on. Once in a process; forked children inherit it.
pub(super) fn begin(level: DecisionLevel) {
    let level = match level {
        DecisionLevel::Off => return,
        DecisionLevel::Error => LevelFilter::ERROR,
        DecisionLevel::Warn => LevelFilter::WARN,
        DecisionLevel::Info => LevelFilter::INFO,
        DecisionLevel::Debug => LevelFilter::DEBUG,
        DecisionLevel::Trace => LevelFilter::TRACE,
    };
    // Nobody else in this object sets one.
    let _ = dispatcher::set_global_default(Dispatch::new(Decisions { level }));
}

impl Subscriber for Decisions {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let Some(pager) = pager() else {
            return;
        };
        let mut line = Line(LineText::new());
        let _ = write!(line.0, "{:<5}", event.metadata().level());
        event.record(&mut line);
        pager.process.note_decision(&line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(LineText);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
