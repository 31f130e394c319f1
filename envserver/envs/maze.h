#ifndef FLOTILLA_ENVSERVER_ENVS_MAZE_H_
#define FLOTILLA_ENVSERVER_ENVS_MAZE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/environment.h"
#include "flotilla/v1/config.pb.h"

namespace flotilla {

// Find the way through a maze while seeing only the cells nearby: a task for
// recurrent policies. See MazeOptions in config.proto.
//
//   #########   Every episode has a maze of its own, with exactly one way from
//   #A  #   #   any cell to any other. The agent starts in one corner; the goal
//   ### # # #   is in the opposite one.
//   #   # # #
//   # ### # #   observation  float32 [2 * view * view]  walls, then the goal,
//   # #   # #                row by row around the agent; all is wall outside
//   # # ### #   action       int64 []  0: up, 1: right, 2: down, 3: left
//   #     #G#   reward       1 at the goal, which ends the episode
//   #########   metric       "success": 1 at the goal, 0 at the step limit
//                            "spl": success times shortest way / way taken
//                            (Anderson et al. 2018)
class Maze final : public Environment {
 public:
  // Errors: kInvalidArgument naming the option that is out of range.
  static absl::StatusOr<std::unique_ptr<Environment>> Make(
      const v1::MazeOptions& options);

  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t seed, Row observation) override;
  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override;
  bool GameOver(v1::EpisodeEnd* end) override;
  bool renders() const override { return true; }
  v1::Frame Render() const override;

 private:
  explicit Maze(const v1::MazeOptions& options);

  void Carve(uint64_t seed);
  bool IsWall(int y, int x) const;
  void Observe(Row observation) const;
  int ShortestWay() const;

  const int size_;
  const int view_;
  v1::EnvSpec spec_;
  std::vector<bool> wall_;  // [size, size]
  int y_ = 0;
  int x_ = 0;
  int shortest_ = 0;  // steps from start to goal
  int steps_ = 0;     // taken
  double spl_ = 0;    // of the last episode
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_MAZE_H_
