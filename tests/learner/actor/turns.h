#ifndef FLOTILLA_TESTS_LEARNER_ACTOR_TURNS_H_
#define FLOTILLA_TESTS_LEARNER_ACTOR_TURNS_H_

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/env/vector_env.h"

namespace flotilla {

// "Turns": a game that `agents` slots play in turn, of 4, 5, 6, 4, ... plies, in
// which every ply brings every slot 0.25, and the last 1 to who made it and -1 to
// the others. A slot observes [game, slot, ply, moves that it has made in this
// game]; who is not to move observes -1s. Action 1 of 3 fails the environment.
class TurnsFactory final : public VectorEnvFactory {
 public:
  explicit TurnsFactory(int agents, bool truncates = false)
      : agents_(agents), truncates_(truncates) {}

  std::vector<std::string> ListEnvironments() const override {
    return {"Turns"};
  }
  absl::StatusOr<v1::EnvSpec> Describe(const std::string& env_id,
                                       const v1::EnvOptions&) const override {
    if (env_id != "Turns") return absl::NotFoundError("no such environment");
    v1::EnvSpec spec;
    if (!unnamed) spec.set_env_id(env_id);
    spec.set_agents(agents_);
    v1::Leaf* leaf = spec.add_observation();
    leaf->set_dtype(v1::FLOAT32);
    leaf->add_shape(4);
    leaf = spec.add_action();
    leaf->set_dtype(v1::INT64);
    leaf->set_num_values(3);
    return spec;
  }
  absl::StatusOr<std::unique_ptr<VectorEnv>> Make(
      const v1::Hello& hello, VectorEnv::Listener* listener) const override;

  bool unnamed = false;    // leaves out what it need not say
  bool staggered = false;  // environment e begins with game e

 private:
  friend class TurnsEnv;
  const int agents_;
  const bool truncates_;  // instead of an end
};

class TurnsEnv final : public VectorEnv {
 public:
  TurnsEnv(const TurnsFactory* factory, v1::EnvSpec spec,
           const v1::Hello& hello, Listener* listener)
      : factory_(factory),
        spec_(std::move(spec)),
        rows_(hello.num_envs() / hello.num_groups()),
        games_(hello.num_envs() / factory->agents_),
        listener_(listener) {
    for (size_t g = 0; factory->staggered && g < games_.size(); ++g) {
      games_[g].number = static_cast<int>(g);
    }
  }

  const v1::EnvSpec& spec() const override { return spec_; }

  void Reset(int group, ObservationBuffers observation,
             v1::StepBatch* out) override {
    Fill(group, nullptr, observation, out);
  }
  void Step(int group, const v1::ActionBatch& actions,
            ObservationBuffers observation, v1::StepBatch* out) override {
    Fill(group, &actions, observation, out);
  }

 private:
  struct Game {
    int number = 0;
    int ply = 0;
  };

  int Length(const Game& game) const { return 4 + game.number % 3; }

  void Fill(int group, const v1::ActionBatch* actions,
            ObservationBuffers observation, v1::StepBatch* out) {
    const int A = factory_->agents_;
    out->clear_final_row();
    out->mutable_final_observation()->clear_leaf();
    out->clear_episode_end();
    out->clear_error();
    std::string active(rows_, '\0'), ended(rows_, '\0');
    std::vector<float> reward(rows_, 0.0f);
    for (int g = 0; g < rows_ / A; ++g) {
      Game& game = games_[group * (rows_ / A) + g];
      if (actions != nullptr) {
        const int mover = game.ply % A;
        int64_t action;
        std::memcpy(&action, actions->action(0).data() + (g * A + mover) * 8,
                    8);
        if (action == 1) {
          for (int slot = 0; slot < A; ++slot) {
            v1::RowError* error = out->add_error();
            error->set_row(g * A + slot);
            if (slot == 0) error->set_message("told to fail");
          }
          game = {.number = game.number + 1, .ply = 0};
        } else {
          ++game.ply;
          const bool over = game.ply == Length(game);
          for (int slot = 0; slot < A; ++slot) {
            reward[g * A + slot] = 0.25f + (over ? slot == mover ? 1 : -1 : 0);
            if (over) End(g * A + slot, game, &ended, out);
          }
          if (over) game = {.number = game.number + 1, .ply = 0};
        }
      }
      for (int slot = 0; slot < A; ++slot) {
        const bool moves = slot == game.ply % A;
        active[g * A + slot] = static_cast<char>(moves);
        WriteSeen(g * A + slot, game, moves,
                  reinterpret_cast<float*>(observation[0].data()) +
                      4 * (g * A + slot));
      }
    }
    out->set_active(active);
    out->set_reward(reward.data(), rows_ * sizeof(float));
    out->set_terminated(factory_->truncates_ ? std::string(rows_, '\0')
                                             : ended);
    out->set_truncated(factory_->truncates_ ? ended : std::string(rows_, '\0'));
    listener_->OnGroupDone(group, absl::ZeroDuration());
  }

  void WriteSeen(int row, const Game& game, bool moves, float* to) const {
    const int A = factory_->agents_, slot = row % A;
    const float seen[4] = {static_cast<float>(game.number),
                           static_cast<float>(slot),
                           static_cast<float>(game.ply),
                           static_cast<float>((game.ply + A - 1 - slot) / A)};
    for (int i = 0; i < 4; ++i) to[i] = moves ? seen[i] : -1;
  }

  void End(int row, const Game& game, std::string* ended,
           v1::StepBatch* out) const {
    (*ended)[row] = 1;
    out->add_final_row(row);
    float seen[4];
    WriteSeen(row, game, true, seen);
    if (out->final_observation().leaf_size() == 0) {
      out->mutable_final_observation()->add_leaf();
    }
    out->mutable_final_observation()->mutable_leaf(0)->append(
        reinterpret_cast<const char*>(seen), sizeof(seen));
    v1::EpisodeEnd* end = out->add_episode_end();
    end->set_row(row);
    const bool won =
        (game.ply - 1) % factory_->agents_ == row % factory_->agents_;
    end->set_raw_return(0.25 * game.ply + (won ? 1 : -1));
    end->set_length(
        (game.ply + factory_->agents_ - 1 - row % factory_->agents_) /
        factory_->agents_);
  }

  const TurnsFactory* const factory_;
  const v1::EnvSpec spec_;
  const int rows_;
  std::vector<Game> games_;
  Listener* const listener_;
};

inline absl::StatusOr<std::unique_ptr<VectorEnv>> TurnsFactory::Make(
    const v1::Hello& hello, VectorEnv::Listener* listener) const {
  auto spec = Describe(hello.env_id(), hello.options());
  if (!spec.ok()) return spec.status();
  return std::make_unique<TurnsEnv>(this, *std::move(spec), hello, listener);
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_ACTOR_TURNS_H_
