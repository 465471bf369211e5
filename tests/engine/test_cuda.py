"""`device = "cuda"`: parameters, scores, losses and optimizer on the GPU, the same results to float32 tolerance."""

from __future__ import annotations

import pytest
import torch

from tests.engine.streams import config_of
from tests.test_contracts import ask, tied_stream
from tsnn.data.split import split_by_time
from tsnn.errors import ConfigError
from tsnn.evaluation.model import ModelScorer
from tsnn.evaluation.scorer import score_queries
from tsnn.training.trainer import Trainer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is at hand")


def trained(device: str, **switches: object) -> Trainer:
    settings = {"train__device": device, "train__dtype": "float32", "train__chunk": 10, "train__warmup": 2, **switches}
    trainer = Trainer(config_of(**settings), split_by_time(tied_stream()), lambda model: 0.0)
    trainer.run()
    return trainer


@needs_gpu
@pytest.mark.parametrize("switch", [{}, {"model__attention": True, "features__transported_difference": True}])
@pytest.mark.parametrize("engine", ["fused", "reference"])
def test_training_and_scoring_agree_with_the_cpu(engine, switch):
    stream = tied_stream()
    options = {"train__epochs": 1, "train__engine": engine, **switch}
    on_cpu, on_gpu = trained("cpu", **options), trained("cuda", **options)
    assert on_gpu.model.device.type == "cuda"
    for name, value in on_cpu.model.state_dict().items():
        torch.testing.assert_close(on_gpu.model.state_dict()[name].cpu(), value, rtol=1e-3, atol=1e-3, msg=name)
    queries = ask(stream, "strict")
    scores = [torch.tensor(score_queries(ModelScorer(t.model, stream), stream, queries)) for t in (on_cpu, on_gpu)]
    torch.testing.assert_close(*scores, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is at hand")
def test_without_a_gpu_the_setting_is_refused():
    with pytest.raises(ConfigError, match="no GPU"):
        trained("cuda")
