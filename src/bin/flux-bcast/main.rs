//! `flux bcast`: send files to the nodes of a running job.

fn main() {}
