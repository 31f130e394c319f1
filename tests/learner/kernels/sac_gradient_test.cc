#include "learner/kernels/sac_gradient.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/learner/kernels/every_kernel_test.h"
#include "tests/learner/kernels/test_shapes.h"

namespace flotilla {
namespace {

constexpr int64_t kRows = 109;  // a tile and some
constexpr double kAlpha = 0.3;

struct Shapes {
  MlpShape actor, critics;
};

Shapes MakeShapes(int observations, int actions, std::vector<int> hidden,
                  Activation activation) {
  Shapes shapes;
  shapes.actor.observations = observations;
  shapes.actor.hidden = hidden;
  shapes.actor.activation = activation;
  shapes.actor.actions = actions;
  shapes.actor.output = MlpOutput::kSquashedGaussian;
  shapes.critics = shapes.actor;
  shapes.critics.observations = observations + actions;
  shapes.critics.actions = 1;
  shapes.critics.output = MlpOutput::kTwinCritics;
  return shapes;
}

std::vector<Shapes> AllShapes() {
  return {MakeShapes(3, 1, {20, 16}, Activation::kRelu),
          MakeShapes(17, 6, {7, 33}, Activation::kRelu),
          MakeShapes(40, 3, {5}, Activation::kTanh),
          MakeShapes(1, 17, {12, 3, 9}, Activation::kTanh)};
}

// log(1 - tanh(u)^2) = -2 log cosh(u). As it stands it is inexact from |u| = 10 on,
// even in float64, and slopes by differences are then wrong.
double LogTanhSlope(double u) {
  const double x = std::abs(u);
  return -2 * (x + std::log1p(std::exp(-2 * x)) - std::numbers::ln2);
}

// Soft actor-critic's losses in float64 and plain loops, from the paper.
class ReferenceSac {
 public:
  struct Drawn {
    std::vector<double> action;
    double log_prob = 0;
  };

  ReferenceSac(const Shapes& shapes, const std::vector<float>& actor,
               const std::vector<float>& critics,
               const std::vector<float>& targets,
               const std::vector<double>& center,
               const std::vector<double>& scale)
      : shapes_(shapes),
        actor_layout_(ParameterLayout(shapes.actor)),
        critics_layout_(ParameterLayout(shapes.critics)),
        center_(center),
        scale_(scale),
        actor_(actor.begin(), actor.end()),
        critics_(critics.begin(), critics.end()),
        targets_(targets.begin(), targets.end()) {}

  // Appendix C of the paper.
  Drawn Draw(const float* observation, const float* noise) const {
    std::vector<double> x(observation,
                          observation + shapes_.actor.observations);
    x = Hidden(shapes_.actor, actor_, "actor", x);
    const std::vector<double> mean =
        Linear(shapes_.actor, actor_, "actor_mean", x);
    const std::vector<double> bent =
        Linear(shapes_.actor, actor_, "actor_logstd", x);
    Drawn drawn;
    for (size_t a = 0; a < mean.size(); ++a) {
      const double log_std = -5 + 3.5 * (std::tanh(bent[a]) + 1);
      const double eps = noise[a];
      const double u = mean[a] + std::exp(log_std) * eps;
      drawn.action.push_back(center_[a] + scale_[a] * std::tanh(u));
      drawn.log_prob += -0.5 * eps * eps - log_std -
                        0.5 * std::log(2 * std::numbers::pi) -
                        std::log(scale_[a]) - LogTanhSlope(u);
    }
    return drawn;
  }

  std::array<double, 2> Q(const std::vector<double>& parameters,
                          const float* observation,
                          const std::vector<double>& action) const {
    std::vector<double> x(observation,
                          observation + shapes_.actor.observations);
    x.insert(x.end(), action.begin(), action.end());
    std::array<double, 2> q{};
    for (size_t i = 0; i < q.size(); ++i) {
      const std::string name = "critic" + std::to_string(i + 1);
      q[i] = Linear(shapes_.critics, parameters, name + "_q",
                    Hidden(shapes_.critics, parameters, name, x))[0];
    }
    return q;
  }

  std::vector<double> Aims(const SacSamples& samples) const {
    const int D = shapes_.actor.observations, A = shapes_.actor.actions;
    std::vector<double> aims;
    for (int64_t n = 0; n < samples.rows; ++n) {
      const float* next = samples.next_observations + n * D;
      const Drawn drawn = Draw(next, samples.noise + n * A);
      const auto [q1, q2] = Q(targets_, next, drawn.action);
      aims.push_back(samples.n_step_return[n] +
                     samples.discount[n] *
                         (std::min(q1, q2) - kAlpha * drawn.log_prob));
    }
    return aims;
  }

