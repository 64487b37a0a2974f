"""The bilateral filter of the examples: what it computes, and that fitting its widths pays."""

import re

import numpy as np

import tensorexpr as te
from tensorexpr.codegen.auto.search import contest
from tensorexpr.examples import bilateral_filter as example


def test_fitting_the_widths_pays(capsys, monkeypatch):
    monkeypatch.setattr(contest, "WORTH", np.inf)  # what is fitted does not depend on nests, and three searches take ten seconds
    assert example.main(["--size", "32", "--steps", "40"]) == 0
    out = capsys.readouterr().out
    levels = [float(level) for level in re.findall(r"step +\d+ +([\d.]+) dB", out)]
    assert levels[-1] > levels[0] + 1.5
    noisy, filtered = map(float, re.search(r"another image: ([\d.]+) dB noisy, ([\d.]+) dB filtered", out).groups())
    assert filtered > noisy + 5


def test_the_filter_is_a_weighted_mean_of_neighbors():
    rng = np.random.default_rng(0)
    image, widths = rng.random((7, 6)), np.log([1.3, 0.4])
    padded = np.pad(image, 2, mode="reflect")
    expected = np.empty_like(image)
    for i, j in np.ndindex(image.shape):
        window = padded[i : i + 5, j : j + 5]
        away = np.add.outer(np.arange(-2, 3) ** 2, np.arange(-2, 3) ** 2)
        weight = np.exp(-away / (2 * 1.3**2) - (window - image[i, j]) ** 2 / (2 * 0.4**2))
        expected[i, j] = (weight * window).sum() / weight.sum()
    np.testing.assert_allclose(example.bilateral(image, widths, radius=2), expected, rtol=1e-12)
    te.check_gradient(example.bilateral, image, widths, radius=2)
