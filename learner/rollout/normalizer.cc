#include "learner/rollout/normalizer.h"

#include <algorithm>
#include <cmath>

#include "learner/device/host.h"

namespace flotilla {
namespace {

constexpr float kClip = 10;
constexpr double kEpsilon = 1e-8;

double Variance(double count, double sum, double squares) {
  const double mean = sum / count;
  return std::max(0.0, squares / count - mean * mean);
}

// Adds `kRows` rows, and their squares.
template <int64_t kRows>
void Note(const float* rows, int64_t stride, int64_t features,
          double* __restrict sum, double* __restrict squares) {
  for (int64_t i = 0; i < features; ++i) {
    double s = sum[i], q = squares[i];
    for (int64_t r = 0; r < kRows; ++r) {
      const double x = rows[r * stride + i];
      s += x;
      q += x * x;
    }
    sum[i] = s;
    squares[i] = q;
  }
}

}  // namespace

Normalizer::Normalizer(const v1::ModelConfig& config, double discount,
                       int64_t features, int64_t rows)
    : features_(config.normalize_observations() ? features : 0),
      rows_(config.normalize_rewards() ? rows : 0),
      discount_(discount),
      mean_(features_, 0.0f),
      scale_(features_, 1.0f),
      discounted_return_(rows_, 0.0) {
  if (features_ > 0) {
    observation_sums_ = torch::zeros({1 + 2 * features_}, torch::kFloat64);
  }
  if (rows_ > 0) reward_sums_ = torch::zeros({3}, torch::kFloat64);
  noted_.assign(observation_sums_.numel() + reward_sums_.numel(), 0.0);
}

Normalizer Normalizer::ForEvaluation() const {
  Normalizer copy = *this;
  copy.rows_ = 0;
  copy.observation_sums_ = observation_sums_.clone();
  copy.reward_sums_ = torch::zeros({0}, torch::kFloat64);
  return copy;
}

void Normalizer::ScaleAs(const Normalizer& other) {
  mean_ = other.mean_;
  scale_ = other.scale_;
  reward_scale_ = other.reward_scale_;
}

void Normalizer::Observe(float* observation, int64_t rows, int64_t stride) {
  if (features_ == 0) return;
  double* sum = noted_.data() + 1;
  double* squares = sum + features_;
  noted_[0] += static_cast<double>(rows);
  // Sums are loaded and stored once for a few rows, and added up in the rows' order.
  constexpr int64_t kRows = 8;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    Note<kRows>(observation + r * stride, stride, features_, sum, squares);
  }
  for (; r < rows; ++r) {
    Note<1>(observation + r * stride, stride, features_, sum, squares);
  }
  Scale(observation, rows, stride);
}

void Normalizer::Scale(float* observation, int64_t rows, int64_t stride) const {
  if (features_ == 0) return;
  for (int64_t r = 0; r < rows; ++r) {
    float* x = observation + r * stride;
    for (int64_t i = 0; i < features_; ++i) {
      x[i] = std::clamp((x[i] - mean_[i]) * scale_[i], -kClip, kClip);
    }
  }
}

void Normalizer::Reward(int64_t first, int64_t n, const uint8_t* ended,
                        const uint8_t* valid, float* reward) {
  if (rows_ == 0) return;
  double* noted = noted_.data() + observation_sums_.numel();
  for (int64_t i = 0; i < n; ++i) {
    double& running = discounted_return_[first + i];
    if (valid[i]) {
      running = running * discount_ + reward[i];
      noted[0] += 1;
      noted[1] += running;
      noted[2] += running * running;
    }
    if (ended[i]) running = 0;
    reward[i] = std::clamp(reward[i] * reward_scale_, -kClip, kClip);
  }
}

void Normalizer::Forget(int64_t first, int64_t n) {
  if (rows_ == 0) return;
  std::fill_n(discounted_return_.begin() + first, n, 0.0);
}

std::vector<double> Normalizer::Take() {
  std::vector<double> taken(noted_.size(), 0.0);
  taken.swap(noted_);
  return taken;
}

void Normalizer::Add(std::span<const double> taken) {
  double* observations = Host<double>(observation_sums_);
  for (int64_t i = 0; i < observation_sums_.numel(); ++i) {
    observations[i] += taken[i];
  }
  double* rewards = Host<double>(reward_sums_);
  for (int64_t i = 0; i < reward_sums_.numel(); ++i) {
    rewards[i] += taken[observation_sums_.numel() + i];
  }
  SumsWereReplaced();
}

// Sums of nothing take the place of others where a run goes back to its start.
void Normalizer::SumsWereReplaced() {
  std::fill(mean_.begin(), mean_.end(), 0.0f);
  std::fill(scale_.begin(), scale_.end(), 1.0f);
  reward_scale_ = 1;
  const double* o = Host<double>(observation_sums_);
  for (int64_t i = 0; i < features_ && o[0] > 0; ++i) {
    mean_[i] = static_cast<float>(o[1 + i] / o[0]);
    scale_[i] = static_cast<float>(
        1 /
        std::sqrt(Variance(o[0], o[1 + i], o[1 + features_ + i]) + kEpsilon));
  }
  const double* r = Host<double>(reward_sums_);
  if (rows_ > 0 && r[0] > 0) {
    reward_scale_ = static_cast<float>(
        1 / std::sqrt(Variance(r[0], r[1], r[2]) + kEpsilon));
  }
}

}  // namespace flotilla
