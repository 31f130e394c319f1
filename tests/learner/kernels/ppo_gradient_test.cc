#include "learner/kernels/ppo_gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "learner/kernels/mlp_actor_critic.h"
#include "tests/learner/kernels/emulated_amx.h"
#include "tests/learner/kernels/every_kernel_test.h"
#include "tests/learner/kernels/reference_mlp.h"
#include "tests/learner/kernels/test_shapes.h"

namespace flotilla {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A rollout played by the network, then disturbed so that some ratios and
// values lie beyond their clips.
struct Experience {
  Experience(const MlpShape& shape, const std::vector<float>& parameters,
             int64_t size, float disturbance, const KernelTable& kernels,
             std::mt19937* rng, bool forbid = false)
      : size(size),
        observations(RandomNormals(size * shape.observations, 1, rng)),
        continuous(size * shape.actions),
        advantage(RandomNormals(size, 2, rng)),
        returns(RandomNormals(size, 1, rng)),
        log_prob(size),
        value(size),
        discrete(size * shape.choice_count()),
        valid(size, 1) {
    MlpActorCritic network(shape, kernels);
    network.SetParameters(parameters.data());
    std::vector<float> noise = RandomNormals(size * shape.actions, 1, rng);
    if (shape.continuous) {
      network.DecideContinuous(observations.data(), size, noise.data(),
                               continuous.data(), log_prob.data(),
                               value.data());
    } else {
      for (float& u : noise) u = static_cast<float>((*rng)() >> 8) * 0x1p-24f;
      if (forbid) {
        mask.resize(size * shape.actions);
        for (uint8_t& one : mask) one = (*rng)() % 3 == 0 ? 0 : 1;
      }
      network.DecideDiscrete(observations.data(), Mask(), size, noise.data(),
                             discrete.data(), log_prob.data(), value.data());
    }
    if (disturbance == 0) return;
    const std::vector<float> shifts = RandomNormals(2 * size, disturbance, rng);
    for (int64_t i = 0; i < size; ++i) {
      log_prob[i] += shifts[i];
      value[i] += shifts[size + i];
      advantage[i] += 0.5f;
    }
  }

  const uint8_t* Mask() const { return mask.empty() ? nullptr : mask.data(); }

  PpoSamples Samples(const MlpShape& shape) const {
    return {
        .observations = observations.data(),
        .discrete_actions = shape.continuous ? nullptr : discrete.data(),
        .mask = Mask(),
        .continuous_actions = shape.continuous ? continuous.data() : nullptr,
        .log_prob = log_prob.data(),
        .advantage = advantage.data(),
        .returns = returns.data(),
        .value = value.data(),
        .valid = valid.data()};
  }

  int64_t size;
  std::vector<float> observations, continuous, advantage, returns, log_prob,
      value;
  std::vector<int64_t> discrete;
  std::vector<uint8_t> valid, mask;
};

std::vector<int32_t> ShuffledRows(int64_t size, std::mt19937* rng) {
  std::vector<int32_t> rows(size);
  std::iota(rows.begin(), rows.end(), 0);
  std::shuffle(rows.begin(), rows.end(), *rng);
  return rows;
}

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

double Distance(const std::vector<float>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

template <typename Actual>
void ExpectClose(const std::vector<Actual>& actual,
                 const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  const double scale = Largest(expected);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * scale) << "parameter " << i;
  }
}

void ExpectClose(const PpoSums& actual, const PpoSums& expected,
                 double tolerance = 1e-5, double clipped_tolerance = 0) {
  const double n = static_cast<double>(expected.samples);
  EXPECT_EQ(actual.samples, expected.samples);
  EXPECT_NEAR(actual.policy_loss / n, expected.policy_loss / n, tolerance);
  EXPECT_NEAR(actual.value_loss / n, expected.value_loss / n, tolerance);
  EXPECT_NEAR(actual.entropy / n, expected.entropy / n, tolerance);
  EXPECT_NEAR(actual.old_approx_kl / n, expected.old_approx_kl / n, tolerance);
  EXPECT_NEAR(actual.approx_kl / n, expected.approx_kl / n, tolerance);
  EXPECT_NEAR(actual.clipped, expected.clipped, clipped_tolerance);
}

