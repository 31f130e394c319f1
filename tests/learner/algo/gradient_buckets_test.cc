#include "learner/collective/gradient_buckets.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "learner/algo/algorithm.h"
#include "learner/collective/faulty_collective.h"
#include "learner/collective/gloo_collective.h"
#include "learner/collective/shm_collective.h"
#include "tests/learner/algo/random_rollout.h"
#include "tests/learner/collective/ranks.h"
#include "tests/testing/spaces.h"

namespace flotilla {
namespace {

constexpr int64_t kBytes = 40;  // ten numbers

// y = c * tanh(b * tanh(a * x)), with `a` of ten numbers and the others of
// seven and four, so that each bucket of 40 bytes has another filling:
// [c, b] = 11 numbers, [a] = 10.
struct Net {
  Net() : flat(21, torch::kCPU) {
    a = flat.Take("a", {10});
    b = flat.Take("b", {7});
    c = flat.Take("c", {4});
    torch::NoGradGuard no_grad;
    flat.parameters.copy_(torch::linspace(-1, 1, 21));
  }

  torch::Tensor Loss(double x) const {
    const torch::Tensor hidden = (a * x).tanh().sum() * b;
    const torch::Tensor output = hidden.tanh().sum();
    return output * c.sum();  // the last to be made, the first to be undone
  }

  FlatParameters flat;
  torch::Tensor a, b, c;
};

// The gradient of Loss at each rank's x, summed over ranks.
torch::Tensor SumOfGradients(const std::vector<double>& xs) {
  Net net;
  for (const double x : xs) net.Loss(x).backward();
  return net.flat.gradients.clone();
}

std::unique_ptr<Collective> Join(const v1::Assignment& assignment,
                                 FakeCoordinatorClient* coordinator) {
  return MakeCollective(assignment, v1::DistributedConfig(), coordinator,
                        torch::kCPU)
      .value();
}

double Difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(GradientBucketsTest, AreCutFromTheEndAndNeverThroughAParameter) {
  Net net;
  const auto sizes = [&](int64_t bytes) {
    GradientBuckets buckets(net.flat.leaf, net.flat.gradients,
                            {.bucket_bytes = bytes});
    std::vector<int64_t> n;
    const float* end = net.flat.gradients.data_ptr<float>() + net.flat.size();
    for (const torch::Tensor& bucket : buckets.buckets()) {
      n.push_back(bucket.numel());
      EXPECT_EQ(bucket.data_ptr<float>() + bucket.numel(), end);
      end = bucket.data_ptr<float>();
    }
    return n;
  };
  EXPECT_EQ(sizes(4), (std::vector<int64_t>{4, 7, 10}));
  EXPECT_EQ(sizes(kBytes), (std::vector<int64_t>{11, 10}));
  EXPECT_EQ(sizes(1 << 20), (std::vector<int64_t>{21}));
}

// The first layer's gradient waits, in the backward pass, for the last layers'
// to have been summed: nothing but an overlap ends that.
TEST(GradientBucketsTest, ABucketIsSummedWhileTheBackwardPassGoesOn) {
  const torch::Tensor want = SumOfGradients({0.3, -0.7});
  std::mutex mu;
  std::condition_variable changed;
  int summed = 0, ranks_that_overlapped = 0;
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    class Counting : public FaultyCollective {
     public:
      Counting(std::unique_ptr<Collective> inner, std::function<void()> count)
          : FaultyCollective(std::move(inner), Fault{.call = 0}),
            count_(std::move(count)) {}
      absl::Status AllReduceSum(torch::Tensor tensor) override {
        const absl::Status status = FaultyCollective::AllReduceSum(tensor);
        count_();
        return status;
      }

     private:
      const std::function<void()> count_;
    };
    Counting collective(Join(assignment, coordinator), [&] {
      std::lock_guard lock(mu);
      ++summed;
      changed.notify_all();
    });
    Net net;
    GradientBuckets buckets(net.flat.leaf, net.flat.gradients,
                            {.bucket_bytes = kBytes});
    const torch::Tensor first = net.a * (assignment.rank() == 0 ? 0.3 : -0.7);
    first.register_hook([&](torch::Tensor) {
      std::unique_lock lock(mu);
      changed.wait_for(lock, std::chrono::seconds(20),
                       [&] { return summed == 2; });
      if (summed == 2) ++ranks_that_overlapped;
    });
    buckets.Begin(&collective);
    const torch::Tensor output = (first.tanh().sum() * net.b).tanh().sum();
    (output * net.c.sum()).backward();
    ASSERT_TRUE(buckets.Finish(&collective).ok());
    EXPECT_LT(Difference(net.flat.gradients, want), 1e-6);
  });
  EXPECT_EQ(ranks_that_overlapped, 2);
}

