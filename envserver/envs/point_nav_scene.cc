#include "envserver/envs/point_nav_scene.h"

#include <cmath>

#include "envserver/envs/point_nav_camera.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr int kGoals = 16;
constexpr int kEpisodesPerGoal = 4;
// Habitat's (pointnav_generator.py). A way that 500 steps of 0.25 m can go even
// with turns; in houses with so few doors it is on average nearly twice as long as
// the straight line.
constexpr double kShortest = 1;
constexpr double kLongest = 30;
constexpr double kLeastDetour = 1.1;  // way over straight line
// After which whatever has a way will do.
constexpr int kTries = 200;

// Meters in a straight line. Nearer to the goal a stop at once would pay, and who
// has learned that learns little else.
constexpr double kNearest = 0.5;
constexpr double kNear = 8;
constexpr double kTwoPi = 6.283185307179586;

Point FreePoint(const FreeSpace& space, Random* random) {
  constexpr double kSize = FloorPlan::kSide * FloorPlan::kCell;
  while (true) {
    const double x = random->Uniform(0, kSize);
    const double y = random->Uniform(0, kSize);
    if (space.IsFree({x, y})) return {x, y};
  }
}

Point FreePointNear(const FreeSpace& space, const Point& to, Random* random) {
  const double radius = random->Uniform(kNearest, kNear);
  while (true) {
    const double angle = random->Uniform(0, kTwoPi);
    const double away = random->Uniform(kNearest, radius);
    const Point point{to.x + away * std::cos(angle),
                      to.y + away * std::sin(angle)};
    if (space.IsFree(point)) return point;
  }
}

void FindFarStart(const FreeSpace& space, const FreeSpace::Goal& to,
                  Random* random, Scene::Episode* episode) {
  for (int tried = 0; tried < kTries; ++tried) {
    episode->start = FreePoint(space, random);
    episode->distance = space.DistanceTo(to, episode->start);
    const double straight = Distance(episode->start, to.point);
    if (episode->distance >= kShortest && episode->distance <= kLongest &&
        episode->distance >= kLeastDetour * straight) {
      return;
    }
  }
}

}  // namespace

Scene Scene::Make(uint64_t seed, SceneSplit split) {
  const FloorPlan plan = FloorPlan::Make(HashSeed({seed, 0}));
  Scene scene{plan, FreeSpace(plan), {}, {}};
  Random random(HashSeed({seed, 1}));
  for (int goal = 0; goal < kGoals; ++goal) {
    scene.goals.push_back(
        scene.space.MakeGoal(FreePoint(scene.space, &random)));
    const FreeSpace::Goal& to = scene.goals.back();
    for (int i = 0; i < kEpisodesPerGoal; ++i) {
      Episode episode{.start = {}, .heading = 0, .goal = goal, .distance = 0};
      if (split == SceneSplit::kTrain && i % 2 == 1) {
        episode.start = FreePointNear(scene.space, to.point, &random);
        episode.distance = scene.space.DistanceTo(to, episode.start);
      } else {
        FindFarStart(scene.space, to, &random, &episode);
      }
      episode.heading = static_cast<int>(random.Below(kHeadings));
      scene.episodes.push_back(episode);
    }
  }
  return scene;
}

std::shared_ptr<const Scene> SceneLibrary::Get(SceneSplit split,
                                               uint64_t index) {
  const Key key(split, index);
  {
    MutexLock lock(&mu_);
    if (auto found = Find(key)) return found;
  }
  // Two who ask at once make the same.
  auto scene = std::make_shared<const Scene>(
      Scene::Make(HashSeed({static_cast<uint64_t>(split), index}), split));
  MutexLock lock(&mu_);
  if (auto found = Find(key)) return found;
  kept_.emplace_front(key, scene);
  places_.emplace(key, kept_.begin());
  if (kept_.size() > most_kept_) {
    places_.erase(kept_.back().first);
    kept_.pop_back();
  }
  return scene;
}

std::shared_ptr<const Scene> SceneLibrary::Find(const Key& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found->second);
  return kept_.front().second;
}

}  // namespace flotilla
