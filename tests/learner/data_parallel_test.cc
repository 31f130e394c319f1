#include "learner/library/data_parallel.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/collective/shm_collective.h"
#include "learner/collective/solo_collective.h"
#include "learner/library/world.h"
#include "learner/torch_nn.h"
#include "tests/learner/collective/ranks.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

torch::nn::Sequential MakeNet() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::Tanh(),
                               torch::nn::Linear(8, 2));
}

torch::Tensor Flat(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> all;
  for (const auto& p : net->parameters()) all.push_back(p.detach().flatten());
  return torch::cat(all);
}

struct Data {
  torch::Tensor x = torch::randn({60, 4});
  torch::Tensor y = torch::randn({60, 2});
};

// Five steps on rows [from, from + n); by itself without `parallel`.
void Train(torch::nn::Sequential& net, const Data& data, int64_t from,
           int64_t n, DataParallel* parallel) {
  // Not of Adam, which makes as much of a gradient that rounding changes as of others.
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    torch::mse_loss(net->forward(data.x.narrow(0, from, n)),
                    data.y.narrow(0, from, n))
        .backward();
    if (parallel != nullptr) {
      ASSERT_TRUE(parallel->AverageGradients(static_cast<double>(n)).ok());
    }
    optimizer.step();
  }
}

TEST(DataParallelTest, RanksTogetherTakeTheStepsOfOneProcess) {
  torch::manual_seed(1);
  const Data data;
  std::vector<torch::nn::Sequential> nets;  // each starts somewhere else
  for (int i = 0; i < 3; ++i) nets.push_back(MakeNet());
  torch::nn::Sequential alone = MakeNet();
  {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < alone->parameters().size(); ++i) {
      alone->parameters()[i].copy_(nets[0]->parameters()[i]);
    }
  }
  // Rows 10, 20 and 30: no equal shares.
  RunRanks(3, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto shm =
        MakeShmCollective(assignment, coordinator, absl::Seconds(20)).value();
    auto parallel = DataParallel::Wrap(nets[rank].get(), shm.get()).value();
    const int64_t from[] = {0, 10, 30};
    Train(nets[rank], data, from[rank], 10 * (rank + 1), &parallel);
    EXPECT_EQ(parallel.traffic().calls, 5);
    EXPECT_EQ(parallel.traffic().bytes, 5 * 4 * (4 * 8 + 8 + 8 * 2 + 2 + 4));
  });
  Train(alone, data, 0, 60, nullptr);
  EXPECT_TRUE(torch::equal(Flat(nets[0]), Flat(nets[1])));
  EXPECT_TRUE(torch::equal(Flat(nets[0]), Flat(nets[2])));
  EXPECT_LT((Flat(nets[0]) - Flat(alone)).abs().max().item<float>(), 1e-6);
}

TEST(DataParallelTest, ARankWithoutDataDoesNotDiluteTheGradient) {
  torch::manual_seed(2);
  const Data data;
  std::vector<torch::nn::Sequential> nets = {MakeNet(), MakeNet()};
  torch::Tensor gradient;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto shm =
        MakeShmCollective(assignment, coordinator, absl::Seconds(20)).value();
    torch::nn::Sequential& net = nets[rank];
    auto parallel = DataParallel::Wrap(net.get(), shm.get()).value();
    if (rank == 0) {
      torch::mse_loss(net->forward(data.x), data.y).backward();
      gradient = net->parameters()[0].grad().clone();
    }
    ASSERT_TRUE(parallel.AverageGradients(rank == 0 ? 60 : 0).ok());
    // Rank 0's gradient, not half of it.
    EXPECT_LT(
        (net->parameters()[0].grad() - gradient).abs().max().item<float>(),
        1e-6);
    // Nothing anywhere: no step, as for a parameter without a gradient.
    ASSERT_TRUE(parallel.AverageGradients(0).ok());
    EXPECT_FALSE(net->parameters()[0].grad().defined());
  });
}

// A trunk with two heads.
struct TwoHeads : torch::nn::Module {
  TwoHeads() {
    trunk = register_module("trunk", torch::nn::Linear(4, 6));
    left = register_module("left", torch::nn::Linear(6, 2));
    right = register_module("right", torch::nn::Linear(6, 2));
  }
  torch::Tensor Loss(const torch::Tensor& x, bool both) {
    const torch::Tensor hidden = trunk->forward(x).tanh();
    torch::Tensor loss = left->forward(hidden).square().mean();
    if (both) loss = loss + right->forward(hidden).square().mean();
    return loss;
  }
  torch::nn::Linear trunk{nullptr}, left{nullptr}, right{nullptr};
};