  SacSums Critics(const SacSamples& samples,
                  const std::vector<double>& aims) const {
    const int D = shapes_.actor.observations, A = shapes_.actor.actions;
    SacSums sums;
    for (int64_t n = 0; n < samples.rows; ++n) {
      const float* action = samples.actions + n * A;
      const auto [q1, q2] =
          Q(critics_, samples.observations + n * D, {action, action + A});
      sums.loss += (q1 - aims[n]) * (q1 - aims[n]);
      sums.loss += (q2 - aims[n]) * (q2 - aims[n]);
      sums.q += (q1 + q2) / 2;
    }
    return sums;
  }

  SacSums Policy(const SacSamples& samples) const {
    const int D = shapes_.actor.observations, A = shapes_.actor.actions;
    SacSums sums;
    for (int64_t n = 0; n < samples.rows; ++n) {
      const float* seen = samples.observations + n * D;
      const Drawn drawn = Draw(seen, samples.noise + n * A);
      const auto [q1, q2] = Q(critics_, seen, drawn.action);
      sums.loss += kAlpha * drawn.log_prob - std::min(q1, q2);
      sums.log_prob += drawn.log_prob;
    }
    return sums;
  }

  std::vector<double>& actor() { return actor_; }
  std::vector<double>& critics() { return critics_; }

 private:
  static const ParameterBlock& Find(const std::vector<ParameterBlock>& layout,
                                    const std::string& name) {
    for (const ParameterBlock& block : layout) {
      if (block.name == name) return block;
    }
    std::abort();
  }

  std::vector<double> Linear(const MlpShape& shape,
                             const std::vector<double>& parameters,
                             const std::string& name,
                             const std::vector<double>& in) const {
    const std::vector<ParameterBlock>& layout =
        shape.output == MlpOutput::kTwinCritics ? critics_layout_
                                                : actor_layout_;
    const ParameterBlock& weight = Find(layout, name + ".weight");
    const ParameterBlock& bias = Find(layout, name + ".bias");
    std::vector<double> out(weight.shape[0]);
    for (size_t o = 0; o < out.size(); ++o) {
      out[o] = parameters[bias.offset + o];
      for (size_t i = 0; i < in.size(); ++i) {
        out[o] += parameters[weight.offset + o * in.size() + i] * in[i];
      }
    }
    return out;
  }

  std::vector<double> Hidden(const MlpShape& shape,
                             const std::vector<double>& parameters,
                             const std::string& name,
                             std::vector<double> x) const {
    for (size_t i = 0; i < shape.hidden.size(); ++i) {
      x = Linear(shape, parameters, name + "." + std::to_string(2 * i), x);
      for (double& v : x) {
        v = shape.activation == Activation::kRelu ? std::max(v, 0.0)
                                                  : std::tanh(v);
      }
    }
    return x;
  }

  const Shapes shapes_;
  const std::vector<ParameterBlock> actor_layout_, critics_layout_;
  const std::vector<double> center_, scale_;
  std::vector<double> actor_, critics_;
  const std::vector<double> targets_;
};

// Networks and transitions, drawn.
struct Problem {
  Problem(const Shapes& of, std::mt19937* rng)
      : shapes(of),
        actor(RandomParameters(of.actor, rng)),
        critics(RandomParameters(of.critics, rng)),
        targets(RandomParameters(of.critics, rng)) {
    const int D = of.actor.observations, A = of.actor.actions;
    seen = RandomNormals(kRows * D, 1, rng);
    next = RandomNormals(kRows * D, 1, rng);
    action = RandomNormals(kRows * A, 1, rng);
    noise = RandomNormals(kRows * A, 1, rng);
    gained = RandomNormals(kRows, 1, rng);
    for (int64_t n = 0; n < kRows; ++n) {
      discount.push_back((*rng)() % 5 == 0 ? 0.0f : 0.9f);
    }
    for (int a = 0; a < A; ++a) {
      center.push_back(0.5f * static_cast<float>(a % 3));
      scale.push_back(1.0f + 0.25f * static_cast<float>(a % 4));
      log_scale += std::log(scale.back());
    }
  }

  SacSamples Samples() const {
    return {.rows = kRows,
            .observations = seen.data(),
            .actions = action.data(),
            .n_step_return = gained.data(),
            .discount = discount.data(),
            .next_observations = next.data(),
            .noise = noise.data()};
  }
  SacGradient::Parameters Parameters() const {
    return {actor.data(), critics.data(), targets.data()};
  }
  ActionRange Range() const {
    return {center.data(), scale.data(), static_cast<float>(log_scale)};
  }
  ReferenceSac Reference() const {
    return {shapes,
            actor,
            critics,
            targets,
            {center.begin(), center.end()},
            {scale.begin(), scale.end()}};
  }

