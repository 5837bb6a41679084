//! Which shared objects a program needs, found as the dynamic loader finds
//! them.
//!
//! The files are read, nothing is run: to ask the loader itself (`ldd`) can mean
//! to run the program, and answers only for programs of this machine's own
//! kind. What a program opens by name while it runs (plugins) cannot be known
//! here.

#![forbid(unsafe_code)]

mod bundle;
mod cache;
mod closure;
mod object;

pub use bundle::Added;
pub use bundle::Libs;
pub use bundle::add_libs;
pub use closure::Closure;
pub use closure::Library;
pub use closure::Missing;
pub use closure::Search;
pub use closure::closure;
