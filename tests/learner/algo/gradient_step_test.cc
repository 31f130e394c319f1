#include "learner/algo/gradient_step.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "learner/algo/muon.h"
#include "learner/collective/faulty_collective.h"
#include "learner/collective/gloo_collective.h"
#include "learner/collective/shm_collective.h"
#include "learner/collective/solo_collective.h"
#include "learner/kernels/isa/kernel_table.h"
#include "learner/nn/convolution.h"
#include "learner/nn/fresh_gradients.h"
#include "learner/nn/linear.h"
#include "learner/nn/network.h"
#include "learner/torch_nn.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

std::unique_ptr<Network> MakeNet() {
  auto net =
      MakeNetwork(VectorSpaces(4, 2), v1::ModelConfig(), torch::kCPU).value();
  net->Initialize(1);
  return net;
}

// Of this thread: whether denormals are flushed is in it.
unsigned FloatControl() {
#ifdef __x86_64__
  return _mm_getcsr();
#else
  return 0;
#endif
}

TEST(GradientStepTest, IsTorchsClipAndAdam) {
  const auto net = MakeNet();
  v1::OptimizerConfig config;
  GradientStep step(net->Flat(), config);
  torch::Tensor twin = net->parameters().clone().set_requires_grad(true);
  torch::optim::Adam adam({twin},
                          torch::optim::AdamOptions(config.learning_rate())
                              .eps(config.epsilon())
                              .betas({config.beta1(), config.beta2()}));
  SoloCollective alone;
  torch::manual_seed(8);
  for (int i = 0; i < 20; ++i) {
    const double samples = 128;
    const torch::Tensor sum =
        torch::randn_like(twin) * samples * (i + 1) * 0.01;
    net->gradients().copy_(sum);
    const auto result = step.Apply(&alone, samples, 0, config.learning_rate());
    ASSERT_TRUE(result.ok());
    twin.mutable_grad() = sum / samples;
    const double norm =
        torch::nn::utils::clip_grad_norm_({twin}, config.max_grad_norm());
    adam.step();
    EXPECT_NEAR(result->grad_norm, norm, 1e-4 * norm);
    torch::NoGradGuard no_grad;
    EXPECT_LT((net->parameters() - twin).abs().max().item<double>(), 1e-6)
        << "step " << i;
  }
}

TEST(GradientStepTest, IsTorchsClipAndRmsprop) {
  const auto net = MakeNet();
  v1::OptimizerConfig config;
  config.set_type(v1::RMSPROP);
  config.set_beta2(0.99);
  config.set_epsilon(0.01);
  GradientStep step(net->Flat(), config);
  torch::Tensor twin = net->parameters().clone().set_requires_grad(true);
  torch::optim::RMSprop rmsprop({twin}, torch::optim::RMSpropOptions(6e-4)
                                            .alpha(config.beta2())
                                            .eps(config.epsilon()));
  SoloCollective alone;
  torch::manual_seed(8);
  for (int i = 0; i < 20; ++i) {
    const torch::Tensor sum = torch::randn_like(twin) * (i + 1);
    net->gradients().copy_(sum);
    ASSERT_TRUE(step.Apply(&alone, 64, 0, 6e-4).ok());
    twin.mutable_grad() = sum / 64;
    torch::nn::utils::clip_grad_norm_({twin}, config.max_grad_norm());
    rmsprop.step();
    torch::NoGradGuard no_grad;
    EXPECT_LT((net->parameters() - twin).abs().max().item<double>(), 1e-6)
        << "step " << i;
  }
}

TEST(GradientStepTest, MuonsGradientIsClippedAndItsStateComesBack) {
  v1::OptimizerConfig config;
  config.set_type(v1::MUON);
  SoloCollective alone;
  const auto whole = MakeNet(), broken_off = MakeNet();
  GradientStep without_break(whole->Flat(), config);
  torch::manual_seed(8);
  const torch::Tensor first = torch::randn_like(whole->parameters());
  const torch::Tensor second = torch::randn_like(whole->parameters());
  whole->gradients().copy_(first);
  const auto result = without_break.Apply(&alone, 2, 0, 0.015);
  ASSERT_TRUE(result.ok());
  EXPECT_NEAR(result->grad_norm, first.norm().item<double>() / 2, 1e-2);
  EXPECT_NEAR(without_break.State()[0].tensor.norm().item<double>(),
              config.max_grad_norm(), 1e-4);

  GradientStep resumed(broken_off->Flat(), config);
  broken_off->parameters().copy_(whole->parameters());
  for (size_t i = 0; i < resumed.State().size(); ++i) {
    EXPECT_EQ(resumed.State()[i].name, without_break.State()[i].name);
    resumed.State()[i].tensor.copy_(without_break.State()[i].tensor);
  }
  whole->gradients().copy_(second);
  broken_off->gradients().copy_(second);
  ASSERT_TRUE(without_break.Apply(&alone, 2, 0, 0.015).ok());
  ASSERT_TRUE(resumed.Apply(&alone, 2, 0, 0.015).ok());
  EXPECT_TRUE(torch::equal(whole->parameters(), broken_off->parameters()));
}