class PpoGradientTest : public EveryKernelTest {
 protected:
  // Compares sums and gradient with the reference's on a minibatch of `size`
  // rows out of more.
  void ExpectEqualsReference(const MlpShape& shape, int64_t size, PpoLoss loss,
                             double share_valid, bool forbid = false) {
    SCOPED_TRACE(Describe(shape));
    const std::vector<float> parameters = RandomParameters(shape, &rng_);
    Experience e(shape, parameters, size + 40, 0.3f, kernels(), &rng_, forbid);
    std::bernoulli_distribution valid(share_valid);
    for (uint8_t& v : e.valid) v = valid(rng_) ? 1 : 0;
    std::vector<int32_t> rows = ShuffledRows(e.size, &rng_);
    rows.resize(size);
    const PpoSamples samples = e.Samples(shape);
    loss.advantage = NormalizeAdvantages(samples, rows);

    std::vector<float> gradient(parameters.size(), kNan);
    PpoGradient ppo(shape, kernels());
    const PpoSums sums = ppo.Compute(parameters.data(), samples, rows, loss,
                                     false, gradient.data());
    PpoSums expected_sums;
    std::vector<double> expected(parameters.size());
    ReferenceMlp(shape, parameters)
        .Ppo(samples, rows, loss, &expected_sums, &expected);
    // Of bfloat16 a number near the middle of two may be rounded to the other.
    if (shape.bfloat16) {
      ExpectClose(sums, expected_sums, 1e-3, 2);
      ExpectClose(gradient, expected, 3e-3);
      // And far fewer are than all.
      MlpShape floats = shape;
      floats.bfloat16 = false;
      std::vector<double> unrounded(parameters.size());
      ReferenceMlp(floats, parameters)
          .Ppo(samples, rows, loss, nullptr, &unrounded);
      EXPECT_LT(Distance(gradient, expected),
                0.1 * Distance(gradient, unrounded));
    } else {
      ExpectClose(sums, expected_sums);
      ExpectClose(gradient, expected, 2e-5);
    }
  }

  std::mt19937 rng_{5};
};
FLOTILLA_FOR_EVERY_KERNEL(PpoGradientTest);
INSTANTIATE_TEST_SUITE_P(Emulated, PpoGradientTest,
                         testing::Values(&EmulatedAmx()), NameOfKernels);

TEST(ReferenceTest, AnalyticGradientEqualsFiniteDifferences) {
  std::mt19937 rng(3);
  std::vector<MlpShape> shapes = TestShapes();
  shapes.push_back({3, {7}, Activation::kTanh, true, 5, false});
  shapes.back().choices = {2, 3};
  for (const MlpShape& shape : shapes) {
    if (ParameterCount(shape) > 2000) continue;
    SCOPED_TRACE(Describe(shape));
    const std::vector<float> start = RandomParameters(shape, &rng);
    const Experience e(shape, start, 12, 0.3f, BestKernels(), &rng);
    const PpoSamples samples = e.Samples(shape);
    const std::vector<int32_t> rows = ShuffledRows(e.size, &rng);
    const PpoLoss loss = {.entropy_cost = 0.1f, .divisor = 12};
    std::vector<double> gradient(start.size());
    ReferenceMlp(shape, start).Ppo(samples, rows, loss, nullptr, &gradient);

    std::vector<double> parameters(start.begin(), start.end());
    std::vector<double> differences(start.size());
    constexpr double kStep = 1e-6;
    const auto loss_with = [&](size_t i, double shift) {
      std::vector<double> moved = parameters;
      moved[i] += shift;
      return ReferenceMlp(shape, moved)
          .Ppo(samples, rows, loss, nullptr, nullptr);
    };
    for (size_t i = 0; i < parameters.size(); ++i) {
      differences[i] =
          (loss_with(i, kStep) - loss_with(i, -kStep)) / (2 * kStep);
    }
    ExpectClose(gradient, differences, 1e-6);
  }
}

TEST_P(PpoGradientTest, EqualsFiniteDifferencesOfTheLoss) {
  const MlpShape shape = {3, {7, 5}, Activation::kTanh, true, 2, false};
  const std::vector<float> parameters = RandomParameters(shape, &rng_);
  const Experience e(shape, parameters, 20, 0.2f, kernels(), &rng_);
  const PpoSamples samples = e.Samples(shape);
  const std::vector<int32_t> rows = ShuffledRows(e.size, &rng_);
  const PpoLoss loss = {.divisor = 20};
  std::vector<float> gradient(parameters.size());
  PpoGradient(shape, kernels())
      .Compute(parameters.data(), samples, rows, loss, false, gradient.data());
  std::vector<double> differences;
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<double> up(parameters.begin(), parameters.end()), down = up;
    up[i] += 1e-6;
    down[i] -= 1e-6;
    const double rise =
        ReferenceMlp(shape, up).Ppo(samples, rows, loss, nullptr, nullptr) -
        ReferenceMlp(shape, down).Ppo(samples, rows, loss, nullptr, nullptr);
    differences.push_back(rise / 2e-6);
  }
  ExpectClose(gradient, differences, 2e-5);
}