// Rank 1 skips a head: that head's gradient is rank 0's, not half of it; the
// others are means of both ranks.
void SkipAHead(const DataParallelOptions& options, bool overlap) {
  torch::manual_seed(3);
  const Data data;
  torch::Tensor head, trunk[2];
  std::vector<std::shared_ptr<TwoHeads>> nets = {std::make_shared<TwoHeads>(),
                                                 std::make_shared<TwoHeads>()};
  {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < nets[0]->parameters().size(); ++i) {
      nets[1]->parameters()[i].copy_(nets[0]->parameters()[i]);
    }
  }
  const auto rows = [&](int rank) { return data.x.narrow(0, 10 * rank, 10); };
  for (int rank : {0, 1}) {
    nets[rank]->Loss(rows(rank), rank == 0).backward();
    trunk[rank] = nets[rank]->trunk->weight.grad().clone();
    if (rank == 0) head = nets[0]->right->weight.grad().clone();
    nets[rank]->zero_grad();
  }
  const double close =
      options.gradient_type == v1::GRADIENT_FLOAT32 ? 1e-6 : 1e-2;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    const int rank = assignment.rank();
    auto shm =
        MakeShmCollective(assignment, coordinator, absl::Seconds(20)).value();
    TwoHeads& net = *nets[rank];
    auto parallel = DataParallel::Wrap(&net, shm.get(), options).value();
    for (int again = 0; again < 2; ++again) {
      net.zero_grad();
      if (overlap) parallel.BeforeLastBackward(10);
      net.Loss(rows(rank), rank == 0).backward();
      ASSERT_TRUE(parallel.AverageGradients(10).ok());
      EXPECT_TRUE(
          torch::allclose(net.right->weight.grad(), head, close, close));
      EXPECT_TRUE(torch::allclose(net.trunk->weight.grad(),
                                  (trunk[0] + trunk[1]) / 2, close, close));
    }
    // Nobody reaches it: it is left out, as in one process.
    net.zero_grad();
    if (overlap) parallel.BeforeLastBackward(10);
    net.Loss(rows(rank), false).backward();
    ASSERT_TRUE(parallel.AverageGradients(10).ok());
    EXPECT_FALSE(net.right->weight.grad().defined());
    EXPECT_TRUE(net.left->weight.grad().defined());
  });
}

TEST(DataParallelTest, ARankThatSkipsAHeadDoesNotDiluteTheOthersGradient) {
  SkipAHead({}, /*overlap=*/false);
}

TEST(DataParallelTest, SoItIsInBuckets) {
  for (const int64_t bytes : {4, 60, 1 << 20}) {
    for (const bool overlap : {false, true}) {
      SkipAHead({.bucket_bytes = bytes}, overlap);
    }
  }
}

TEST(DataParallelTest, AndInBfloat16) {
  for (const int64_t bytes : {0, 60}) {
    SkipAHead({.bucket_bytes = bytes, .gradient_type = v1::GRADIENT_BFLOAT16},
              /*overlap=*/bytes > 0);
  }
}

TEST(DataParallelTest, Bfloat16TakesHalfTheBytes) {
  torch::manual_seed(4);
  const Data data;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto shm =
        MakeShmCollective(assignment, coordinator, absl::Seconds(20)).value();
    torch::nn::Sequential net = MakeNet();
    auto parallel = DataParallel::Wrap(net.get(), shm.get(),
                                       {.gradient_type = v1::GRADIENT_BFLOAT16})
                        .value();
    Train(net, data, 30 * assignment.rank(), 30, &parallel);
    EXPECT_EQ(parallel.traffic().bytes, 5 * (2 * 58 + 4 * 4));
    EXPECT_EQ(net->parameters()[0].scalar_type(), torch::kFloat32);
  });
}

// What is not trained, of dtypes that float32 and int64 do not hold.
struct WithBuffers : torch::nn::Module {
  explicit WithBuffers(double fill) {
    register_module("linear", torch::nn::Linear(2, 2));
    register_buffer("exact", torch::full({3}, fill, torch::kFloat64));
    register_buffer("phase", at::complex(torch::full({2}, fill),
                                         torch::full({2}, 2 * fill)));
    register_buffer("on", torch::full({2}, fill > 0, torch::kBool));
    register_buffer("turned", torch::full({2, 3}, fill).t());
  }
};

TEST(DataParallelTest, BuffersOfAnyDtypeArriveBitForBit) {
  WithBuffers want(1.0 / 3);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto shm =
        MakeShmCollective(assignment, coordinator, absl::Seconds(20)).value();
    WithBuffers module(assignment.rank() == 0 ? 1.0 / 3 : 0);
    ASSERT_TRUE(DataParallel::Wrap(&module, shm.get()).ok());
    for (const auto& buffer : want.named_buffers()) {
      EXPECT_TRUE(
          torch::equal(module.named_buffers()[buffer.key()], buffer.value()))
          << buffer.key();
    }
  });
}

TEST(DataParallelTest, TwoNumbersOfSamplesAreRefused) {
  SoloCollective alone;
  torch::nn::Sequential net = MakeNet();
  auto parallel =
      DataParallel::Wrap(net.get(), &alone, {.bucket_bytes = 4}).value();
  parallel.BeforeLastBackward(3);
  const absl::Status status = parallel.AverageGradients(4);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("given 3 samples"));
}

TEST(DataParallelTest, WhatItCannotCarryIsRefusedByName) {
  torch::nn::Linear net(2, 2);
  net->to(torch::kFloat64);
  const absl::Status status = DataParallel::Wrap(net.get(), nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("weight"), HasSubstr("Double")));
}

TEST(WorldTest, ABackendThatIsNotThereIsRefusedWithWhatIs) {
  const absl::Status mpi = World::Join({.backend = "mpi"}).status();
  EXPECT_EQ(mpi.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(mpi.message()),
              AllOf(HasSubstr("mpi"), HasSubstr("gloo"), HasSubstr("nccl")));
  if (torch::cuda::device_count() > 0) return;
  const absl::Status cuda = World::Join({.cuda = true}).status();
  EXPECT_EQ(cuda.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(cuda.message()),
              HasSubstr("there is none to use here"));
}

}  // namespace
}  // namespace flotilla