  const Shapes shapes;
  const std::vector<float> actor, critics, targets;
  std::vector<float> seen, next, action, noise, gained, discount;
  std::vector<float> center, scale;
  double log_scale = 0;
};

// The slopes of `loss` along each of `parameters`, in float64.
template <typename Loss>
std::vector<double> FiniteDifferences(std::vector<double>* parameters,
                                      Loss loss) {
  std::vector<double> slopes;
  for (double& p : *parameters) {
    constexpr double kStep = 1e-6;
    const double was = p;
    p = was + kStep;
    const double above = loss();
    p = was - kStep;
    slopes.push_back((above - loss()) / (2 * kStep));
    p = was;
  }
  return slopes;
}

void ExpectGradient(const std::vector<float>& got,
                    const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const double slope : want) {
    largest = std::max(largest, std::abs(slope));
  }
  ASSERT_GT(largest, 0.1);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 3e-6 * largest) << "parameter " << i;
  }
}

class SacGradientTest : public EveryKernelTest {
 protected:
  // Each kernel's numbers are drawn alike: they are computed for the first.
  template <typename Compute>
  static const std::vector<double>& Once(const std::vector<float>& parameters,
                                         Compute compute) {
    static std::map<std::vector<float>, std::vector<double>> known;
    std::vector<double>& slopes = known[parameters];
    if (slopes.empty()) slopes = compute();
    return slopes;
  }

  std::mt19937 rng_{7};
};

TEST_P(SacGradientTest, CriticsAreTheFiniteDifferences) {
  for (const Shapes& shapes : AllShapes()) {
    SCOPED_TRACE(Describe(shapes.critics));
    const Problem problem(shapes, &rng_);
    SacGradient kernels(shapes.actor, shapes.critics, this->kernels());
    std::vector<float> gradient(problem.critics.size(), 7);
    const SacSums got =
        kernels.Critics(problem.Parameters(), problem.Samples(),
                        problem.Range(), kAlpha, gradient.data());

    ReferenceSac reference = problem.Reference();
    const std::vector<double> aims = reference.Aims(problem.Samples());
    const SacSums want = reference.Critics(problem.Samples(), aims);
    EXPECT_NEAR(got.loss, want.loss, 1e-5 * want.loss);
    EXPECT_NEAR(got.q, want.q, 1e-4);
    ExpectGradient(gradient, Once(problem.critics, [&] {
                     return FiniteDifferences(&reference.critics(), [&] {
                       return reference.Critics(problem.Samples(), aims).loss;
                     });
                   }));
  }
}

TEST_P(SacGradientTest, ThePolicyIsTheFiniteDifferences) {
  for (const Shapes& shapes : AllShapes()) {
    SCOPED_TRACE(Describe(shapes.actor));
    const Problem problem(shapes, &rng_);
    SacGradient kernels(shapes.actor, shapes.critics, this->kernels());
    std::vector<float> gradient(problem.actor.size(), 7);
    SacSamples read = problem.Samples();  // all that the policy's reads
    read.actions = read.n_step_return = read.discount = nullptr;
    read.next_observations = nullptr;
    SacGradient::Parameters parameters = problem.Parameters();
    parameters.targets = nullptr;
    const SacSums got = kernels.Policy(parameters, read, problem.Range(),
                                       kAlpha, gradient.data());

    ReferenceSac reference = problem.Reference();
    const SacSums want = reference.Policy(problem.Samples());
    EXPECT_NEAR(got.loss, want.loss, 1e-5 * std::abs(want.loss) + 1e-4);
    EXPECT_NEAR(got.log_prob, want.log_prob,
                1e-5 * std::abs(want.log_prob) + 1e-4);
    ExpectGradient(gradient, Once(problem.actor, [&] {
                     return FiniteDifferences(&reference.actor(), [&] {
                       return reference.Policy(problem.Samples()).loss;
                     });
                   }));
  }
}

// Where tanh is 1 as far as a float can tell.
TEST_P(SacGradientTest, FarOutLogProbabilitiesAreStillTheFormulas) {
  const Shapes shapes = MakeShapes(2, 1, {4}, Activation::kRelu);
  Problem problem(shapes, &rng_);
  for (float& e : problem.noise) e *= 3;
  std::vector<float> actor(problem.actor.size(), 0);
  actor[actor.size() - 1] = 9;  // the bias of log std: tanh 1, std e^2
  SacGradient kernels(shapes.actor, shapes.critics, this->kernels());
  std::vector<float> gradient(actor.size());
  SacGradient::Parameters parameters = problem.Parameters();
  parameters.actor = actor.data();
  const SacSums got = kernels.Policy(parameters, problem.Samples(),
                                     problem.Range(), kAlpha, gradient.data());
  double want = 0;
  for (const float noise : problem.noise) {
    const double e = noise, log_std = -5 + 3.5 * (std::tanh(9.0) + 1);
    want += -0.5 * e * e - log_std - 0.5 * std::log(2 * std::numbers::pi) -
            LogTanhSlope(std::exp(log_std) * e) - problem.log_scale;
  }
  ASSERT_GT(want, 1000);  // far out indeed
  EXPECT_NEAR(got.log_prob, want, 1e-5 * want);
  for (const float g : gradient) EXPECT_TRUE(std::isfinite(g));
}