TEST_P(PpoGradientTest, EqualsTheDefinitionForEveryShape) {
  for (const MlpShape& shape : TestShapes()) {
    ExpectEqualsReference(shape, 128, {.divisor = 128}, 1);
  }
}

TEST_P(PpoGradientTest, EqualsTheDefinitionForEverySize) {
  const MlpShape shape = {4, {24, 24}, Activation::kTanh, false, 3, false};
  for (const MlpShape& either : {shape, InBfloat16({shape})[0]}) {
    for (const int64_t size :
         {2, 3, 15, 16, 17, 95, 96, 97, 191, 192, 193, 333}) {
      ExpectEqualsReference(either, size, {.divisor = 7}, 1);
    }
  }
}

TEST_P(PpoGradientTest, EqualsTheDefinitionOfBfloat16) {
  for (const MlpShape& shape : InBfloat16(TestShapes())) {
    ExpectEqualsReference(shape, 270, {.divisor = 100}, 0.8);
  }
}

TEST_P(PpoGradientTest, EqualsTheDefinitionWhereActionsAreForbidden) {
  for (const MlpShape& shape : TestShapes()) {
    if (shape.continuous) continue;
    ExpectEqualsReference(shape, 150, {.entropy_cost = 0.1f, .divisor = 150}, 1,
                          /*forbid=*/true);
  }
}

TEST_P(PpoGradientTest, EqualsTheDefinitionOfSeveralChoices) {
  for (const bool share_trunk : {false, true}) {
    MlpShape shape = {6, {20, 16}, Activation::kTanh, share_trunk, 9, false};
    shape.choices = {2, 4, 3};
    for (const bool forbid : {false, true}) {
      ExpectEqualsReference(shape, 150, {.entropy_cost = 0.1f, .divisor = 150},
                            0.8, forbid);
    }
  }
}

TEST_P(PpoGradientTest, EqualsTheDefinitionOfValidRows) {
  for (const MlpShape& shape : TestShapes()) {
    ExpectEqualsReference(shape, 150, {.divisor = 100}, 0.6);
  }
}

TEST_P(PpoGradientTest, EqualsTheDefinitionForOtherCosts) {
  const MlpShape discrete = {4, {20}, Activation::kTanh, true, 4, false};
  const MlpShape continuous = {4, {20}, Activation::kTanh, true, 4, true};
  for (const MlpShape& shape : {discrete, continuous}) {
    ExpectEqualsReference(shape, 210, {.value_clip = 0, .divisor = 210}, 1);
    ExpectEqualsReference(
        shape, 210, {.clip_ratio = 0.05f, .value_clip = 1.5f, .divisor = 210},
        1);
    ExpectEqualsReference(
        shape, 210, {.entropy_cost = 0.5f, .value_cost = 2, .divisor = 1}, 1);
    ExpectEqualsReference(
        shape, 210, {.entropy_cost = 0, .value_cost = 0, .divisor = 210}, 1);
  }
}

TEST_P(PpoGradientTest, UnchangedParametersHaveRatioOneExactly) {
  std::vector<MlpShape> shapes = TestShapesInBoth();
  shapes.push_back({6, {20, 16}, Activation::kTanh, true, 9, false});
  shapes.back().choices = {2, 4, 3};
  for (const MlpShape& shape : shapes) {
    SCOPED_TRACE(Describe(shape));
    const std::vector<float> parameters = RandomParameters(shape, &rng_);
    const Experience e(shape, parameters, 210, 0, kernels(), &rng_);
    std::vector<float> gradient(parameters.size());
    const PpoSums sums =
        PpoGradient(shape, kernels())
            .Compute(parameters.data(), e.Samples(shape),
                     ShuffledRows(e.size, &rng_), {}, false, gradient.data());
    EXPECT_EQ(sums.samples, 210);
    EXPECT_EQ(sums.old_approx_kl, 0);
    EXPECT_EQ(sums.approx_kl, 0);
    EXPECT_EQ(sums.clipped, 0);
  }
}

