#include "learner/algo/td_loss.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "learner/algo/gradient_step.h"
#include "learner/collective/solo_collective.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

QNetwork MakeNet(uint64_t seed, bool dueling = true, bool masked = false,
                 int hidden = 16) {
  v1::ModelConfig config;
  config.add_hidden(hidden);
  config.set_activation(v1::RELU);
  QNetwork net =
      QNetwork::Make(masked ? MaskedSpaces(4, {3}) : VectorSpaces(4, 3), config,
                     dueling, torch::kCPU)
          .value();
  net.Initialize(seed);
  return net;
}

// Whose encoder kernels take, and so learn from some of a batch's rows alone.
QNetwork MakeFramesNet(uint64_t seed, bool dueling) {
  v1::ModelConfig config;
  for (const int channels : {16, 16, 32}) config.add_conv_channels(channels);
  config.add_hidden(176);
  QNetwork net =
      QNetwork::Make(AtariSpaces(3), config, dueling, torch::kCPU).value();
  net.Initialize(seed);
  return net;
}

// Of more or fewer lit pixels, so that not all rows are judged alike.
torch::Tensor RandomFrames(int64_t N) {
  const torch::Tensor lit =
      torch::rand({N, 4, 84, 84}) < torch::rand({N, 4, 1, 1});
  return (lit * torch::randint(0, 256, {N, 4, 84, 84})).to(torch::kUInt8);
}

ReplayBatch RandomBatch(int64_t N, bool frames = false) {
  const auto seen = [&] {
    return frames ? RandomFrames(N) : torch::randn({N, 4});
  };
  ReplayBatch batch;
  batch.observation = {{seen()}};
  batch.next_observation = {{seen()}};
  batch.action.discrete = torch::randint(0, 3, {N, 1}, torch::kInt64);
  batch.n_step_return = torch::randn({N}) * 2;
  batch.discount = (torch::rand({N}) < 0.8).to(torch::kFloat32) * 0.9;
  batch.weight = torch::rand({N});
  return batch;
}

struct Case {
  bool double_q, huber, kernels, dueling = true, masked = false;
  int threads = 1;
  bool frames = false;
};

class TdLossTest : public testing::TestWithParam<Case> {
 protected:
  TdLossTest() { at::set_num_threads(GetParam().threads); }
  ~TdLossTest() override { at::set_num_threads(1); }
};

// The largest of what `allowed` allows, or of all if that is nothing.
int64_t Best(const float* q, const uint8_t* allowed, int64_t A) {
  const bool any =
      std::any_of(allowed, allowed + A, [](uint8_t one) { return one != 0; });
  int64_t best = -1;
  for (int64_t a = 0; a < A; ++a) {
    if (any && allowed[a] == 0) continue;
    if (best < 0 || q[a] > q[best]) best = a;
  }
  return best;
}

