#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "learner/kernels/adam.h"
#include "learner/kernels/mlp_actor_critic.h"
#include "learner/kernels/ppo_gradient.h"
#include "learner/kernels/sac_gradient.h"
#include "tests/learner/kernels/every_kernel_test.h"
#include "tests/learner/kernels/test_shapes.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Out of line, or the compiler pairs a new it knows with a free it sees.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace flotilla {
namespace {

using AllocationTest = EveryKernelTest;
FLOTILLA_FOR_EVERY_KERNEL(AllocationTest);

TEST_P(AllocationTest, NothingIsAllocatedAfterConstruction) {
  const MlpShape shape = {4, {64, 64}, Activation::kTanh, false, 2, false};
  constexpr int kRows = 128;
  std::mt19937 rng(1);
  std::vector<float> parameters = RandomParameters(shape, &rng);
  const std::vector<float> observations =
      RandomNormals(kRows * shape.observations, 1, &rng);
  const std::vector<float> noise(kRows, 0.5f);
  const std::vector<uint8_t> mask(kRows * shape.actions, 1);
  std::vector<int64_t> action(kRows);
  std::vector<float> log_prob(kRows), value(kRows);
  std::vector<float> gradient(parameters.size()), first(parameters.size()),
      second(parameters.size());
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  MlpActorCritic network(shape, kernels());
  PpoGradient ppo(shape, kernels());
  AdamState state = {static_cast<int64_t>(parameters.size()), parameters.data(),
                     first.data(), second.data()};

  const int64_t before = allocations;
  network.SetParameters(parameters.data());
  network.DecideDiscrete(observations.data(), mask.data(), kRows, noise.data(),
                         action.data(), log_prob.data(), value.data());
  const PpoSamples samples = {.observations = observations.data(),
                              .discrete_actions = action.data(),
                              .mask = mask.data(),
                              .log_prob = log_prob.data(),
                              .advantage = noise.data(),
                              .returns = noise.data(),
                              .value = value.data()};
  PpoLoss loss;
  loss.advantage = NormalizeAdvantages(samples, rows);
  ppo.Compute(parameters.data(), samples, rows, loss, false, gradient.data());
  AdamStep({}, gradient.data(), &state, kernels());
  EXPECT_EQ(allocations - before, 0);
}

TEST_P(AllocationTest, NothingIsAllocatedBySoftActorCritic) {
  MlpShape actor = {.observations = 4, .hidden = {64, 64}, .actions = 2};
  actor.output = MlpOutput::kSquashedGaussian;
  MlpShape critics = {.observations = 6, .hidden = {64, 64}, .actions = 1};
  critics.output = MlpOutput::kTwinCritics;
  constexpr int kRows = 128;
  std::mt19937 rng(1);
  const std::vector<float> policy = RandomParameters(actor, &rng);
  const std::vector<float> q = RandomParameters(critics, &rng);
  const std::vector<float> seen = RandomNormals(kRows * 4, 1, &rng);
  const std::vector<float> done(kRows * 2, 0.5f), scale(2, 1), center(2, 0);
  std::vector<float> gradient(q.size());
  SacGradient sac(actor, critics, kernels());

  const int64_t before = allocations;
  const SacSamples samples = {.rows = kRows,
                              .observations = seen.data(),
                              .actions = done.data(),
                              .n_step_return = done.data(),
                              .discount = done.data(),
                              .next_observations = seen.data(),
                              .noise = done.data()};
  const SacGradient::Parameters parameters = {policy.data(), q.data(),
                                              q.data()};
  const ActionRange range = {center.data(), scale.data(), 0};
  sac.Critics(parameters, samples, range, 0.2f, gradient.data());
  sac.Policy(parameters, samples, range, 0.2f, gradient.data());
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace flotilla