TEST_P(PpoGradientTest, InvalidRowsAreNeverRead) {
  for (const MlpShape& shape : TestShapesInBoth()) {
    SCOPED_TRACE(Describe(shape));
    const std::vector<float> parameters = RandomParameters(shape, &rng_);
    Experience e(shape, parameters, 300, 0.2f, kernels(), &rng_);
    for (int64_t i = 0; i < e.size; i += 3) {
      e.valid[i] = 0;
      e.log_prob[i] = e.advantage[i] = e.returns[i] = e.value[i] = kNan;
      e.discrete[i] = -1000000;
      std::fill_n(&e.observations[i * shape.observations], shape.observations,
                  kNan);
      std::fill_n(&e.continuous[i * shape.actions], shape.actions, kNan);
    }
    const std::vector<int32_t> rows = ShuffledRows(e.size, &rng_);
    const PpoSamples samples = e.Samples(shape);
    PpoLoss loss;
    loss.advantage = NormalizeAdvantages(samples, rows);
    std::vector<float> gradient(parameters.size());
    const PpoSums sums = PpoGradient(shape, kernels())
                             .Compute(parameters.data(), samples, rows, loss,
                                      false, gradient.data());
    EXPECT_EQ(sums.samples, 200);
    EXPECT_TRUE(std::isfinite(sums.policy_loss));
    EXPECT_TRUE(std::isfinite(sums.value_loss));
    for (const float g : gradient) ASSERT_TRUE(std::isfinite(g));
  }
}

TEST_P(PpoGradientTest, NoValidRowsGiveAZeroGradient) {
  const MlpShape shape = {4, {20}, Activation::kTanh, false, 2, true};
  const std::vector<float> parameters = RandomParameters(shape, &rng_);
  Experience e(shape, parameters, 10, 0.2f, kernels(), &rng_);
  e.valid.assign(e.valid.size(), 0);
  const std::vector<int32_t> rows = ShuffledRows(e.size, &rng_);
  std::vector<float> gradient(parameters.size(), 3);
  PpoGradient ppo(shape, kernels());
  const PpoSums sums = ppo.Compute(parameters.data(), e.Samples(shape), rows,
                                   {}, false, gradient.data());
  EXPECT_EQ(sums.samples, 0);
  EXPECT_EQ(gradient, std::vector<float>(parameters.size(), 0));
}

TEST_P(PpoGradientTest, NonFiniteSamplesShowInTheGradient) {
  const MlpShape shape = {4, {20}, Activation::kTanh, true, 3, false};
  const std::vector<float> parameters = RandomParameters(shape, &rng_);
  for (const int field : {0, 1, 2}) {
    Experience e(shape, parameters, 70, 0.2f, kernels(), &rng_);
    (field == 0   ? e.advantage
     : field == 1 ? e.returns
                  : e.observations)[50] = kNan;
    std::vector<float> gradient(parameters.size());
    PpoGradient(shape, kernels())
        .Compute(parameters.data(), e.Samples(shape),
                 ShuffledRows(e.size, &rng_), {}, false, gradient.data());
    EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](float g) {
      return std::isnan(g);
    })) << field;
  }
}

TEST_P(PpoGradientTest, AccumulatingAddsToTheGradient) {
  for (const MlpShape& shape : TestShapes()) {
    SCOPED_TRACE(Describe(shape));
    const std::vector<float> parameters = RandomParameters(shape, &rng_);
    const Experience e(shape, parameters, 60, 0.2f, kernels(), &rng_);
    const std::vector<int32_t> rows = ShuffledRows(e.size, &rng_);
    PpoGradient ppo(shape, kernels());
    std::vector<float> once(parameters.size()), added(parameters.size(), 2);
    ppo.Compute(parameters.data(), e.Samples(shape), rows, {}, false,
                once.data());
    ppo.Compute(parameters.data(), e.Samples(shape), rows, {}, true,
                added.data());
    for (size_t i = 0; i < once.size(); ++i) {
      ASSERT_EQ(added[i], 2 + once[i]);
    }
  }
}

