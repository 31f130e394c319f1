#ifndef FLOTILLA_ENVSERVER_ENVS_SNAKE_H_
#define FLOTILLA_ENVSERVER_ENVS_SNAKE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envserver/batch_environment.h"
#include "envserver/environment_arguments.h"
#include "services/base/random.h"

namespace flotilla {

// A field of many snakes, which all move in a step, one after another.
class SnakeField {
 public:
  struct Size {
    int width, height, snakes, food, longest;
  };
  // A cell, as it is observed.
  enum Cell : int8_t { kDeadly = -1, kEmpty = 0, kFood = 1 };

  static constexpr int kVision = 5;
  static constexpr int kView = 2 * kVision + 1;
  static constexpr int kObserved = kView * kView;

  enum class Move { kWent, kAte, kDied };

  explicit SnakeField(const Size& size);

  void Reset(uint64_t seed);

  // One snake goes up, right, down or left: 0 to 3. One that cannot turn back goes
  // on as it did.
  Move Go(int snake, int64_t action);

  // Food falls until there is as much as there was, if there is room.
  void Replenish();

  // What the cells around a snake's head are, row by row from the top.
  void Observe(int snake, float* to) const;  // [kObserved]

  Cell at(int x, int y) const { return cells_[Index(x, y)]; }
  int length(int snake) const { return snakes_[snake].length; }
  int food() const { return food_; }
  const Size& size() const { return size_; }
  size_t bytes() const;  // of memory

  v1::Frame Render() const;

 private:
  struct Snake {
    int head;       // a cell
    int direction;  // as actions are; -1: none yet
    int length;
    int newest;  // where the head is, in its ring
  };

  int Index(int x, int y) const {
    return (y + kVision) * stride_ + x + kVision;
  }
  // An empty one; -1: after many tries there was none.
  int RandomCell();
  void Place(int snake);
  void Die(int snake);
  // The cell that it entered so many moves ago.
  int& Body(int snake, int ago);

  const Size size_;
  const int stride_;
  const int step_[4];
  Random random_{0};
  std::vector<Cell> cells_;  // with a deadly border, as wide as is seen
  std::vector<Snake> snakes_;
  std::vector<int> rings_;  // [snakes, longest]
  int food_ = 0;            // cells
};

// Snake: `agents` snakes on one field, each a slot.
//
//   observation  float32 [121]  the 11 x 11 cells around the head, row by row from
//                               the top: 1 food, -1 wall or snake, 0 nothing
//   action       int64 []       up, right, down, left
//   reward       reward_food for a cell of food, reward_death for a death
//   ends         by a time limit of 1,000 steps, for all
//   metrics      food, deaths: how often; length: at the end
//
// Who runs into a wall or a snake, its own body included, dies: every second cell
// that it had becomes food, and it starts anew at once, one cell long, somewhere
// else. Its episode goes on. Food that was eaten falls somewhere else, while there
// is less than `food`. Snakes move in the order of their slots.
//
// width, height (640, 360): cells; agents (256); food (4096): cells; longest (256):
// cells of a snake, which then grows no more; reward_food (0.1), reward_death (-1).
// The fields of a stream take 1 GiB at most.
//
// Field, snakes, food, sight and rewards are those of Snake in PufferLib 3.0
// (snake.ini). All code is ours. What differs: cells are observed by what they do and
// not by whose they are, as numbers; a death ends no episode; snakes grow to 256
// cells instead of 1,024.
class Snake final : public BatchEnvironment {
 public:
  static std::vector<EnvironmentOption> Options();
  // Errors: kInvalidArgument if an option does not fit.
  static absl::StatusOr<std::unique_ptr<BatchEnvironment>> Make(
      const EnvironmentArguments& arguments, size_t environments);

  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status CheckFits(size_t environments) const override;
  void Reset(size_t environment, uint64_t seed,
             Row observation) noexcept override;
  void StepAll(const BatchColumns& columns) noexcept override;
  void GameOver(size_t environment, size_t agent, v1::EpisodeEnd* end) override;
  bool renders() const override { return true; }
  v1::Frame Render(size_t environment) const override;

 private:
  struct Tally {
    int food = 0, deaths = 0;
  };

  Snake(size_t environments, const SnakeField::Size& size, float reward_food,
        float reward_death);

  const size_t agents_;
  const float reward_food_, reward_death_;
  v1::EnvSpec spec_;
  std::vector<SnakeField> fields_;
  std::vector<Tally> tally_;  // [R]
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_SNAKE_H_