TEST_P(SacGradientTest, ShardsAddUpToTheWhole) {
  const Shapes shapes = AllShapes()[1];
  const int D = shapes.actor.observations, A = shapes.actor.actions;
  const Problem problem(shapes, &rng_);
  SacGradient kernels(shapes.actor, shapes.critics, this->kernels());
  std::vector<float> whole(problem.actor.size());
  const SacSums sums = kernels.Policy(problem.Parameters(), problem.Samples(),
                                      problem.Range(), kAlpha, whole.data());
  std::vector<double> added(whole.size());
  double log_prob = 0;
  for (const auto& [first, rows] :
       {std::pair<int64_t, int64_t>{0, 20}, {20, 1}, {21, kRows - 21}}) {
    SacSamples samples = problem.Samples();
    samples.rows = rows;
    samples.observations += first * D;
    samples.noise += first * A;
    std::vector<float> part(whole.size());
    log_prob += kernels
                    .Policy(problem.Parameters(), samples, problem.Range(),
                            kAlpha, part.data())
                    .log_prob;
    for (size_t i = 0; i < part.size(); ++i) added[i] += part[i];
  }
  EXPECT_NEAR(log_prob, sums.log_prob, 1e-5 * std::abs(sums.log_prob) + 1e-5);
  ExpectGradient(whole, added);
}

// Q1 = 1 + a and Q2 = 1 + 3a are equal at a = 0, which is what the actor's mean of 0
// makes without noise; -min(Q1, Q2) has the slope -2 there.
TEST_P(SacGradientTest, EqualCriticsShareTheGradient) {
  const Shapes shapes = MakeShapes(1, 1, {1}, Activation::kRelu);
  // hidden = relu(0 observation + 1 action + 1), Q = weight hidden + bias.
  const std::vector<float> critics = {0, 1, 1, 1, 0, 0, 1, 1, 3, -2};
  const std::vector<float> actor(ParameterCount(shapes.actor), 0);
  const std::vector<float> seen(kRows, 0.7f), noise(kRows, 0);
  const float center = 0, scale = 1.5f;
  SacGradient kernels(shapes.actor, shapes.critics, this->kernels());
  std::vector<float> gradient(actor.size());
  SacSamples samples;
  samples.rows = kRows;
  samples.observations = seen.data();
  samples.noise = noise.data();
  kernels.Policy({actor.data(), critics.data(), nullptr}, samples,
                 {&center, &scale, std::log(scale)}, kAlpha, gradient.data());
  const int64_t mean_bias = ParameterLayout(shapes.actor)[3].offset;
  EXPECT_FLOAT_EQ(gradient[mean_bias], -2 * scale * kRows);
}

// Of whichever network, wherever it is: nothing may hide it.
TEST_P(SacGradientTest, BrokenParametersShowInTheLoss) {
  const Shapes shapes = AllShapes()[0];
  const Problem problem(shapes, &rng_);
  SacGradient kernels(shapes.actor, shapes.critics, this->kernels());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> gradient(problem.critics.size());
  for (const size_t first : {size_t{0}, problem.critics.size() / 2}) {
    std::vector<float> broken = problem.critics;
    broken[first + broken.size() / 2 - 1] = nan;  // the bias of one Q
    SacGradient::Parameters parameters = problem.Parameters();
    parameters.targets = broken.data();
    EXPECT_TRUE(
        std::isnan(kernels
                       .Critics(parameters, problem.Samples(), problem.Range(),
                                kAlpha, gradient.data())
                       .loss));
    parameters = problem.Parameters();
    parameters.critics = broken.data();
    EXPECT_TRUE(
        std::isnan(kernels
                       .Critics(parameters, problem.Samples(), problem.Range(),
                                kAlpha, gradient.data())
                       .loss));
    EXPECT_TRUE(std::isnan(kernels
                               .Policy(parameters, problem.Samples(),
                                       problem.Range(), kAlpha, gradient.data())
                               .loss));
  }
  std::vector<float> broken = problem.actor;
  broken.back() = nan;
  SacGradient::Parameters parameters = problem.Parameters();
  parameters.actor = broken.data();
  EXPECT_TRUE(std::isnan(kernels
                             .Policy(parameters, problem.Samples(),
                                     problem.Range(), kAlpha, gradient.data())
                             .loss));
}

FLOTILLA_FOR_EVERY_KERNEL(SacGradientTest);

}  // namespace
}  // namespace flotilla
