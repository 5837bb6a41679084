//! Embedded provider.
