#include "envserver/envs/atari.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr int kNoop = 0;

absl::Status CheckAtariOptions(const v1::AtariOptions& options) {
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  for (const auto& [name, value, low, high] :
       {std::tuple("noop_max", double(options.noop_max()), 0.0, 1000.0),
        std::tuple("frame_skip", double(options.frame_skip()), 1.0, 1000.0),
        std::tuple("screen_size", double(options.screen_size()), 16.0, 160.0),
        std::tuple("frame_stack", double(options.frame_stack()), 1.0, 64.0),
        std::tuple("repeat_action_probability",
                   options.repeat_action_probability(), 0.0, 1.0),
        std::tuple("max_frames", double(options.max_frames()), 0.0, kMost)}) {
    if (!(value >= low && value <= high)) {
      return absl::InvalidArgumentError(absl::StrCat("env.options.atari.", name,
                                                     " is ", value, ", want ",
                                                     low, " to ", high));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Environment>> Atari::Make(
    const std::string& env_id, const v1::AtariOptions& options,
    std::unique_ptr<AtariEmulator> emulator) {
  if (absl::Status status = CheckAtariOptions(options); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Environment>(
      new Atari(env_id, options, std::move(emulator)));
}

Atari::Atari(const std::string& env_id, const v1::AtariOptions& options,
             std::unique_ptr<AtariEmulator> emulator)
    : options_(options),
      emulator_(std::move(emulator)),
      resizer_(emulator_->height(), emulator_->width(), options.screen_size(),
               options.screen_size()),
      previous_frame_(emulator_->height() * emulator_->width()),
      frame_(previous_frame_.size()) {
  spec_.set_env_id(env_id);
  v1::Leaf* observation = spec_.add_observation();
  observation->set_dtype(v1::UINT8);
  observation->add_shape(options.screen_size());
  observation->add_shape(options.screen_size());
  observation->add_low(0);
  observation->add_high(255);
  observation->set_frame_stack(options.frame_stack());
  v1::Leaf* action = spec_.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(emulator_->num_actions());
}

absl::Status Atari::Reset(uint64_t seed, Row observation) {
  BeginEpisode(seed);
  if (options_.fire_reset() && emulator_->fire_action() >= 0) PressFire(seed);
  Observe(observation);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> Atari::Step(ConstRow action, Row observation) {
  ++decisions_;
  const Skip skip = PlaySkip(static_cast<int>(ReadValue<int64_t>(action[0])));
  Observe(observation);
  Outcome outcome;
  outcome.reward = static_cast<float>(
      options_.clip_reward() ? std::clamp(skip.reward, -1, 1) : skip.reward);
  outcome.terminated = emulator_->game_over() || skip.life_lost;
  outcome.truncated = !outcome.terminated && skip.game_ended;
  return outcome;
}

bool Atari::GameOver(v1::EpisodeEnd* end) {
  if (!finished_return_) return false;
  end->set_raw_return(*finished_return_);
  finished_return_.reset();
  return true;
}

v1::Frame Atari::Render() const {
  v1::Frame frame;
  frame.set_width(emulator_->width());
  frame.set_height(emulator_->height());
  frame.mutable_rgb()->resize(size_t{3} * frame.width() * frame.height());
  emulator_->ColorScreen(
      reinterpret_cast<uint8_t*>(frame.mutable_rgb()->data()));
  return frame;
}

int Atari::PlayFrame(int action) {
  const int reward = emulator_->Act(action);
  raw_return_ += reward;
  if (emulator_->game_over() || emulator_->out_of_frames()) EndGame();
  return reward;
}

Atari::Skip Atari::PlaySkip(int action) {
  Skip skip;
  const int frames = options_.frame_skip();
  for (int i = 0; i < frames && !skip.game_ended; ++i) {
    skip.reward += PlayFrame(action);
    skip.game_ended = !playing_;
    // A game's last frame is not looked at, as under Gymnasium.
    if (skip.game_ended) break;
    if (i == frames - 2) emulator_->Screen(previous_frame_.data());
    if (i == frames - 1) emulator_->Screen(frame_.data());
  }
  // Some games show no lives for a few frames before they are over, or give
  // lives back.
  const int lives = emulator_->lives();
  skip.life_lost = options_.episodic_life() && lives > 0 && lives < lives_;
  lives_ = lives;
  life_lost_ = skip.life_lost && !skip.game_ended;
  return skip;
}

void Atari::BeginEpisode(uint64_t seed) {
  if (!std::exchange(life_lost_, false) || PlaySkip(kNoop).game_ended) {
    BeginGame(seed);
  }
  lives_ = emulator_->lives();
}

void Atari::BeginGame(uint64_t seed) {
  if (playing_) EndGame();  // cut short by a step limit
  const auto begin = [&] {
    emulator_->NewGame(seed);
    playing_ = true;
    decisions_ = 0;
    raw_return_ = 0;
  };
  begin();
  if (options_.noop_max() > 0) {
    const uint64_t noops = 1 + Random(seed).Below(options_.noop_max());
    for (uint64_t i = 0; i < noops; ++i) {
      PlayFrame(kNoop);
      if (!playing_) begin();
    }
  }
  emulator_->Screen(frame_.data());
  std::fill(previous_frame_.begin(), previous_frame_.end(), 0);
}

void Atari::PressFire(uint64_t seed) {
  for (const int action : {emulator_->fire_action(), 2}) {
    if (action >= emulator_->num_actions()) continue;
    const Skip skip = PlaySkip(action);
    if (skip.game_ended || skip.life_lost) BeginEpisode(seed);
  }
}

void Atari::EndGame() {
  playing_ = false;
  // What ended before the learner's first decision was no game.
  if (decisions_ > 0) finished_return_ = raw_return_;
}

void Atari::Observe(Row observation) {
  if (options_.frame_skip() > 1) {
    for (size_t i = 0; i < frame_.size(); ++i) {
      frame_[i] = std::max(frame_[i], previous_frame_[i]);
    }
  }
  resizer_.Resize(frame_.data(),
                  reinterpret_cast<uint8_t*>(observation[0].data()));
}

}  // namespace flotilla
