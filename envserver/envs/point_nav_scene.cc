#include "envserver/envs/point_nav_scene.h"

#include <cmath>

#include "envserver/envs/point_nav_camera.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr int kGoals = 16;
constexpr int kEpisodesPerGoal = 4;
// A way that 500 steps of 0.25 m can go even with turns, and yet one through
// several rooms, which does not lead where the goal lies.
constexpr double kShortest = 5;
constexpr double kLongest = 30;
constexpr double kLeastDetour = 1.3;  // way over straight line
// After which whatever has a way will do.
constexpr int kTries = 200;

Point FreePoint(const FreeSpace& space, Random* random) {
  constexpr double kSize = FloorPlan::kSide * FloorPlan::kCell;
  while (true) {
    const double x = random->Uniform(0, kSize);
    const double y = random->Uniform(0, kSize);
    if (space.IsFree({x, y})) return {x, y};
  }
}

}  // namespace

Scene Scene::Make(uint64_t seed) {
  const FloorPlan plan = FloorPlan::Make(HashSeed({seed, 0}));
  Scene scene{plan, FreeSpace(plan), {}, {}};
  Random random(HashSeed({seed, 1}));
  for (int goal = 0; goal < kGoals; ++goal) {
    scene.goals.push_back(
        scene.space.MakeGoal(FreePoint(scene.space, &random)));
    for (int i = 0; i < kEpisodesPerGoal; ++i) {
      Episode episode{.start = {}, .heading = 0, .goal = goal, .distance = 0};
      for (int tried = 0; tried < kTries; ++tried) {
        episode.start = FreePoint(scene.space, &random);
        episode.distance =
            scene.space.DistanceTo(scene.goals.back(), episode.start);
        const double straight =
            Distance(episode.start, scene.goals.back().point);
        if (episode.distance >= kShortest && episode.distance <= kLongest &&
            episode.distance >= kLeastDetour * straight) {
          break;
        }
      }
      episode.heading = static_cast<int>(random.Below(kHeadings));
      scene.episodes.push_back(episode);
    }
  }
  return scene;
}

std::shared_ptr<const Scene> SceneLibrary::Get(SceneSplit split,
                                               uint64_t index) {
  const std::pair key(split, index);
  {
    MutexLock lock(&mu_);
    const auto found = scenes_.find(key);
    if (found != scenes_.end()) return found->second;
  }
  // Two who ask at once make the same.
  auto scene = std::make_shared<const Scene>(
      Scene::Make(HashSeed({static_cast<uint64_t>(split), index})));
  MutexLock lock(&mu_);
  return scenes_.emplace(key, std::move(scene)).first->second;
}

}  // namespace flotilla
