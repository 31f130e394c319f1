#ifndef FLOTILLA_ENVSERVER_ENVS_POINT_NAV_SCENE_H_
#define FLOTILLA_ENVSERVER_ENVS_POINT_NAV_SCENE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "envserver/envs/point_nav_camera.h"
#include "envserver/envs/point_nav_plan.h"
#include "envserver/envs/point_nav_space.h"
#include "services/base/mutex.h"

namespace flotilla {

enum class SceneSplit : uint64_t { kTrain = 1, kEval = 2 };

// A floor plan and the episodes that are played in it.
struct Scene {
  struct Episode {
    Point start;
    int heading;      // see point_nav_camera.h
    int goal;         // of `goals`
    double distance;  // of the shortest way, in meters
  };

  // Everything follows `seed`. Of `kTrain` every second episode begins near its
  // goal, whatever the way: who has just learned to walk arrives there at times,
  // and can learn to stop.
  static Scene Make(uint64_t seed, SceneSplit split);

  FloorPlan plan;
  FreeSpace space;
  std::vector<FreeSpace::Goal> goals;
  std::vector<Episode> episodes;
};

// What the environments of a process share: a camera, and the scenes, each made
// when it is asked for (some 2 ms) and then kept (some 50 KB). Of more than it keeps,
// those go that were asked for longest ago, and are made again, the same, if they are
// asked for again.
//
// Thread-safe.
class SceneLibrary {
 public:
  static constexpr size_t kMostKept = 20'000;  // 1 GB

  // `most_kept`: at least 1.
  explicit SceneLibrary(size_t most_kept = kMostKept) : most_kept_(most_kept) {}

  // Scene `index` of a split: no index of the one is a scene of the other, for
  // their seeds differ.
  std::shared_ptr<const Scene> Get(SceneSplit split, uint64_t index);

  const DepthCamera& camera() const { return camera_; }

 private:
  using Key = std::pair<SceneSplit, uint64_t>;
  // Who plays in a scene keeps it, too.
  using Kept = std::list<std::pair<Key, std::shared_ptr<const Scene>>>;

  // Null: it is not kept.
  std::shared_ptr<const Scene> Find(const Key& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const DepthCamera camera_;
  const size_t most_kept_;
  Mutex mu_;
  Kept kept_ ABSL_GUARDED_BY(mu_);  // whatever was asked for last is first
  std::map<Key, Kept::iterator> places_ ABSL_GUARDED_BY(mu_);
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_POINT_NAV_SCENE_H_
