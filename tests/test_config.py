"""Settings: what is wrong is said in one sentence."""

from __future__ import annotations

import pytest

from tsnn.config import Config
from tsnn.errors import ConfigError

REFUSED = {
    "train.foo": (1, "there is no setting train.foo; "),
    "train.visibility": ("later", "'later' is none of strict, arrival, batch:N; for example batch:200.$"),
    "train.engine": ("cuda", "configuration train: engine = cuda needs device = cuda.$"),
    "model.stalk_dim": (0, "configuration model.stalk_dim: .* greater than 0.$"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_setting_gets_one_sentence(name):
    value, sentence = REFUSED[name]
    with pytest.raises(ConfigError, match=sentence) as refused:
        Config.build(overrides={name: value})
    assert "Value error" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_is_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match="is a folder; name a TOML file"):
        Config.build(tmp_path)
