//! The few processor instructions the stack uses, each with a portable fallback.
