"""What the networks of learner/nn are made of: layers that take a checkpoint's tensors by their names."""

import torch
from torch import nn
from torch.nn import functional

from flotilla import spaces as sp
from flotilla.errors import Error
from flotilla.run import messages


class Tensors:
    """Gives a checkpoint's tensors to the modules that hold them, each once."""

    def __init__(self, weights, root):
        self._left = dict(weights)
        self._root = root

    def take(self, name, shape):
        """The parameter `name` of the root module."""
        array = self._left.pop(name, None)
        if array is None or list(array.shape) != list(shape):
            has = "none of that name" if array is None else f"one of {list(array.shape)}"
            raise Error(f'the checkpoint is of another network than its configuration\'s: want a tensor "{name}" of {list(shape)}, there is {has}')
        *folders, last = name.split(".")
        holder = self._root
        for folder in folders:
            folder = folder or "_"
            if folder not in holder._modules:
                holder.add_module(folder, nn.Module())
            holder = holder._modules[folder]
        parameter = nn.Parameter(torch.tensor(array))
        holder.register_parameter(last, parameter)
        return Slot(holder, last)

    def finish(self):
        if self._left:
            raise Error(f"the checkpoint is of another network than its configuration's: nothing takes {sorted(self._left)}")


class Slot:
    """A parameter where its module holds it, whatever it is moved or copied to."""

    def __init__(self, holder, name):
        self._holder, self._name = holder, name

    def __call__(self):
        return getattr(self._holder, self._name)


class Layer:
    """Linear, or with a stride a convolution."""

    def __init__(self, tensors, name, shape, stride=0, padding=0):
        self.weight, self.bias = tensors.take(name + ".weight", shape), tensors.take(name + ".bias", shape[:1])
        self.stride, self.padding = stride, padding

    def __call__(self, x):
        if self.stride:
            return functional.conv2d(x, self.weight(), self.bias(), self.stride, self.padding)
        return functional.linear(x.flatten(1) if x.dim() > 2 else x, self.weight(), self.bias())


def mlp(tensors, name, inputs, widths):
    layers = []
    for i, width in enumerate(widths):
        layers.append(Layer(tensors, f"{name}.{2 * i}", [width, inputs]))
        inputs = width
    return layers


def run(layers, x, relu, activate_last=True):
    for i, layer in enumerate(layers):
        x = layer(x)
        if activate_last or i + 1 < len(layers):
            x = torch.relu(x) if relu else torch.tanh(x)
    return x


class LeafNet:
    """What one leaf goes through."""

    def __init__(self, tensors, name, encoder, relu):
        c = messages()[0]
        self.leaf, self.resnet, self.table = encoder.leaf, encoder.encoder == c.RESNET, None
        self.relu = relu or self.leaf.kind == sp.IMAGE
        flat, inputs = sp.flat_width(encoder), self.leaf.stack * self.leaf.channels
        if encoder.encoder == c.NATURE_CNN:
            a, b, d = encoder.channels
            self.layers = [
                Layer(tensors, f"{name}.0", [a, inputs, 8, 8], 4),
                Layer(tensors, f"{name}.2", [b, a, 4, 4], 2),
                Layer(tensors, f"{name}.4", [d, b, 3, 3], 1),
                Layer(tensors, f"{name}.7", [encoder.hidden[-1], flat]),
            ]
        elif self.resnet:
            self.layers = []
            for stage, width in enumerate((16, 32, 32)):
                for part in ("conv", "res_block0.conv0", "res_block0.conv1", "res_block1.conv0", "res_block1.conv1"):
                    self.layers.append(Layer(tensors, f"{name}.{stage}.{part}", [width, inputs, 3, 3], 1, 1))
                    inputs = width
            self.layers.append(Layer(tensors, f"{name}.5", [encoder.hidden[-1], flat]))
        elif encoder.encoder == c.EMBEDDING:
            self.table = tensors.take(f"{name}.embedding.weight", [sum(self.leaf.num_values), encoder.hidden[0]])
            self.offset = [sum(self.leaf.num_values[:i]) for i in range(len(self.leaf.num_values))]
            self.layers = mlp(tensors, name, flat, encoder.hidden[1:])
        else:
            self.layers = mlp(tensors, name, flat, encoder.hidden)
        last = self.layers[-1].weight().shape[0] if self.layers else flat
        self.width = int(last)

    def __call__(self, x, activate_last=True):
        if self.table is not None:
            x = functional.embedding(x + torch.tensor(self.offset, device=x.device), self.table()).flatten(1)
        elif self.leaf.kind == sp.IMAGE:
            x = self._channels_first(x)
        else:
            x = x.flatten(1)
        if not self.resnet:
            return run(self.layers, x, self.relu, activate_last)
        *convolutions, last = self.layers
        for first, a, b, c, d in zip(*[iter(convolutions)] * 5):
            x = functional.max_pool2d(first(x), 3, 2, 1)
            x = x + b(torch.relu(a(torch.relu(x))))
            x = x + d(torch.relu(c(torch.relu(x))))
        return run([last], torch.relu(x).flatten(1), self.relu, activate_last)

    def _channels_first(self, x):
        """[N, k, ...] as [N, k * C, H, W] float32."""
        if x.dtype == torch.uint8:
            x = x.to(torch.float32) * (1.0 / 255.0)
        if len(self.leaf.shape) == 2:
            return x
        return (x.permute(0, 1, 4, 2, 3) if self.leaf.channels_last else x).flatten(1, 2)


