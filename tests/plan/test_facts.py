"""The table of facts: what is derived from it is complete, and stands where saved runs expect it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts import fact_table
from tsnn.config import FeatureConfig
from tsnn.model.features import feature_names
from tsnn.plan.facts import AT, BLOCKS, COLUMN, FACTS, RULES, UNSEEN

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ("succ_count_", "succ_share_", "walk_cos_")
# The weights of a saved run belong to these columns, in this order.
PSI = """
lg src_gap, lg dst_gap, lg pair_gap, lg bank_gap, lg dst_in_gap, log pair_count, log reverse_count, log bank_count,
log cn_count, log two_hop_count, log succ_count_1, log succ_count_2, log succ_count_3, log succ_pair_count,
log src_count, log dst_count, log dst_in_count, log src_recent, log dst_recent, log src_strength, log dst_strength,
log pair_strength, log walk_01, log walk_02, log walk_10, log walk_11, log walk_12, log walk_20, log walk_21,
log walk_22, log walk_src_1, log walk_dst_1, log walk_src_2, log walk_dst_2, never src_gap, never dst_gap,
never pair_gap, never bank_gap, never dst_in_gap, cn_decayed, cn_adamic_adar, cn_jaccard, two_hop_share, succ_share_1,
succ_share_2, succ_share_3, succ_pair_share, src_in_share, dst_in_share, walk_cos_01, walk_cos_02, walk_cos_10,
walk_cos_11, walk_cos_12, walk_cos_20, walk_cos_21, walk_cos_22
"""


def test_the_columns_of_psi_stand_where_saved_runs_expect_them() -> None:
    assert ", ".join(feature_names(FeatureConfig())) == " ".join(PSI.split())


def test_every_block_is_a_switch() -> None:
    assert set(BLOCKS) <= set(FeatureConfig.model_fields)
    assert all(isinstance(getattr(FeatureConfig(), block), bool) for block in BLOCKS)


def test_facts_are_named_once_and_reached_by_name() -> None:
    assert len({fact.name for fact in FACTS}) == len(FACTS) == len(UNSEEN)
    assert AT._asdict() == COLUMN
    assert {rule for fact in FACTS for rule in fact.rules} == set(RULES)


@pytest.mark.parametrize("family", FAMILIES)
def test_numbered_facts_stay_together(family: str) -> None:
    """Compiled code counts on from the first of them."""
    columns = [column for name, column in COLUMN.items() if name.startswith(family)]
    assert columns == list(range(columns[0], columns[0] + len(columns)))


def test_walks_of_either_side_alternate() -> None:
    columns = [AT.walk_src_1, AT.walk_dst_1, AT.walk_src_2, AT.walk_dst_2]
    assert columns == list(range(columns[0], columns[0] + 4))


def test_what_was_never_seen_is_minus_one_for_gaps_and_a_half_for_the_roles() -> None:
    unseen = dict(zip(COLUMN, UNSEEN.tolist(), strict=True))
    assert {name for name, value in unseen.items() if value < 0} == {
        name for name in COLUMN if name.endswith(("_gap", "_age"))
    }
    assert unseen["src_in_share"] == unseen["dst_in_share"] == 0.5


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_the_words_of_a_fact_name_one_node_or_both(fact) -> None:
    says = fact.says.format(src="user3", dst="item21")
    assert "{" not in says
    assert "user3" in says or "item21" in says
    assert fact.name not in says


def test_the_page_is_current() -> None:
    assert (ROOT / fact_table.PAGE).read_text(encoding="utf-8") == fact_table.page()


def test_unseen_values_are_not_shared_with_a_caller() -> None:
    assert UNSEEN.dtype == np.float64
    assert not UNSEEN.flags.writeable