TEST(GradientStepTest, MuonRoundsWhereTheRunIsOfBfloat16) {
  v1::OptimizerConfig config;
  config.set_type(v1::MUON);
  config.set_max_grad_norm(0);
  SoloCollective alone;
  for (const v1::Precision precision : {v1::FP32, v1::BF16}) {
    const auto net = MakeNet();
    GradientStep step(net->Flat(), config, {}, precision);
    torch::manual_seed(8);
    const torch::Tensor gradient = torch::randn_like(net->parameters());
    net->gradients().copy_(gradient);
    const torch::Tensor before = net->parameters().clone();
    const unsigned denormals = FloatControl();
    ASSERT_TRUE(step.Apply(&alone, 1, 0, 1).ok());
    EXPECT_EQ(FloatControl(), denormals);
    int64_t offset = 0;
    for (const NamedTensor& p : net->Flat().named) {
      const int64_t size = p.tensor.numel();
      if (p.tensor.dim() == 2) {
        const auto shape = p.tensor.sizes();
        const auto of = [&](const torch::Tensor& flat) {
          return flat.narrow(0, offset, size).view(shape);
        };
        const torch::Tensor u = of(gradient) * (1 + config.beta1());
        const double scale =
            std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / shape[1]));
        const torch::Tensor moved = of(before) - of(net->parameters());
        const auto off = [&](bool bfloat16) {
          return (moved - Orthogonalize(u, bfloat16) * scale)
              .abs()
              .max()
              .item<double>();
        };
        EXPECT_LT(off(precision == v1::BF16), 1e-5) << p.name;
        if (BestKernels().has_tiles && shape[0] > 8) {
          EXPECT_GT(off(precision != v1::BF16), 1e-4) << p.name;
        }
      }
      offset += size;
    }
  }
}

TEST(GradientStepTest, AGradientThatIsNotFiniteChangesNothing) {
  for (const v1::Optimizer type : {v1::ADAM, v1::RMSPROP, v1::MUON}) {
    const auto net = MakeNet();
    v1::OptimizerConfig config;
    config.set_type(type);
    GradientStep step(net->Flat(), config);
    SoloCollective alone;
    const torch::Tensor before = net->parameters().clone();
    net->gradients().fill_(1);
    net->gradients()[17] = std::numeric_limits<float>::quiet_NaN();
    const auto result = step.Apply(&alone, 1, 0, 1e-3);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(torch::equal(net->parameters(), before));
    EXPECT_EQ(step.State().back().tensor.item<int64_t>(), 0);
  }
}

// Ranks with 1, 3 and no samples, whose gradients are all ones, twos and, of the
// last, none. SGD would step by the mean: Adam shows it in its first moment.
torch::Tensor MeanGradient(const v1::DistributedConfig& distributed,
                           bool overlap = false) {
  torch::Tensor mean;
  RunRanks(3, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto collective =
        MakeCollective(assignment, distributed, coordinator, torch::kCPU)
            .value();
    FlatParameters net(8, torch::kCPU);
    const torch::Tensor a = net.Take("a", {5}), b = net.Take("b", {3});
    v1::OptimizerConfig config;
    config.set_max_grad_norm(0);
    config.set_beta1(0);
    GradientStep step(net, config, distributed);
    const double samples[] = {1, 3, 0}, each[] = {1, 2, 0};
    if (overlap) step.BeforeLastBackward(collective.get(), samples[rank]);
    ((a.sum() + b.sum()) * samples[rank] * each[rank]).backward();
    const auto result =
        step.Apply(collective.get(), samples[rank], 0, /*learning_rate=*/0);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->samples, 4);
    if (rank == 2) mean = step.State()[0].tensor.clone();
  });
  return mean;
}

