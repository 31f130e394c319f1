#include "envserver/envs/point_nav.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "envserver/picture.h"
#include "services/base/random.h"

namespace flotilla {
namespace {

constexpr double kSlackReward = -0.01;
constexpr double kSuccessReward = 2.5;
constexpr int64_t kMaxPlans = 1000000;
constexpr float kDiagonal = 20;  // meters; longer than any plan's

}  // namespace

std::vector<EnvironmentOption> PointNav::Options() {
  return {
      {"blind", false, "true: the depth image is all 0"},
      {"plans", 1000, "floor plans that the episodes are in, 64 in each"},
      {"split", "train", "whose plans: train or eval, which share none"},
  };
}

absl::StatusOr<std::unique_ptr<PointNav>> PointNav::Make(
    const EnvironmentArguments& arguments,
    std::shared_ptr<SceneLibrary> library) {
  const std::string split = arguments.Text("split");
  if (split != "train" && split != "eval") {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.options.kwargs.split is \"", split, "\", want train or eval"));
  }
  const int64_t plans = arguments.Int("plans");
  if (plans < 1 || plans > kMaxPlans) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.options.kwargs.plans is ", plans, ", want 1 to ", kMaxPlans));
  }
  return std::unique_ptr<PointNav>(
      new PointNav(split == "train" ? SceneSplit::kTrain : SceneSplit::kEval,
                   arguments.Switch("blind"), static_cast<uint64_t>(plans),
                   std::move(library)));
}

PointNav::PointNav(SceneSplit split, bool blind, uint64_t plans,
                   std::shared_ptr<SceneLibrary> library)
    : split_(split),
      blind_(blind),
      plans_(plans),
      library_(std::move(library)) {
  spec_.set_env_id("PointNav");
  v1::Leaf* depth = spec_.add_observation();
  depth->set_path("depth");
  depth->set_dtype(v1::UINT8);
  for (int dim : {DepthCamera::kPixels, DepthCamera::kPixels, 1}) {
    depth->add_shape(dim);
  }
  depth->add_low(0);
  depth->add_high(255);
  v1::Leaf* goal = spec_.add_observation();
  goal->set_path("goal");
  goal->set_dtype(v1::FLOAT32);
  goal->add_shape(3);
  for (const auto& [low, high] :
       {std::pair(0.0f, kDiagonal), {-1.0f, 1.0f}, {-1.0f, 1.0f}}) {
    goal->add_low(low);
    goal->add_high(high);
  }
  v1::Leaf* action = spec_.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(4);
  spec_.set_max_episode_steps(500);
  for (const char* metric :
       {"collisions", "distance_to_goal", "spl", "success"}) {
    spec_.add_episode_metric(metric);
  }
}

absl::Status PointNav::Reset(uint64_t seed, Row observation) {
  Random random(seed);
  scene_ = library_->Get(split_, random.Below(plans_));
  episode_ = scene_->episodes[random.Below(scene_->episodes.size())];
  position_ = episode_.start;
  heading_ = episode_.heading;
  way_left_ = episode_.distance;
  way_taken_ = 0;
  collisions_ = 0;
  Observe(observation);
  return absl::OkStatus();
}

absl::StatusOr<Outcome> PointNav::Step(ConstRow action, Row observation) {
  const auto act = ReadValue<int64_t>(action[0]);
  Outcome outcome;
  outcome.reward = static_cast<float>(kSlackReward);
  if (act == kForward) {
    const Point ahead = DirectionOf(heading_);
    const FreeSpace::Move move =
        scene_->space.Slide(position_, kStep * ahead.x, kStep * ahead.y);
    way_taken_ += Distance(position_, move.end);
    position_ = move.end;
    if (move.collided) ++collisions_;
    const double way_left = scene_->space.DistanceTo(goal(), position_);
    outcome.reward += static_cast<float>(way_left_ - way_left);
    way_left_ = way_left;
  } else if (act == kLeft) {
    heading_ = (heading_ + 1) % kHeadings;
  } else if (act == kRight) {
    heading_ = (heading_ + kHeadings - 1) % kHeadings;
  }
  outcome.terminated = act == kStop;
  const bool success = act == kStop && way_left_ < kSuccessDistance;
  metrics_.success = success ? 1 : 0;
  metrics_.spl = metrics_.success * episode_.distance /
                 std::max(way_taken_, episode_.distance);
  outcome.reward += static_cast<float>(kSuccessReward * metrics_.spl);
  metrics_.distance_to_goal = way_left_;
  metrics_.collisions = collisions_;
  Observe(observation);
  return outcome;
}