// NaN included, which nothing times 0 takes away.
TEST_P(PpoGradientTest, SameInputsGiveTheSameBitsWhateverCameBefore) {
  for (const MlpShape& shape : TestShapesInBoth()) {
    SCOPED_TRACE(Describe(shape));
    const std::vector<float> parameters = RandomParameters(shape, &rng_);
    const Experience e(shape, parameters, 130, 0.2f, kernels(), &rng_);
    Experience other(shape, parameters, 190, 0.5f, kernels(), &rng_);
    std::fill(other.observations.begin(), other.observations.end(), kNan);
    const std::vector<int32_t> rows = ShuffledRows(e.size, &rng_);
    std::vector<float> first(parameters.size()), second(parameters.size());
    PpoGradient fresh(shape, kernels()), used(shape, kernels());
    const std::vector<float> others = RandomParameters(shape, &rng_);
    used.Compute(others.data(), other.Samples(shape),
                 ShuffledRows(other.size, &rng_), {}, false, second.data());
    const PpoSums a = fresh.Compute(parameters.data(), e.Samples(shape), rows,
                                    {}, false, first.data());
    const PpoSums b = used.Compute(parameters.data(), e.Samples(shape), rows,
                                   {}, false, second.data());
    EXPECT_EQ(first, second);
    EXPECT_EQ(a.policy_loss, b.policy_loss);
    EXPECT_EQ(a.value_loss, b.value_loss);
    EXPECT_EQ(a.entropy, b.entropy);
  }
}

TEST_P(PpoGradientTest, ShardsOnThreadsAddUpToTheWhole) {
  for (const MlpShape& shape : TestShapes()) {
    SCOPED_TRACE(Describe(shape));
    const std::vector<float> parameters = RandomParameters(shape, &rng_);
    const Experience e(shape, parameters, 200, 0.2f, kernels(), &rng_);
    const std::vector<int32_t> rows = ShuffledRows(e.size, &rng_);
    const PpoSamples samples = e.Samples(shape);
    PpoLoss loss = {.divisor = 200};
    loss.advantage = NormalizeAdvantages(samples, rows);

    std::vector<float> whole(parameters.size());
    const PpoSums whole_sums = PpoGradient(shape, kernels())
                                   .Compute(parameters.data(), samples, rows,
                                            loss, false, whole.data());

    constexpr int kShards = 3;
    std::vector<std::vector<float>> parts(
        kShards, std::vector<float>(parameters.size()));
    std::vector<PpoSums> part_sums(kShards);
    std::vector<std::thread> threads;
    for (int shard = 0; shard < kShards; ++shard) {
      threads.emplace_back([&, shard] {
        const size_t first = shard * rows.size() / kShards;
        const size_t last = (shard + 1) * rows.size() / kShards;
        PpoGradient ppo(shape, kernels());
        part_sums[shard] =
            ppo.Compute(parameters.data(), samples,
                        std::span(rows).subspan(first, last - first), loss,
                        false, parts[shard].data());
      });
    }
    for (std::thread& thread : threads) thread.join();

    PpoSums sums;
    std::vector<double> total(parameters.size());
    for (int shard = 0; shard < kShards; ++shard) {
      sums += part_sums[shard];
      for (size_t i = 0; i < total.size(); ++i) total[i] += parts[shard][i];
    }
    ExpectClose(whole, total, 1e-6);
    ExpectClose(sums, whole_sums);
  }
}

TEST(NormalizeAdvantagesTest, UsesTheUnbiasedDeviationOfValidRows) {
  const std::vector<float> advantage = {1, 100, 2, 4, 9};
  const std::vector<uint8_t> valid = {1, 0, 1, 1, 1};
  PpoSamples samples;
  samples.advantage = advantage.data();
  samples.valid = valid.data();
  const std::vector<int32_t> rows = {3, 1, 0, 2};
  const AdvantageScale scale = NormalizeAdvantages(samples, rows);
  EXPECT_FLOAT_EQ(scale.mean, 7.0f / 3);
  // Deviations -4/3, -1/3, 5/3.
  EXPECT_FLOAT_EQ(scale.scale,
                  static_cast<float>(1 / (std::sqrt(42.0 / 9 / 2) + 1e-8)));
}

TEST(NormalizeAdvantagesTest, OneSampleNormalizesToZero) {
  const std::vector<float> advantage = {5};
  PpoSamples samples;
  samples.advantage = advantage.data();
  const std::vector<int32_t> rows = {0};
  const AdvantageScale scale = NormalizeAdvantages(samples, rows);
  EXPECT_EQ((advantage[0] - scale.mean) * scale.scale, 0);
}

TEST(NormalizeAdvantagesTest, EqualAdvantagesStayFinite) {
  const std::vector<float> advantage(8, 0.1f);
  PpoSamples samples;
  samples.advantage = advantage.data();
  const std::vector<int32_t> rows = {0, 1, 2, 3};
  const AdvantageScale scale = NormalizeAdvantages(samples, rows);
  EXPECT_NEAR((advantage[0] - scale.mean) * scale.scale, 0, 1);
}

}  // namespace
}  // namespace flotilla