TEST(GradientStepTest, TheMeanIsOverSamplesOrOverRanks) {
  for (const auto form : {v1::FLAT, v1::BUCKETS}) {
    for (const auto type : {v1::GRADIENT_FLOAT32, v1::GRADIENT_BFLOAT16}) {
      for (const bool overlap : {false, true}) {
        v1::DistributedConfig distributed;
        distributed.set_gradients(form);
        distributed.set_bucket_bytes(4);
        distributed.set_gradient_type(type);
        EXPECT_TRUE(torch::allclose(MeanGradient(distributed, overlap),
                                    torch::full({8}, (1 * 1 + 3 * 2) / 4.0)));
        // DD-PPO's: a short rollout counts as much as a whole one. Who has
        // nothing at all does not count.
        distributed.set_gradient_mean(v1::BY_RANKS);
        EXPECT_TRUE(torch::allclose(MeanGradient(distributed, overlap),
                                    torch::full({8}, (1 + 2) / 2.0)));
      }
    }
  }
}

// distributed.force_group: the same steps, by way of a group.
TEST(GradientStepTest, AGroupOfOneTakesTheStepsOfOneAlone) {
  v1::DistributedConfig distributed;
  distributed.set_force_group(true);
  RunRanks(1, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto group =
        MakeCollective(assignment, distributed, coordinator, torch::kCPU)
            .value();
    SoloCollective alone;
    const auto in_group = MakeNet(), by_itself = MakeNet();
    GradientStep first(in_group->Flat(), {}, distributed);
    GradientStep second(by_itself->Flat(), {}, distributed);
    in_group->gradients().fill_(3);
    by_itself->gradients().fill_(3);
    const auto grouped = first.Apply(group.get(), 4, 0, 1e-3);
    ASSERT_TRUE(grouped.ok());
    EXPECT_GT(grouped->sync_bytes, 0);
    ASSERT_TRUE(second.Apply(&alone, 4, 0, 1e-3).ok());
    EXPECT_TRUE(torch::equal(in_group->parameters(), by_itself->parameters()));
  });
}

// The norm of a group's gradients is taken where each part of them is summed.
TEST(GradientStepTest, AGroupsNormIsThatOfOneWithTheirSum) {
  torch::manual_seed(5);
  // The last part has gradients, or nothing but what travels behind them.
  for (const int64_t size :
       {2 * Collective::kSummedPart + 4321, 2 * Collective::kSummedPart}) {
    const torch::Tensor sum = torch::randn({size}) * 3;
    const torch::Tensor start = torch::randn({size});
    // Norm and weights after one step of a clipped gradient.
    const auto step = [&](Collective* collective, const torch::Tensor& gradient,
                          double samples) {
      FlatParameters net(size, torch::kCPU);
      net.Take("all", {size});
      net.parameters.copy_(start);
      net.gradients.copy_(gradient);
      GradientStep step(net, v1::OptimizerConfig());
      const auto result = step.Apply(collective, samples, 0, 1e-2);
      CHECK(result.ok()) << result.status();
      return std::pair(result->grad_norm, net.parameters);
    };
    SoloCollective alone;
    const auto [norm, weights] = step(&alone, sum, 4);
    EXPECT_NEAR(norm, sum.norm().item<double>() / 4, 1e-3);
    for (const auto make : {MakeShmCollective, MakeGlooCollective}) {
      RunRanks(2, [&](const v1::Assignment& assignment,
                      FakeCoordinatorClient* coordinator) {
        const auto group = make(assignment, coordinator, absl::Seconds(60));
        ASSERT_TRUE(group.ok() && *group != nullptr) << group.status();
        // Halves are exact in binary.
        const auto [grouped, same] = step(group->get(), sum / 2, 2);
        EXPECT_EQ(grouped, norm);
        EXPECT_TRUE(torch::equal(same, weights));
      });
    }
  }
}

// Ranks' steps by a net with a large weight, of which `factored` ones learn from what its
// gradient is a product of: rank r has (r + 1) rows of it, but the last rank of several,
// who has nothing. By rank: the status, the norm and the weights after three steps.
struct Stepped {
  absl::Status status;
  double norm = 0;
  torch::Tensor weights;
};
constexpr int64_t kWide = 5136, kHigh = 64;

