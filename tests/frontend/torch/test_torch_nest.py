"""A module's state by torch's names, for what `from_torch` compiled."""

import copy
import pickle

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import BadArgument

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    """A tied weight, an unused one, and two integer buffers of which one is read."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("places", torch.tensor([2, 0, 1]))

    def forward(self, x):
        return self.norm(self.second(self.first(x))) + self.places


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def nest(model):
    return pf.from_torch(model, (torch.randn(4, 3),))


def test_names(nest) -> None:
    assert nest.weights["first.weight"] == nest.weights["second.weight"] == "first_weight"
    assert nest.weights["norm.running_var"] == "norm_running_var"
    assert nest.weights["unused"] == nest.weights["norm.num_batches_tracked"] == ""
    assert list(nest.folded) == ["places"]


def test_a_state_is_loaded_by_torch_names(model, nest) -> None:
    net, other = pf.compile(nest), Net().eval()
    other.norm.num_batches_tracked += 5  # no result depends on it
    state = other.state_dict()
    arrays = nest.arrays_of(state)
    assert np.shares_memory(arrays["first_bias"], state["first.bias"].numpy())
    net.replace_constants(arrays)
    x = torch.randn(4, 3)
    with torch.no_grad():
        assert torch.allclose(net(x), other(x), atol=1e-6)


def test_what_cannot_be_loaded(model, nest) -> None:
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(BadArgument, match=r"it has no first.bias; net has no bias"):
        nest.arrays_of({("bias" if name == "first.bias" else name): one for name, one in state.items()})
    with pytest.raises(BadArgument, match=r"first.weight and second.weight are one tensor in net"):
        nest.arrays_of({**state, "second.weight": torch.zeros(3, 3)})
    with pytest.raises(BadArgument, match=r"places has other values .* make the nest again"):
        nest.arrays_of({**state, "places": torch.tensor([0, 1, 2])})


def test_a_pickled_nest_and_one_of_sizes_keep_the_names(nest) -> None:
    again = pickle.loads(pickle.dumps(nest))
    assert again == nest
    assert again.weights == nest.weights
    assert list(again.folded) == ["places"]
