"""The char-rnn's training half: no copies forward or backward, and the losses that torch has."""

import numpy as np

from papers.nngraph_60_char_rnn.experiment import CURVE_ERROR, training_steps
from papers.nngraph_60_char_rnn.model import Network
from papers.nngraph_60_char_rnn.training import first_network, torch_losses, trained
from papers.places import place


def test_views_are_read_through_forward_and_backward() -> None:
    before, after = training_steps(Network.drawn(6, 8, depth=1), 3, place("cpu"))
    assert before["copies"] > after["copies"] == 0
    assert after["kernels"] < before["kernels"] / 4


def test_the_losses_are_those_of_torch() -> None:
    expected = torch_losses()[:20]
    np.testing.assert_allclose(trained(first_network(), 20, target="cpu"), expected, rtol=CURVE_ERROR)
