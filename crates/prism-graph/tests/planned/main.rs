//! Planned schedules against their papers' bubbles, and against an event simulator.

mod bubbles;
mod orders;
mod simulated;
mod simulator;