bool PointNav::GameOver(v1::EpisodeEnd* end) {
  auto& metric = *end->mutable_metric();
  metric["success"] = metrics_.success;
  metric["spl"] = metrics_.spl;
  metric["distance_to_goal"] = metrics_.distance_to_goal;
  metric["collisions"] = metrics_.collisions;
  return true;
}

// The plan from above, beside what its camera sees.
v1::Frame PointNav::Render() const {
  constexpr int kCell = 8, kSide = FloorPlan::kSide * kCell;  // pixels
  constexpr double kScale = kCell / FloorPlan::kCell;         // a metre
  constexpr int kPixels = DepthCamera::kPixels, kZoom = kSide / kPixels;
  Picture picture(2 * kSide, kSide, {255, 255, 255});
  for (int y = 0; y < FloorPlan::kSide; ++y) {
    for (int x = 0; x < FloorPlan::kSide; ++x) {
      const PlanCell cell = scene_->plan.at(x, y);
      if (cell == PlanCell::kFree) continue;
      const Color color = cell == PlanCell::kWall   ? Color{60, 60, 70}
                          : cell == PlanCell::kDoor ? Color{235, 225, 205}
                                                    : Color{190, 160, 120};
      picture.Rectangle({double(x) * kCell, double(y) * kCell},
                        {(x + 1.0) * kCell, (y + 1.0) * kCell}, color);
    }
  }
  const auto at = [&](const Point& point) {
    return Picture::Point{kScale * point.x, kScale * point.y};
  };
  picture.Disc(at(episode_.start), 5, {150, 150, 230});
  picture.Disc(at(goal().point), 7, {80, 180, 90});
  const Point ahead = DirectionOf(heading_);
  picture.Line(at(position_),
               at({position_.x + 0.6 * ahead.x, position_.y + 0.6 * ahead.y}),
               4, {204, 77, 77});
  picture.Disc(at(position_), 6, {204, 77, 77});

  std::vector<std::byte> depth(kPixels * kPixels);
  library_->camera().Render(scene_->plan, position_, heading_, depth);
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const auto gray = static_cast<uint8_t>(
          depth[static_cast<size_t>(y / kZoom * kPixels + x / kZoom)]);
      picture.Pixel(kSide + x, y, {gray, gray, gray});
    }
  }
  return picture.frame();
}

void PointNav::Observe(Row observation) const {
  if (blind_) {
    std::memset(observation[0].data(), 0, observation[0].size());
  } else {
    library_->camera().Render(scene_->plan, position_, heading_,
                              observation[0]);
  }
  const Point& to = goal().point;
  const double distance = Distance(position_, to);
  const Point ahead = DirectionOf(heading_);
  // On the goal itself it is ahead.
  double cosine = 1, sine = 0;
  if (distance > 0) {
    const double dx = (to.x - position_.x) / distance;
    const double dy = (to.y - position_.y) / distance;
    cosine = dx * ahead.x + dy * ahead.y;
    sine = dx * ahead.y - dy * ahead.x;
  }
  WriteValue(observation[1], 0, static_cast<float>(distance));
  WriteValue(observation[1], 1, static_cast<float>(cosine));
  WriteValue(observation[1], 2, static_cast<float>(sine));
}

}  // namespace flotilla