// Row by row in float64, from the papers. The gradient by Q(s, a) is worked out
// by hand and only the network's own is autograd's.
TEST_P(TdLossTest, IsTheSlowLoops) {
  v1::DqnConfig config;
  config.set_double_q(GetParam().double_q);
  config.set_huber(GetParam().huber);
  const bool masked = GetParam().masked;
  // Enough for two threads to share.
  const bool shared = GetParam().threads > 1;
  const int hidden = shared ? 256 : 16;
  const bool frames = GetParam().frames, dueling = GetParam().dueling;
  const auto make = [&](uint64_t seed) {
    return frames ? MakeFramesNet(seed, dueling)
                  : MakeNet(seed, dueling, masked, hidden);
  };
  // Those of 1 and 2 prefer the same for all frames.
  const QNetwork net = make(1), target = make(frames ? 3 : 2);
  EXPECT_EQ(net.LearnsFromSome(), frames);
  torch::manual_seed(3);
  const int64_t N = shared && !frames ? 1000 : 40, A = 3;
  if (!frames) {
    ASSERT_EQ(GradientShards::CountOf(N, net.Flat().size()),
              GetParam().threads);
  }
  ReplayBatch batch = RandomBatch(N, frames);
  torch::Tensor allowed = torch::ones({N, A}, torch::kUInt8);
  if (masked) {
    allowed = torch::randint(0, 2, {N, A}, torch::kUInt8);
    allowed[0].zero_();
    batch.observation.leaf.push_back(torch::ones({N, A}, torch::kUInt8));
    batch.next_observation.leaf.push_back(allowed);
  }
  const torch::Tensor q = net.Forward(batch.observation);
  const torch::Tensor next = net.Forward(batch.next_observation).detach();
  const torch::Tensor next_target =
      target.Forward(batch.next_observation).detach();
  std::vector<double> error(N);
  double loss = 0, q_sum = 0;
  torch::Tensor by_q = torch::zeros({N, A});
  int disagreements = 0;
  for (int64_t i = 0; i < N; ++i) {
    const float* online = next.data_ptr<float>() + i * A;
    const float* other = next_target.data_ptr<float>() + i * A;
    const uint8_t* may = allowed.data_ptr<uint8_t>() + i * A;
    const int64_t by_online = Best(online, may, A);
    const int64_t by_target = Best(other, may, A);
    disagreements += by_online != by_target;
    const double bootstrap = other[config.double_q() ? by_online : by_target];
    const double y = batch.n_step_return[i].item<double>() +
                     batch.discount[i].item<double>() * bootstrap;
    const int64_t a = batch.action.discrete[i].item<int64_t>();
    const double value = q[i][a].item<double>();
    const double w = batch.weight[i].item<double>();
    error[i] = value - y;
    q_sum += value;
    const bool linear = config.huber() && std::abs(error[i]) >= 1;
    if (config.huber()) {
      loss += w * (linear ? std::abs(error[i]) - 0.5 : error[i] * error[i] / 2);
      by_q[i][a] = w * (linear ? std::copysign(1.0, error[i]) : error[i]);
    } else {
      loss += w * error[i] * error[i];
      by_q[i][a] = w * 2 * error[i];
    }
  }
  ASSERT_GT(disagreements, 3);
  net.Flat().gradients.zero_();
  q.backward(by_q);
  const torch::Tensor want = net.Flat().gradients.clone();
  net.Flat().gradients.fill_(7);  // what was there before does not matter

  TdSums got;
  if (GetParam().kernels) {
    TdKernels kernels(net.KernelShape().value());
    // Of another one nothing is left.
    kernels.SetTarget(net);
    kernels.Compute(net, batch, config);
    kernels.SetTarget(target);
    got = kernels.Compute(net, batch, config);
  } else {
    got = ComputeTdGradient(net, target, batch, config);
  }
  EXPECT_NEAR(got.loss, loss, 1e-4 * loss);
  EXPECT_NEAR(got.q, q_sum, 2.5e-6 * N);
  for (int64_t i = 0; i < N; ++i) {
    EXPECT_NEAR(got.error[i].item<double>(), error[i], 1e-5);
  }
  const double scale = want.abs().max().item<double>();
  EXPECT_GT(scale, 0.1);
  EXPECT_LT((net.Flat().gradients - want).abs().max().item<double>(),
            1e-5 * scale);
  EXPECT_EQ(target.Flat().gradients.abs().max().item<float>(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Losses, TdLossTest,
    testing::Values(Case{true, false, false}, Case{false, false, false},
                    Case{true, true, false}, Case{true, false, true},
                    Case{false, false, true}, Case{true, true, true},
                    Case{true, false, true, /*dueling=*/false},
                    Case{true, true, false, true, /*masked=*/true},
                    Case{true, true, true, true, /*masked=*/true},
                    Case{false, false, true, false, /*masked=*/true},
                    Case{true, true, true, true, true, /*threads=*/2},
                    Case{false, false, true, true, false, /*threads=*/2},
                    Case{true, false, false, true, false, 1, /*frames=*/true},
                    Case{true, true, false, false, false, 2, /*frames=*/true},
                    Case{false, false, false, true, false, 1,
                         /*frames=*/true}));

ReplayBatch Slice(const ReplayBatch& all, int64_t first, int64_t n) {
  ReplayBatch part = all;
  part.observation = all.observation.Narrow(first, n);
  part.next_observation = all.next_observation.Narrow(first, n);
  for (torch::Tensor* t : {&part.action.discrete, &part.n_step_return,
                           &part.discount, &part.weight}) {
    *t = t->narrow(0, first, n);
  }
  return part;
}

torch::Tensor Learn(Collective* collective, const ReplayBatch& batch,
                    int steps) {
  const v1::DqnConfig config;
  QNetwork net = MakeNet(1);
  const QNetwork target = MakeNet(2);
  GradientStep step(net.Flat(), v1::OptimizerConfig());
  for (int i = 0; i < steps; ++i) {
    const int64_t n = batch.weight.defined() ? batch.weight.size(0) : 0;
    TdSums sums;
    if (n > 0) {
      sums = ComputeTdGradient(net, target, batch, config);
    } else {
      net.Flat().gradients.zero_();
    }
    EXPECT_TRUE(
        step.Apply(collective, static_cast<double>(n), sums.loss, 1e-3).ok());
  }
  return net.Flat().parameters;
}

std::vector<torch::Tensor> LearnOnTwoRanks(
    const std::vector<ReplayBatch>& batches, int steps) {
  std::vector<torch::Tensor> got(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto collective = MakeCollective(assignment, v1::DistributedConfig(),
                                     coordinator, torch::kCPU)
                          .value();
    got[assignment.rank()] =
        Learn(collective.get(), batches[assignment.rank()], steps);
  });
  return got;
}

TEST(TdLossTest, TwoRanksWithHalfTheBatchEqualOneRank) {
  torch::manual_seed(1);
  const ReplayBatch whole = RandomBatch(64);
  SoloCollective alone;
  const torch::Tensor want = Learn(&alone, whole, 10);
  const auto got =
      LearnOnTwoRanks({Slice(whole, 0, 32), Slice(whole, 32, 32)}, 10);
  EXPECT_TRUE(torch::equal(got[0], got[1]));
  EXPECT_LT((got[0] - want).abs().max().item<double>(), 1e-6);
}

// The mean is over the ranks that contribute: not half of rank 0's gradient.
TEST(TdLossTest, ARankWithoutABatchDoesNotDiluteTheGradient) {
  torch::manual_seed(1);
  const ReplayBatch batch = RandomBatch(32);
  SoloCollective alone;
  const torch::Tensor want = Learn(&alone, batch, 5);
  const auto got = LearnOnTwoRanks({batch, ReplayBatch()}, 5);
  EXPECT_TRUE(torch::equal(got[0], got[1]));
  EXPECT_LT((got[0] - want).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace flotilla