std::vector<Stepped> StepRanks(int ranks, bool factored,
                               const v1::OptimizerConfig& config,
                               const v1::DistributedConfig& distributed,
                               bool gloo = false) {
  std::vector<Stepped> done(ranks);
  const auto step = [&](int rank, Collective* collective) {
    FlatParameters net(kHigh * kWide + 2 * kHigh, torch::kCPU);
    const torch::Tensor small = net.Take("small", {kHigh});
    const torch::Tensor large = net.Take("large", {kHigh, kWide});
    const torch::Tensor bias = net.Take("bias", {kHigh});
    net.parameters.copy_(torch::arange(net.size()).sin() * 0.01);
    net.gradients.fill_(std::nanf(""));  // of no use where it is factored
    GradientStep step(net, config, distributed);
    constexpr int64_t kRows = 4;
    if (factored) step.MayFactor(1, torch::kFloat32, kRows);
    Stepped& mine = done[rank];
    for (int i = 0; i < 3 && mine.status.ok(); ++i) {
      GradientFactors* const factors = step.BeginFactors(*collective);
      EXPECT_EQ(factors != nullptr, factored && !gloo);
      const bool nothing = ranks > 1 && rank == ranks - 1;
      const double samples = nothing ? 0 : rank + 1;
      if (nothing) {
        net.gradients.zero_();
        if (factors != nullptr) factors->SetNothing();
      } else {
        const FreshGradients fresh(net, factors);
        const torch::Tensor x =
            (torch::arange(kRows * kWide) * (rank + i + 1)).sin();
        const torch::Tensor y =
            LinearByKernel(x.view({kRows, kWide}), large, bias, /*relu=*/false);
        const torch::Tensor counts =
            (torch::arange(kRows) < samples).to(torch::kFloat32).view({-1, 1});
        ((y - small).square() * counts).sum().backward();
      }
      const auto result = step.Apply(collective, samples, 0, 1e-3);
      mine.status = result.status();
      if (result.ok()) mine.norm = result->grad_norm;
    }
    mine.weights = net.parameters.clone();
  };
  if (ranks == 1) {
    SoloCollective alone;
    step(0, &alone);
  } else {
    RunRanks(ranks, [&](const v1::Assignment& assignment,
                        FakeCoordinatorClient* coordinator) {
      const auto make = gloo ? MakeGlooCollective : MakeShmCollective;
      const auto collective = make(assignment, coordinator, absl::Seconds(60));
      ASSERT_TRUE(collective.ok() && *collective != nullptr)
          << collective.status();
      step(assignment.rank(), collective->get());
    });
  }
  return done;
}

TEST(GradientStepTest, AFactoredGradientTakesTheStepsOfTheWholeOne) {
  for (const int ranks : {1, 2, 3}) {
    for (const auto type : {v1::ADAM, v1::RMSPROP}) {
      for (const auto mean : {v1::BY_SAMPLES, v1::BY_RANKS}) {
        for (const double clip : {0.0, 0.5}) {
          v1::OptimizerConfig config;
          config.set_type(type);
          config.set_max_grad_norm(clip);
          v1::DistributedConfig distributed;
          distributed.set_gradient_mean(mean);
          const auto want = StepRanks(ranks, false, config, distributed);
          const auto done = StepRanks(ranks, true, config, distributed);
          for (int rank = 0; rank < ranks; ++rank) {
            ASSERT_TRUE(done[rank].status.ok()) << done[rank].status;
            EXPECT_NEAR(done[rank].norm, want[0].norm, 1e-4 * want[0].norm);
            EXPECT_LT((done[rank].weights - want[0].weights)
                          .abs()
                          .max()
                          .item<double>(),
                      1e-5);
            EXPECT_TRUE(torch::equal(done[rank].weights, done[0].weights));
          }
        }
      }
    }
  }
}

FlatParameters LargeNet() {
  FlatParameters net(kHigh * kWide, torch::kCPU);
  net.Take("large", {kHigh, kWide});
  return net;
}

// A step of a large weight alone, whose gradient is of `rows` rows of ones, but for one
// number of rank 0's.
class FactoredStep {
 public:
  static constexpr int64_t kRows = 4;

  FactoredStep() { step_.MayFactor(0, torch::kFloat32, kRows); }

  absl::Status Take(Collective* collective, float number) {
    net_.gradients.zero_();
    const torch::Tensor x = torch::ones({kRows, kWide});
    if (collective->rank() == 0) x[2][17] = number;
    step_.BeginFactors(*collective)->Set(x, torch::ones({kRows, kHigh}));
    return step_.Apply(collective, kRows, 0, 1e-3).status();
  }
  bool changed() {
    bool changed = net_.parameters.any().item<bool>();
    for (const NamedTensor& t : step_.State()) {
      changed |= t.tensor.any().item<bool>();
    }
    return changed;
  }

 private:
  FlatParameters net_ = LargeNet();
  GradientStep step_{net_, v1::OptimizerConfig()};
};