// What a rank's graph did not reach, reached twice, or had no data for: the sum
// is that of one all-reduce, over shared memory and over TCP, again and again.
TEST(GradientBucketsTest, GraphsMayDifferBetweenRanks) {
  using Backward = std::function<void(const Net&)>;
  const auto whole = [](const Net& net) { net.Loss(0.5).backward(); };
  const auto no_b = [](const Net& net) {
    (net.a.sum() * net.c.sum()).backward();
  };
  const auto last_only = [](const Net& net) {
    net.c.square().sum().backward();
  };
  const auto twice = [](const Net& net) {
    (net.Loss(0.2) + net.a.square().sum() + net.Loss(-0.4)).backward();
  };
  const auto nothing = [](const Net&) {};
  const std::pair<Backward, Backward> cases[] = {
      {whole, whole}, {whole, no_b},    {no_b, last_only},
      {twice, whole}, {nothing, twice}, {nothing, nothing}};
  for (const bool tcp : {false, true}) {
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      auto collective =
          tcp ? MakeGlooCollective(assignment, coordinator, absl::Seconds(20))
                    .value()
              : MakeShmCollective(assignment, coordinator, absl::Seconds(20))
                    .value();
      ASSERT_NE(collective, nullptr);
      Net net;
      GradientBuckets buckets(net.flat.leaf, net.flat.gradients,
                              {.bucket_bytes = kBytes});
      for (const auto& [rank_0, rank_1] : cases) {
        Net both;
        rank_0(both);
        rank_1(both);
        net.flat.gradients.zero_();
        buckets.Begin(collective.get());
        (assignment.rank() == 0 ? rank_0 : rank_1)(net);
        ASSERT_TRUE(buckets.Finish(collective.get()).ok());
        EXPECT_LT(Difference(net.flat.gradients, both.flat.gradients), 1e-6);
      }
    });
  }
}

// Gradients that add up over several passes travel after the last.
TEST(GradientBucketsTest, PassesBeforeTheBeginAreNotSummedEarly) {
  const torch::Tensor want = SumOfGradients({0.1, 0.2, 0.1, 0.2});
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto collective = Join(assignment, coordinator);
    Net net;
    GradientBuckets buckets(net.flat.leaf, net.flat.gradients,
                            {.bucket_bytes = kBytes});
    net.Loss(0.1).backward();
    buckets.Begin(collective.get());
    net.Loss(0.2).backward();
    ASSERT_TRUE(buckets.Finish(collective.get()).ok());
    EXPECT_LT(Difference(net.flat.gradients, want), 1e-6);
  });
}

// A collective that breaks in the middle of a backward pass ends the update on
// every rank with its error; with the next generation's all is as new.
TEST(GradientBucketsTest, AnErrorInTheBackwardPassSurfacesInFinish) {
  const torch::Tensor want = SumOfGradients({0.5, 0.5});
  for (const Fault::Kind kind : {Fault::kFail, Fault::kHang}) {
    RunRanks(2, [&](const v1::Assignment& assignment,
                    FakeCoordinatorClient* coordinator) {
      Net net;
      GradientBuckets buckets(net.flat.leaf, net.flat.gradients,
                              {.bucket_bytes = 4});
      const int rank = assignment.rank();
      // Rank 1 breaks in the second of three buckets.
      FaultyCollective broken(Join(assignment, coordinator),
                              {.kind = kind, .call = rank == 1 ? 2 : 0});
      std::thread fence;
      std::once_flag fenced;
      if (kind == Fault::kHang && rank == 1) {
        // The first layer's gradient comes when the second bucket hangs.
        net.a.register_hook([&](torch::Tensor) {
          std::call_once(fenced,
                         [&] { fence = std::thread([&] { broken.Abort(); }); });
        });
      }
      buckets.Begin(&broken);
      net.Loss(0.5).backward();
      EXPECT_FALSE(buckets.Finish(&broken).ok());
      if (fence.joinable()) fence.join();
      EXPECT_LE(broken.calls(), 2);  // the third bucket did not try

      auto next =
          MakeCollective(MakeAssignment(rank, 2, /*generation=*/2),
                         v1::DistributedConfig(), coordinator, torch::kCPU)
              .value();
      net.flat.gradients.zero_();
      buckets.Begin(next.get());
      net.Loss(0.5).backward();
      ASSERT_TRUE(buckets.Finish(next.get()).ok());
      EXPECT_LT(Difference(net.flat.gradients, want), 1e-6);
    });
  }
}

struct Trained {
  torch::Tensor before, weights;  // [P]
  double bytes = 0;
};

torch::Tensor Flat(Algorithm& algorithm) {
  std::vector<torch::Tensor> weights;
  for (const NamedTensor& t : algorithm.Weights()) {
    weights.push_back(t.tensor.flatten());
  }
  return torch::cat(weights).clone();
}

