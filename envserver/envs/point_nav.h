#ifndef FLOTILLA_ENVSERVER_ENVS_POINT_NAV_H_
#define FLOTILLA_ENVSERVER_ENVS_POINT_NAV_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "envserver/environment.h"
#include "envserver/environment_arguments.h"
#include "envserver/envs/point_nav_scene.h"

namespace flotilla {

// Walk to a point in a house never seen before, with a depth camera and a
// compass: DD-PPO's task (Wijmans et al. 2020) in miniature. Actions,
// camera and measures are Habitat's, and rewards but for that of a stop, which pays
// the way taken; houses are drawn, not scanned.
//
//   observation  "depth"  uint8 [64, 64, 1]  0 to 10 m, see DepthCamera
//                "goal"   float32 [3]  meters to the goal in a straight line,
//                         then cosine and sine of where it is, left positive
//   action       int64 []  0: stop, 1: forward 0.25 m, 2: left 10 degrees,
//                          3: right
//   reward       meters that the way left became shorter, -0.01 a step, and at
//                the end 2.5 "spl"
//   end          stop; 500 steps truncate
//   metrics      "success"  1: stopped less than 0.2 m of way before the goal
//                "spl"  success times shortest way / the longer of that and the
//                       way taken (Anderson et al. 2018)
//                "distance_to_goal"  meters of way left at the end
//                "collisions"  steps that hit something; they slide along it
//
// Starts and goals are apart by 1 to 30 m of way that is at least 1.1 times the
// straight line, as Habitat's, and on average 1.9 times; half of those of the
// train split are near each other instead. A way is the shortest for a square body
// of 0.2 m, see FreeSpace.
class PointNav final : public Environment {
 public:
  static constexpr double kStep = 0.25;            // meters
  static constexpr double kSuccessDistance = 0.2;  // meters
  enum Action : int64_t { kStop, kForward, kLeft, kRight };

  // What env.options.kwargs may hold.
  static std::vector<EnvironmentOption> Options();

  // The library keeps scenes for all environments of a process.
  // Errors: kInvalidArgument naming the option that is out of range.
  static absl::StatusOr<std::unique_ptr<PointNav>> Make(
      const EnvironmentArguments& arguments,
      std::shared_ptr<SceneLibrary> library);

  const v1::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(uint64_t seed, Row observation) override;
  absl::StatusOr<Outcome> Step(ConstRow action, Row observation) override;
  bool GameOver(v1::EpisodeEnd* end) override;
  bool renders() const override { return true; }
  v1::Frame Render() const override;

  // Of the episode that a Reset began: what its observations do not tell.
  const Scene& scene() const { return *scene_; }
  const FreeSpace::Goal& goal() const { return scene_->goals[episode_.goal]; }
  const Scene::Episode& episode() const { return episode_; }
  const Point& position() const { return position_; }
  int heading() const { return heading_; }

 private:
  PointNav(SceneSplit split, bool blind, uint64_t plans,
           std::shared_ptr<SceneLibrary> library);

  void Observe(Row observation) const;

  const SceneSplit split_;
  const bool blind_;
  const uint64_t plans_;
  const std::shared_ptr<SceneLibrary> library_;
  v1::EnvSpec spec_;

  std::shared_ptr<const Scene> scene_;
  Scene::Episode episode_{};
  Point position_;
  int heading_ = 0;
  double way_left_ = 0;
  double way_taken_ = 0;
  int collisions_ = 0;

  // What Step left behind: GameOver is asked after the next Reset.
  struct Metrics {
    double success = 0, spl = 0, distance_to_goal = 0, collisions = 0;
  };
  Metrics metrics_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_POINT_NAV_H_
