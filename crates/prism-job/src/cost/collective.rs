//! Collectives and point-to-point transfers: α–β by algorithm and by tier.
//!
//! Times are transfers alone: what it takes once every participant is there.

use crate::{Cluster, Network};

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveKind {
    /// Every rank ends with the sum.
    AllReduce,
    /// Every rank ends with all parts.
    AllGather,
    /// Every rank ends with its part of the sum.
    ReduceScatter,
    /// Every rank sends a part to every other.
    AllToAll,
}

/// How a collective runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Parts go around a ring: least bytes, latency grows with the ranks.
    Ring,
    /// Binary trees: twice the bytes of a reduction, latency grows with their logarithm.
    Tree,
    /// Inside the node (or `NVLink` domain) first, then between nodes in rings of one rank each.
    Hierarchical,
    /// The switch reduces (NVLS).
    InSwitch,
    /// Every pair exchanges directly.
    Direct,
}

/// A process group: `ranks` members, every `stride`-th GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Members.
    pub ranks: u64,
    /// Distance between neighbours, GPUs.
    pub stride: u64,
}

impl Group {
    /// GPUs from the first to the last member.
    pub fn span(self) -> u64 {
        self.ranks.saturating_mul(self.stride)
    }

    /// Members inside one `NVLink` domain.
    fn local(self, cluster: &Cluster) -> u64 {
        (u64::from(cluster.nvlink_domain) / self.stride.max(1)).clamp(1, self.ranks.max(1))
    }
}

/// A collective's time and how it was obtained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Seconds.
    pub seconds: f64,
    /// The fastest algorithm.
    pub algorithm: Algorithm,
}

/// Time of a collective over a group.
///
/// `bytes` is the whole buffer of a rank: the sum of an all-reduce, everything gathered of an
/// all-gather, everything that is reduced of a reduce-scatter, everything a rank sends of an
/// all-to-all.
///
/// Ring: each of the `n` parts passes each link, `(n−1)/n` of the buffer and `n−1` latencies (an
/// all-reduce twice that). Between nodes, the `g` members of a node share its rings, so that `g`
/// network interfaces carry them. Tree: two trees that each carry half the buffer, up and down.
pub fn collective(kind: CollectiveKind, bytes: f64, group: Group, cluster: &Cluster) -> Transfer {
    let none = Transfer { seconds: 0.0, algorithm: Algorithm::Ring };
    if group.ranks <= 1 || bytes <= 0.0 {
        return none;
    }
    let fixed = cluster.efficiency.collective_s;
    let candidates = if cluster.is_nvlink(group.span()) {
        inside(kind, bytes, group, cluster)
    } else {
        between(kind, bytes, group, cluster)
    };
    let best = candidates.into_iter().flatten().fold(None, |best: Option<Transfer>, one| {
        Some(best.filter(|b| b.seconds <= one.seconds).unwrap_or(one))
    });
    best.map_or(none, |t| Transfer { seconds: t.seconds + fixed, ..t })
}

/// Passes over the links, in units of `(n−1)/n` of the buffer.
fn passes(kind: CollectiveKind) -> f64 {
    if kind == CollectiveKind::AllReduce { 2.0 } else { 1.0 }
}

fn ring(kind: CollectiveKind, bytes: f64, n: f64, link: Network, eff: f64) -> f64 {
    let once = (n - 1.0) / n * bytes / (link.bandwidth * eff) + (n - 1.0) * link.latency_s;
    passes(kind) * once
}