class Encoder:
    """From encoded leaves to features."""

    def __init__(self, tensors, name, spaces, model):
        c = messages()[0]
        encoders, trunk = sp.plan(spaces, model)
        self.relu = model.activation == c.RELU
        self.leaves = []
        for e in encoders:
            own = f"{name}.leaf" + (f".{e.leaf.path}" if e.leaf.path else "") if trunk else name
            self.leaves.append(LeafNet(tensors, own, e, self.relu))
        self.relu |= any(e.leaf.kind == sp.IMAGE for e in encoders)
        for leaf in self.leaves:
            leaf.relu |= self.relu
        width = sum(leaf.width for leaf in self.leaves)
        self.trunk = mlp(tensors, name, width, trunk)
        self.features = trunk[-1] if trunk else width

    def __call__(self, leaves, activate_last=True):
        if not self.trunk:
            return self.leaves[0](leaves[0], activate_last)
        return run(self.trunk, torch.cat([leaf(x) for leaf, x in zip(self.leaves, leaves)], 1), self.relu)


class Recurrent:
    """Layers of one step each. A row of state holds h, or h and c, of the first layer, then those of the next."""

    def __init__(self, tensors, model, features):
        c = messages()[0]
        self.lstm, self.size = model.recurrent == c.LSTM, model.recurrent_size
        gates, self.layers = (4 if self.lstm else 3) * self.size, []
        for i in range(model.recurrent_layers):
            inputs = features if i == 0 else self.size
            shapes = {"weight_ih": [gates, inputs], "weight_hh": [gates, self.size], "bias_ih": [gates], "bias_hh": [gates]}
            cell = "lstm" if self.lstm else "gru"
            self.layers.append([tensors.take(f"{cell}.{name}_l{i}", shape) for name, shape in shapes.items()])
        self.state_size = len(self.layers) * self.size * (2 if self.lstm else 1)

    def __call__(self, x, state):
        after, rows = [], self.state_size // len(self.layers)
        for i, layer in enumerate(self.layers):
            w_ih, w_hh, b_ih, b_hh = (slot() for slot in layer)
            before = state[:, i * rows : (i + 1) * rows]
            if self.lstm:
                h, c = before[:, : self.size], before[:, self.size :]
                gates = functional.linear(x, w_ih, b_ih) + functional.linear(h, w_hh, b_hh)
                i_, f, g, o = gates.chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i_) * torch.tanh(g)
                x = torch.sigmoid(o) * torch.tanh(c)
                after += [x, c]
            else:
                r_x, z_x, n_x = functional.linear(x, w_ih, b_ih).chunk(3, 1)
                r_h, z_h, n_h = functional.linear(before, w_hh, b_hh).chunk(3, 1)
                z, n = torch.sigmoid(z_x + z_h), torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
                x = n + z * (before - n)
                after.append(x)
        return x, torch.cat(after, 1)
