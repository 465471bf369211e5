"""Labels do not size memory, and times that fall together are told."""

from __future__ import annotations

import numpy as np
import pytest

from tsnn.config import Config
from tsnn.data.dgb import load_dgb
from tsnn.data.events import make_stream
from tsnn.errors import ConfigError, InputError


def test_a_huge_number_of_a_relation_or_a_type_is_refused():
    with pytest.raises(InputError, match="edge_type holds the number 1000000000; number the kinds"):
        make_stream([1, 2], [3, 4], [1, 2], edge_type=[0, 10**9])
    with pytest.raises(InputError, match="node_type holds the number"):
        make_stream([1, 2], [3, 4], [1, 2], node_type={1: 0, 2: 1, 3: 10**9, 4: 0})
    assert make_stream([1, 2], [3, 4], [1, 2], edge_type=[0, 10**5]).num_relations == 10**5 + 1


def test_a_huge_id_of_a_dgb_file_is_refused(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "ml_toy.csv").write_text(",u,i,ts,label,idx\n0,1,2,0,0,1\n1,1,200000000,1,0,2\n")
    with pytest.raises(InputError, match="node 200000000, but only 2 events"):
        load_dgb(folder)


def test_nanoseconds_that_fall_together_are_told():
    apart = np.datetime64("2024-01-01T00:00:00", "ns") + np.arange(60)
    with pytest.raises(InputError, match="60 different times are only 1 in microseconds"):
        make_stream(np.arange(60), np.arange(60), apart)
    coarse = np.datetime64("2024-01-01T00:00:00", "ns") + 1000 * np.arange(60)
    assert len(np.unique(make_stream(np.arange(60), np.arange(60), coarse).t)) == 60


def test_settings_beyond_all_use_are_refused(tmp_path):
    for name, value in {"model.kappa": 1e38, "train.seed": 10**20}.items():
        with pytest.raises(ConfigError):
            Config.build(overrides={name: value})
    with pytest.raises(ConfigError):
        Config.build(overrides={"train.seed": 10**20})
    (tmp_path / "config.toml").write_bytes("[train]\n# käse\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        Config.build(tmp_path / "config.toml")