fn inside(
    kind: CollectiveKind,
    bytes: f64,
    group: Group,
    cluster: &Cluster,
) -> [Option<Transfer>; 2] {
    let (link, eff) = (cluster.nvlink, cluster.efficiency.nvlink);
    let n = group.ranks as f64;
    if kind == CollectiveKind::AllToAll {
        let seconds = (n - 1.0) / n * bytes / (link.bandwidth * eff) + link.latency_s;
        return [Some(Transfer { seconds, algorithm: Algorithm::Direct }), None];
    }
    let around =
        Transfer { seconds: ring(kind, bytes, n, link, eff), algorithm: Algorithm::Ring };
    // The switch adds up and multicasts: the buffer passes each link once, up and down at once.
    let reduces = kind == CollectiveKind::AllReduce && link.in_network_reduction;
    let in_switch = reduces.then(|| Transfer {
        seconds: (n + 1.0) / n * bytes / (link.bandwidth * eff) + 2.0 * link.latency_s,
        algorithm: Algorithm::InSwitch,
    });
    [Some(around), in_switch]
}

fn between(
    kind: CollectiveKind,
    bytes: f64,
    group: Group,
    cluster: &Cluster,
) -> [Option<Transfer>; 2] {
    let (link, eff) = (cluster.link(group.span()), cluster.efficiency.network);
    let n = group.ranks as f64;
    let local = group.local(cluster) as f64;
    let nodes = (n / local).ceil();
    if kind == CollectiveKind::AllToAll {
        let outside = (n - local) / n * bytes / (link.bandwidth * eff);
        let seconds = outside + (nodes - 1.0).min(8.0) * link.latency_s;
        return [Some(Transfer { seconds, algorithm: Algorithm::Direct }), None];
    }
    let link = Network { bandwidth: ring_bandwidth(group, cluster), ..link };
    // Rings through all members; a node's members share its interfaces.
    let nvlink = cluster.nvlink.bandwidth * cluster.efficiency.nvlink;
    let wide = (link.bandwidth * eff * local).min(nvlink);
    let latency = (nodes - 1.0) * link.latency_s + (n - nodes) * cluster.nvlink.latency_s;
    let around = passes(kind) * ((n - 1.0) / n * bytes / wide + latency);
    // Inside the node first: each member then rings its share between the nodes, where
    // trees replace rings if they are faster.
    let inner = Group { ranks: local as u64, stride: group.stride };
    let share = bytes / local;
    let within = if local > 1.0 {
        ring(kind, bytes, inner.ranks as f64, cluster.nvlink, cluster.efficiency.nvlink)
    } else {
        0.0
    };
    let ringed = ring(kind, share, nodes, link, eff);
    let depth = nodes.log2().ceil();
    let treed = passes(kind) * (share / (link.bandwidth * eff) + depth * link.latency_s);
    let (outer, algorithm) = match kind {
        CollectiveKind::AllReduce if treed < ringed => (treed, Algorithm::Tree),
        _ => (ringed, Algorithm::Hierarchical),
    };
    [
        Some(Transfer { seconds: around, algorithm: Algorithm::Ring }),
        Some(Transfer { seconds: within + outer, algorithm }),
    ]
}

/// Bandwidth of one interface for a ring over a group, bytes per second.
///
/// A ring enters and leaves a block of GPUs under one switch once, whatever the members inside: an
/// oversubscribed uplink slows it only where a block has fewer members than the oversubscription.
fn ring_bandwidth(group: Group, cluster: &Cluster) -> f64 {
    let full = cluster.network.bandwidth;
    let mut slowest = full;
    let mut block = u64::from(cluster.nvlink_domain);
    for tier in &cluster.tiers {
        if group.span() <= block {
            break;
        }
        let inside = (block / group.stride.max(1)).max(1) as f64;
        slowest = slowest.min(full * (inside / tier.oversubscription).min(1.0));
        block = tier.gpus;
    }
    slowest
}

/// Seconds to send a message to a GPU that is `span` GPUs away.
pub fn send_s(bytes: f64, span: u64, cluster: &Cluster) -> f64 {
    let link = cluster.link(span);
    let eff =
        if cluster.is_nvlink(span) { cluster.efficiency.nvlink } else { cluster.efficiency.network };
    bytes / (link.bandwidth * eff) + link.latency_s + cluster.efficiency.kernel_s
}
