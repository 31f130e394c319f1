#include "learner/nn/recurrent.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "learner/torch_nn.h"

namespace flotilla {
namespace {

using torch::Tensor;

constexpr int64_t kT = 7, kB = 3, kI = 4, kH = 5;

struct Problem {
  explicit Problem(v1::RecurrentCell cell, int64_t width = kH)
      : cell(cell), H(width) {
    torch::manual_seed(5);
    const int64_t GH = RecurrentGates(cell) * H;
    weights = {Draw({GH, kI}), Draw({GH, H}), Draw({GH}), Draw({GH})};
    input = Draw({kT, kB, kI});
    state = Draw({kB, RecurrentPlanes(cell) * H});
    keep = torch::ones({kT, kB, 1}, torch::kFloat64);
  }

  static Tensor Draw(torch::IntArrayRef shape) {
    return 0.5 * torch::randn(shape, torch::kFloat64);
  }

  // An episode begins at two places in the middle, twice in a row, and at the
  // last step.
  void Reset() { keep[3][0] = keep[3][1] = keep[4][1] = keep[kT - 1][2] = 0; }

  RecurrentOutput Run() const {
    return RunRecurrent(cell, weights, input, state, keep);
  }

  v1::RecurrentCell cell;
  int64_t H;
  RecurrentWeights weights;
  Tensor input, state, keep;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One number at a time, from the equations in torch.nn.LSTM's and GRU's pages.
std::vector<double> SlowLoop(const Problem& p, Tensor* last) {
  auto at = [](const Tensor& m, int64_t i, int64_t j) {
    return m[i][j].item<double>();
  };
  std::vector<double> outputs(kT * kB * kH);
  *last = p.state.clone();
  for (int64_t b = 0; b < kB; ++b) {
    std::vector<double> h(kH), c(kH);
    for (int64_t k = 0; k < kH; ++k) {
      h[k] = at(p.state, b, k);
      if (p.cell == v1::LSTM) c[k] = at(p.state, b, kH + k);
    }
    for (int64_t t = 0; t < kT; ++t) {
      if (p.keep[t][b][0].item<double>() == 0) {
        h.assign(kH, 0);
        c.assign(kH, 0);
      }
      auto from_x = [&](int64_t gate, int64_t k) {
        const int64_t row = gate * kH + k;
        double sum = p.weights.bias_ih[row].item<double>();
        for (int64_t i = 0; i < kI; ++i) {
          sum +=
              at(p.weights.weight_ih, row, i) * p.input[t][b][i].item<double>();
        }
        return sum;
      };
      auto from_h = [&](int64_t gate, int64_t k) {
        const int64_t row = gate * kH + k;
        double sum = p.weights.bias_hh[row].item<double>();
        for (int64_t i = 0; i < kH; ++i) {
          sum += at(p.weights.weight_hh, row, i) * h[i];
        }
        return sum;
      };
      std::vector<double> next(kH);
      for (int64_t k = 0; k < kH; ++k) {
        auto gate = [&](int64_t g) { return from_x(g, k) + from_h(g, k); };
        if (p.cell == v1::LSTM) {
          c[k] =
              Sigmoid(gate(1)) * c[k] + Sigmoid(gate(0)) * std::tanh(gate(2));
          next[k] = Sigmoid(gate(3)) * std::tanh(c[k]);
        } else {
          const double r = Sigmoid(gate(0)), z = Sigmoid(gate(1));
          const double n = std::tanh(from_x(2, k) + r * from_h(2, k));
          next[k] = (1 - z) * n + z * h[k];
        }
      }
      h = next;
      for (int64_t k = 0; k < kH; ++k) outputs[(t * kB + b) * kH + k] = h[k];
    }
    for (int64_t k = 0; k < kH; ++k) {
      (*last)[b][k] = h[k];
      if (p.cell == v1::LSTM) (*last)[b][kH + k] = c[k];
    }
  }
  return outputs;
}

class RecurrentTest : public testing::TestWithParam<v1::RecurrentCell> {};

TEST_P(RecurrentTest, IsTheEquationsWithResetsInTheMiddle) {
  Problem p(GetParam());
  for (bool reset : {false, true}) {
    if (reset) p.Reset();
    Tensor last;
    const std::vector<double> want = SlowLoop(p, &last);
    for (bool gradients : {false, true}) {
      torch::AutoGradMode mode(gradients);
      const RecurrentOutput got = p.Run();
      const double* output = got.output.data_ptr<double>();
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(output[i], want[i], 1e-12) << i;
      }
      EXPECT_EQ(got.state.defined(), !gradients);
      if (gradients) continue;
      EXPECT_TRUE(torch::allclose(got.state, last, 0, 1e-12));
    }
  }
}

TEST_P(RecurrentTest, StepsOneAtATimeEqualAllAtOnce) {
  Problem p(GetParam());
  p.Reset();
  torch::NoGradGuard no_grad;
  const RecurrentOutput whole = p.Run();
  Tensor state = p.state;
  for (int64_t t = 0; t < kT; ++t) {
    const RecurrentOutput step =
        RunRecurrent(p.cell, p.weights, p.input.narrow(0, t, 1), state,
                     p.keep.narrow(0, t, 1));
    EXPECT_TRUE(torch::allclose(step.output[0], whole.output[t], 0, 1e-12));
    state = step.state;
  }
  EXPECT_TRUE(torch::allclose(state, whole.state, 0, 1e-12));
}

// A sequence does not know how the others are shared out.
TEST_P(RecurrentTest, HowManyThreadsDoesNotMatter) {
  Problem p(GetParam());
  p.Reset();
  const int before = at::get_num_threads();
  std::vector<Tensor> outputs;
  for (int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    torch::NoGradGuard no_grad;
    outputs.push_back(p.Run().output);
  }
  at::set_num_threads(before);
  EXPECT_TRUE(torch::allclose(outputs[1], outputs[0], 0, 1e-14));
  EXPECT_TRUE(torch::allclose(outputs[2], outputs[0], 0, 1e-14));
}

TEST_P(RecurrentTest, WeightsAreTorchs) {
  Problem p(GetParam());
  auto take = [&](auto module) {
    module->to(torch::kFloat64);
    torch::NoGradGuard no_grad;
    auto named = module->named_parameters();
    named["weight_ih_l0"].copy_(p.weights.weight_ih);
    named["weight_hh_l0"].copy_(p.weights.weight_hh);
    named["bias_ih_l0"].copy_(p.weights.bias_ih);
    named["bias_hh_l0"].copy_(p.weights.bias_hh);
  };
  Tensor want;
  const Tensor h = p.state.narrow(1, 0, kH).unsqueeze(0).contiguous();
  if (p.cell == v1::LSTM) {
    torch::nn::LSTM lstm(kI, kH);
    take(lstm);
    const Tensor c = p.state.narrow(1, kH, kH).unsqueeze(0).contiguous();
    want = std::get<0>(lstm->forward(p.input, std::make_tuple(h, c)));
  } else {
    torch::nn::GRU gru(kI, kH);
    take(gru);
    want = std::get<0>(gru->forward(p.input, h));
  }
  EXPECT_TRUE(torch::allclose(p.Run().output, want, 0, 1e-12));
}

TEST_P(RecurrentTest, GradientsAreTheFiniteDifferences) {
  Problem p(GetParam());
  p.Reset();
  const Tensor direction = Problem::Draw({kT, kB, kH});
  const std::vector<Tensor> variables = {p.input, p.weights.weight_ih,
                                         p.weights.weight_hh, p.weights.bias_ih,
                                         p.weights.bias_hh};
  for (const Tensor& v : variables) v.set_requires_grad(true);
  (p.Run().output * direction).sum().backward();
  constexpr double kStep = 1e-6;
  torch::NoGradGuard no_grad;
  for (size_t v = 0; v < variables.size(); ++v) {
    double* value = variables[v].data_ptr<double>();
    const double* gradient = variables[v].grad().data_ptr<double>();
    for (int64_t i = 0; i < variables[v].numel(); ++i) {
      const double before = value[i];
      auto loss_at = [&](double x) {
        value[i] = x;
        return (p.Run().output * direction).sum().item<double>();
      };
      const double slope =
          (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
      value[i] = before;
      ASSERT_NEAR(gradient[i], slope, 1e-7) << "variable " << v << " at " << i;
    }
  }
}

// Float32, as runs have it, takes other ways on a CPU; float64 is what the tests
// above hold to the equations.
TEST_P(RecurrentTest, Float32IsFloat64Rounded) {
  // A rest, whole vectors, and so wide that one step is Torch's.
  for (const int64_t width : {kH, int64_t{16}, int64_t{48}, int64_t{272}}) {
    Problem exact(GetParam(), width);
    exact.weights.weight_hh.mul_(std::sqrt(1.0 * kH / width));  // of like sums
    exact.Reset();
    Problem rounded = exact;
    const auto variables = [](Problem& p) {
      return std::vector<Tensor*>{&p.input, &p.weights.weight_ih,
                                  &p.weights.weight_hh, &p.weights.bias_ih,
                                  &p.weights.bias_hh};
    };
    const Tensor direction = Problem::Draw({kT, kB, exact.H});
    for (Tensor* v : variables(rounded)) *v = v->to(torch::kFloat32);
    rounded.state = rounded.state.to(torch::kFloat32);
    rounded.keep = rounded.keep.to(torch::kFloat32);
    {
      torch::NoGradGuard no_grad;
      const RecurrentOutput want = exact.Run(), got = rounded.Run();
      EXPECT_LT((got.output - want.output).abs().max().item<double>(), 1e-6);
      EXPECT_LT((got.state - want.state).abs().max().item<double>(), 1e-6);
      // As actors have it: a step at a time, the state a part of a larger one.
      const int64_t S = rounded.state.size(1);
      Tensor states = torch::zeros({kB, 2 * S});
      states.narrow(1, S, S).copy_(rounded.state);
      for (int64_t t = 0; t < kT; ++t) {
        const RecurrentOutput step = RunRecurrent(
            rounded.cell, rounded.weights, rounded.input.narrow(0, t, 1),
            states.narrow(1, S, S), rounded.keep.narrow(0, t, 1));
        EXPECT_TRUE(torch::allclose(step.output[0], got.output[t], 0, 1e-6));
        states.narrow(1, S, S).copy_(step.state);
      }
      EXPECT_TRUE(torch::allclose(states.narrow(1, S, S), got.state, 0, 1e-6));
    }
    for (Problem* p : {&exact, &rounded}) {
      for (Tensor* v : variables(*p)) v->set_requires_grad(true);
      (p->Run().output * direction).sum().backward();
    }
    const auto want = variables(exact), got = variables(rounded);
    for (size_t v = 0; v < want.size(); ++v) {
      const Tensor difference = got[v]->grad() - want[v]->grad();
      EXPECT_LT(difference.abs().max().item<double>(), 5e-6) << v;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrentTest,
                         testing::Values(v1::LSTM, v1::GRU));

}  // namespace
}  // namespace flotilla
