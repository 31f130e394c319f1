#ifndef FLOTILLA_TESTS_LEARNER_ALGO_SLOW_RECURRENT_H_
#define FLOTILLA_TESTS_LEARNER_ALGO_SLOW_RECURRENT_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "flotilla/v1/config.pb.h"
#include "learner/nn/network.h"
#include "learner/rollout/rollout.h"
#include "learner/torch.h"
#include "tests/learner/algo/random_rollout.h"

namespace flotilla {

inline v1::ModelConfig RecurrentModel(v1::RecurrentCell cell, int layers) {
  v1::ModelConfig model;
  model.add_hidden(6);
  model.set_recurrent(cell);
  model.set_recurrent_size(5);
  model.set_recurrent_layers(layers);
  return model;
}

// Of four rows or more: two steps are lost in one, the end in another.
inline Rollout RecurrentRollout(const Spaces& spaces, int64_t T, int64_t B,
                                int64_t state_size) {
  Rollout r = RandomRollout(spaces, T, B);
  r.initial_state = 0.5 * torch::randn({B, state_size});
  r.valid.narrow(0, 4, 2).narrow(1, 1, 1).fill_(0);
  r.valid.narrow(0, T - 3, 3).narrow(1, 2, 1).fill_(0);
  r.valid_steps = T * B - 5;
  return r;
}

// A recurrent network of one hidden layer (tanh), for vectors and one choice, one
// row and one step at a time, in float64, from the weights' names: trunk, cell,
// heads. Differentiable in `w`.
struct SlowRecurrent {
  std::map<std::string, torch::Tensor> w;
  v1::ModelConfig model;

  SlowRecurrent(const Network& net, const v1::ModelConfig& model)
      : model(model) {
    for (const NamedTensor& t : net.Named()) {
      w[t.name] = t.tensor.to(torch::kFloat64).clone().set_requires_grad(true);
    }
  }

  // What is said of the observation at step t of row b.
  struct Said {
    torch::Tensor log_softmax;  // [n]
    torch::Tensor value;        // []
  };

  // Plays through row b's T + 1 observations, from the initial state, forgetting
  // it wherever an episode begins; `see` gets each step in turn.
  void Replay(const Rollout& r, int64_t b,
              const std::function<void(int64_t t, const Said&)>& see) const {
    const int64_t H = model.recurrent_size();
    const int planes = model.recurrent() == v1::LSTM ? 2 : 1;
    // state[layer][plane]
    std::vector<std::vector<torch::Tensor>> state(model.recurrent_layers());
    for (int l = 0; l < model.recurrent_layers(); ++l) {
      for (int p = 0; p < planes; ++p) {
        state[l].push_back(r.initial_state[b]
                               .narrow(0, (l * planes + p) * H, H)
                               .to(torch::kFloat64));
      }
    }
    for (int64_t t = 0; t <= r.length; ++t) {
      if (t > 0 && (r.terminated[t - 1][b].item<uint8_t>() ||
                    r.truncated[t - 1][b].item<uint8_t>() ||
                    !r.valid[t - 1][b].item<uint8_t>())) {
        for (auto& layer : state) {
          for (torch::Tensor& plane : layer) plane = torch::zeros_like(plane);
        }
      }
      torch::Tensor x = torch::tanh(
          torch::mv(w.at("trunk.0.weight"),
                    r.observation.leaf(0)[t][b].to(torch::kFloat64)) +
          w.at("trunk.0.bias"));
      for (int l = 0; l < model.recurrent_layers(); ++l) {
        state[l] = Cell(std::to_string(l), x, state[l]);
        x = state[l][0];
      }
      see(t, {torch::log_softmax(
                  torch::mv(w.at("policy.weight"), x) + w.at("policy.bias"), 0),
              (torch::mv(w.at("value.weight"), x) + w.at("value.bias"))[0]});
    }
  }

 private:
  std::vector<torch::Tensor> Cell(const std::string& layer,
                                  const torch::Tensor& x,
                                  std::vector<torch::Tensor> before) const {
    using torch::sigmoid;
    const bool lstm = model.recurrent() == v1::LSTM;
    const std::string name = lstm ? "lstm." : "gru.";
    const auto weight = [&](const std::string& what) {
      return w.at(name + what + "_l" + layer);
    };
    const torch::Tensor from_x =
        torch::mv(weight("weight_ih"), x) + weight("bias_ih");
    const torch::Tensor from_h =
        torch::mv(weight("weight_hh"), before[0]) + weight("bias_hh");
    const auto a = from_x.chunk(lstm ? 4 : 3), b = from_h.chunk(lstm ? 4 : 3);
    if (lstm) {
      const torch::Tensor c = sigmoid(a[1] + b[1]) * before[1] +
                              sigmoid(a[0] + b[0]) * torch::tanh(a[2] + b[2]);
      return {sigmoid(a[3] + b[3]) * torch::tanh(c), c};
    }
    const torch::Tensor r = sigmoid(a[0] + b[0]), z = sigmoid(a[1] + b[1]);
    const torch::Tensor n = torch::tanh(a[2] + r * b[2]);
    return {(1 - z) * n + z * before[0]};
  }
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_ALGO_SLOW_RECURRENT_H_
