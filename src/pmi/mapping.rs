//! Where ranks run, in the two notations that clients ask for.

use super::reply::VALUE_FITS;
use std::fmt::Write as _;

/// `ppn` ranks on each of `nodes` nodes from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    first: u32,
    nodes: u32,
    ppn: u32,
}

/// Consecutive ranks in blocks, as few as a greedy reading gives.
fn blocks(node_of_rank: &[u32]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for run in node_of_rank.chunk_by(|a, b| a == b) {
        let Some(&node) = run.first() else { continue };
        let ppn = u32::try_from(run.len()).unwrap_or(u32::MAX);
        match blocks.last_mut() {
            Some(last) if last.ppn == ppn && last.first + last.nodes == node => last.nodes += 1,
            _ => blocks.push(Block {
                first: node,
                nodes: 1,
                ppn,
            }),
        }
    }
    blocks
}

/// The value of `PMI_process_mapping`, such as `(vector,(0,4,2))`, or `None`
/// when it would not fit a reply that every client can read.
#[must_use]
pub fn process_mapping(node_of_rank: &[u32]) -> Option<String> {
    let blocks = blocks(node_of_rank);
    let vector = |blocks: &[Block]| {
        let mut text = "(vector".to_owned();
        for Block { first, nodes, ppn } in blocks {
            // Writing to a String cannot fail.
            let _ = write!(text, ",({first},{nodes},{ppn})");
        }
        text.push(')');
        text
    };
    let full = vector(&blocks);
    if full.len() <= VALUE_FITS {
        return Some(full);
    }
    // Readers start again at the first block until all ranks have a node.
    let short = vector(blocks.get(..period(&blocks))?);
    (short.len() <= VALUE_FITS).then_some(short)
}

/// The value of `flux.taskmap` (RFC 34), such as
/// `{"version":1,"map":[[0,4,2,1]]}`, or `None` when it is too long.
#[must_use]
pub fn taskmap(node_of_rank: &[u32]) -> Option<String> {
    let mut text = "{\"version\":1,\"map\":[".to_owned();
    let blocks = blocks(node_of_rank);
    for (i, run) in blocks.chunk_by(|a, b| a == b).enumerate() {
        let Some(Block { first, nodes, ppn }) = run.first() else {
            continue;
        };
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(text, "{comma}[{first},{nodes},{ppn},{}]", run.len());
    }
    text.push_str("]}");
    (text.len() <= VALUE_FITS).then_some(text)
}

/// After how many blocks the rest repeats the beginning.
fn period(blocks: &[Block]) -> usize {
    (1..blocks.len())
        .find(|&n| {
            blocks.len().is_multiple_of(n) && blocks.chunks(n).all(|c| c == &blocks[..n])
        })
        .unwrap_or(blocks.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn block_cyclic_and_irregular() {
        for (nodes, vector, map) in [
            (&[0, 0, 1, 1][..], "(vector,(0,2,2))", "[[0,2,2,1]]"),
            (&[0, 0], "(vector,(0,1,2))", "[[0,1,2,1]]"),
            (&[0, 1, 0, 1], "(vector,(0,2,1),(0,2,1))", "[[0,2,1,2]]"),
            (
                &[0, 0, 0, 1],
                "(vector,(0,1,3),(1,1,1))",
                "[[0,1,3,1],[1,1,1,1]]",
            ),
            (
                &[2, 1, 0],
                "(vector,(2,1,1),(1,1,1),(0,1,1))",
                "[[2,1,1,1],[1,1,1,1],[0,1,1,1]]",
            ),
            (&[], "(vector)", "[]"),
        ] {
            assert_eq!(process_mapping(nodes).unwrap(), vector);
            assert_eq!(
                taskmap(nodes).unwrap(),
                format!("{{\"version\":1,\"map\":{map}}}")
            );
        }
    }

    #[test]
    fn a_long_cyclic_mapping_is_shortened_and_a_chaotic_one_left_out() {
        let cyclic: Vec<u32> = (0..4000).map(|rank| rank % 4).collect();
        assert_eq!(process_mapping(&cyclic).unwrap(), "(vector,(0,4,1))");
        let chaos: Vec<u32> = (0..4000u32)
            .map(|rank| rank.wrapping_mul(2_654_435_761) >> 22)
            .collect();
        assert_eq!(process_mapping(&chaos), None);
        assert_eq!(taskmap(&chaos), None);
    }

    /// Reads a vector the way clients do.
    fn read(vector: &str, size: usize) -> Vec<u32> {
        let inner = vector
            .strip_prefix("(vector,")
            .unwrap()
            .strip_suffix(')')
            .unwrap();
        let blocks: Vec<Vec<u32>> = inner
            .split("),(")
            .map(|b| {
                b.trim_matches(['(', ')'])
                    .split(',')
                    .map(|n| n.parse().unwrap())
                    .collect()
            })
            .collect();
        let mut nodes = Vec::new();
        for block in blocks.iter().cycle() {
            for node in block[0]..block[0] + block[1] {
                nodes.extend((0..block[2]).map(|_| node));
            }
            if nodes.len() >= size {
                break;
            }
        }
        nodes
    }

    proptest! {
        #[test]
        fn a_vector_reads_back_as_it_was(nodes in prop::collection::vec(0u32..5, 1..60)) {
            let vector = process_mapping(&nodes).unwrap();
            prop_assert_eq!(read(&vector, nodes.len()), nodes);
        }
    }
}
