"""The facts: what the data alone says about a candidate, before any transformation.

Gaps are in the stream's own time unit and -1 where there is no such event. Counts are counts. Features
(`tsnn.model.features`) and heuristics (`tsnn.evaluation.baselines`) are functions of these columns alone.
"""

FACTS = (
    "src_gap",  # since the source's last event, in any role
    "dst_gap",  # since the candidate's last event, in any role
    "dst_in_age",  # rows since the candidate was last a destination; -1 if it never was
    "src_count",  # events of the source, in any role
    "dst_count",
    "dst_in_count",  # events with the candidate as destination
    "dst_in_gap",  # since the candidate was last a destination
    "src_recent",  # events of the source, each fading by exp(-gap / activity_decay); a self-loop counts in both roles
    "src_in_share",  # the part of them as destination; a half where there are none
    "src_strength",  # their messages' mean length, fading likewise; 0 where there are none
    "dst_recent",
    "dst_in_share",
    "dst_strength",
    "pair_count",  # events source -> candidate, any relation
    "pair_gap",
    "pair_strength",  # length of the pair's last message
    "reverse_count",  # events candidate -> source
    "bank_count",  # alg:edgebank's count for (source, candidate, relation), inside the window where there is one
    "bank_gap",
    "cn_count",  # distinct common neighbors among the recent ones
    "cn_decayed",  # the same, each weighted by exp(-gap / cn_decay) of its last contact with the source and candidate
    "cn_adamic_adar",
    "cn_jaccard",
    "two_hop_count",  # paths source - neighbor - neighbor's neighbor (capped) - candidate
    "two_hop_share",
    "succ_count_1",  # moves from the source's last destination straight to the candidate, by anybody
    "succ_count_2",  # the same from the last but one
    "succ_count_3",
    "succ_share_1",  # that count over all moves from there
    "succ_share_2",
    "succ_share_3",
    "succ_pair_count",  # moves to the candidate by whoever had gone the source's last two destinations in this order
    "succ_pair_share",
    "walk_01",  # decayed walks of i steps from the source that meet walks of j steps from the candidate (walk_ij)
    "walk_02",
    "walk_10",
    "walk_11",
    "walk_12",
    "walk_20",
    "walk_21",
    "walk_22",
    "walk_cos_01",  # the same, over the geometric mean of the walks of either side with itself
    "walk_cos_02",
    "walk_cos_10",
    "walk_cos_11",
    "walk_cos_12",
    "walk_cos_20",
    "walk_cos_21",
    "walk_cos_22",
    "walk_src_1",  # walks of one step from the source that meet each other
    "walk_src_2",
    "walk_dst_1",
    "walk_dst_2",
)
COLUMN = {name: i for i, name in enumerate(FACTS)}
