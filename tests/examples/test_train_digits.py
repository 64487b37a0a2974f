"""The digits of the examples: the network learns them, and a run that was interrupted goes on bit for bit."""

import re

import numpy as np

from tensorexpr.examples import train_digits


def test_the_network_learns_the_digits_in_one_compiled_step(capsys):
    assert train_digits.main(["--quiet"]) == 0
    out = capsys.readouterr().out
    assert float(re.search(r"test accuracy ([\d.]+) %", out).group(1)) >= 97
    assert float(re.search(r"after five steps the weights of both differ by at most (\S+)", out).group(1)) < 1e-6
    assert re.search(r"traced and compiled a step \(loss, six gradients, update\) in [\d.]+ s: \d+ kernels", out)


def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path):
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"

    def train(epochs, file):
        training = train_digits.Training(0, 3 * 11)
        if file.exists():
            train_digits.te.load_state(training, file)
        return train_digits.train(training, epochs, 128, 0, file)[1]

    assert train(3, whole) == 33
    assert (train(1, parts), train(3, parts)) == (11, 22)
    assert whole.read_bytes() == parts.read_bytes()


def test_the_look_inside_shows_every_stage(capsys):
    train_digits.look_inside(train_digits.Console(width=200), 4)
    out = capsys.readouterr().out
    assert "def kernel_" in out and "lowering" in out and "conv2d[" in out


def test_the_same_in_numpy():
    images, labels, _, _ = train_digits.load_data()
    training = train_digits.Training(1, 10)
    numpy = train_digits.NumpyTraining(training)
    for _ in range(3):
        np.testing.assert_allclose(training.step(images[:8], labels[:8]), numpy.step(images[:8], labels[:8]), rtol=1e-5)
