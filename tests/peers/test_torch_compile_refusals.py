"""What `torch.compile(..., backend="tensorexpr")` refuses, and what it says."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make test-peers installs it)")

from tensorexpr.interop.torch.backend import backend  # noqa: E402


def refusal(function, options):
    """What a compiled function fails with at its first call; Dynamo's own error quotes that of the backend."""
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"torch\.compile: ") as caught:
        torch.compile(function, backend=backend, options=options)(torch.ones(4))
    return str(caught.value)


def test_an_option_that_there_is_not():
    said = refusal(torch.sin, {"fallbck": False})
    assert "torch.compile: backend tensorexpr: expected options among fallback, got 'fallbck'" in said


def test_operators_without_a_definition_where_pytorch_may_run_none():
    said = refusal(lambda x: torch.fft.rfft(x.tanh()).abs(), {"fallback": False})
    assert "torch.compile: expected a definition of every operator, got none of aten._fft_r2c.default" in said
    assert "without options={'fallback': False} PyTorch runs these" in said