// Each rank is told, and none steps.
TEST(GradientStepTest, AFactoredGradientThatIsNotFiniteChangesNothing) {
  for (const float number :
       {std::nanf(""), std::numeric_limits<float>::infinity(), 3e38f}) {
    FactoredStep one;
    SoloCollective alone;
    EXPECT_EQ(one.Take(&alone, number).code(), absl::StatusCode::kInternal);
    EXPECT_FALSE(one.changed());
    ASSERT_TRUE(one.Take(&alone, 1).ok());
    EXPECT_TRUE(one.changed());
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      const auto group =
          MakeShmCollective(assignment, coordinator, absl::Seconds(60));
      ASSERT_TRUE(group.ok() && *group != nullptr) << group.status();
      FactoredStep step;
      EXPECT_EQ(step.Take(group->get(), number).code(),
                absl::StatusCode::kInternal);
      EXPECT_FALSE(step.changed());
    });
  }
}

// Whichever of the calls that bring rows together it is that fails; and who goes on alone
// has nothing left of it.
TEST(GradientStepTest, APeerThatIsLostBetweenFactorsChangesNothing) {
  int64_t calls = 1;
  for (int64_t fails = 1; fails <= calls; ++fails) {
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      auto group =
          MakeShmCollective(assignment, coordinator, absl::Seconds(60));
      ASSERT_TRUE(group.ok() && *group != nullptr) << group.status();
      FactoredStep step;
      {
        const bool faulty = assignment.rank() == 1;
        FaultyCollective collective(*std::move(group),
                                    {.call = faulty ? fails : 0});
        EXPECT_EQ(step.Take(&collective, 1).code(),
                  absl::StatusCode::kUnavailable);
      }
      EXPECT_FALSE(step.changed());
      SoloCollective alone;
      EXPECT_TRUE(step.Take(&alone, 1).ok());
    });
    if (fails > 1) continue;
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      auto group =
          MakeShmCollective(assignment, coordinator, absl::Seconds(60));
      ASSERT_TRUE(group.ok() && *group != nullptr) << group.status();
      FaultyCollective collective(*std::move(group), {.call = 0});
      FactoredStep step;
      ASSERT_TRUE(step.Take(&collective, 1).ok());
      if (assignment.rank() == 1) calls = collective.calls();
    });
  }
  EXPECT_EQ(calls, 2 + 2 * 2 + 1);  // the rest, rows of two ranks, their norm
}

// Those of several hosts may round otherwise, and other forms of messages have no room.
TEST(GradientStepTest, OtherwiseGradientsStayWhole) {
  v1::DistributedConfig buckets, bfloat16;
  buckets.set_gradients(v1::BUCKETS);
  bfloat16.set_gradient_type(v1::GRADIENT_BFLOAT16);
  const FlatParameters net = LargeNet();
  SoloCollective alone;
  const auto factors = [&](const v1::OptimizerConfig& config,
                           const v1::DistributedConfig& distributed,
                           torch::Dtype dtype = torch::kFloat32) {
    GradientStep step(net, config, distributed);
    step.MayFactor(0, dtype, 4);
    return step.BeginFactors(alone) != nullptr;
  };
  v1::OptimizerConfig muon;
  muon.set_type(v1::MUON);
  EXPECT_TRUE(factors({}, {}));
  EXPECT_FALSE(factors(muon, {}));
  EXPECT_FALSE(factors({}, buckets));
  EXPECT_FALSE(factors({}, bfloat16));
  v1::DistributedConfig by_ranks;
  by_ranks.set_gradient_mean(v1::BY_RANKS);
  EXPECT_TRUE(factors({}, by_ranks));
  if (KernelsMultiplyBfloat16()) {
    EXPECT_TRUE(factors({}, {}, torch::kBFloat16));
    EXPECT_FALSE(factors({}, by_ranks, torch::kBFloat16));
  }
  const auto want = StepRanks(2, false, {}, {}, /*gloo=*/true);
  const auto done = StepRanks(2, true, {}, {}, /*gloo=*/true);
  EXPECT_TRUE(torch::equal(done[1].weights, want[1].weights));
}

TEST(GradientStepTest, NoSamplesAnywhereChangesNothing) {
  const auto net = MakeNet();
  GradientStep step(net->Flat(), v1::OptimizerConfig());
  SoloCollective alone;
  const torch::Tensor before = net->parameters().clone();
  net->gradients().fill_(1);
  ASSERT_TRUE(step.Apply(&alone, 0, 0, 1e-3).ok());
  EXPECT_TRUE(torch::equal(net->parameters(), before));
}

}  // namespace
}  // namespace flotilla