// Two ranks' updates of half of `whole` each.
std::vector<Trained> Train(v1::RunConfig config, const Spaces& spaces,
                           const Rollout& whole, v1::GradientForm form,
                           v1::GradientType type = v1::GRADIENT_FLOAT32) {
  const int64_t half = whole.rows / 2;
  config.mutable_distributed()->set_gradient_type(type);
  config.mutable_env()->set_num_envs(half);
  config.mutable_rollout()->set_length(whole.length);
  config.mutable_distributed()->set_gradients(form);
  config.mutable_distributed()->set_bucket_bytes(4096);
  std::vector<Trained> trained(2);
  RunRanks(2, [&](const v1::Assignment& assignment,
                  FakeCoordinatorClient* coordinator) {
    auto collective = Join(assignment, coordinator);
    auto algorithm = MakeAlgorithm(config, spaces, torch::kCPU).value();
    Trained* mine = &trained[assignment.rank()];
    mine->before = Flat(*algorithm);
    for (int update = 0; update < 2; ++update) {
      const auto metrics = algorithm->Update(
          Columns(whole, spaces, assignment.rank() * half, half),
          {.update = update,
           .global_step = 1000,
           .collective = collective.get()});
      ASSERT_TRUE(metrics.ok()) << metrics.status();
      for (const Metric& metric : *metrics) {
        if (metric.name == "sync/bytes") mine->bytes += metric.value;
      }
    }
    mine->weights = Flat(*algorithm);
  });
  return trained;
}

struct Case {
  const char* name;
  const char* algorithm;
  bool frames;
  bool recurrent;
  int64_t max_minibatch;
};

struct Setting {
  explicit Setting(const Case& c);

  v1::RunConfig config;
  Spaces spaces;
  Rollout whole;
};

Setting::Setting(const Case& c)
    : spaces(c.frames ? AtariSpaces(4) : VectorSpaces(4, 2)) {
  config.mutable_model()->add_hidden(32);
  config.mutable_model()->set_recurrent(c.recurrent ? v1::LSTM : v1::NONE);
  config.mutable_model()->set_recurrent_size(16);
  config.mutable_model()->set_share_trunk(c.recurrent);
  const std::string algorithm = c.algorithm;
  if (algorithm == "ppo") {
    config.mutable_ppo()->set_epochs(2);
    config.mutable_ppo()->set_minibatches(2);
    config.mutable_ppo()->set_max_minibatch(c.max_minibatch);
  } else if (algorithm == "impala") {
    config.mutable_impala();
  } else {
    config.mutable_dqn()->set_batch_size(8);
    config.mutable_dqn()->set_learning_starts(8);
    if (algorithm == "dqn by kernels") {
      config.mutable_model()->set_activation(v1::RELU);
    }
  }
  torch::manual_seed(1);
  whole = RandomRollout(spaces, c.frames ? 4 : 16, 8);
  if (c.recurrent) whole.initial_state = torch::zeros({8, 2 * 16});
  whole.valid.narrow(1, 6, 2).fill_(0);  // rank 1 has half as many steps
  whole.valid_steps = whole.valid.sum().item<int64_t>();
}

class GradientFormTest : public testing::TestWithParam<Case> {};

TEST_P(GradientFormTest, BucketsEqualFlat) {
  const auto [config, spaces, whole] = Setting(GetParam());
  const auto flat = Train(config, spaces, whole, v1::FLAT);
  const auto buckets = Train(config, spaces, whole, v1::BUCKETS);
  EXPECT_TRUE(torch::equal(buckets[0].weights, buckets[1].weights));
  EXPECT_LT(Difference(buckets[0].weights, flat[0].weights), 1e-6);
  EXPECT_EQ(buckets[0].bytes, flat[0].bytes);
  EXPECT_GT(flat[0].bytes, 0);
}

// Half the bytes; weights that stay equal on both ranks, in float32, and close
// to those of whole gradients.
TEST_P(GradientFormTest, BfloatsHalveTheTraffic) {
  const auto [config, spaces, whole] = Setting(GetParam());
  const auto wide = Train(config, spaces, whole, v1::FLAT);
  std::vector<Trained> flat;
  for (const auto form : {v1::FLAT, v1::BUCKETS}) {
    const auto narrow =
        Train(config, spaces, whole, form, v1::GRADIENT_BFLOAT16);
    EXPECT_TRUE(torch::equal(narrow[0].weights, narrow[1].weights));
    EXPECT_LT(narrow[0].bytes, 0.51 * wide[0].bytes);
    EXPECT_GT(narrow[0].bytes, 0.49 * wide[0].bytes);
    const double moved = Difference(wide[0].weights, wide[0].before);
    const double difference = Difference(narrow[0].weights, wide[0].weights);
    EXPECT_GT(difference, 0);  // they did travel as something else
    EXPECT_LT(difference, moved);
    // Weights of eight bits would lie on a grid.
    EXPECT_FALSE(torch::equal(
        narrow[0].weights,
        narrow[0].weights.to(torch::kBFloat16).to(torch::kFloat32)));
    // Either form rounds the same sums.
    if (flat.empty()) flat = narrow;
    EXPECT_LT(Difference(narrow[0].weights, flat[0].weights), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, GradientFormTest,
    testing::Values(Case{"Frames", "ppo", true, false, 0},
                    Case{"Kernels", "ppo", false, false, 0},
                    Case{"Recurrent", "ppo", false, true, 0},
                    Case{"RecurrentInParts", "ppo", false, true, 16},
                    Case{"FramesInParts", "ppo", true, false, 3},
                    Case{"Impala", "impala", true, false, 0},
                    Case{"Dqn", "dqn", false, false, 0},
                    Case{"DqnByKernels", "dqn by kernels", false, false, 0}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flotilla
