//! Days, weeks, months and years of a time zone.

use crate::model::{CALENDAR_BOUNDS, Timestamp};

#[derive(Debug, Clone)]
pub struct Calendar {}

impl Calendar {
    /// Window boundaries around `now`, see [`crate::model::Window::Calendar`].
    pub fn bounds(&self, _now: Timestamp) -> [Timestamp; CALENDAR_BOUNDS] {
        [Timestamp::default(); CALENDAR_BOUNDS]
    }
}
