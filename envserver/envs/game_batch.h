#ifndef FLOTILLA_ENVSERVER_ENVS_GAME_BATCH_H_
#define FLOTILLA_ENVSERVER_ENVS_GAME_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "envserver/batch_environment.h"

namespace flotilla {

// Games of one agent that see numbers and choose among a few actions, in a batch: all
// of an environment but its rules, which are a Game's:
//
//   static constexpr int kObserved, kActions, kMaxSteps;
//   static constexpr float kRewardOfAPoint;
//   void Reset(uint64_t seed);
//   int Step(int64_t action, int ticks);  // the points made
//   bool over() const;
//   void Observe(void* to) const;  // float32 [kObserved]; unaligned
//   v1::Frame Render() const;
template <typename Game>
class GameBatch : public BatchEnvironment {
 public:
  const v1::EnvSpec& spec() const final { return spec_; }

  void Reset(size_t environment, uint64_t seed,
             Row observation) noexcept final {
    games_[environment].Reset(seed);
    games_[environment].Observe(
        RowOf(observation[0], environment, kBytes).data());
  }

  void StepAll(const BatchColumns& columns) noexcept final {
    std::byte* to = columns.observation[0].data();
    for (size_t e = 0; e < games_.size(); ++e, to += kBytes) {
      Game& game = games_[e];
      const auto action = ReadValue<int64_t>(columns.action[0], e);
      columns.reward[e] = static_cast<float>(game.Step(action, frame_skip_)) *
                          Game::kRewardOfAPoint;
      if (game.over()) columns.end[e] = kTerminated;
      game.Observe(to);
    }
  }

  bool renders() const final { return true; }
  v1::Frame Render(size_t environment) const final {
    return games_[environment].Render();
  }

 protected:
  GameBatch(const std::string& env_id, size_t environments, int frame_skip)
      : frame_skip_(frame_skip), games_(environments) {
    spec_.set_env_id(env_id);
    v1::Leaf* observation = spec_.add_observation();
    observation->set_dtype(v1::FLOAT32);
    observation->add_shape(Game::kObserved);
    v1::Leaf* action = spec_.add_action();
    action->set_dtype(v1::INT64);
    action->set_num_values(Game::kActions);
    spec_.set_max_episode_steps(Game::kMaxSteps);
  }

  v1::EnvSpec& mutable_spec() { return spec_; }
  const Game& game(size_t environment) const { return games_[environment]; }

 private:
  static constexpr size_t kBytes = Game::kObserved * sizeof(float);

  const int frame_skip_;
  v1::EnvSpec spec_;
  std::vector<Game> games_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_GAME_BATCH_H_
