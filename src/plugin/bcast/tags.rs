//! Tags of nodes in a destination, for a Flux that does not know them.
//!
//! A shell asks its plugins for the tags that are not its own. Before 0.70
//! `{{node.id}}` and `{{node.name}}` are not, so these are ours there. A newer shell
//! fills them in without asking.

use serde_json::json;

use super::Bcast;
use crate::errno::Errno;
use crate::flux::error::Result;
use crate::flux::plugin::Invocation;

/// The topics of these questions.
pub(in crate::plugin) const TOPICS: [&str; 2] = [NODE_ID, NODE_NAME];
const NODE_ID: &str = "mustache.render.node.id";
const NODE_NAME: &str = "mustache.render.node.name";

impl Bcast {
    /// Answers a question for a tag, but only where we asked for the path to be
    /// filled in: what a job has elsewhere means what it means without us.
    pub(in crate::plugin) fn fill_in(&self, call: &Invocation<'_>) -> Result<()> {
        if !self.rendering.get() {
            return Ok(());
        }
        let rank = self.info.rank;
        let text = if call.topic() == NODE_ID {
            rank.to_string()
        } else {
            let at = usize::try_from(rank).map_err(|_| Errno::EINVAL)?;
            let hosts = self.peers.hosts()?;
            hosts.into_iter().nth(at).ok_or(Errno::EINVAL)?
        };
        call.set_output(&json!({ "result": text }))
    }
}
