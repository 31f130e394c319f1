// Diagnostics of what is seen and done: grids, points, several leaves, masks.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "envserver/envs/diagnostic.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

class Squared final : public Diagnostic {
 public:
  Squared() : Diagnostic("Squared") {
    AddObservation("", v1::FLOAT32, {kSide * kSide}, -1, 1);
    AddChoice("", 8);
  }

  absl::Status Reset(uint64_t seed, Row observation) override {
    Random random(seed);
    target_.assign(kSide * kSide, false);
    for (int placed = 0; placed < kTargets;) {
      const int cell = static_cast<int>(random.Below(kSide * kSide));
      if (!OnEdge(cell / kSide, cell % kSide) || target_[cell]) continue;
      target_[cell] = true;
      ++placed;
    }
    y_ = x_ = kMiddle;
    steps_ = reached_ = 0;
    Observe(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    constexpr std::pair<int, int> kMoves[] = {
        {-1, 0}, {-1, 1}, {0, 1}, {1, 1}, {1, 0}, {1, -1}, {0, -1}, {-1, -1}};
    const auto [dy, dx] = kMoves[ReadValue<int64_t>(action[0])];
    y_ += dy;
    x_ += dx;
    Outcome outcome;
    if (OnEdge(y_, x_)) {
      if (target_[y_ * kSide + x_]) {
        target_[y_ * kSide + x_] = false;
        outcome.reward = 1.0f / kTargets;
        ++reached_;
      }
      y_ = x_ = kMiddle;
    }
    outcome.terminated = ++steps_ == kTargets * kMiddle;
    score_ = static_cast<double>(reached_) / kTargets;
    Observe(observation);
    return outcome;
  }

 private:
  static constexpr int kMiddle = 2;  // and the way to each target
  static constexpr int kSide = 2 * kMiddle + 1;
  static constexpr int kTargets = 4;

  static bool OnEdge(int y, int x) {
    return std::max(std::abs(y - kMiddle), std::abs(x - kMiddle)) == kMiddle;
  }

  void Observe(Row observation) const {
    for (int cell = 0; cell < kSide * kSide; ++cell) {
      const bool here = cell == y_ * kSide + x_;
      WriteValue(observation[0], cell,
                 here ? -1.0f : (target_[cell] ? 1.0f : 0.0f));
    }
  }

  std::vector<bool> target_;  // [side, side]
  int y_ = 0;
  int x_ = 0;
  int steps_ = 0;
  int reached_ = 0;
};

class Continuous final : public Diagnostic {
 public:
  Continuous() : Diagnostic("Continuous") {
    AddObservation("", v1::FLOAT32, {6}, -2, 2);
    v1::Leaf* action = spec_.add_action();
    action->set_dtype(v1::FLOAT32);
    action->add_shape(2);
    action->add_low(-1);
    action->add_high(1);
    spec_.set_max_episode_steps(50);
  }

  absl::Status Reset(uint64_t seed, Row observation) override {
    Random random(seed);
    for (Axis& axis : axes_) {
      axis.position = random.Uniform(-1, 1);
      axis.velocity = 0;
      axis.target = random.Uniform(-1, 1);
    }
    Observe(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    const double before = Distance();
    bool outside = false;
    for (size_t i = 0; i < 2; ++i) {
      Axis& axis = axes_[i];
      const float push =
          std::clamp(ReadValue<float>(action[0], i), -1.0f, 1.0f);
      axis.velocity = std::clamp(axis.velocity + 0.1 * push, -1.0, 1.0);
      axis.position += axis.velocity;
      outside = outside || std::abs(axis.position) > 1;
      axis.position = std::clamp(axis.position, -1.0, 1.0);
    }
    const bool reached = !outside && Distance() < 0.1;
    Outcome outcome;
    outcome.reward = static_cast<float>(before - Distance() +
                                        (outside ? -1 : (reached ? 1 : 0)));
    outcome.terminated = outside || reached;
    score_ = reached ? 1 : 0;
    Observe(observation);
    return outcome;
  }

 private:
  struct Axis {
    double position = 0;
    double velocity = 0;
    double target = 0;
  };

  double Distance() const {
    return std::hypot(axes_[0].target - axes_[0].position,
                      axes_[1].target - axes_[1].position);
  }

  void Observe(Row observation) const {
    for (size_t i = 0; i < 2; ++i) {
      const Axis& axis = axes_[i];
      WriteValue(observation[0], i, static_cast<float>(axis.position));
      WriteValue(observation[0], 2 + i, static_cast<float>(axis.velocity));
      WriteValue(observation[0], 4 + i,
                 static_cast<float>(axis.target - axis.position));
    }
  }

  Axis axes_[2];
};

class SpacesEnvironment final : public Diagnostic {
 public:
  explicit SpacesEnvironment(const std::string& hide)
      : Diagnostic("Spaces"), hide_(hide) {
    AddObservation("flags", v1::UINT8, {kFlags}, 0, 1);
    AddObservation("image", v1::UINT8, {kSide, kSide}, 0, 255);
    AddChoice("flags", 2);
    AddChoice("image", 4);
  }

  absl::Status Reset(uint64_t seed, Row observation) override {
    Random random(seed);
    int up = 0;
    for (int i = 0; i < kFlags; ++i) {
      const uint64_t flag = random.Below(2);
      up += static_cast<int>(flag);
      WriteValue(observation[0], i, static_cast<uint8_t>(flag));
    }
    most_up_ = 2 * up > kFlags ? 1 : 0;
    bright_ = static_cast<int64_t>(random.Below(4));
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const int quarter = y / (kSide / 2) * 2 + x / (kSide / 2);
        const uint64_t pixel =
            random.Below(128) + (quarter == bright_ ? 96 : 0);
        WriteValue(observation[1], y * kSide + x, static_cast<uint8_t>(pixel));
      }
    }
    Hide(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    const bool right = ReadValue<int64_t>(action[0]) == most_up_ &&
                       ReadValue<int64_t>(action[1]) == bright_;
    score_ = right ? 1 : 0;
    for (std::span<std::byte> leaf : observation) {
      std::fill(leaf.begin(), leaf.end(), std::byte{0});
    }
    return Outcome{.reward = static_cast<float>(score_), .terminated = true};
  }

 private:
  static constexpr int kFlags = 5;
  static constexpr int kSide = 36;  // as small as a CNN takes it

  void Hide(Row observation) const {
    for (size_t i = 0; i < observation.size(); ++i) {
      if (spec_.observation(static_cast<int>(i)).path() != hide_) continue;
      std::fill(observation[i].begin(), observation[i].end(), std::byte{0});
    }
  }

  const std::string hide_;
  int64_t most_up_ = 0;
  int64_t bright_ = 0;
};

class Mask final : public Diagnostic {
 public:
  explicit Mask(bool hide_mask)
      : Diagnostic("Mask"), hide_mask_(hide_mask), random_(0) {
    AddObservation("clue", v1::FLOAT32, {kClues}, 0, 1);
    AddObservation("mask", v1::UINT8, {2 * kClues}, 0, 1);
    AddChoice("", 2 * kClues)->set_mask_path("mask");
  }

  absl::Status Reset(uint64_t seed, Row observation) override {
    random_ = Random(seed);
    steps_ = right_ = 0;
    Ask(observation);
    return absl::OkStatus();
  }

  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override {
    const int64_t taken = ReadValue<int64_t>(action[0]);
    const bool allowed = allowed_[taken % kClues] == taken;
    const bool right = allowed && taken % kClues == clue_;
    if (right) ++right_;
    score_ = static_cast<double>(right_) / kSteps;
    const bool over = ++steps_ == kSteps || !allowed;
    Ask(observation);
    return Outcome{.reward = right ? 1.0f / kSteps : 0, .terminated = over};
  }

 private:
  static constexpr int64_t kClues = 4;
  static constexpr int kSteps = 8;

  void Ask(Row observation) {
    clue_ = static_cast<int64_t>(random_.Below(kClues));
    for (int64_t clue = 0; clue < kClues; ++clue) {
      allowed_[clue] = clue + kClues * static_cast<int64_t>(random_.Below(2));
      WriteValue(observation[0], clue, clue == clue_ ? 1.0f : 0.0f);
    }
    for (int64_t i = 0; i < 2 * kClues; ++i) {
      const bool shown = hide_mask_ || allowed_[i % kClues] == i;
      WriteValue(observation[1], i, static_cast<uint8_t>(shown ? 1 : 0));
    }
  }

  const bool hide_mask_;
  Random random_;
  int64_t clue_ = 0;
  int64_t allowed_[kClues] = {};  // of each clue's actions
  int steps_ = 0;
  int right_ = 0;
};

}  // namespace

std::unique_ptr<Environment> MakeSquared() {
  return std::make_unique<Squared>();
}

std::unique_ptr<Environment> MakeContinuous() {
  return std::make_unique<Continuous>();
}

absl::StatusOr<std::unique_ptr<Environment>> MakeSpaces(
    const std::string& hide) {
  if (!hide.empty() && hide != "flags" && hide != "image") {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.options.kwargs.hide is ", hide, ", want flags, image or nothing"));
  }
  return std::make_unique<SpacesEnvironment>(hide);
}

std::unique_ptr<Environment> MakeMask(bool hide_mask) {
  return std::make_unique<Mask>(hide_mask);
}

}  // namespace flotilla
